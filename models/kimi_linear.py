"""Kimi-Linear: KDA and NoPE MLA layers with a mixture of experts, plain pre-norm residuals (k:3.2).

    h = embed[ids]
    for i:  h = h + attn_i(rms(h));  h = h + mlp_i(rms(h))
    logits = lm_head(rms(h))
"""
import firstlight as fl
from layers.kimi import check_backbone, feed_forward, kda, read_backbone
from layers.latent import mla
from layers.quantization import read_quantization
from layers.weights import Weights


def serves(config):
    return config.get("model_type") == "kimi_linear"


def read(c):
    read_backbone(c)
    c.fixed(hidden_act="silu")
    c.ints("model_max_length")
    # head_dim is hidden_size / heads and unused; rope_theta and rope_scaling are unused because mla_use_nope is true.
    c.ignore("model_type head_dim rope_theta rope_scaling")
    c.quantization = read_quantization(c)
    if c.complete:
        check_backbone(c)
    # Constants of this family: softplus gate, low-rank gates, no latent experts, no gate on MLA.
    c.kda_gate, c.a_log_padded = {"gate": "softplus"}, 0
    c.full_rank_decay, c.full_rank_gate = False, False
    c.output_gate, c.situ, c.latent_size = False, None, None
    return c


def build(g, c):
    g.quantization(**c.quantization)
    w = Weights(g, "model.")
    g.scope("embedding")
    h = fl.embedding(g.tokens(), w("embed_tokens.weight", c.vocab_size, c.hidden_size))
    g.name(h, "hidden.0")
    for i in range(c.num_hidden_layers):
        layer = w.at(f"layers.{i}")
        g.scope(f"layers.{i}.self_attn")
        x = fl.rms_norm(h, layer("input_layernorm.weight", c.hidden_size), eps=c.rms_norm_eps)
        if i + 1 in c.linear_attn_config.kda_layers:  # the lists are 1-based
            a = kda(x, layer.at("self_attn"), c, i)
        else:
            a = mla(x, layer.at("self_attn"), c)
        h = fl.add(h, a)
        g.scope(f"layers.{i}.mlp")
        x = fl.rms_norm(h, layer("post_attention_layernorm.weight", c.hidden_size), eps=c.rms_norm_eps)
        h = fl.add(h, feed_forward(x, layer, c, i))
        g.name(h, f"hidden.{i + 1}")
    g.scope("head")
    final = fl.rms_norm(h, w("norm.weight", c.hidden_size), eps=c.rms_norm_eps)
    g.name(final, "final")
    logits = fl.linear(fl.sampled_rows(final), g.weight("lm_head.weight", [c.vocab_size, c.hidden_size]))
    g.logits(logits)
    return {"max_context": c.model_max_length, "vocab_size": c.vocab_size, "eos_token_ids": [c.eos_token_id]}
