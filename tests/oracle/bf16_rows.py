"""What rounding costs the reference in bf16, row by row over many prompts, for cases in which the few rows of
expect.safetensors are a poor sample: one choice of an expert that falls otherwise moves such a row a hundredfold.

    python bf16_rows.py CASE...      (needs torch, transformers and safetensors; run from anywhere)

Writes tests/data/goldens/CASE/rows_bf16.safetensors: p<i>.ids [n] int32, and p<i>.divergence [n] f32, the KL in nats
of the next token's distribution in bf16 against f32, both of the reference implementation.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, Mxfp4Config

GOLDENS = pathlib.Path(__file__).parents[1] / "data/goldens"


def log_probabilities(folder, dtype, prompts):
    quantised = {"quantization_config": Mxfp4Config(dequantize=True)} if "gpt_oss" in folder.name else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **quantised).eval()
    with torch.no_grad():
        return [model(ids.long()[None]).logits[0].double().log_softmax(-1) for ids in prompts]


torch.manual_seed(1)
for case in sys.argv[1:]:
    vocabulary = AutoConfig.from_pretrained(GOLDENS / case).vocab_size
    prompts = [torch.randint(0, vocabulary, (40 + 7 * i,), dtype=torch.int32) for i in range(30)]
    f32 = log_probabilities(GOLDENS / case, torch.float32, prompts)
    bf16 = log_probabilities(GOLDENS / case, torch.bfloat16, prompts)
    tensors = {}
    for i, (ids, want, got) in enumerate(zip(prompts, f32, bf16)):
        tensors[f"p{i}.ids"] = ids
        tensors[f"p{i}.divergence"] = (want.exp() * (want - got)).sum(-1).float().contiguous()
    save_file(tensors, GOLDENS / case / "rows_bf16.safetensors")
