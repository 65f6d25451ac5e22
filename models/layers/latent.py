"""Latent attention (MLA) and the indexer of sparse attention (DSA).

"k:n" and "d:n" point to sections of the specifications (docs/spec-sources.md); DeepSeek-V2 (MLA), arXiv 2405.04434;
DeepSeek-V3.2 (DSA), 2512.02556.
"""
import firstlight as fl
from config import LARGEST_HEAD

# k:3.1, d:3: the first-party code builds q_a_layernorm and kv_a_layernorm with the class default, whatever
# rms_norm_eps says.
LATENT_EPS = 1e-6
# Positions a row may choose; published models choose 2048. A step holds a list that wide for each of its rows.
LARGEST_CHOICE = 1 << 13
# d:2: the LayerNorm of the index key.
INDEX_KEY_EPS = 1e-6


def mla(x, w, c, choose=None, rotate=None, magnitude=1.0, out="o_proj", eps=LATENT_EPS):
    """Multi-head latent attention, k:3.4 and d:3, in its absorbed form, up to the heads' outputs and W_o.

    `choose(x, cq)` returns the positions attended by each row (DSA), or is None for dense attention.
    `rotate(y, heads, offset)` rotates the last channels of each head, or is None. `magnitude`: factor of the scores.
    `c.output_gate`: False, True (one gate a channel) or "head" (one a head). `out`: the name of W_o. `eps`: of the two norms.
    """
    heads, nope, rope, vdim = c.num_attention_heads, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    hidden, rank = c.hidden_size, c.kv_lora_rank
    if c.q_lora_rank is None:
        cq, q = None, fl.linear(x, w("q_proj.weight", heads * (nope + rope), hidden))
    else:
        cq = fl.linear(x, w("q_a_proj.weight", c.q_lora_rank, hidden))
        cq = fl.rms_norm(cq, w("q_a_layernorm.weight", c.q_lora_rank), eps=eps)
        q = fl.linear(cq, w("q_b_proj.weight", heads * (nope + rope), c.q_lora_rank))
    latent, k_pe = fl.linear(x, w("kv_a_proj_with_mqa.weight", rank + rope, hidden)), None
    if rope > 0:
        latent, k_pe = fl.split(latent, at=rank)
    latent = fl.rms_norm(latent, w("kv_a_layernorm.weight", rank), eps=eps)  # k_pe is not normed
    if rotate is not None:
        q, k_pe = rotate(q, heads, nope), rotate(k_pe, 1, 0)
    o = fl.mla(
        q, latent, k_pe, w("kv_b_proj.weight", heads * (nope + vdim), rank),
        None if choose is None else choose(x, cq),
        heads=heads, nope_dim=nope, rope_dim=rope, v_dim=vdim,
        scale=(nope + rope) ** -0.5 * magnitude,  # an unrotated rope part counts
    )
    if c.output_gate == "head":
        o = fl.sigmoid_scale(o, fl.linear(x, w("g_proj.weight", heads, hidden)), heads=heads)
    elif c.output_gate:
        o = fl.sigmoid_mul(o, fl.linear(x, w("g_proj.weight", heads * vdim, hidden)))
    return fl.linear(o, w(f"{out}.weight", hidden, heads * vdim))


def indexer(x, cq, w, c, rotate=None):
    """The lightning indexer of DSA, d:2 and (pooled keys) d:2.1. `rotate(y, heads)` rotates the first channels of
    each head, or is None."""
    heads, dim, pool = c.index_n_heads, c.index_head_dim, c.index_kpool
    q = fl.linear(cq, w("wq_b.weight", heads * dim, c.q_lora_rank))
    k = fl.linear(x, w("wk.weight", dim, c.hidden_size))
    k = fl.layer_norm(k, w("k_norm.weight", dim), w("k_norm.bias", dim), eps=INDEX_KEY_EPS)
    if rotate is not None:
        q, k = rotate(q, heads), rotate(k, 1)
    weight = fl.linear(x, w("weights_proj.weight", heads, c.hidden_size), precision="f32")
    if pool == 1:
        return fl.dsa_index(q, k, weight, heads=heads, dim=dim, topk=c.index_topk)
    gate = fl.linear(x, w("index_kpool_compress_gate", dim, c.hidden_size))
    ape = w("index_kpool_compress_ape", pool, dim)
    return fl.dsa_index(q, k, weight, gate, ape, heads=heads, dim=dim, topk=c.index_topk, kpool=pool,
                        select_tail=c.index_kpool_always_select_tail)


def read_indexer(c, absent=None, listed=False):
    """The keys of the indexer: its sizes, and which layers own one. `absent`: why every layer does when no key says;
    `listed`: the family's configs that give a rule give the list that follows from it too."""
    c.ints("index_n_heads index_head_dim", high=LARGEST_HEAD)
    c.ints("index_topk", high=LARGEST_CHOICE)
    rule = c.has("index_topk_pattern") or c.has("index_topk_freq") or c.has("index_skip_topk_offset")
    if c.has("indexer_types") or listed and rule or absent is None and not rule:
        c.text_lists("indexer_types")
    if c.has("index_topk_pattern"):
        c.optional_text("index_topk_pattern")
    if c.has("index_topk_freq") or c.has("index_skip_topk_offset"):
        c.ints("index_topk_freq")
        c.ints("index_skip_topk_offset", low=0)


def layer_kinds(c, attending):
    """ "full" or "shared" for each layer (0-based): whether it owns an indexer, or attends what the nearest full layer
    before it chose. d:1.1: a list, a pattern, or a frequency with an offset; those that are given must agree.
    `attending`: the layers that attend at all; entries of the others mean nothing."""
    count, stated = c.num_hidden_layers, {}
    if getattr(c, "indexer_types", None) is not None:
        stated["indexer_types"] = c.indexer_types
    if getattr(c, "index_topk_pattern", None) is not None:
        stated["index_topk_pattern"] = [{"F": "full", "S": "shared"}.get(letter) for letter in c.index_topk_pattern]
    if hasattr(c, "index_topk_freq"):
        offset, freq = c.index_skip_topk_offset, c.index_topk_freq
        stated["index_topk_freq"] = ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(count)]
    kinds, first = ["full"] * count, min(attending, default=0)
    for name, found in stated.items():
        kinds, where = found, f"`{c.path + '.' if c.path else ''}{name}`"
        good = len(kinds) == count and set(kinds) <= {"full", "shared"}
        c.require(good, f"{where} must say for each of the {count} layers whether it is full or shared")
        c.require(not good or kinds[first] == "full", f"{where}: the first full-attention layer cannot share a choice")
    lists = [[kinds[i] for i in attending] for kinds in stated.values() if len(kinds) == count]
    c.require(all(one == lists[0] for one in lists), f"{' and '.join(f'`{name}`' for name in stated)} contradict each other")
    return kinds
