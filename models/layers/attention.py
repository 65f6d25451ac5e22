"""Grouped-query attention and its variants, and the SwiGLU layer (GQA, arXiv 2305.13245; Llama 2, 2307.09288)."""
import firstlight as fl

# What `layer_types` says of a layer, where some have a window.
KINDS = ("sliding_attention", "full_attention")


def linear(x, w, name, rows, columns, bias=False, **how):
    """W x, or W x + b."""
    y = fl.linear(x, w(f"{name}.weight", rows, columns), **how)
    return fl.add_bias(y, w(f"{name}.bias", rows)) if bias else y


def attention(x, w, c, angles, *, bias=False, out_bias=False, norm=None, scale=None, window=0, sinks=False):
    """o = W_o softmax(scale rope(q) . rope(k)) v, `heads / kv_heads` query heads to a key head.

    `norm(y, w, name, heads)` norms q and k before they are rotated, or is None. `angles` rotate the first channels of
    a head, as many as they are wide, in halves. `window`: positions seen, the own one included; 0: all.
    """
    heads, kv_heads, dim, hidden = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.hidden_size
    q = linear(x, w, "q_proj", heads * dim, hidden, bias)
    k = linear(x, w, "k_proj", kv_heads * dim, hidden, bias)
    v = linear(x, w, "v_proj", kv_heads * dim, hidden, bias)
    if norm is not None:
        q, k = norm(q, w, "q_norm", heads), norm(k, w, "k_norm", kv_heads)
    q = fl.rope(q, angles, heads=heads, layout="half")
    k = fl.rope(k, angles, heads=kv_heads, layout="half")
    o = fl.attention(q, k, v, w("sinks", heads) if sinks else None, heads=heads, kv_heads=kv_heads, key_dim=dim,
                     value_dim=dim, scale=dim**-0.5 if scale is None else scale, window=window)
    return linear(o, w, "o_proj", hidden, heads * dim, out_bias)


def swiglu(x, w, c, width, bias=False, act=fl.silu_mul):
    """W_d (act(W_g x) * W_u x), arXiv 2002.05202."""
    gate = linear(x, w, "gate_proj", width, c.hidden_size, bias)
    up = linear(x, w, "up_proj", width, c.hidden_size, bias)
    return linear(act(gate, up), w, "down_proj", c.hidden_size, width, bias)


def read_heads(c, why_head_dim=None):
    """Heads and their width. `why_head_dim`: the family's configs may omit `head_dim`, and what that means."""
    c.ints("num_attention_heads num_key_value_heads", high=1 << 16)
    if why_head_dim is None:
        c.ints("head_dim", high=1 << 16)
    else:
        c.default_int("head_dim", why_head_dim, None, high=1 << 16)
    if c.complete:
        if c.head_dim is None:
            c.require(c.hidden_size % c.num_attention_heads == 0, "`num_attention_heads` must divide `hidden_size`")
            c.head_dim = c.hidden_size // c.num_attention_heads
        c.require(c.num_attention_heads % c.num_key_value_heads == 0,
                  "`num_key_value_heads` must divide `num_attention_heads`")
        c.require(c.head_dim % 2 == 0, "`head_dim` must be even: its channels are rotated in pairs")


def check_layer_types(c):
    c.require(len(c.layer_types) == c.num_hidden_layers and set(c.layer_types) <= set(KINDS),
              f"`layer_types` must name one of {KINDS} for each of the {c.num_hidden_layers} layers")
