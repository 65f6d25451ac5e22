"""GLM-5: DeepSeek-V3.2's structure with plain rotation; since GLM-5.2 most layers share the choice of an earlier one
(d:1.1)."""
import firstlight as fl
from layers.deepseek import build_deepseek, is_sparse, read_deepseek
from layers.latent import indexer, layer_kinds, read_indexer
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "glm_moe_dsa"


def read(c):
    read_deepseek(c)
    c.rope = read_rope(c)
    read_indexer(c, absent="GLM-5: every layer owns an indexer", listed=True)
    c.index_kpool = 1
    c.fixed(rope_interleave=True, indexer_rope_interleave=True)
    c.ints("qk_head_dim")
    # d:1.1: head_dim is not the rotary width; the other two concern drafts and what the router always does here.
    c.ignore("head_dim index_share_for_mtp_iteration moe_router_dtype")
    if c.has("indexer_types"):  # since GLM-5.2
        c.text_lists("mlp_layer_types")
        c.optional_text("index_topk_pattern")
    if c.complete:
        c.kinds = layer_kinds(c, list(range(c.num_hidden_layers)))
        c.require(c.qk_head_dim == c.qk_nope_head_dim + c.qk_rope_head_dim,
                  "`qk_head_dim` must be `qk_nope_head_dim` + `qk_rope_head_dim`")
        c.require(c.qk_rope_head_dim <= c.index_head_dim, "`index_head_dim` must hold the `qk_rope_head_dim` rotated channels")
        stated = ["sparse" if is_sparse(c, i) else "dense" for i in range(c.num_hidden_layers)]
        c.require(not c.has("indexer_types") or c.mlp_layer_types == stated,
                  "`mlp_layer_types` contradicts `first_k_dense_replace` and `moe_layer_freq`")
    return c


def build(g, c):
    chosen = None

    def choose(x, cq, w, i, angles):
        nonlocal chosen
        if c.kinds[i] == "full":
            chosen = indexer(x, cq, w.at("indexer"), c,
                             lambda y, heads: fl.rope(y, angles, heads=heads, layout="interleaved"))
            g.name(chosen, f"topk.{i}")
        return chosen

    return build_deepseek(g, c, choose)
