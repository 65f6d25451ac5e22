"""Gemma 3, text: window layers between global ones, norms before and after each part, GeGLU (arXiv 2503.19786).

    h = sqrt(hidden_size) embed[ids]
    for i:  h = h + norm(attn_i(norm(h)));  h = h + norm(mlp_i(norm(h)))
    logits = embed (norm(h))                    every norm multiplies with 1 + w
"""
import firstlight as fl
from layers.attention import KINDS, attention, check_layer_types, read_heads, swiglu
from layers.decoder import finish, read_decoder
from layers.quantization import read_quantization
from layers.rope import Rope, read_rope, read_scaling
from layers.weights import Weights


def serves(config):
    return config.get("model_type") == "gemma3_text"


def read(c):
    read_decoder(c)
    read_heads(c)
    c.fixed(hidden_activation="gelu_pytorch_tanh", attention_bias=False, attn_logit_softcapping=None,
            final_logit_softcapping=None)
    c.default("published configs omit it: the family is tied", tie_word_embeddings=True)
    c.floats("query_pre_attn_scalar", low=1e-6, high=1e6)
    c.ints("sliding_window")
    c.ignore("cache_implementation")  # how a reference stores keys
    if c.has("use_bidirectional_attention"):
        c.fixed(use_bidirectional_attention=False)
    if c.has("rope_parameters"):  # newer form: a section for each kind of layer
        both = c.section("rope_parameters")
        c.local_rope, c.rope = (read_scaling(c, both.section(kind), None) for kind in KINDS)
    else:
        c.rope = read_rope(c)
        c.floats("rope_local_base_freq", low=1.5, high=1e11)
        c.local_rope = Rope(c.rope_local_base_freq)
    # Two published names of the same statement: which layers have a window.
    if c.has("layer_types"):
        c.text_lists("layer_types")
    patterns = [name for name in ("sliding_window_pattern", "_sliding_window_pattern") if c.has(name)]
    if patterns or not c.has("layer_types"):
        c.ints(" ".join(patterns or ["sliding_window_pattern"]))
    c.quantization = read_quantization(c)
    if c.complete:
        for name in patterns:
            stated = [KINDS[(i + 1) % getattr(c, name) == 0] for i in range(c.num_hidden_layers)]
            c.require(not c.has("layer_types") or c.layer_types == stated, f"`layer_types` contradicts `{name}`")
            c.layer_types = stated
        check_layer_types(c)
    return c


def build(g, c):
    g.quantization(**c.quantization)
    w = Weights(g, "model.")

    def norm(x, w, name, heads=1):
        width = c.hidden_size if heads == 1 and not name.endswith(("q_norm", "k_norm")) else c.head_dim
        return fl.rms_norm(x, w(f"{name}.weight", width), eps=c.rms_norm_eps, heads=heads, weight_offset=1.0)

    g.scope("embedding")
    angles = {kind: rope.angles(g, c.head_dim) for kind, rope in zip(KINDS, (c.local_rope, c.rope))}
    h = fl.embedding(g.tokens(), w("embed_tokens.weight", c.vocab_size, c.hidden_size))
    h = fl.scale(h, factor=c.hidden_size**0.5)
    g.name(h, "hidden.0")
    for i, kind in enumerate(c.layer_types):
        layer = w.at(f"layers.{i}")
        g.scope(f"layers.{i}.attention")
        a = attention(norm(h, layer, "input_layernorm"), layer.at("self_attn"), c, angles[kind], norm=norm,
                      scale=c.query_pre_attn_scalar**-0.5, window=c.sliding_window if kind == KINDS[0] else 0)
        h = fl.add(h, norm(a, layer, "post_attention_layernorm"))
        g.scope(f"layers.{i}.mlp")
        m = swiglu(norm(h, layer, "pre_feedforward_layernorm"), layer.at("mlp"), c, c.intermediate_size,
                   act=fl.gelu_mul)
        h = fl.add(h, norm(m, layer, "post_feedforward_layernorm"))
        g.name(h, f"hidden.{i + 1}")
    g.scope("head")
    return finish(g, c, norm(h, w, "norm"), w)
