"""Gated DeltaNet, arXiv 2412.06464: the delta rule with one decay a head (details as Qwen3-Next publishes them)."""
import firstlight as fl
from config import LARGEST_HEAD, MOST_TAPS


def gated_delta_net(x, w, projections, c, layer):
    """Per value head; key head h serves the value heads r h .. r h + r - 1. `x [T, D]` is the layer's normed input.

    1  q, k, v = SiLU(conv(W_s x))     2  q, k = q / |q|, k / |k|;  q = q / sqrt(d_k)    per head
    3  a = W_a x;  g = -exp(A_log) softplus(a + dt_bias)     one number a head           4  beta = sigmoid(W_b x)
    5  S = exp(g) S;  S = S + k (beta (v - S^T k))^T;  o = S^T q
    6  o = rms(o) * norm * SiLU(W_z x)                       7  out = W_o o

    Steps 2 to 5 are the operator `kda` with one decay a head, step 6 is `gated_norm`. `projections` holds the matrices
    of q, k, v, z, a and b, since families store them in different tensors.
    """
    key_heads, heads = c.linear_num_key_heads, c.linear_num_value_heads
    dk, dv, taps = c.linear_key_head_dim, c.linear_value_head_dim, c.linear_conv_kernel_dim
    keys, values = key_heads * dk, heads * dv
    p = {name: fl.linear(x, matrix) for name, matrix in projections.items()}  # W_s x

    def convolved(name, first, width):  # the channels of one depthwise convolution: those of q, then of k, then of v
        kernel = w("conv1d.weight", width, 1, taps, part_of=[2 * keys + values, 1, taps], rows=(first, width))
        s = fl.short_conv(p[name], kernel)
        w.g.name(s, f"conv.{layer}.{name}")
        return s

    o = fl.kda(
        convolved("q", 0, keys), convolved("k", keys, keys), convolved("v", 2 * keys, values), p["a"], p["b"],
        A_log=w("A_log", heads), dt_bias=w("dt_bias", heads), gate="softplus", decay="head",
        heads=heads, key_heads=key_heads, key_dim=dk, value_dim=dv,
    )
    w.g.name(o, f"state.{layer}")
    o = fl.gated_norm(o, p["z"], w("norm.weight", dv), heads=heads, eps=c.rms_norm_eps, activation="silu")
    return fl.linear(o, w("out_proj.weight", c.hidden_size, values))


def read_gated_delta(c):
    c.ints("linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim", high=LARGEST_HEAD)
    c.ints("linear_conv_kernel_dim", low=2, high=MOST_TAPS)
    if c.complete:
        c.require(c.linear_num_value_heads % c.linear_num_key_heads == 0,
                  "`linear_num_key_heads` must divide `linear_num_value_heads`")
