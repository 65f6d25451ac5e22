"""A push towards in-context copying, given once early in training.

Copying from context ("the token that followed the last occurrence of this token") needs two parts
that are worthless without each other, so a small model finds it late.  Here both are put in place:

* in the first KDA layer one head keys every token by its predecessor (through the short
  convolution) and another head just passes the previous token on;
* in every MLA layer one head gets queries and keys along those directions in which the present
  token and the next position's trace of it correlate most, measured on real text.
"""
import torch

from model import SEGMENT, Run


def inverse_root(c, ridge=1e-3):
    values, vectors = torch.linalg.eigh(c + ridge * c.diagonal().mean() * torch.eye(len(c)))
    return vectors @ torch.diag(values.rsqrt()) @ vectors.T


def match_directions(x, ids, count):
    """Projections Q, K [count, width] such that Q x[t] resembles K x[t + 1] through the token at t."""
    here, after, token = x[:, :-1].flatten(0, 1), x[:, 1:].flatten(0, 1), ids[:, :-1].flatten()
    mean = x.mean((0, 1))
    here, after = here - mean, after - mean
    root_here, root_after = (inverse_root(v.T @ v / len(v)) for v in (here, after))
    size = int(ids.max()) + 1
    number = torch.bincount(token, minlength=size).float()
    sums_here = torch.zeros(size, x.shape[-1]).index_add_(0, token, here)
    sums_after = torch.zeros(size, x.shape[-1]).index_add_(0, token, after)
    scale = number.clamp(min=1)[:, None]
    weight = number.clamp(max=40)[:, None] * (number > 2)[:, None]
    cross = (weight * sums_here / scale).T @ (sums_after / scale) / weight.sum()
    u, _, v = torch.linalg.svd(root_here @ cross @ root_after)
    flat = torch.eye(len(mean)) - torch.outer(mean, mean) / mean.square().sum()     # no constant part
    return u[:, :count].T @ root_here @ flat, v[:count] @ root_after @ flat


@torch.no_grad()
def seed_kda(layer):
    dim, width = layer.c.kda_head_dim, layer.q_proj.weight.shape[1]
    match, previous = slice(0, dim), slice(dim, 2 * dim)
    now, before = torch.tensor([0.0, 0, 0, 1]), torch.tensor([0.0, 0, 1, 0])
    for head, key_taps, value_taps, bias in ((match, before, now, -6.5), (previous, now, before, 3.0)):
        layer.q_proj.weight[head] = layer.k_proj.weight[head] = torch.randn(dim, width) * 2 / width ** 0.5
        layer.q_conv1d.weight[head, 0], layer.k_conv1d.weight[head, 0], layer.v_conv1d.weight[head, 0] = now, key_taps, value_taps
        layer.f_b_proj.weight[head] = 0
        layer.dt_bias[head] = bias


@torch.no_grad()
def seed_mla(layer, x, ids, strength=2.2):
    c = layer.c
    size = c.nope_dim
    q, k = match_directions(x, ids, size)
    layer.q_a_proj.weight[:size] = q
    layer.kv_a_proj_with_mqa.weight[:size] = k
    # bring the untouched latents to the same scale, so that the latent norm divides by about one
    for weight, end in ((layer.q_a_proj.weight, c.q_lora_rank), (layer.kv_a_proj_with_mqa.weight, c.kv_lora_rank)):
        rest = weight[size:end]
        rest.div_((x @ rest.T).square().mean().sqrt())
    query, key = layer.q_b_proj.weight[: c.nope_dim + c.rope_dim], layer.kv_b_proj.weight[:size]
    query.zero_()
    key.zero_()
    query[:size, :size] = key[:, :size] = torch.eye(size) * strength


@torch.no_grad()
def seed_induction(model, ids, seed=5):
    """ids [B,T] of real text, T a multiple of SEGMENT."""
    torch.manual_seed(seed)
    first = True
    for layer in model.model.layers:
        if layer.full:
            seen = []
            hook = layer.self_attn.register_forward_pre_hook(lambda m, a: seen.append(a[0]))
            model(ids, torch.ones(len(ids), ids.shape[1] // SEGMENT), Run(ids.shape[1], sparse=False))
            hook.remove()
            seed_mla(layer.self_attn, seen[0], ids)
        elif first:
            seed_kda(layer.self_attn)
            first = False
