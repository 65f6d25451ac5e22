"""Muon for matrices, with equal shapes orthogonalised together; everything else goes to AdamW."""
from collections import defaultdict

import torch


def orthogonalise(g, rounds=5):
    """Newton-Schulz iteration towards the nearest (semi-)orthogonal matrix; g [.., rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    # BF16 is enough: the result only has to be roughly orthogonal
    g = g.to(torch.bfloat16)
    wide = g if g.shape[-2] <= g.shape[-1] else g.transpose(-1, -2)
    x = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x if g.shape[-2] <= g.shape[-1] else x.transpose(-1, -2)).float()


class Muon(torch.optim.Optimizer):
    """`share` (rank, ranks, add) spreads the work: every rank orthogonalises some of the shapes, and
    `add` sums a flat tensor over the ranks."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, share=(0, 1, None)):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.rank, self.ranks, self.add = share

    def owners(self, shapes):
        """Shapes to ranks, by falling cost, each to the least loaded rank."""
        cost = {s: sum(p.numel() for p in ps) * min(s) for s, ps in shapes.items()}
        load, owner = [0] * self.ranks, {}
        for s in sorted(cost, key=lambda s: (-cost[s], s)):
            owner[s] = load.index(min(load))
            load[owner[s]] += cost[s]
        return owner

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape[-2:]].append(p)
            owner = self.owners(shapes)
            updates = {}
            for shape, params in shapes.items():
                for p in params:
                    m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    updates[p] = torch.zeros_like(p).view(-1, *shape)
                if owner[shape] == self.rank:
                    g = torch.cat([p.grad.lerp(self.state[p]["momentum"], group["momentum"]).view(-1, *shape) for p in params])
                    g = orthogonalise(g) * max(1.0, shape[0] / shape[1]) ** 0.5
                    for p, u in zip(params, g.split([len(updates[p]) for p in params])):
                        updates[p] = u
            flat = torch.cat([u.reshape(-1) for u in updates.values()])
            if self.add:
                self.add(flat)
            for p, u in zip(updates, flat.split([p.numel() for p in updates])):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(u.view(p.shape), alpha=-group["lr"])
