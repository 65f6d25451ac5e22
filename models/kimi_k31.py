"""Kimi-K3 with DeepSeek Sparse Attention on its full-attention layers (d:5): K3's layers, plus the indexer.

A "full" layer scores for itself; a "shared" one owns no indexer and attends what the nearest full layer before
it chose.
"""
import kimi_k3
from layers.kimi import check_backbone, has_indexer
from layers.latent import indexer, layer_kinds, mla, read_indexer


def serves(config):
    return config.get("model_type") == "kimi_k3" and has_indexer(config)


def read(root):
    c = kimi_k3.read_text(root)
    read_indexer(c)
    # GLM-5.3-Flash carries it with rotation off (mla_use_nope): without effect.
    c.ignore("indexer_rope_interleave")
    if c.has("index_kpool") or c.has("index_kpool_compress") or c.has("index_kpool_always_select_tail"):
        c.ints("index_kpool")
        c.fixed(index_kpool_compress=True)
        c.flags("index_kpool_always_select_tail")
    else:
        c.default("configs without pooled index keys (DeepSeek-V3.2, GLM-5) omit it", index_kpool=1)
    if c.complete:
        check_backbone(c)
        c.kinds = layer_kinds(c, [i - 1 for i in c.linear_attn_config.full_attn_layers])
        c.require(64 % c.index_kpool == 0 and c.index_topk % c.index_kpool == 0,
                  "`text_config.index_kpool` must divide 64 (the tokens of a cache page) and `index_topk`")
        c.require(c.q_lora_rank is not None, "`text_config.q_lora_rank` must not be null: the indexer reads the query latent")
    return c


def build(g, c):
    chosen = None

    def sparse_attention(x, w, i):
        def choose(x, cq):
            nonlocal chosen
            if c.kinds[i] == "full":
                chosen = indexer(x, cq, w.at("indexer"), c)
            g.name(chosen, f"topk.{i}")
            return chosen

        return mla(x, w, c, choose)

    return kimi_k3.build_text(g, c, sparse_attention)
