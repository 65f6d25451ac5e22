"""quantization_config: how the weights of a checkpoint are packed.

Which tensors are packed is decided by what is stored; the config names the one format that they may have, and the
modules that must be plain. Every key is read, fixed or ignored by name.
"""
from config import LARGEST


def read_quantization(c, always=""):
    """The arguments of `g.quantization`; none for a checkpoint without quantised tensors. `always`: keys that the
    family's quantised configs carry although others leave them out."""
    q = c.optional_section("quantization_config", why="checkpoints of plain weights have none")
    if q is None:
        return {}
    readers = {"fp8": fp8, "compressed-tensors": compressed_tensors, "mxfp4": mxfp4}
    q.one_of("quant_method", list(readers))
    if not q.complete:
        q.ignore_rest()
        return {}
    return readers[q.quant_method](q, always.split())


def fp8(q, always):
    """DeepSeek-V3's format: E4M3 and a scale a block. Activations, which it quantises on the way, are not here."""
    q.fixed(activation_scheme="dynamic")
    q.int_lists("weight_block_size")
    if q.has("fmt") or "fmt" in always:  # some files leave it out; there is no other kind
        q.one_of("fmt", ["e4m3", "float8_e4m3fn"])
    if q.has("scale_fmt"):  # what the scales are rounded to; they are read as they are stored
        q.one_of("scale_fmt", ["float", "ue8m0"])
    modules = not_converted(q, always)
    if not q.complete:
        return {}
    block = q.weight_block_size
    q.require(len(block) == 2 and 0 < min(block) and max(block) <= LARGEST, f"`quantization_config.weight_block_size` must be two sizes in 1..{LARGEST}, got {block!r:.60}")
    return {"format": "fp8", "block": block, "not_converted": modules}


def mxfp4(q, always):
    """gpt-oss: stacked experts as `*_blocks` and `*_scales`."""
    return {"format": "mxfp4", "block": [1, 32], "not_converted": not_converted(q, always)}


def not_converted(q, always):
    """DeepSeek names none, gpt-oss, GLM and MiniMax do."""
    name = "modules_to_not_convert"
    return q.text_list(name) if q.has(name) or name in always else []


def compressed_tensors(q, always):
    """MXFP4 (Kimi-K3), packed integers (Kimi-K2-Thinking, K2.5), FP8 by channels."""
    q.one_of("format", ["mxfp4-pack-quantized", "pack-quantized", "float-quantized"])
    q.fixed(quantization_status="compressed", kv_cache_scheme=None)
    for name in ("sparsity_config", "transform_config"):
        if q.has(name):
            q.one_of(name, [None, {}])
    q.ignore("version")
    modules = q.text_list("ignore")
    group = q.section("config_groups").section("group_0")
    group.fixed(targets=["Linear"])
    w = group.section("weights")
    w.fixed(symmetric=True, dynamic=False, actorder=None, block_structure=None)
    w.ignore("observer observer_kwargs")  # how the scales were found
    w.optional_int("group_size")
    if q.format == "mxfp4-pack-quantized":
        q.fixed(global_compression_ratio=None)
        group.fixed(format=q.format, input_activations=None, output_activations=None)
        w.fixed(num_bits=4, type="float", group_size=32, strategy="group", scale_dtype="torch.uint8", zp_dtype=None)
        return {"format": "mxfp4", "block": [1, 32], "not_converted": modules}
    for section, name, value in ((q, "global_compression_ratio", None), (group, "format", q.format),
                                 (w, "scale_dtype", None), (w, "zp_dtype", None)):
        if section.has(name):  # newer files say it, K2's do not
            section.one_of(name, [value])
    if q.format == "pack-quantized":
        group.fixed(input_activations=None, output_activations=None)
        w.fixed(type="int")
        w.one_of("num_bits", [4, 8])
        w.one_of("strategy", ["group", "channel"])
        form = {"format": "int", "bits": w.num_bits}
    else:
        group.ignore("input_activations output_activations")  # activations are not quantised here
        w.fixed(type="float", num_bits=8)
        w.one_of("strategy", ["channel", "tensor"])
        form = {"format": "fp8"}
    if not q.complete:
        return {}
    q.require(w.strategy != "group" or w.group_size is not None, "`quantization_config`: `group_size` must not be null")
    block = {"group": [1, w.group_size or 0], "channel": [1, 0], "tensor": [0, 0]}[w.strategy]
    return {**form, "block": block, "not_converted": modules}
