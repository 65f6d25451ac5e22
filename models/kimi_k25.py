"""Kimi-K2.5, text: Kimi-K2 inside of a config with vision."""
from layers.decoder import TEXT_BOILERPLATE
from layers.deepseek import build_deepseek, read_deepseek
from layers.rope import read_rope


def serves(config):
    return config.get("model_type") == "kimi_k25"


def read(root):
    root.ignore("architectures auto_map model_type dtype torch_dtype transformers_version ignore_index bos_token_id "
                "pad_token_id use_unified_vision_chunk video_placeholder")
    root.fixed(tie_word_embeddings=False)
    root.token_ids("eos_token_id")
    root.ints("media_placeholder_token_id", low=0)
    root.ignore("vision_config")  # known, not computed yet: its tensors are announced and left out, images are refused
    c = root.section("text_config")
    read_deepseek(c)
    c.rope = read_rope(c, yarn="beta_fast beta_slow mscale mscale_all_dim")
    c.ignore(TEXT_BOILERPLATE)
    if c.complete:
        c.eos_token_id = sorted({*c.eos_token_id, *root.eos_token_id})
        c.image_facts = {"image_token_id": root.media_placeholder_token_id} if root.has("vision_config") else {}
    return c


def build(g, c):
    for prefix in ("vision_tower.", "mm_projector."):
        g.not_computed(prefix, "vision operators do not exist yet: images are refused")
    facts = build_deepseek(g, c, prefix="language_model.model.", head="language_model.lm_head.weight")
    return {**facts, **c.image_facts}
