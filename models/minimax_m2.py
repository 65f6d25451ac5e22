"""MiniMax-M2: one norm over all heads of q and of k, partial rotation, experts chosen as in DeepSeek-V3 without groups."""
import firstlight as fl
from layers.attention import attention, read_heads
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.quantization import read_quantization
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "minimax_m2"


def read(c):
    read_decoder(c, why_no_end="published configs name no special tokens: generation_config.json does")
    read_heads(c)
    c.rope = read_rope(c, why_plain="published configs omit it: not scaled")
    c.ints("num_local_experts num_experts_per_tok rotary_dim")
    c.flags("tie_word_embeddings")
    # The norm runs over the whole row ("per_layer"), every layer has experts and none is shared.
    c.fixed(hidden_act="silu", scoring_func="sigmoid", use_qk_norm=True, qk_norm_type="per_layer",
            use_routing_bias=True, shared_intermediate_size=0)
    c.ignore("use_mtp mtp_transformer_layers num_mtp_modules")  # drafts; published checkpoints carry none
    c.quantization = read_quantization(c, always="fmt modules_to_not_convert")
    if c.complete:
        check_experts(c, "num_local_experts", "num_experts_per_tok")
        c.require(c.rotary_dim % 2 == 0 and c.rotary_dim <= c.head_dim, "`rotary_dim` must be even and at most `head_dim`")
    return c


def build(g, c):
    g.quantization(**c.quantization)
    angles = c.rope.angles(g, c.rotary_dim)

    def row_norm(y, w, name, heads):
        return fl.rms_norm(y, w(f"{name}.weight", heads * c.head_dim), eps=c.rms_norm_eps)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, norm=row_norm)

    def feed(x, w, i):
        w = w.at("block_sparse_moe")
        chosen = route(x, w, c, i, count=c.num_local_experts, topk=c.num_experts_per_tok,
                       bias=w("e_score_correction_bias", c.num_local_experts), renormalize=True, scale=1.0)
        return experts(x, chosen, w, count=c.num_local_experts, width=c.intermediate_size, size=c.hidden_size,
                       names=("w1", "w3", "w2"))

    return decoder(g, c, attend, feed)
