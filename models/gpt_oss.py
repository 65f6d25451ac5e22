"""gpt-oss: sinks in every softmax, windows on every other layer, biases everywhere, MXFP4 experts (OpenAI, model card
of gpt-oss-120b and gpt-oss-20b, 2025).

The experts of a layer are stored stacked: gate_up_proj [E, 2 I, H] with gate and up rows alternating. Unpacked
checkpoints store each matrix transposed.
"""
import firstlight as fl
from layers.attention import KINDS, attention, check_layer_types, linear, read_heads
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts
from layers.quantization import read_quantization
from layers.rope import read_rope

# Factor inside the sigmoid of the experts' activation; the published configs do not carry it.
SWIGLU_ALPHA = 1.702


def serves(config):
    return config.get("model_type") == "gpt_oss"


def read(c):
    read_decoder(c)
    read_heads(c)
    c.rope = read_rope(c, yarn="beta_fast beta_slow truncate")
    c.fixed(hidden_act="silu", attention_bias=True)
    c.ints("num_local_experts num_experts_per_tok experts_per_token sliding_window initial_context_length")
    c.floats("swiglu_limit", low=1e-6, high=1e6)
    c.text_lists("layer_types")
    c.flags("tie_word_embeddings")
    c.ignore("output_router_logits router_aux_loss_coef")  # training
    c.quantization = read_quantization(c, always="modules_to_not_convert")
    if c.complete:
        check_experts(c, "num_local_experts", "num_experts_per_tok")
        c.require(c.experts_per_token == c.num_experts_per_tok, "`experts_per_token` must equal `num_experts_per_tok`")
        original = getattr(c.rope.scaling, "original_max_position_embeddings", c.initial_context_length)
        c.require(c.initial_context_length == original,
                  "`initial_context_length` must equal `rope_scaling.original_max_position_embeddings`")
        check_layer_types(c)
    return c


def build(g, c):
    g.quantization(**c.quantization)
    count, width, hidden = c.num_local_experts, c.intermediate_size, c.hidden_size
    angles = c.rope.angles(g, c.head_dim)

    def attend(x, w, i):
        return attention(x, w.at("self_attn"), c, angles, bias=True, out_bias=True, sinks=True,
                         window=c.sliding_window if c.layer_types[i] == KINDS[0] else 0)

    def feed(x, w, i):
        w = w.at("mlp")
        logits = linear(x, w, "router", count, hidden, bias=True, precision="f32")
        # The softmax of the chosen logits alone equals that of all, renormalised.
        chosen, weights = fl.moe_route(logits, topk=c.num_experts_per_tok, score="softmax", renormalize=True, scale=1.0)
        g.name(chosen, f"experts.{i}")

        plain = not c.quantization

        def stack(name, shape, full, **rows):
            flip = plain and len(full) == 2
            part_of = [count, *(reversed(full) if flip else full)]
            return [w(f"experts.{name}", *shape, part_of=part_of, at=[e], transposed=flip, **rows) for e in range(count)]

        gate, up = {"rows": (0, 1, 2)}, {"rows": (1, 1, 2)}
        return fl.moe_experts(
            x, chosen, weights,
            stack("gate_up_proj", [width, hidden], [2 * width, hidden], **gate),
            stack("gate_up_proj", [width, hidden], [2 * width, hidden], **up),
            stack("down_proj", [hidden, width], [hidden, width]),
            stack("gate_up_proj_bias", [width], [2 * width], **gate),
            stack("gate_up_proj_bias", [width], [2 * width], **up),
            stack("down_proj_bias", [hidden], [hidden]),
            activation="clamped_swiglu", limit=c.swiglu_limit, alpha=SWIGLU_ALPHA,
        )

    return decoder(g, c, attend, feed)
