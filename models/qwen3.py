"""Qwen3, dense and mixture of experts: q and k are normed per head (arXiv 2505.09388)."""
import firstlight as fl
from layers.attention import attention, read_heads, swiglu
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") in ("qwen3", "qwen3_moe")


def read(c):
    read_decoder(c)
    read_heads(c)
    c.rope = read_rope(c)
    c.texts("model_type")
    c.fixed(hidden_act="silu")
    c.flags("attention_bias tie_word_embeddings use_sliding_window")
    c.optional_int("sliding_window")
    c.ints("max_window_layers", low=0)
    if c.has("layer_types"):
        c.text_lists("layer_types")
    c.quantization = read_quantization(c, always="modules_to_not_convert")
    c.moe = c.model_type == "qwen3_moe"
    if c.moe:
        c.ints("num_experts num_experts_per_tok moe_intermediate_size decoder_sparse_step")
        c.int_lists("mlp_only_layers")
        c.flags("norm_topk_prob")
        c.ignore("output_router_logits router_aux_loss_coef")  # training
    if c.complete:
        c.windows = [c.sliding_window if c.use_sliding_window and i >= c.max_window_layers else None
                     for i in range(c.num_hidden_layers)]
        stated = ["sliding_attention" if w else "full_attention" for w in c.windows]
        c.require(not c.has("layer_types") or c.layer_types == stated,
                  "`layer_types` contradicts `use_sliding_window`, `sliding_window` and `max_window_layers`")
        if c.moe:
            c.require(all(0 <= i < c.num_hidden_layers for i in c.mlp_only_layers),
                      "`mlp_only_layers` must name layers of 0..num_hidden_layers - 1")
            check_experts(c, "num_experts", "num_experts_per_tok")
    return c


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.head_dim)

    def head_norm(y, w, name, heads):
        return fl.rms_norm(y, w(f"{name}.weight", c.head_dim), eps=c.rms_norm_eps, heads=heads)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, bias=c.attention_bias, out_bias=c.attention_bias,
                         norm=head_norm, window=c.windows[i] or 0)

    def feed(x, w, i):
        w = w.at("mlp")
        if not c.moe or i in c.mlp_only_layers or (i + 1) % c.decoder_sparse_step != 0:
            return swiglu(x, w, c, c.intermediate_size)
        chosen = route(x, w, c, i, count=c.num_experts, topk=c.num_experts_per_tok, score="softmax",
                       renormalize=c.norm_topk_prob, scale=1.0)
        return experts(x, chosen, w, count=c.num_experts, width=c.moe_intermediate_size, size=c.hidden_size)

    return decoder(g, c, attend, feed)
