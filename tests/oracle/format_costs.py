"""What rounding the demo model's weights costs, in PyTorch: mean KL against f32 over the stored held-out windows.

    python3 tests/oracle/format_costs.py [--write]

The first figure is that of the reference implementation (FIRSTLIGHT_SHARED/goldens/make) with every operator's result rounded to
bf16: what 8 bits are measured against.

    bf16_steps

In the others weights are rounded to nearest and everything is computed in f32, so the figures are those of the weights alone:

    int8      a scale max|w| / 127 for each output
    int4      a scale max|w| / 7.5 for each output and 32 inputs, rounded to bf16
    mxfp4     E2M1 with the better of two powers of two for each output and 32 inputs

With --write the figures go to demo/eval/format_costs.json, which tests compare with.
Needs torch, numpy, safetensors, regex; about a minute.
"""
import argparse
import json
import os
import sys

import torch
from safetensors.torch import load_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "demo_model"))
from export import load_folder  # noqa: E402

GROUP = 32
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
# What the engine does not hold in the chosen format: routers, scores of the indexer, the mixing over depth, embeddings.
PLAIN = ("block_sparse_moe.gate.weight", "indexer.weights_proj.weight", "_res_proj.weight", "embed_tokens.weight")
ONLY_IN_8_BITS = "kv_b_proj.weight"  # the matrix that latent attention takes apart


def int8(w):
    scale = w.abs().amax(-1, keepdim=True) / 127
    return torch.round(w / scale).clamp(-127, 127) * scale


def int4(w):
    groups = w.unflatten(-1, (-1, GROUP))
    scale = (groups.abs().amax(-1, keepdim=True) / 7.5).bfloat16().float()
    codes = torch.where(scale > 0, torch.round(groups / scale), 0).clamp(-8, 7)
    return (codes * scale).flatten(-2)


def to_e2m1(x):
    middles = (E2M1[1:] + E2M1[:-1]) / 2
    return torch.copysign(E2M1[torch.bucketize(x.abs(), middles)], x)


def mxfp4(w):
    groups = w.unflatten(-1, (-1, GROUP))
    low = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
    tries = [to_e2m1(groups / 2**e) * 2**e for e in (low, low + 1)]
    errors = [((t - groups) ** 2).sum(-1, keepdim=True) for t in tries]
    return torch.where(errors[0] <= errors[1], *tries).flatten(-2)


def is_rounded(name, w, bits):
    if name.endswith(ONLY_IN_8_BITS):
        return bits == 8
    return w.ndim >= 2 and "conv1d" not in name and not name.endswith(PLAIN)


@torch.no_grad()
def log_probabilities(model, windows):
    return model.padded_logits(windows).double().log_softmax(-1)


@torch.no_grad()
def bf16_steps(folder, windows):
    sys.path.insert(0, os.path.join(os.environ["FIRSTLIGHT_SHARED"], "goldens", "make"))
    from k3_reference import K3Reference
    reference = K3Reference(folder, bf16_steps=True)
    logits = [reference.forward(w.long())["logits"].double() for w in windows]
    return torch.stack(logits).log_softmax(-1)


def mean_kl(p, q):
    return (p.exp() * (p - q)).sum(-1).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folder = os.path.join(ROOT, "demo")
    windows = torch.stack(list(load_file(os.path.join(folder, "eval", "heldout.safetensors")).values()))
    model, _ = load_folder(os.path.join(folder, "model"))
    state = {k: v.clone() for k, v in model.state_dict().items()}
    exact = log_probabilities(model, windows)
    costs = {"bf16_steps": mean_kl(exact, bf16_steps(os.path.join(folder, "model"), windows))}
    print("bf16_steps", f"{costs['bf16_steps']:.6g}", flush=True)
    for name, rounded in (("int8", int8), ("int4", int4), ("mxfp4", mxfp4)):
        bits = 8 if name == "int8" else 4
        model.load_state_dict({k: rounded(v) if is_rounded(k, v, bits) else v for k, v in state.items()})
        costs[name] = mean_kl(exact, log_probabilities(model, windows))
        print(name, f"{costs[name]:.6g}", flush=True)
    if args.write:
        with open(os.path.join(folder, "eval", "format_costs.json"), "w") as f:
            json.dump({"mean_kl": costs}, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
