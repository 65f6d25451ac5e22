"""Mixtral: Mistral's attention, experts chosen by a softmax router (arXiv 2401.04088)."""
from layers.attention import attention, read_heads
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "mixtral"


def read(c):
    read_decoder(c)
    read_heads(c, why_head_dim="published configs omit it: hidden_size / num_attention_heads")
    c.rope = read_rope(c, why_plain="published configs omit it: not scaled")
    c.fixed(hidden_act="silu")
    c.ints("num_local_experts num_experts_per_tok")
    c.optional_int("sliding_window")
    c.flags("tie_word_embeddings")
    c.ignore("output_router_logits router_aux_loss_coef router_jitter_noise")  # training
    c.quantization = read_quantization(c)
    if c.complete:
        check_experts(c, "num_local_experts", "num_experts_per_tok")
    return c


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.head_dim)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, window=c.sliding_window or 0)

    def feed(x, w, i):
        w = w.at("block_sparse_moe")
        chosen = route(x, w, c, i, count=c.num_local_experts, topk=c.num_experts_per_tok, score="softmax",
                       renormalize=True, scale=1.0)
        return experts(x, chosen, w, count=c.num_local_experts, width=c.intermediate_size, size=c.hidden_size,
                       names=("w1", "w3", "w2"))

    return decoder(g, c, attend, feed)
