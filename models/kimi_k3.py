"""Kimi-K3, text: the Kimi-Linear backbone with Attention Residuals, latent experts, SiTU and bounded gates (k:3.7).

    blocks = [];  r = embed[ids]
    for i:  h = mix(blocks + [r]);   every attn_res_block_size layers: push r, start anew
            r = r + attn_i(rms(h));  h = mix(blocks + [r]);  r = r + mlp_i(rms(h))
    logits = lm_head(rms(mix(blocks + [r])))
"""
import firstlight as fl
from layers.decoder import TEXT_BOILERPLATE
from layers.kimi import check_backbone, feed_forward, has_indexer, kda, read_backbone
from layers.latent import mla
from layers.quantization import read_quantization
from layers.weights import Weights


def serves(config):
    return config.get("model_type") == "kimi_k3" and not has_indexer(config)


def read(root):
    c = read_text(root)
    if c.complete:
        check_backbone(c)
    return c


def read_text(root):
    """Reads the whole config; returns the text section with the derived settings of the layers."""
    # Serialisation boilerplate and processor settings.
    root.ignore("architectures auto_map model_type dtype ignore_index image_placeholder")
    root.ints("media_placeholder_token_id", low=0)
    root.fixed(tie_word_embeddings=False)
    root.ints("bos_token_id eos_token_id pad_token_id", low=0)
    # Vision: known, not computed yet. Its tensors are announced and left out, images are refused.
    root.ignore("vision_config")
    c = root.section("text_config")
    lin = read_backbone(c)
    c.fixed(hidden_act="situ", topk_method="noaux_tc", model_type="kimi_linear")
    c.floats("activation_situ_beta", low=1e-30)
    c.optional_float("activation_situ_linear_beta", low=1e-30)  # k:3.6: without it the up branch is not limited
    c.ints("attn_res_block_size routed_expert_hidden_size max_position_embeddings")
    c.flags("latent_moe_use_norm mla_use_output_gate")
    lin.floats("gate_lower_bound", high=0)
    lin.flags("use_full_rank_gate")
    c.ignore(TEXT_BOILERPLATE)
    c.quantization = read_quantization(c)
    if c.complete:
        c.kda_gate = {"gate": "bounded", "lower_bound": lin.gate_lower_bound}
        c.a_log_padded = -(-lin.num_heads // 128) * 128  # k:2.1: A_log is padded to a multiple of 128 heads
        c.full_rank_decay, c.full_rank_gate, c.output_gate = False, lin.use_full_rank_gate, c.mla_use_output_gate
        c.situ = {"beta": c.activation_situ_beta, "linear_beta": c.activation_situ_linear_beta or 0.0}
        c.latent_size, c.latent_norm = c.routed_expert_hidden_size, c.latent_moe_use_norm
        c.eos_token_ids = sorted({c.eos_token_id, root.eos_token_id})
        # Only a checkpoint with a vision tower gives the placeholder its meaning.
        c.image_facts = {"image_token_id": root.media_placeholder_token_id} if root.has("vision_config") else {}
    return c


def build(g, c):
    return build_text(g, c, lambda x, w, i: mla(x, w, c))


def build_text(g, c, full_attention):
    """`full_attention(x, w, i)` computes a layer that is not KDA."""
    g.quantization(**c.quantization)
    g.not_computed("vision_tower.", "vision operators do not exist yet: images are refused")
    g.not_computed("mm_projector.", "vision operators do not exist yet: images are refused")
    w = Weights(g, "language_model.model.")
    hidden, eps = c.hidden_size, c.rms_norm_eps

    def mix(w, name, sources):
        """k:3.7: softmax over depth of rms(v) . (norm * proj); the raw sources are averaged."""
        norm, proj = w(f"{name}_norm.weight", hidden), w(f"{name}_proj.weight", 1, hidden)
        return fl.depth_mix(sources, norm, proj, eps=eps)

    g.scope("embedding")
    blocks, r = [], fl.embedding(g.tokens(), w("embed_tokens.weight", c.vocab_size, hidden))
    g.name(r, "hidden.0")
    for i in range(c.num_hidden_layers):
        layer = w.at(f"layers.{i}")
        g.scope(f"layers.{i}.self_attn")
        h = mix(layer, "self_attention_res", blocks + [r])
        g.name(h, f"mixed_attn.{i}")
        if i % c.attn_res_block_size == 0:  # pushed after mixing
            blocks, r = blocks + [r], None
        x = fl.rms_norm(h, layer("input_layernorm.weight", hidden), eps=eps)
        if i + 1 in c.linear_attn_config.kda_layers:  # the lists are 1-based
            a = kda(x, layer.at("self_attn"), c, i)
        else:
            a = full_attention(x, layer.at("self_attn"), i)
        r = a if r is None else fl.add(r, a)
        g.scope(f"layers.{i}.mlp")
        h = mix(layer, "mlp_res", blocks + [r])
        g.name(h, f"mixed_mlp.{i}")
        x = fl.rms_norm(h, layer("post_attention_layernorm.weight", hidden), eps=eps)
        r = fl.add(r, feed_forward(x, layer, c, i))
        g.name(r, f"hidden.{i + 1}")
    g.scope("head")
    final = fl.rms_norm(mix(w, "output_attn_res", blocks + [r]), w("norm.weight", hidden), eps=eps)
    g.name(final, "final")
    g.logits(fl.linear(fl.sampled_rows(final), g.weight("language_model.lm_head.weight", [c.vocab_size, hidden])))
    return {"max_context": c.max_position_embeddings, "vocab_size": c.vocab_size, "eos_token_ids": c.eos_token_ids,
            **c.image_facts}
