"""Reads a folder that `firstlight quantize` wrote with the library whose layout it is.

    python3 tests/oracle/quantised_checkpoint.py DIR OUT

DIR is the folder that was quantised into OUT. Every matrix of OUT is decompressed by compressed-tensors, with the arguments
that OUT's config.json declares, and compared with codes * scales by plain formulas, bit for bit; what is not packed must
be the tensor of DIR; and the modules that the library would take for quantised (all that "ignore" does not list) must be
those that are. Needs torch, safetensors, compressed-tensors.
"""
import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def load(folder):
    out = {}
    for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        out |= load_file(path)
    return out


def plainly(packed, scale, shape, bits):
    """codes * scales in f32."""
    scale = scale.float() if bits else torch.exp2(scale.float() - 127)
    if packed.dtype == torch.int32:
        fields = torch.arange(0, 32, bits)
        codes = (packed.long()[..., None] >> fields) & (2**bits - 1)
        codes = (codes.flatten(-2)[:, : shape[1]] - 2 ** (bits - 1)).float()
    else:
        codes = E2M1[torch.stack((packed & 15, packed >> 4), -1).flatten(-2).long()]
    return (codes.unflatten(-1, (scale.shape[1], -1)) * scale[..., None]).flatten(-2)


def main(source, out):
    config = json.loads((pathlib.Path(out) / "config.json").read_text())
    declared = config.get("quantization_config") or config["text_config"]["quantization_config"]
    parsed = QuantizationConfig.model_validate({k: v for k, v in declared.items()})
    scheme: QuantizationScheme = parsed.config_groups["group_0"]
    bits = 0 if scheme.weights.type == "float" else scheme.weights.num_bits
    compressor = BaseCompressor.get_value_from_registry(declared["format"])
    stored, written = load(source), load(out)
    matrices = [name[: -len("_packed")] for name in written if name.endswith("_packed")]
    for name in matrices:
        shape = stored[name].shape
        packed, scale = written[f"{name}_packed"], written[f"{name}_scale"]
        want = plainly(packed, scale, shape, bits)
        module = name.removesuffix(".weight")
        pieces = {"weight_packed": packed, "weight_scale": scale}
        if bits:
            pieces["weight_shape"] = written[f"{name}_shape"]
        got = compressor.decompress(pieces, scheme)["weight"]
        assert torch.equal(got.float(), want.to(got.dtype).float()), f"{module}: {got.dtype}"
    ignored = set(declared["ignore"])
    for name, tensor in stored.items():
        if name in matrices:
            assert name.removesuffix(".weight") not in ignored, name
            continue
        assert torch.equal(written[name], tensor) and written[name].dtype == tensor.dtype, name
        if tensor.ndim == 2 and name.endswith(".weight"):
            assert name.removesuffix(".weight") in ignored, name
    print(f"{len(matrices)} matrices of {declared['format']}, {scheme.weights.num_bits} bits: as the library reads them")


if __name__ == "__main__":
    main(*sys.argv[1:3])
