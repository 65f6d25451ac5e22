"""Layers of the Kimi-Linear backbone (Kimi-Linear, Kimi-K3 and its DSA variant), besides latent attention.

`x [T, D]` is a layer's normed input. "k:n" points to a section of the family's specification (docs/spec-sources.md);
papers: Kimi Linear (KDA), arXiv 2510.26692; DeepSeek-V3 (router), 2412.19437.
"""
import firstlight as fl
from config import LARGEST_HEAD, MOST_TAPS
from layers.experts import check_experts, experts, route


def has_indexer(config):
    """Whether a kimi_k3 config describes sparse attention (d:5)."""
    text = config.get("text_config")
    return isinstance(text, dict) and any(key.startswith("index") for key in text)


def kda(x, w, c, layer, eps=1e-5):
    """Kimi Delta Attention, k:3.3 (Kimi Linear, arXiv 2510.26692). The paper's alpha is exp(g), its beta is beta.

    1  p_s = W_s x                     2  s = SiLU(conv_4(p_s))               for s in q, k, v
    3  q, k = q / |q|, k / |k|         4  q = q / sqrt(d_k)                   per head
    5  f = W_fb W_fa x or W_f x        6  z = f + dt_bias;  g = -exp(A_log) softplus(z)        (Kimi-Linear)
                                                            g = bound * sigmoid(exp(A_log) z)  (Kimi-K3)
    7  beta = sigmoid(W_b x)
    8  S = diag(exp(g)) S;  S = S + k (beta (v - S^T k))^T;  o = S^T q
    9  y = W_gb W_ga x or W_g x       10  o = rms(o) * norm * sigmoid(y)     11  out = W_o o

    Steps 3, 4, 6, 7 (the sigmoid) and 8 are the operator `kda`, step 10 is `gated_norm`. `eps` is that of step 10:
    k:3.3 names 1e-5.
    """
    lin = c.linear_attn_config
    heads, dim, taps = lin.num_heads, lin.head_dim, lin.short_conv_kernel_size
    width, hidden = heads * dim, c.hidden_size

    def stream(letter):  # steps 1, 2: projection, short convolution, SiLU
        p = fl.linear(x, w(f"{letter}_proj.weight", width, hidden))
        s = fl.short_conv(p, w(f"{letter}_conv1d.weight", width, 1, taps, also=[[width, taps]]))
        w.g.name(s, f"conv.{layer}.{letter}")
        return s

    def product(letter, full_rank):
        if full_rank:
            return fl.linear(x, w(f"{letter}_proj.weight", width, hidden))
        low = fl.linear(x, w(f"{letter}_a_proj.weight", dim, hidden))
        return fl.linear(low, w(f"{letter}_b_proj.weight", width, dim))

    q, k, v = stream("q"), stream("k"), stream("v")
    f = product("f", c.full_rank_decay)  # step 5
    beta = fl.linear(x, w("b_proj.weight", heads, hidden))  # step 7, before the sigmoid
    o = fl.kda(  # steps 3, 4, 6, 8
        q, k, v, f, beta,
        A_log=w("A_log", heads, also=[[1, 1, heads, 1]], padded=c.a_log_padded),
        dt_bias=w("dt_bias", width, also=[[heads, dim]]),
        heads=heads, key_dim=dim, value_dim=dim, **c.kda_gate,
    )
    w.g.name(o, f"state.{layer}")
    y = product("g", c.full_rank_gate)  # step 9
    o = fl.gated_norm(o, y, w("o_norm.weight", dim), heads=heads, eps=eps)  # step 10
    return fl.linear(o, w("o_proj.weight", hidden, width))  # step 11


def activation(gate, up, c):
    """SiLU (SwiGLU) or SiTU, k:3.6."""
    if c.situ is None:
        return fl.silu_mul(gate, up)
    return fl.situ_mul(gate, up, **c.situ)


def mlp(x, w, c, width):
    gate = fl.linear(x, w("gate_proj.weight", width, c.hidden_size))
    up = fl.linear(x, w("up_proj.weight", width, c.hidden_size))
    return fl.linear(activation(gate, up, c), w("down_proj.weight", c.hidden_size, width))


