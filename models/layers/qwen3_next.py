"""The layers of Qwen3-Next and of Qwen3.5's text part: Gated DeltaNet, and every so often gated full attention.

    h = embed[ids]
    for i:  h = h + mix_i(norm(h));  h = h + mlp_i(norm(h))          mix: gated_delta_net or gated_attention
    logits = lm_head(norm(h))          every norm but that of the delta rule's output multiplies with 1 + w
"""
import firstlight as fl
from layers.attention import read_heads, swiglu
from layers.decoder import decoder, read_decoder
from layers.experts import check_experts, experts, route
from layers.gated_delta import gated_delta_net, read_gated_delta
from layers.quantization import read_quantization

KINDS = ("linear_attention", "full_attention")
DRAFTS = "it drafts further tokens: the next token does not depend on it"


def gated_attention(x, w, c, angles):
    """o = W_o (softmax(q k^T / sqrt(d)) v * sigmoid(y)), grouped-query (gated attention, arXiv 2505.06708).

    W_q yields q and y, head by head. q and k are normed per head; the first channels are rotated, in halves.
    """
    heads, kv_heads, dim, hidden = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.hidden_size

    def of_query(first):
        return fl.linear(x, w("q_proj.weight", heads * dim, hidden, part_of=[heads * 2 * dim, hidden],
                              rows=(first, dim, 2 * dim)))

    def turned(y, name, count):
        y = fl.rms_norm(y, w(f"{name}.weight", dim), eps=c.rms_norm_eps, heads=count, weight_offset=1.0)
        return fl.rope(y, angles, heads=count, layout="half")

    q, y = turned(of_query(0), "q_norm", heads), of_query(dim)
    k = turned(fl.linear(x, w("k_proj.weight", kv_heads * dim, hidden)), "k_norm", kv_heads)
    v = fl.linear(x, w("v_proj.weight", kv_heads * dim, hidden))
    o = fl.attention(q, k, v, heads=heads, kv_heads=kv_heads, key_dim=dim, value_dim=dim, scale=dim**-0.5)
    return fl.linear(fl.sigmoid_mul(o, y), w("o_proj.weight", hidden, heads * dim))


def moe(x, w, c, layer):
    """The chosen experts' weighted sum, and a shared expert: + sigmoid(w_s x) * shared(x)."""
    chosen = route(x, w, c, layer, count=c.num_experts, topk=c.num_experts_per_tok, score="softmax",
                   renormalize=c.norm_topk_prob, scale=1.0)
    y = experts(x, chosen, w, count=c.num_experts, width=c.moe_intermediate_size, size=c.hidden_size, or_stacks=True)
    shared = swiglu(x, w.at("shared_expert"), c, c.shared_expert_intermediate_size)
    gate = fl.linear(x, w("shared_expert_gate.weight", 1, c.hidden_size))
    return fl.add(y, fl.sigmoid_scale(shared, gate))


def backbone(g, c, projections, prefix):
    """The whole model; `projections(w, c)` are the matrices of a delta rule as the family stores them."""
    g.quantization(**c.quantization)
    g.not_computed("mtp.", DRAFTS)
    angles = c.rope.angles(g, c.rotary_dim)

    def attend(x, w, i):
        if c.layer_types[i] == KINDS[0]:
            w = w.at("linear_attn")
            return gated_delta_net(x, w, projections(w, c), c, i)
        return gated_attention(x, w.at("self_attn"), c, angles)

    def feed(x, w, i):
        w = w.at("mlp")
        return moe(x, w, c, i) if i in c.moe_layers else swiglu(x, w, c, c.intermediate_size)

    return decoder(g, c, attend, feed, prefix=prefix, weight_offset=1.0)


def read_backbone(c, root, dense=True):
    """The keys that both families have."""
    read_decoder(c, dense=dense)
    read_heads(c)
    read_gated_delta(c)
    c.fixed(hidden_act="silu", mlp_only_layers=[])
    c.quantization = read_quantization(root)


def read_moe(c):
    c.ints("num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size")
    c.ignore("router_aux_loss_coef output_router_logits")  # training


def check_backbone(c, rotated_share):
    """Relations between the keys. `rotated_share`: of a head's channels (partial_rotary_factor)."""
    c.rotary_dim = int(c.head_dim * rotated_share)
    c.require(c.rotary_dim >= 2 and c.rotary_dim % 2 == 0,
              f"`partial_rotary_factor` leaves {c.rotary_dim} of `head_dim` = {c.head_dim} channels to rotate: not pairs")
    c.require(len(c.layer_types) == c.num_hidden_layers and set(c.layer_types) <= set(KINDS),
              f"`layer_types` must name one of {KINDS} for each of the {c.num_hidden_layers} layers")
    if c.moe_layers:
        check_experts(c, "num_experts", "num_experts_per_tok")
