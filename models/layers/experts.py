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


def experts(x, chosen, w, *, count, width, size, names=("gate_proj", "up_proj", "down_proj"), **how):
    """sum_e w_e W_down (act(W_gate x) * W_up x); each expert's matrices are tensors of their own."""
    gate, up, down = names

    def matrices(name, rows, columns):
        return [w(f"experts.{e}.{name}.weight", rows, columns) for e in range(count)]

    return fl.moe_experts(x, *chosen, matrices(gate, width, size), matrices(up, width, size),
                          matrices(down, size, width), **{"activation": "silu", **how})


def check_experts(c, count, topk):
    """`count`, `topk`: names of the keys that say how many experts there are and how many a token takes."""
    c.require(getattr(c, topk) <= getattr(c, count), f"`{topk}` exceeds `{count}`")
    c.require(getattr(c, count) * c.num_hidden_layers <= MOST_EXPERTS,
              f"`num_hidden_layers` times `{count}` exceeds {MOST_EXPERTS} experts: no such model exists")