def moe(x, w, c, layer):
    """Mixture of experts, k:3.5; latent when `routed_expert_hidden_size` is given."""
    count, width, latent = c.num_experts, c.moe_intermediate_size, c.latent_size
    chosen = route(
        x, w, c, layer, count=count, topk=c.num_experts_per_token, bias=w("gate.e_score_correction_bias", count),
        groups=c.num_expert_group, topk_groups=c.topk_group,
        renormalize=c.moe_renormalize and c.num_experts_per_token > 1, scale=c.routed_scaling_factor,
    )
    u = x if latent is None else fl.linear(x, w("routed_expert_down_proj.weight", latent, c.hidden_size))
    size = c.hidden_size if latent is None else latent

    y = experts(u, chosen, w, count=count, width=width, size=size, names=("w1", "w3", "w2"),
                **({} if c.situ is None else {"activation": "situ", **c.situ}))
    if latent is not None:
        if c.latent_norm:
            y = fl.rms_norm(y, w("routed_expert_norm.weight", latent), eps=c.rms_norm_eps)
        y = fl.linear(y, w("routed_expert_up_proj.weight", c.hidden_size, latent))
    if c.num_shared_experts == 0:
        return y
    return fl.add(y, mlp(x, w.at("shared_experts"), c, c.num_shared_experts * width))


def feed_forward(x, w, c, layer):
    """A layer is MoE iff layer >= first_k_dense_replace and layer % moe_layer_freq == 0 (k:1.1)."""
    if layer >= c.first_k_dense_replace and layer % c.moe_layer_freq == 0:
        return moe(x, w.at("block_sparse_moe"), c, layer)
    return mlp(x, w.at("mlp"), c, c.intermediate_size)


def read_backbone(c):
    """The keys that Kimi-Linear and Kimi-K3 share. Returns the `linear_attn_config` section."""
    c.ints("vocab_size hidden_size intermediate_size moe_layer_freq")
    c.ints("first_k_dense_replace", low=0)
    c.ints("num_hidden_layers", high=4096)
    c.ints("num_shared_experts", low=0)
    c.ints("num_experts num_experts_per_token moe_intermediate_size num_expert_group topk_group")
    c.ints("num_attention_heads num_key_value_heads kv_lora_rank qk_nope_head_dim v_head_dim",
           high=LARGEST_HEAD)
    c.ints("qk_rope_head_dim", low=0, high=LARGEST_HEAD)
    c.optional_int("q_lora_rank", high=LARGEST_HEAD)
    c.ints("bos_token_id eos_token_id pad_token_id", low=0)
    c.flags("moe_renormalize use_grouped_topk")
    c.floats("routed_scaling_factor", low=0, high=1e6)
    c.floats("rms_norm_eps", low=1e-12, high=0.1)
    c.fixed(mla_use_nope=True, moe_router_activation_func="sigmoid", num_nextn_predict_layers=0, tie_word_embeddings=False)
    c.ignore("architectures auto_map dtype initializer_range transformers_version use_cache")
    lin = c.section("linear_attn_config")
    lin.ints("num_heads head_dim", high=LARGEST_HEAD)
    lin.ints("short_conv_kernel_size", low=2, high=MOST_TAPS)
    lin.int_lists("full_attn_layers kda_layers")
    return lin


def check_backbone(c):
    """Relations between the keys of read_backbone."""
    lin = c.linear_attn_config
    layers = list(range(1, c.num_hidden_layers + 1))
    c.require(sorted(lin.full_attn_layers + lin.kda_layers) == layers,
              "`linear_attn_config.full_attn_layers` and `kda_layers` must name each layer 1..num_hidden_layers once")
    check_experts(c, "num_experts", "num_experts_per_token")
    c.require(c.num_experts % c.num_expert_group == 0 and c.topk_group <= c.num_expert_group,
              "`num_expert_group` must divide `num_experts`, and `topk_group` must not exceed it")
    c.require(c.num_experts_per_token <= c.num_experts // c.num_expert_group * c.topk_group,
              "`num_experts_per_token` exceeds the experts that `num_experts`, `num_expert_group` and `topk_group` leave")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        c.require(getattr(c, name) < c.vocab_size, f"`{name}` must be below `vocab_size`")
    c.require(c.num_key_value_heads == c.num_attention_heads, "`num_key_value_heads` must equal `num_attention_heads`")
    c.require(c.use_grouped_topk or c.num_expert_group == 1, "`use_grouped_topk` is false but `num_expert_group` is not 1")
