"""Llama 2 and 3: grouped-query attention, half-split rotation, SwiGLU (arXiv 2307.09288, 2407.21783)."""
from layers.attention import attention, read_heads, swiglu
from layers.decoder import decoder, read_decoder
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "llama"


def read(c):
    read_decoder(c)
    read_heads(c, why_head_dim="configs before Llama 3.2 omit it: hidden_size / num_attention_heads")
    c.rope = read_rope(c, why_plain="configs of Llama 2 omit it: not scaled")
    c.fixed(hidden_act="silu")
    c.default("configs of Llama 2 omit them: no biases", attention_bias=False, mlp_bias=False)
    c.default("configs of Llama 2 omit it", tie_word_embeddings=False)
    c.ignore("pretraining_tp")  # how a reference sums its products
    c.quantization = read_quantization(c)
    return c


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.head_dim)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, bias=c.attention_bias, out_bias=c.attention_bias)

    def feed(x, w, i):
        return swiglu(x, w.at("mlp"), c, c.intermediate_size, c.mlp_bias)

    return decoder(g, c, attend, feed)
