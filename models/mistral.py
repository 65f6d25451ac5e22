"""Mistral 7B: Llama with a sliding window (arXiv 2310.06825)."""
from layers.attention import attention, read_heads, swiglu
from layers.decoder import decoder, read_decoder
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "mistral"


def read(c):
    read_decoder(c)
    read_heads(c, why_head_dim="configs before Mistral-Nemo omit it: hidden_size / num_attention_heads")
    c.rope = read_rope(c, why_plain="no published config scales: the key is absent")
    c.fixed(hidden_act="silu")
    c.optional_int("sliding_window")
    c.default("early configs omit it", tie_word_embeddings=False)
    c.quantization = read_quantization(c)
    return c


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.head_dim)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, window=c.sliding_window or 0)

    def feed(x, w, i):
        return swiglu(x, w.at("mlp"), c, c.intermediate_size)

    return decoder(g, c, attend, feed)
