"""The plain pre-norm decoder that most families share.

    h = embed[ids]
    for i:  h = h + attend_i(norm(h));  h = h + feed_i(norm(h))
    logits = lm_head(norm(h))
"""
import firstlight as fl
from layers.weights import Weights

# Keys of config.json about training, storage and libraries, without effect on inference. (The tokenizer's files say
# which ids begin a text and fill a batch.)
BOILERPLATE = """
architectures auto_map model_type dtype torch_dtype initializer_range transformers_version use_cache attention_dropout
_name_or_path bos_token_id pad_token_id
"""

# Library defaults that a text_config inside of a larger config carries along, without effect on inference. (top_k is
# a sampling default, not the number of experts.)
TEXT_BOILERPLATE = """
_name_or_path add_cross_attention bad_words_ids begin_suppress_tokens chunk_size_feed_forward
cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample early_stopping
encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task forced_bos_token_id
forced_eos_token_id id2label is_decoder is_encoder_decoder label2id length_penalty max_length min_length
no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states
output_scores prefix problem_type pruned_heads remove_invalid_values repetition_penalty return_dict
return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
tie_encoder_decoder tokenizer_class top_k top_p torchscript typical_p use_bfloat16
"""


def read_decoder(c, why_no_end=None, dense=True):
    """The keys that every decoder has. `why_no_end`: the family's configs may omit `eos_token_id`, and why. `dense`:
    they have the width of a plain feed-forward layer.
    """
    c.ignore(BOILERPLATE)
    c.ints("vocab_size hidden_size" + " intermediate_size" * dense)
    c.ints("num_hidden_layers", high=4096)
    c.ints("max_position_embeddings", high=1 << 32)
    c.token_ids("eos_token_id", why_no_end)
    c.floats("rms_norm_eps", low=1e-12, high=0.1)


def decoder(g, c, attend, feed, *, prefix="model.", embedding="embed_tokens", head="lm_head.weight", weight_offset=0.0):
    """`attend(x, w, i)` and `feed(x, w, i)` compute layer i; w is at the layer."""
    w = Weights(g, prefix)

    def norm(x, w, name):
        return fl.rms_norm(x, w(f"{name}.weight", c.hidden_size), eps=c.rms_norm_eps, weight_offset=weight_offset)

    g.scope("embedding")
    h = fl.embedding(g.tokens(), w(f"{embedding}.weight", c.vocab_size, c.hidden_size))
    g.name(h, "hidden.0")
    for i in range(c.num_hidden_layers):
        layer = w.at(f"layers.{i}")
        g.scope(f"layers.{i}.attention")
        h = fl.add(h, attend(norm(h, layer, "input_layernorm"), layer, i))
        g.scope(f"layers.{i}.mlp")
        h = fl.add(h, feed(norm(h, layer, "post_attention_layernorm"), layer, i))
        g.name(h, f"hidden.{i + 1}")
    g.scope("head")
    return finish(g, c, norm(h, w, "norm"), w, head, embedding)


def finish(g, c, final, w, head="lm_head.weight", embedding="embed_tokens"):
    """Logits of the final rows, and the facts that the engine needs."""
    g.name(final, "final")
    if c.tie_word_embeddings:
        table = w(f"{embedding}.weight", c.vocab_size, c.hidden_size)
        g.not_computed(head, "the embedding is used (tie_word_embeddings)", copy_of=f"{w.prefix}{embedding}.weight")
    else:
        table = g.weight(head, [c.vocab_size, c.hidden_size])
    g.logits(fl.linear(fl.sampled_rows(final), table))
    return {"max_context": c.max_position_embeddings, "vocab_size": c.vocab_size, "eos_token_ids": c.eos_token_id}
