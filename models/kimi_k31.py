"""Kimi-K3 with DeepSeek Sparse Attention on its full-attention layers (d:5): K3's layers, plus the indexer.

A "full" layer scores for itself; a "shared" one owns no indexer and attends what the nearest full layer before
it chose.
"""
import kimi_k3
from layers.kimi import check_backbone, indexer, mla


def serves(config):
    text = config.get("text_config")
    return config.get("model_type") == "kimi_k3" and isinstance(text, dict) and "index_topk" in text


def read(root):
    c = kimi_k3.read_text(root)
    c.ints("index_n_heads index_head_dim index_topk")
    c.default("without the key every layer scores for itself (released configs before GLM-5.2 omit it)", indexer_types=None)
    c.default("without the key index keys are not pooled (only GLM-5.3-Flash has it)", index_kpool=1)
    pooled = c.index_kpool not in (None, 1)
    if pooled:
        c.fixed(index_kpool_compress=True)
        c.flags("index_kpool_always_select_tail")
    if c.complete:
        check_backbone(c)
        kinds, full = c.indexer_types, sorted(c.linear_attn_config.full_attn_layers)
        listed = isinstance(kinds, list) and len(kinds) == c.num_hidden_layers and set(kinds) <= {"full", "shared"}
        c.require(kinds is None or listed, "`text_config.indexer_types` must hold \"full\" or \"shared\" for each of the layers")
        if listed and full:
            c.require(kinds[full[0] - 1] == "full", "`text_config.indexer_types`: the first full-attention layer cannot share a choice")
        c.require(c.q_lora_rank is not None, "`text_config.q_lora_rank` must not be null: the indexer reads the query latent")
    return c


def build(g, c):
    chosen = None

    def sparse_attention(x, w, i):
        nonlocal chosen
        own = c.indexer_types is None or c.indexer_types[i] == "full"

        def choose(x, cq):
            nonlocal chosen
            if own:
                chosen = indexer(x, cq, w.at("indexer"), c)
            g.name(chosen, f"topk.{i}")
            return chosen

        return mla(x, w, c, choose)

    return kimi_k3.build_text(g, c, sparse_attention)
