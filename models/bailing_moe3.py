"""Bailing MoE 3 (`bailing_moe_v3`): KDA layers, every `layer_group_size`-th one latent attention, and a mixture of
experts; plain pre-norm residuals (KDA: Kimi Linear, arXiv 2510.26692; MLA: DeepSeek-V2, 2405.04434).

No golden of a release exists yet, so nothing here claims to compute one: the shape is that of the config, and the order
of rotated channels (interleaved), the names of tensors and the epsilons (all `rms_norm_eps`) await comparison.
"""
from types import SimpleNamespace

import firstlight as fl
from config import LARGEST_HEAD, MOST_TAPS
from layers.attention import swiglu
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.kimi import kda
from layers.latent import mla
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "bailing_moe_v3"


def read(c):
    read_decoder(c, why_no_end="configs without special tokens: generation_config.json names them")
    c.rope = read_rope(c, why_plain="configs without scaling omit it")
    c.ints("num_attention_heads num_key_value_heads head_dim q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim "
           "v_head_dim", high=LARGEST_HEAD)
    c.ints("short_conv_kernel_size", low=2, high=MOST_TAPS)
    c.ints("layer_group_size num_experts num_experts_per_tok moe_intermediate_size n_group topk_group")
    c.ints("first_k_dense_replace num_shared_experts", low=0)
    c.ints("moe_shared_expert_intermediate_size")
    c.floats("kda_lower_bound", low=-1e6, high=-1e-6)
    c.floats("routed_scaling_factor", low=0, high=1e6)
    c.flags("norm_topk_prob tie_word_embeddings")
    # Full-rank decay and output gates, the bounded gate, and one gate a head on latent attention.
    c.fixed(hidden_act="silu", score_function="sigmoid", no_kda_lora=True, kda_safe_gate=True,
            gated_attention_proj_granularity_type="head_wise")
    c.quantization = read_quantization(c)
    if c.complete:
        check_experts(c, "num_experts", "num_experts_per_tok")
        c.require(c.qk_rope_head_dim % 2 == 0, "`qk_rope_head_dim` must be even: its channels are rotated in pairs")
        c.require(c.num_key_value_heads == c.num_attention_heads, "`num_key_value_heads` must equal `num_attention_heads`")
        c.require(c.num_hidden_layers % c.layer_group_size == 0, "`layer_group_size` must divide `num_hidden_layers`")
        c.require(c.num_experts % c.n_group == 0 and c.topk_group <= c.n_group,
                  "`n_group` must divide `num_experts`, and `topk_group` must not exceed it")
        c.require(c.num_experts_per_tok <= c.num_experts // c.n_group * c.topk_group,
                  "`num_experts_per_tok` exceeds the experts that `n_group` and `topk_group` leave")
        c.linear_attn_config = SimpleNamespace(num_heads=c.num_attention_heads, head_dim=c.head_dim,
                                               short_conv_kernel_size=c.short_conv_kernel_size)
        c.kda_gate, c.a_log_padded = {"gate": "bounded", "lower_bound": c.kda_lower_bound}, 0
        c.full_rank_decay, c.full_rank_gate, c.output_gate = True, True, "head"
    return c


def moe(x, w, c, layer):
    bias = w("gate.expert_bias", c.num_experts)
    chosen = route(x, w, c, layer, count=c.num_experts, topk=c.num_experts_per_tok, bias=bias, groups=c.n_group,
                   topk_groups=c.topk_group, renormalize=c.norm_topk_prob, scale=c.routed_scaling_factor)
    y = experts(x, chosen, w, count=c.num_experts, width=c.moe_intermediate_size, size=c.hidden_size)
    if c.num_shared_experts == 0:
        return y
    return fl.add(y, swiglu(x, w.at("shared_experts"), c, c.num_shared_experts * c.moe_shared_expert_intermediate_size))


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.qk_rope_head_dim)

    def rotate(y, heads, offset):
        return fl.rope(y, angles, heads=heads, layout="interleaved", offset=offset)

    def attend(x, w, i):
        w = w.at("attention")
        if (i + 1) % c.layer_group_size == 0:
            return mla(x, w, c, rotate=rotate, out="dense", eps=c.rms_norm_eps)
        return kda(x, w, c, i, eps=c.rms_norm_eps)

    def feed(x, w, i):
        w = w.at("mlp")
        return moe(x, w, c, i) if i >= c.first_k_dense_replace else swiglu(x, w, c, c.intermediate_size)

    return decoder(g, c, attend, feed, embedding="word_embeddings")
