"""DeepSeek-V3, R1 and Kimi-K2: dense latent attention (arXiv 2412.19437)."""
from layers.deepseek import build_deepseek, read_deepseek
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") in ("deepseek_v3", "kimi_k2")


def read(c):
    read_deepseek(c)
    c.rope = read_rope(c, yarn="beta_fast beta_slow mscale mscale_all_dim")
    return c


def build(g, c):
    return build_deepseek(g, c)
