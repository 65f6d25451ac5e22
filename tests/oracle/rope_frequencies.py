"""Writes tests/data/rope_frequencies.json: rotary frequencies by an independent implementation (transformers).

    python rope_frequencies.py      (needs transformers and torch; run from anywhere)
"""
import json
import pathlib

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

TARGET = pathlib.Path(__file__).parents[1] / "data/rope_frequencies.json"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
CASES = [  # (rotated channels, base, settings)
    (128, 5e5, LLAMA3),
    (64, 5e5, {**LLAMA3, "factor": 32.0}),
    (30, 1e4, {**LLAMA3, "original_max_position_embeddings": 64}),
    (64, 1e4, {"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
               "original_max_position_embeddings": 4096}),
    (64, 5e4, {"rope_type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
               "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}),
    (64, 1.5e5, {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                 "original_max_position_embeddings": 4096}),
    (128, 1e6, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    (16, 1e4, {"rope_type": "yarn", "factor": 8, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 1.3,
               "original_max_position_embeddings": 64}),
    (48, 1e4, {"rope_type": "yarn", "factor": 3.0, "attention_factor": 1.25, "original_max_position_embeddings": 512}),
    (128, 1e6, {"rope_type": "linear", "factor": 8.0}),
]

out = []
for dim, base, settings in CASES:
    config = LlamaConfig(head_dim=dim, hidden_size=dim, num_attention_heads=1, max_position_embeddings=1 << 17,
                         rope_parameters={**settings, "rope_theta": base})
    frequencies, scale = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, "cpu")
    out.append({"dim": dim, "rope_theta": base, "rope_scaling": settings, "scale": scale,
                "frequencies": [float(f) for f in frequencies]})
TARGET.write_text(json.dumps(out) + "\n")
print(len(out), "cases")
