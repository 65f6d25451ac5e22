"""The DeepSeek-V3 backbone: rotated latent attention, grouped sigmoid router, one shared expert (d:3, d:3.1;
DeepSeek-V3, arXiv 2412.19437). GLM-5 and Kimi-K2 are built alike.

"d:n" points to sections of the DSA specification (docs/spec-sources.md).
"""
import firstlight as fl
from config import LARGEST_HEAD
from layers.attention import swiglu
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.latent import mla
from layers.quantization import read_quantization
from layers.rope import magnitude


def read_deepseek(c):
    """All keys but the rotation's and the indexer's."""
    read_decoder(c)
    c.ints("num_attention_heads num_key_value_heads kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim "
           "v_head_dim", high=LARGEST_HEAD)
    c.ints("first_k_dense_replace num_nextn_predict_layers n_shared_experts", low=0)
    c.ints("n_routed_experts num_experts_per_tok moe_intermediate_size moe_layer_freq n_group topk_group")
    c.floats("routed_scaling_factor", low=0, high=1e6)
    c.flags("norm_topk_prob tie_word_embeddings")
    c.fixed(hidden_act="silu", scoring_func="sigmoid", topk_method="noaux_tc", attention_bias=False)
    # Layout of a training run, and its losses.
    c.ignore("ep_size pretraining_tp seq_aux aux_loss_alpha")
    c.quantization = read_quantization(c, always="fmt")
    c.output_gate = False
    if c.complete:
        check_experts(c, "n_routed_experts", "num_experts_per_tok")
        c.require(c.qk_rope_head_dim % 2 == 0, "`qk_rope_head_dim` must be even: its channels are rotated in pairs")
        c.require(c.num_key_value_heads == c.num_attention_heads, "`num_key_value_heads` must equal `num_attention_heads`")
        c.require(c.n_routed_experts % c.n_group == 0 and c.topk_group <= c.n_group,
                  "`n_group` must divide `n_routed_experts`, and `topk_group` must not exceed it")
        c.require(c.num_experts_per_tok <= c.n_routed_experts // c.n_group * c.topk_group,
                  "`num_experts_per_tok` exceeds the experts that `n_group` and `topk_group` leave")


def score_magnitude(rope):
    """d:3: YaRN multiplies the scores by m^2, m from mscale_all_dim."""
    m = rope.scaling.mscale_all_dim if rope.kind == "yarn" else None
    return magnitude(rope.scaling.factor, m) ** 2 if m else 1.0


def moe(x, w, c, layer):
    bias = w("gate.e_score_correction_bias", c.n_routed_experts)
    chosen = route(x, w, c, layer, count=c.n_routed_experts, topk=c.num_experts_per_tok, bias=bias, groups=c.n_group,
                   topk_groups=c.topk_group, renormalize=c.norm_topk_prob,
                   scale=c.routed_scaling_factor)
    y = experts(x, chosen, w, count=c.n_routed_experts, width=c.moe_intermediate_size, size=c.hidden_size)
    if c.n_shared_experts == 0:
        return y
    return fl.add(y, swiglu(x, w.at("shared_experts"), c, c.n_shared_experts * c.moe_intermediate_size))


def is_sparse(c, i):
    return i >= c.first_k_dense_replace and i % c.moe_layer_freq == 0


def build_deepseek(g, c, choose=None, layout="interleaved", prefix="model.", head="lm_head.weight"):
    """`choose(x, cq, w, i, angles)` returns the positions that layer i attends, or is None: all."""
    g.quantization(**c.quantization)
    for k in range(c.num_nextn_predict_layers):
        g.not_computed(f"{prefix}layers.{c.num_hidden_layers + k}.", "draft layers (multi-token prediction) are not used")
    angles = c.rope.angles(g, c.qk_rope_head_dim)

    def rotate(y, heads, offset):
        return fl.rope(y, angles, heads=heads, layout=layout, offset=offset)

    def attend(x, w, i):
        w = w.at("self_attn")
        chosen = None if choose is None else lambda x, cq: choose(x, cq, w, i, angles)
        return mla(x, w, c, chosen, rotate, score_magnitude(c.rope))

    def feed(x, w, i):
        return moe(x, w.at("mlp"), c, i) if is_sparse(c, i) else swiglu(x, w.at("mlp"), c, c.intermediate_size)

    return decoder(g, c, attend, feed, prefix=prefix, head=head)
