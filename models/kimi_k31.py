"""Kimi-K3 with DeepSeek Sparse Attention on its full-attention layers (d:5): K3's layers, plus the indexer.

A "full" layer scores for itself; a "shared" one owns no indexer and attends what the nearest full layer before
it chose.
"""
import kimi_k3
from config import LARGEST_HEAD
from layers.kimi import check_backbone, has_indexer, indexer, mla


def serves(config):
    return config.get("model_type") == "kimi_k3" and has_indexer(config)


def read(root):
    c = kimi_k3.read_text(root)
    c.ints("index_n_heads index_head_dim index_topk", high=LARGEST_HEAD)
    # Published names of the same statement, in the order of precedence: which layers own an indexer.
    if c.has("index_topk_pattern"):
        c.texts("index_topk_pattern")
    elif c.has("index_topk_freq") or c.has("index_skip_topk_offset"):
        c.ints("index_topk_freq")
        c.ints("index_skip_topk_offset", low=0)
    else:
        c.text_lists("indexer_types")
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
        c.kinds = layer_kinds(c)
        c.require(64 % c.index_kpool == 0 and c.index_topk % c.index_kpool == 0,
                  "`text_config.index_kpool` must divide 64 (the tokens of a cache page) and `index_topk`")
        c.require(c.q_lora_rank is not None, "`text_config.q_lora_rank` must not be null: the indexer reads the query latent")
    return c


def layer_kinds(c):
    """ "full" or "shared" for each layer of the stack (0-based); entries of KDA layers mean nothing (d:1.1, d:5)."""
    count = c.num_hidden_layers
    if hasattr(c, "index_topk_pattern"):
        kinds = ["full" if letter == "F" else "shared" if letter == "S" else None for letter in c.index_topk_pattern]
        source = "index_topk_pattern"
    elif hasattr(c, "index_topk_freq"):
        offset, freq = c.index_skip_topk_offset, c.index_topk_freq
        kinds = ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(count)]
        source = "index_topk_freq"
    else:
        kinds, source = c.indexer_types, "indexer_types"
    good = len(kinds) == count and set(kinds) <= {"full", "shared"}
    c.require(good, f"`text_config.{source}` must say for each of the {count} layers whether it is full or shared")
    first = min(c.linear_attn_config.full_attn_layers, default=1)
    c.require(not good or kinds[first - 1] == "full", f"`text_config.{source}`: the first full-attention layer cannot share a choice")
    return kinds


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
