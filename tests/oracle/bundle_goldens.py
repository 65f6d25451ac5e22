"""Copies the golden cases that the tests carry with them, with a few prompts each.

    python bundle_goldens.py GOLDENS      (needs safetensors and numpy; run from anywhere)

GOLDENS is the folder of all cases; each is a checkpoint with expect.safetensors.
"""
import pathlib
import shutil
import sys

from safetensors.numpy import load_file, save_file

TARGET = pathlib.Path(__file__).parents[1] / "data/goldens"
CASES = {  # prompts that show single tokens, a chunk's tail, and rows beyond index_topk
    "kimi_linear_b": ("p1", "p2", "p4"),
    "kimi_k3_text_a": ("p1", "p4"),
    "kimi_k31_b": ("p1", "p2", "p4", "p5"),
    "kimi_k31_c": ("p2", "p4", "p5"),
    "deepseek_v32_b": ("p1", "p5"),
    "deepseek_v32_fp8_f32scale": ("p1", "p3"),
    "glm_moe_dsa_shared": ("p1", "p5"),
    "gpt_oss": ("p1", "p4", "p5"),
    "gemma3_text": ("p1", "p4", "p5"),
    "llama3_scaled": ("p1", "p4", "p5"),
    "minimax_m2": ("p1", "p4", "p5"),
    "mistral_window": ("p1", "p4", "p5"),
    "mixtral": ("p1", "p4"),
    "qwen3_moe": ("p1", "p4"),
    "qwen3_next": ("p1", "p4", "p5"),
    "qwen3_5_moe": ("p1", "p4", "p5"),
}

for case, prompts in CASES.items():
    source, target = pathlib.Path(sys.argv[1]) / case, TARGET / case
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(source / name, target / name)
    expect = load_file(source / "expect.safetensors")
    kept = {k: v for k, v in expect.items() if k.split(".")[0] in prompts and "mixed" not in k}
    save_file(kept, target / "expect.safetensors")
    print(case, len(kept), "tensors")
