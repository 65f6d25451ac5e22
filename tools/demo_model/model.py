"""Trainable version of the demo model: KDA + sparse NoPE MLA + latent MoE + block Attention Residuals.

The arithmetic is that of a `kimi_k3` checkpoint with a DSA indexer, arranged for training on a CPU:
the KDA recurrence runs in chunks, all experts of a layer run on sorted rows, and the indexer is
trained by a divergence to the attention it has to predict.  Parameter names are the checkpoint's
names without the prefix `language_model.`, except for the stacked experts (see export.py).
"""
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

CHUNK = 16          # tokens per KDA chunk; also bounds the decays (see kda_chunked)
SEGMENT = 64        # the recurrent state may be dropped at multiples of this


@dataclass
class ModelConfig:
    vocab_size: int = 1024
    hidden_size: int = 128
    num_layers: int = 4
    full_attn_layers: tuple = (2, 4)        # 1-based, as in the checkpoint's config
    attn_res_block_size: int = 2
    kda_heads: int = 4
    kda_head_dim: int = 32
    conv_taps: int = 4
    gate_lower_bound: float = -5.0
    heads: int = 4
    q_lora_rank: int = 96
    kv_lora_rank: int = 64
    nope_dim: int = 32
    rope_dim: int = 16                      # never rotated
    v_dim: int = 32
    index_heads: int = 4
    index_dim: int = 32
    index_topk: int = 64
    intermediate_size: int = 384
    experts: int = 64
    experts_per_token: int = 2
    moe_intermediate_size: int = 96
    latent_size: int = 64
    shared_experts: int = 2
    eps: float = 1e-5
    situ_beta: float = 4.0
    situ_linear_beta: float = 25.0

    def is_full(self, layer):
        return layer + 1 in self.full_attn_layers

    def to_dict(self):
        return asdict(self)


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class HalfLinear(torch.autograd.Function):
    """x @ w.T with BF16 operands in both directions; `exact` keeps the forward product in FP32."""

    @staticmethod
    def forward(ctx, x, w, exact):
        flat = x.reshape(-1, x.shape[-1])
        half_x, half_w = flat.to(torch.bfloat16), w.to(torch.bfloat16)
        ctx.save_for_backward(half_x, half_w)
        y = torch.mm(flat, w.t()) if exact else torch.mm(half_x, half_w.t()).float()
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        half_x, half_w = ctx.saved_tensors
        half_dy = dy.reshape(-1, dy.shape[-1]).to(torch.bfloat16)
        dx = torch.mm(half_dy, half_w).float().view(*dy.shape[:-1], -1)
        return dx, torch.mm(half_dy.t(), half_x).float(), None


class Precision:
    """Training may multiply in BF16, which this kind of CPU does more than twice as fast."""
    half = False


def linear(x, w, exact=False):
    if Precision.half and x.requires_grad:
        return HalfLinear.apply(x, w, exact)
    return F.linear(x, w)


class Matrix(nn.Module):
    """A linear layer without bias; `gain` scales the usual 1/sqrt(fan-in) start."""

    def __init__(self, rows, columns, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) * gain / math.sqrt(columns))

    def forward(self, x):
        return linear(x, self.weight)


def fused_linear(x, *layers):
    """Several linear layers of one input as one product."""
    y = linear(x, torch.cat([layer.weight for layer in layers]))
    return y.split([layer.weight.shape[0] for layer in layers], dim=-1)


def situ(gate, up, config):
    beta, lam = config.situ_beta, config.situ_linear_beta
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * (lam * torch.tanh(up / lam))


