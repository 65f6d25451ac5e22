"""Mixture of experts: the router's choice and the experts' weighted sum (Mixtral, arXiv 2401.04088; DeepSeek-V3)."""
import firstlight as fl

# Three matrices an expert: a graph of this size still traces in seconds (Kimi-K3 has 82432 experts).
MOST_EXPERTS = 1 << 18


def route(x, w, c, layer, *, count, topk, name="gate", bias=None, **how):
    """Chosen experts and their weights; the router's product is f32 in every mode."""
    logits = fl.linear(x, w(f"{name}.weight", count, c.hidden_size), precision="f32")
    experts, weights = fl.moe_route(logits, bias, topk=topk, **how)
    w.g.name(experts, f"experts.{layer}")
    return experts, weights


def experts(x, chosen, w, *, count, width, size, names=("gate_proj", "up_proj", "down_proj"), or_stacks=False, **how):
    """sum_e w_e W_down (act(W_gate x) * W_up x); each expert's matrices are tensors of their own.

    `or_stacks`: or they are slices of `gate_up_proj` [E, 2 width, size], gate rows first, and of `down_proj`.
    """
    w = w.at("experts")

    def matrices(name, rows, columns, stack, first=0, of=None):
        def or_slice(e):
            part = (w.prefix + stack, [count, of or rows, columns], [e], (first, rows))
            return {"or_part": part} if or_stacks else {}

        return [w(f"{e}.{name}.weight", rows, columns, **or_slice(e)) for e in range(count)]

    gate, up, down = names
    return fl.moe_experts(x, *chosen, matrices(gate, width, size, "gate_up_proj", 0, 2 * width),
                          matrices(up, width, size, "gate_up_proj", width, 2 * width),
                          matrices(down, size, width, "down_proj"), **{"activation": "silu", **how})


def check_experts(c, count, topk):
    """`count`, `topk`: names of the keys that say how many experts there are and how many a token takes."""
    c.require(getattr(c, topk) <= getattr(c, count), f"`{topk}` exceeds `{count}`")
    c.require(getattr(c, count) * c.num_hidden_layers <= MOST_EXPERTS,
              f"`num_hidden_layers` times `{count}` exceeds {MOST_EXPERTS} experts: no such model exists")
