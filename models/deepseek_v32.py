"""DeepSeek-V3.2: DeepSeek-V3 whose layers attend only what an indexer chose (d:2, arXiv 2512.02556).

MLA rotates interleaved pairs, the indexer halves (d:2).
"""
import firstlight as fl
from layers.deepseek import build_deepseek, read_deepseek
from layers.latent import indexer, read_indexer
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "deepseek_v32"


def read(c):
    read_deepseek(c)
    c.rope = read_rope(c, yarn="beta_fast beta_slow mscale mscale_all_dim")
    read_indexer(c, absent="every layer owns an indexer")
    c.index_kpool = 1
    if c.complete:
        c.require(c.qk_rope_head_dim <= c.index_head_dim, "`index_head_dim` must hold the `qk_rope_head_dim` rotated channels")
    return c


def build(g, c):
    def choose(x, cq, w, i, angles):
        chosen = indexer(x, cq, w.at("indexer"), c, lambda y, heads: fl.rope(y, angles, heads=heads, layout="half"))
        g.name(chosen, f"topk.{i}")
        return chosen

    return build_deepseek(g, c, choose)