# ---- Kimi Delta Attention -----------------------------------------------------------------------
def kda_chunked(q, k, v, g, beta, keep):
    """Gated delta rule in chunks.

    q (scaled), k, v, g [B,T,H,d] with log-decays g >= -5; beta [B,T,H];
    keep [B,T/CHUNK]: 1 carries the state into that chunk, 0 drops it.  Returns [B,T,H,d].
    Decays inside a chunk are taken relative to its middle row, so exponents stay within +-40.
    """
    batch, steps, heads, dim = q.shape
    count = steps // CHUNK
    q, k, v, g = (x.view(batch, count, CHUNK, heads, dim).permute(0, 3, 1, 2, 4) for x in (q, k, v, g))
    beta = beta.view(batch, count, CHUNK, heads, 1).permute(0, 3, 1, 2, 4)
    total = g.cumsum(-2)
    middle, last = total[..., CHUNK // 2 - 1 : CHUNK // 2, :], total[..., -1:, :]
    up = torch.exp(total - middle)
    k_down = k * torch.exp(middle - total)
    k_up, q_up = k * up, q * up
    pairs = torch.cat((k_up, q_up), dim=-2) @ k_down.transpose(-1, -2)
    system = (pairs[..., :CHUNK, :] * beta).tril(-1)
    scores = pairs[..., CHUNK:, :].tril()
    # up to the chunk's start: e^total = e^(total - middle) * e^middle
    from_start = torch.exp(middle)
    rhs = torch.cat((v, k_up * from_start), dim=-1) * beta
    solved = torch.linalg.solve_triangular(system, rhs, upper=False, unitriangular=True)
    u, w = solved.split(dim, dim=-1)
    k_end = (k * torch.exp(last - total)).transpose(-1, -2)
    both = k_end @ solved                                              # [.., d, 2d]
    add, mix = both.split(dim, dim=-1)
    mix = torch.diag_embed(torch.exp(last.squeeze(-2))) - mix
    carry = keep.view(batch, 1, count, 1, 1)
    mix = (mix[:, :, :-1] * carry[:, :, 1:]).flatten(0, 1).unbind(1)
    add = (add[:, :, :-1] * carry[:, :, 1:]).flatten(0, 1).unbind(1)
    state = q.new_zeros(batch * heads, dim, dim)
    states = [state]
    for m, a in zip(mix, add):
        state = torch.baddbmm(a, m, state)
        states.append(state)
    state = torch.stack(states, dim=1).view(batch, heads, count, dim, dim)
    seen = torch.cat((w, q_up * from_start), dim=-2) @ state
    out = seen[..., CHUNK:, :] + scores @ (u - seen[..., :CHUNK, :])
    return out.permute(0, 2, 3, 1, 4).reshape(batch, steps, heads, dim)


class DepthwiseConv(torch.autograd.Function):
    """y[:, t] = sum_j kernel[:, j] * x[:, t + j]"""

    @staticmethod
    def forward(ctx, x, kernel):
        ctx.save_for_backward(x, kernel)
        steps, taps = x.shape[1] - kernel.shape[1] + 1, kernel.shape[1]
        y = x[:, :steps] * kernel[:, 0]
        for j in range(1, taps):
            y.addcmul_(x[:, j : j + steps], kernel[:, j])
        return y

    @staticmethod
    def backward(ctx, dy):
        x, kernel = ctx.saved_tensors
        steps, taps = dy.shape[1], kernel.shape[1]
        dx = torch.zeros_like(x)
        for j in range(taps):
            dx[:, j : j + steps].addcmul_(dy, kernel[:, j])
        return dx, torch.stack([(dy * x[:, j : j + steps]).sum((0, 1)) for j in range(taps)], dim=1)


def short_conv(x, kernel, keep):
    """Causal depthwise convolution; the history is dropped where `keep` [B, T/SEGMENT] is 0."""
    batch, steps, width = x.shape
    taps = kernel.shape[-1]
    x = x.reshape(batch, steps // SEGMENT, SEGMENT, width)
    tail = x[:, :-1, SEGMENT - taps + 1 :] * keep[:, 1:, None, None]
    tail = torch.cat((x.new_zeros(batch, 1, taps - 1, width), tail), dim=1)
    x = torch.cat((tail, x), dim=2).flatten(0, 1)
    y = DepthwiseConv.apply(x, kernel.reshape(width, taps))
    return y.view(batch, steps, width)


class ConvKernel(nn.Module):
    def __init__(self, width, taps):
        super().__init__()
        weight = torch.randn(width, 1, taps) * 0.3
        weight[:, :, -1] += 0.7
        self.weight = nn.Parameter(weight)


class KdaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, rank = c.kda_heads * c.kda_head_dim, c.kda_head_dim
        self.c = c
        self.q_proj, self.k_proj, self.v_proj = (Matrix(width, c.hidden_size) for _ in range(3))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (ConvKernel(width, c.conv_taps) for _ in range(3))
        self.f_a_proj, self.f_b_proj = Matrix(rank, c.hidden_size), Matrix(width, rank)
        self.b_proj, self.g_proj = Matrix(c.kda_heads, c.hidden_size), Matrix(width, c.hidden_size)
        self.A_log = nn.Parameter(torch.zeros(c.kda_heads))
        self.dt_bias = nn.Parameter(torch.linspace(-6.5, -1.5, c.kda_head_dim).repeat(c.kda_heads))
        self.o_norm, self.o_proj = Norm(c.kda_head_dim, 1e-5), Matrix(c.hidden_size, width, gain=0.5)

    def forward(self, x, keep):
        c = self.c
        batch, steps, _ = x.shape
        heads, dim = c.kda_heads, c.kda_head_dim
        width = heads * dim
        q, k, v, y, z, b = fused_linear(x, self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.f_a_proj, self.b_proj)
        kernel = torch.cat((self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight))
        qkv = F.silu(short_conv(torch.cat((q, k, v), dim=-1), kernel, keep)).view(batch, steps, 3, heads, dim)
        q, k, v = qkv.unbind(2)
        qk = qkv[:, :, :2]
        qk = qk * torch.rsqrt(qk.square().sum(-1, keepdim=True) + 1e-6)
        q, k = qk[:, :, 0] * dim ** -0.5, qk[:, :, 1]
        z = (self.f_b_proj(z) + self.dt_bias).view(batch, steps, heads, dim)
        g = c.gate_lower_bound * torch.sigmoid(self.A_log.exp().view(heads, 1) * z)
        chunk_keep = torch.ones(batch, steps // CHUNK, dtype=x.dtype)
        chunk_keep[:, :: SEGMENT // CHUNK] = keep
        o = kda_chunked(q, k, v, g, torch.sigmoid(b), chunk_keep)
        o = self.o_norm(o) * torch.sigmoid(y).view(batch, steps, heads, dim)
        return self.o_proj(o.reshape(batch, steps, width))


# ---- sparse MLA ---------------------------------------------------------------------------------
class Indexer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.wq_b = Matrix(c.index_heads * c.index_dim, c.q_lora_rank)
        self.wk = Matrix(c.index_dim, c.hidden_size)
        self.k_norm = nn.LayerNorm(c.index_dim, eps=1e-6)
        self.weights_proj = Matrix(c.index_heads, c.hidden_size)

    def project(self, x, latent):
        """Query heads [B,Hi,T,Di] (already times their signed weights' partner), keys [B,T,Di], weights [B,Hi,T]."""
        c = self.c
        batch, steps, _ = x.shape
        q = self.wq_b(latent).view(batch, steps, c.index_heads, c.index_dim).transpose(1, 2)
        k = self.k_norm(self.wk(x))
        weight = self.weights_proj(x).transpose(1, 2) * c.index_heads ** -0.5
        return q * c.index_dim ** -0.5, k, weight

    @staticmethod
    def score(q, k, weight):
        """[B,R,T] scores of R query rows."""
        return (F.relu(q @ k.transpose(-1, -2).unsqueeze(1)) * weight.unsqueeze(-1)).sum(1)


class MlaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_a_proj, self.q_a_layernorm = Matrix(c.q_lora_rank, c.hidden_size), Norm(c.q_lora_rank, 1e-6)
        self.q_b_proj = Matrix(c.heads * (c.nope_dim + c.rope_dim), c.q_lora_rank)
        self.kv_a_proj_with_mqa = Matrix(c.kv_lora_rank + c.rope_dim, c.hidden_size)
        self.kv_a_layernorm = Norm(c.kv_lora_rank, 1e-6)
        self.kv_b_proj = Matrix(c.heads * (c.nope_dim + c.v_dim), c.kv_lora_rank)
        self.g_proj, self.o_proj = Matrix(c.heads * c.v_dim, c.hidden_size), Matrix(c.hidden_size, c.heads * c.v_dim, gain=0.5)
        self.indexer = Indexer(c)

    def forward(self, x, run):
        c = self.c
        batch, steps, _ = x.shape
        key_dim = c.nope_dim + c.rope_dim
        latent, kv, gate = fused_linear(x, self.q_a_proj, self.kv_a_proj_with_mqa, self.g_proj)
        latent = self.q_a_layernorm(latent)
        q = self.q_b_proj(latent).view(batch, steps, c.heads, key_dim).transpose(1, 2)
        shared = kv[..., c.kv_lora_rank :].unsqueeze(1).expand(-1, c.heads, -1, -1)
        up = self.kv_b_proj(self.kv_a_layernorm(kv[..., : c.kv_lora_rank])).view(batch, steps, c.heads, -1).transpose(1, 2)
        k = torch.cat((up[..., : c.nope_dim], shared), dim=-1)
        v = up[..., c.nope_dim :]
        causal = run.causal
        index_q, index_k, index_w = self.indexer.project(x.detach(), latent.detach())
        blocked = ~causal
        if run.sparse:
            with torch.no_grad():
                score = Indexer.score(index_q, index_k, index_w)
                blocked = ~self.choose(score, run)
        o = self.attend(q, k, v, blocked if run.sparse else None, run)
        if run.rows is not None:
            run.index_loss = run.index_loss + self.index_loss(q, k, index_q, index_k, index_w, blocked, run)
        if run.gold is not None:
            run.gold_loss = run.gold_loss + self.gold_loss(q, k, run)
        o = o.transpose(1, 2).reshape(batch, steps, -1) * torch.sigmoid(gate)
        return self.o_proj(o)

    def choose(self, score, run):
        """True where a query attends: its index_topk best visible positions, ties to the earliest."""
        steps = score.shape[-1]
        topk = min(self.c.index_topk, steps)
        score = score.masked_fill(~run.causal, -math.inf)
        if run.random_choice is not None:
            score = torch.rand(score.shape, generator=run.random_choice).masked_fill(~run.causal, -math.inf)
        if run.exact_ties:
            best = torch.sort(score + 0.0, dim=-1, descending=True, stable=True).indices[..., :topk]
        else:
            best = score.topk(topk, dim=-1, sorted=False).indices
        return torch.zeros(score.shape, dtype=torch.bool).scatter_(-1, best, True) & run.causal

    def attend(self, q, k, v, blocked, run):
        q, k = q.contiguous(), k.contiguous()
        v = F.pad(v, (0, q.shape[-1] - v.shape[-1]))                  # the fused kernel wants equal widths
        if blocked is None:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.zeros(blocked.shape).masked_fill_(blocked, -math.inf).unsqueeze(1)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return o[..., : self.c.v_dim]

    def index_loss(self, q, k, index_q, index_k, index_w, blocked, run):
        """KL(mean attention of the heads || softmax of index scores) on the sampled query rows."""
        rows = run.rows                                                 # [B,R]
        pick = lambda x: x.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[-1]))
        hidden = (blocked if blocked.dim() == 3 else blocked.expand(len(rows), -1, -1)).gather(
            1, rows[..., None].expand(-1, -1, blocked.shape[-1]))
        with torch.no_grad():
            logits = (pick(q) @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
            target = logits.masked_fill(hidden.unsqueeze(1), -math.inf).softmax(-1).mean(1)
            entropy = torch.xlogy(target, target).sum()
        weight = index_w.gather(2, rows[:, None, :].expand(-1, index_w.shape[1], -1))
        score = Indexer.score(pick(index_q), index_k, weight)
        log_p = score.masked_fill(hidden, -1e9).log_softmax(-1)
        return (entropy - (target * log_p).sum()) / rows.numel()


    def gold_loss(self, q, k, run, head=1):
        """-log of one head's (dense) attention to the places where an asked fact was planted."""
        row, query, key = run.gold
        logits = (k[row, head] @ q[row, head, query].unsqueeze(-1)).squeeze(-1) * q.shape[-1] ** -0.5
        logits = logits.masked_fill(~run.causal[query], -math.inf)
        return -logits.log_softmax(-1).gather(1, key[:, None]).mean()


# ---- feed-forward -------------------------------------------------------------------------------
class Mlp(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.c = c
        self.gate_proj, self.up_proj = Matrix(width, c.hidden_size), Matrix(width, c.hidden_size)
        self.down_proj = Matrix(c.hidden_size, width, gain=0.5)

    def forward(self, x):
        return self.down_proj(situ(*fused_linear(x, self.gate_proj, self.up_proj), self.c))


class GroupedLinear(torch.autograd.Function):
    """y[rows of e] = x[rows of e] @ w[e].T for rows sorted by expert."""

    @staticmethod
    def forward(ctx, x, w, counts):
        ctx.save_for_backward(x, w)
        ctx.counts = counts
        y, start = x.new_empty(x.shape[0], w.shape[1]), 0
        for e, n in enumerate(counts):
            if n:
                torch.mm(x[start : start + n], w[e].t(), out=y[start : start + n])
            start += n
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dw, start = torch.empty_like(x), torch.zeros_like(w), 0
        for e, n in enumerate(ctx.counts):
            if n:
                torch.mm(dy[start : start + n], w[e], out=dx[start : start + n])
                torch.mm(dy[start : start + n].t(), x[start : start + n], out=dw[e])
            start += n
        return dx, dw, None


class Permute(torch.autograd.Function):
    """Rows in another order; the inverse order makes the backward pass a gather as well."""

    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, dy):
        return dy.index_select(0, ctx.saved_tensors[0]), None, None


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c.experts, c.hidden_size) / math.sqrt(c.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(c.experts))


class SparseMoe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = Gate(c)
        self.routed_expert_down_proj = Matrix(c.latent_size, c.hidden_size)
        self.routed_expert_up_proj = Matrix(c.hidden_size, c.latent_size, gain=0.5)
        self.routed_expert_norm = Norm(c.latent_size, c.eps)
        self.shared_experts = Mlp(c, c.shared_experts * c.moe_intermediate_size)
        shape = (c.experts, c.moe_intermediate_size, c.latent_size)
        self.experts_w1, self.experts_w3 = (nn.Parameter(torch.randn(shape) / math.sqrt(c.latent_size)) for _ in range(2))
        self.experts_w2 = nn.Parameter(torch.randn(shape).transpose(1, 2).contiguous() / math.sqrt(c.moe_intermediate_size))
        self.load = None

    def forward(self, x):
        c = self.c
        shape, x = x.shape, x.reshape(-1, c.hidden_size)
        k = c.experts_per_token
        scores = torch.sigmoid(F.linear(x, self.gate.weight))
        with torch.no_grad():
            experts = torch.sort(scores + self.gate.e_score_correction_bias, dim=-1, descending=True, stable=True).indices[:, :k]
            flat = experts.reshape(-1)
            order = torch.sort(flat, stable=True).indices
            inverse = torch.empty_like(order)
            inverse[order] = torch.arange(len(order))
            counts = torch.bincount(flat, minlength=c.experts)
            self.load = counts
            counts = counts.tolist()
        weight = scores.gather(1, experts)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        u = self.routed_expert_down_proj(x)
        rows = Permute.apply(u.unsqueeze(1).expand(-1, k, -1).reshape(-1, c.latent_size), order, inverse)
        hidden = GroupedLinear.apply(rows, torch.cat((self.experts_w1, self.experts_w3), dim=1), counts)
        hidden = situ(*hidden.chunk(2, dim=-1), c)
        out = Permute.apply(GroupedLinear.apply(hidden, self.experts_w2, counts), inverse, order)
        y = (out.view(-1, k, c.latent_size) * weight.unsqueeze(-1)).sum(1)
        y = self.routed_expert_up_proj(self.routed_expert_norm(y)) + self.shared_experts(x)
        return y.view(shape)


# ---- the stack ----------------------------------------------------------------------------------
class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.full = c.is_full(i)
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden_size, c.eps), Norm(c.hidden_size, c.eps)
        self.self_attn = MlaLayer(c) if self.full else KdaLayer(c)
        if i == 0:
            self.mlp = Mlp(c, c.intermediate_size)
        else:
            self.block_sparse_moe = SparseMoe(c)
        for name in ("self_attention_res", "mlp_res"):
            setattr(self, name + "_norm", Norm(c.hidden_size, c.eps))
            setattr(self, name + "_proj", Matrix(1, c.hidden_size, gain=0.0))

    def feed_forward(self, x):
        return self.mlp(x) if hasattr(self, "mlp") else self.block_sparse_moe(x)


def mix(sources, norm, proj, eps):
    """Attention over depth: normalised sources give the scores, raw sources are averaged."""
    if len(sources) == 1:
        return sources[0]
    direction = norm.weight * proj.weight.reshape(-1)
    score = torch.stack([(v @ direction) * torch.rsqrt(v.square().mean(-1) + eps) for v in sources], dim=-1)
    share = score.softmax(-1)
    return sum(v * share[..., n : n + 1] for n, v in enumerate(sources))


class Run:
    """Options and by-products of one forward pass."""

    def __init__(self, steps, sparse, rows=None, gold=None, exact_ties=False, random_choice=None):
        self.causal = torch.ones(steps, steps, dtype=torch.bool).tril()
        self.sparse, self.rows, self.exact_ties, self.random_choice = sparse, rows, exact_ties, random_choice
        self.gold = gold                        # (row, query, key) positions for gold_loss
        self.index_loss = self.gold_loss = 0.0


class Backbone(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_layers))
        self.norm = Norm(c.hidden_size, c.eps)
        self.output_attn_res_norm, self.output_attn_res_proj = Norm(c.hidden_size, c.eps), Matrix(1, c.hidden_size, gain=0.0)

    def forward(self, ids, keep, run):
        c = self.c
        blocks, r = [], self.embed_tokens(ids)
        join = lambda: blocks + [r] if r is not None else list(blocks)
        for i, layer in enumerate(self.layers):
            h = mix(join(), layer.self_attention_res_norm, layer.self_attention_res_proj, c.eps)
            if i % c.attn_res_block_size == 0:
                blocks.append(r)
                r = None
            x = layer.input_layernorm(h)
            a = layer.self_attn(x, run if layer.full else keep)
            r = a if r is None else r + a
            h = mix(join(), layer.mlp_res_norm, layer.mlp_res_proj, c.eps)
            r = r + layer.feed_forward(layer.post_attention_layernorm(h))
        return self.norm(mix(join(), self.output_attn_res_norm, self.output_attn_res_proj, c.eps))


class DemoModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.lm_head = Matrix(config.vocab_size, config.hidden_size, gain=0.5)

    def forward(self, ids, keep=None, run=None):
        """ids [B,T] with T a multiple of SEGMENT -> logits [B,T,V]."""
        if keep is None:
            keep = torch.ones(ids.shape[0], ids.shape[1] // SEGMENT)
        run = run or Run(ids.shape[1], sparse=True, exact_ties=True)
        return linear(self.model(ids, keep, run), self.lm_head.weight, exact=True)

    def padded_logits(self, ids, **options):
        """Logits of sequences of any length, under the inference rule."""
        steps = ids.shape[1]
        padded = F.pad(ids, (0, -steps % SEGMENT))
        run = Run(padded.shape[1], sparse=True, exact_ties=True, **options)
        return self.forward(padded, None, run)[:, :steps]

    def moe_layers(self):
        return [layer.block_sparse_moe for layer in self.model.layers if hasattr(layer, "block_sparse_moe")]

    def balance(self, loads, rate):
        """Auxiliary-free load balancing: nudge every expert's selection bias towards the mean load."""
        for moe, load in zip(self.moe_layers(), loads):
            moe.gate.e_score_correction_bias += rate * torch.sign(load.mean() - load)
