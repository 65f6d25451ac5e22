"""Qwen3-Next: three Gated DeltaNet layers to one of gated attention, experts with a shared one (layers/qwen3_next.py).

In the projections of the delta rule the rows of a key head and of the value heads that it serves are stored together.
"""
from layers.qwen3_next import KINDS, backbone, check_backbone, read_backbone, read_moe
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "qwen3_next"


def read(c):
    read_backbone(c, c)
    read_moe(c)
    c.rope = read_rope(c)
    c.ints("full_attention_interval decoder_sparse_step")
    c.flags("norm_topk_prob tie_word_embeddings")
    c.floats("partial_rotary_factor", low=0, high=1)
    c.fixed(use_sliding_window=False)
    if c.complete:
        layers = range(c.num_hidden_layers)
        c.layer_types = [KINDS[(i + 1) % c.full_attention_interval == 0] for i in layers]
        c.moe_layers = [i for i in layers if (i + 1) % c.decoder_sparse_step == 0]
        check_backbone(c, c.partial_rotary_factor)
    return c


def projections(w, c):
    groups, share = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads
    keys, values, hidden = c.linear_key_head_dim, share * c.linear_value_head_dim, c.hidden_size

    def parts(name, **widths):
        """The parts of a tensor whose groups of rows hold one part after the other."""
        every, first, out = sum(widths.values()), 0, {}
        for part, width in widths.items():
            out[part] = w(name, groups * width, hidden, part_of=[groups * every, hidden], rows=(first, width, every))
            first += width
        return out

    return {**parts("in_proj_qkvz.weight", q=keys, k=keys, v=values, z=values), **parts("in_proj_ba.weight", b=share, a=share)}


def build(g, c):
    return backbone(g, c, projections, "model.")
