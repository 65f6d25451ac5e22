"""Qwen3.5, text: the layers of Qwen3-Next under other names, dense or with experts (layers/qwen3_next.py).

config.json wraps a `text_config` beside that of a vision tower, or is the text config alone.
"""
from layers.qwen3_next import backbone, check_backbone, read_backbone, read_moe
from layers.rope import read_scaling

WRAPPERS = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}


def serves(config):
    return config.get("model_type") in {*WRAPPERS, *WRAPPERS.values()}


def read(root):
    root.texts("model_type")
    root.flags("tie_word_embeddings")
    c, sparse, wrapped = root, "moe" in root.model_type, root.model_type in WRAPPERS
    if wrapped:
        root.ignore("architectures transformers_version")
        # Vision: known, not computed yet. Its tensors are announced and left out, images are refused.
        root.ignore("vision_config")
        root.ints("image_token_id video_token_id vision_start_token_id vision_end_token_id", low=0)
        c = root.section("text_config")
        c.fixed(model_type=WRAPPERS[root.model_type])
        c.tie_word_embeddings = root.tie_word_embeddings
        c.prefix = "model.language_model."
    else:
        c.ignore("partial_rotary_factor")  # repeated in rope_parameters
        # A text model saved alone, or cut out of the whole and still named as in it.
        c.text_lists("architectures")
        alone = c.complete and any(name.endswith("ForCausalLM") for name in c.architectures)
        c.prefix = "model." if alone else "model.language_model."
    c.image_facts = {"image_token_id": root.image_token_id} if wrapped else {}
    read_text(c, root, sparse)
    return c


def read_text(c, root, sparse):
    read_backbone(c, root, dense=not sparse)
    c.text_lists("layer_types")
    c.fixed(attention_bias=False, attn_output_gate=True, mamba_ssm_dtype="float32")
    # layer_types says the same and more; the head that drafts further tokens is not computed.
    c.ignore("full_attention_interval mtp_num_hidden_layers mtp_use_dedicated_embeddings")
    rope = c.section("rope_parameters")
    c.rope = read_scaling(c, rope, None)
    rope.floats("partial_rotary_factor", low=0, high=1)
    # Which pairs turn with time, with height and with width: all three are the position of a text token.
    rope.ignore("mrope_section mrope_interleaved")
    if sparse:
        read_moe(c)
        c.norm_topk_prob = True  # the family has no key for it
    if c.complete:
        c.moe_layers = range(c.num_hidden_layers) if sparse else ()
        check_backbone(c, rope.partial_rotary_factor)


def projections(w, c):
    keys = c.linear_num_key_heads * c.linear_key_head_dim
    heads, values = c.linear_num_value_heads, c.linear_num_value_heads * c.linear_value_head_dim

    def rows(first, count):
        return w("in_proj_qkv.weight", count, c.hidden_size, part_of=[2 * keys + values, c.hidden_size], rows=(first, count))

    return {"q": rows(0, keys), "k": rows(keys, keys), "v": rows(2 * keys, values),
            "z": w("in_proj_z.weight", values, c.hidden_size),
            "b": w("in_proj_b.weight", heads, c.hidden_size), "a": w("in_proj_a.weight", heads, c.hidden_size)}


def build(g, c):
    if c.image_facts:
        g.not_computed("model.visual.", "vision operators do not exist yet: images are refused")
    return {**backbone(g, c, projections, c.prefix), **c.image_facts}
