"""Makes tests/data/formats: packed weights, written by torch and by the libraries that define the formats, and what
they dequantise to there. src/checkpoint/weight_formats_test.cc reads them.

Needs torch, safetensors, compressed-tensors and transformers. Deterministic: python3 weight_formats.py
"""
import pathlib

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parents[1] / "data/formats"


def all_finite_codes(random, *shape):
    """E4M3 codes without the two NaNs; every other code appears."""
    count = 1
    for d in shape:
        count *= d
    codes = torch.randint(0, 254, [count], generator=random, dtype=torch.uint8)
    codes[:254] = torch.arange(254, dtype=torch.uint8)
    codes = torch.where(codes >= 0x7F, codes + 1, codes)
    return codes.reshape(shape).view(torch.float8_e4m3fn)


def fp8(random, shape, block, scale_type, exponents=(-20, 20)):
    """Blocks of rows x columns, the last ones cut."""
    codes = all_finite_codes(random, *shape)
    rows, columns = shape[-2:]
    grid = [*shape[:-2], -(-rows // block[0]), -(-columns // block[1])]
    power = torch.randint(*exponents, grid, generator=random).float()
    scale = torch.exp2(power)
    if scale_type != torch.float8_e8m0fnu:
        scale = scale * (1 + torch.rand(grid, generator=random))
    scale = scale.to(scale_type)
    wide = scale.float().repeat_interleave(block[0], -2)[..., :rows, :].repeat_interleave(block[1], -1)[..., :columns]
    return codes, scale, codes.float() * wide


def integers(random, shape, bits, group, scale_type):
    """compressed-tensors' pack-quantized."""
    rows, columns = shape
    half = 1 << (bits - 1)
    codes = torch.randint(-half, half, shape, generator=random, dtype=torch.int8)
    packed = pack_to_int32(codes, bits)
    assert torch.equal(unpack_from_int32(packed, bits, torch.Size(shape)), codes)
    scale = (torch.rand([rows, -(-columns // group)], generator=random) * 0.1).to(scale_type)
    wide = scale.float().repeat_interleave(group, 1)[:, :columns]
    return packed, scale, torch.tensor(shape), codes.float() * wide


def blocks_mxfp4(random, experts, rows, columns):
    """gpt-oss; transformers gives [experts, columns, rows]."""
    blocks = torch.randint(0, 256, [experts, rows, columns // 32, 16], generator=random, dtype=torch.uint8)
    scales = torch.randint(100, 150, [experts, rows, columns // 32], generator=random, dtype=torch.uint8)
    return blocks, scales, convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2).contiguous()


def main():
    random = torch.Generator().manual_seed(4)
    sets = {"fp8": ({}, {}), "int4": ({}, {}), "int8": ({}, {}), "mxfp4": ({}, {})}
    stored, expect = sets["fp8"]  # blocks of 16 x 24
    for name, shape, scale_type in [("f32", [37, 55], torch.float32), ("bf16", [16, 24], torch.bfloat16),
                                    ("e8m0", [17, 49], torch.float8_e8m0fnu), ("stack", [3, 20, 30], torch.float32)]:
        stored[f"{name}.weight"], stored[f"{name}.weight_scale_inv"], expect[f"{name}.weight"] = fp8(
            random, shape, [16, 24], scale_type)
    # Products among the subnormal floats.
    stored["tiny.weight"], stored["tiny.weight_scale_inv"], expect["tiny.weight"] = fp8(
        random, [16, 48], [16, 24], torch.float32, (-126, -124))
    for bits in (4, 8):
        stored, expect = sets[f"int{bits}"]
        for name, shape, group, scale_type in [("bf16", [6, 96], 32, torch.bfloat16), ("f32", [3, 64], 32, torch.float32),
                                               ("f16", [5, 32], 32, torch.float16)]:
            pieces = integers(random, shape, bits, group, scale_type)
            for suffix, piece in zip(("_packed", "_scale", "_shape"), pieces):
                stored[f"{name}.weight{suffix}"] = piece
            expect[f"{name}.weight"] = pieces[-1]
    # A scale a row: the columns need not fill their words.
    pieces = integers(random, [7, 45], 4, 45, torch.bfloat16)
    sets["int4_channel"] = ({f"odd.weight{s}": p for s, p in zip(("_packed", "_scale", "_shape"), pieces)},
                            {"odd.weight": pieces[-1]})
    stored, expect = sets["mxfp4"]
    stored["gate_up_blocks"], stored["gate_up_scales"], expect["gate_up"] = blocks_mxfp4(random, 3, 10, 64)
    for name, (stored, expect) in sets.items():
        folder = HERE / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(stored, folder / "model.safetensors")
        save_file(expect, folder / "expect.safetensors")


if __name__ == "__main__":
    main()
