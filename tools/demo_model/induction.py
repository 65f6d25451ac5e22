"""Two pushes towards in-context recall, each given once in training.

Copying from context ("the token that followed the last occurrence of this token") needs two parts
that are worthless without each other, so a small model finds it late.  Here both are put in place:

* in the first KDA layer one head keys every token by its predecessor (through the short
  convolution) and another head just passes the previous token on;
* in every MLA layer one head gets queries and keys along those directions in which the present
  token and the next position's trace of it correlate most, measured on real text.

Later the model copies codes but mixes up their owners.  `seed_owner` makes names a few tokens back
visible and lets one head match them between the question and the planted fact.
"""
import random

import torch

import data

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


# ---- whose code is it -----------------------------------------------------------------------------
def recall_rows(chats, rng, count, length, facts=4):
    """Chat rows with several codes and one question: ids, query positions [N,3], key positions [N,facts,3], asked."""
    rows, queries, keys, asked = [], [], [], []
    writer, t = chats.writer, chats.t
    is_digit = lambda i: 48 <= i <= 57
    while len(rows) < count:
        names = rng.sample([f"{a} {p}" for a in data.ADJECTIVES for p in data.PLACES], facts)
        statements = [f"The code of the {n} is {rng.randint(100, 999)}." for n in names]
        text = writer.filler(rng, rng.randint(50, 250))
        for s in statements:
            text.insert(rng.randint(0, len(text)), s)
        ask = rng.randrange(facts)
        ids = chats.turn("user", " ".join(text + [f"What is the code of the {names[ask]}?"]))[0]
        ids += chats.turn("assistant", statements[ask])[0]
        digits = [n for n, i in enumerate(ids) if is_digit(i)]
        if len(ids) > length or len(digits) != 3 * (facts + 1):
            continue
        order = sorted(statements, key=text.index)
        rows.append(ids + [0] * (length - len(ids)))
        queries.append([n - 1 for n in digits[-3:]])
        keys.append([digits[3 * order.index(s) : 3 * order.index(s) + 3] for s in statements])
        asked.append(ask)
    return torch.tensor(rows), torch.tensor(queries), torch.tensor(keys), torch.tensor(asked)


@torch.no_grad()
def seed_shift(layer, head, tap, gain=3.0):
    """A KDA head that only passes on a projection of the token `taps - 1 - tap` places back, loudly."""
    dim, width, taps = layer.c.kda_head_dim, layer.q_proj.weight.shape[1], layer.c.conv_taps
    rows = slice(head * dim, (head + 1) * dim)
    now, then = torch.eye(taps)[taps - 1], torch.eye(taps)[tap]
    layer.q_proj.weight[rows] = layer.k_proj.weight[rows] = torch.randn(dim, width) * 2 / width ** 0.5
    layer.v_proj.weight[rows] = torch.randn(dim, width) * 2 / width ** 0.5
    layer.q_conv1d.weight[rows, 0], layer.k_conv1d.weight[rows, 0], layer.v_conv1d.weight[rows, 0] = now, now, then
    layer.f_b_proj.weight[rows] = 0
    layer.dt_bias[rows] = 3.0
    layer.b_proj.weight[head] = 0
    layer.g_proj.weight[rows] *= 0.3
    out = torch.randn(width, dim)
    layer.o_proj.weight[:, rows] = out * gain * (layer.o_proj.weight.norm() / layer.o_proj.weight.shape[1] ** 0.5 / out.norm() * dim ** 0.5)


@torch.no_grad()
def seed_owner(model, chats, count=700, length=320, head=1, strength=1.8, seed=6):
    """Names a few tokens back become visible, and a head of the first MLA layer matches them.

    That layer's unrotated "rope" key part is given to one head: queries and keys along the directions in
    which the place before an asked code and the first digit of the planted code correlate most.
    Returns how often the best of four planted codes is the right one."""
    torch.manual_seed(seed)
    kda = [l.self_attn for l in model.model.layers if not l.full]
    seed_shift(kda[0], 2, 1)
    seed_shift(kda[0], 3, 0)
    seed_shift(kda[-1], 3, 1)
    ids, query_at, key_at, asked = recall_rows(chats, random.Random(seed), count, length)
    layer = next(l for l in model.model.layers if l.full).self_attn
    c, seen = layer.c, []
    hook = layer.register_forward_pre_hook(lambda m, a: seen.append(a[0]))
    for part in ids.split(50):
        model(part, torch.ones(len(part), length // SEGMENT), Run(length, sparse=False))
    hook.remove()
    x = torch.cat(seen)
    latent = layer.q_a_layernorm(layer.q_a_proj(x))
    n = torch.arange(len(x))
    q, k_all = latent[n, query_at[:, 0]], x[n[:, None], key_at[:, :, 0]]
    mean_q, mean_k = q.mean(0), k_all.mean((0, 1))
    covariance = lambda v: v.T @ v / len(v)
    background = lambda v: covariance((v := v[:, ::5].flatten(0, 1)) - v.mean(0)) * 0.1
    root_q = inverse_root(covariance(q - mean_q) + background(latent), 0.1)
    root_k = inverse_root(covariance((k_all - mean_k).flatten(0, 1)) + background(x), 0.1)
    u, _, v = torch.linalg.svd(root_q @ ((q - mean_q).T @ (k_all[n, asked] - mean_k) / len(q)) @ root_k)
    flat = lambda mean: torch.eye(len(mean)) - torch.outer(mean, mean) / mean.square().sum()
    size = c.rope_dim
    to_q, to_k = u[:, :size].T @ root_q @ flat(mean_q), v[:size] @ root_k @ flat(mean_k)
    layer.kv_a_proj_with_mqa.weight[c.kv_lora_rank :] = to_k * strength
    per_head = layer.q_b_proj.weight.view(c.heads, c.nope_dim + size, c.q_lora_rank)
    per_head[:, c.nope_dim :] = 0
    per_head[head, c.nope_dim :] = to_q * strength
    score = torch.einsum("nd,nfd->nf", q @ to_q.T, k_all @ to_k.T)
    return (score.argmax(1) == asked).float().mean().item()
