"""quantization_config of compressed-tensors with MXFP4 experts (k:1.4).

Which tensors are quantised is decided per tensor (`X.weight_packed` exists); the config must describe the one
format that the loader dequantises, and an unknown key or value in it is an error.
"""


def read_quantization(c):
    """Returns "mxfp4-pack-quantized", or None for a checkpoint without quantised tensors."""
    q = c.optional_section("quantization_config", why="checkpoints whose experts are stored in BF16 have none")
    if q is None:
        return None
    q.fixed(quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed",
            kv_cache_scheme=None, global_compression_ratio=None)
    q.ignore("ignore")  # k:1.4: the list is incomplete in the published file; tensors decide
    group = q.section("config_groups").section("group_0")
    group.fixed(targets=["Linear"], format="mxfp4-pack-quantized", input_activations=None, output_activations=None)
    weights = group.section("weights")
    weights.fixed(num_bits=4, type="float", group_size=32, strategy="group", symmetric=True, dynamic=False,
                  scale_dtype="torch.uint8", zp_dtype=None, actorder=None, block_structure=None)
    weights.ignore("observer observer_kwargs")  # how the scales were found
    return "mxfp4-pack-quantized"
