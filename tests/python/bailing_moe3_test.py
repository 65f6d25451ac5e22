"""models/bailing_moe3.py has no golden yet: its config is read strictly, and its graph is what the config describes."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "models"))
import config  # noqa: E402
import tracing  # noqa: E402

TEXT = (ROOT / "tests/data/bailing_moe3/config.json").read_text()
# Known and without effect (models/layers/decoder.py).
IGNORED = {"architectures", "torch_dtype"}


def traced(**changes):
    settings = {**json.loads(TEXT), **changes}
    return tracing.trace(json.dumps({key: value for key, value in settings.items() if value != "absent"}))


class BailingMoe3(unittest.TestCase):
    def refused(self, **changes):
        with self.assertRaises(config.ConfigError) as caught:
            traced(**changes)
        return str(caught.exception)

    def test_every_key_is_read_or_known(self):
        self.assertEqual(tracing.family_of(json.loads(TEXT)).__name__, "bailing_moe3")
        for key in json.loads(TEXT):
            with self.subTest(key):
                if key in IGNORED:
                    self.assertEqual(str(traced(**{key: "absent"})[0]), str(traced()[0]))
                else:
                    self.assertIn(key, self.refused(**{key: "absent"}))
        self.assertIn("a_new_switch", self.refused(a_new_switch=True))

    def test_what_is_not_implemented_is_named(self):
        for key, value in [("no_kda_lora", False), ("kda_safe_gate", False), ("kda_lower_bound", 0.0),
                           ("gated_attention_proj_granularity_type", "element_wise"), ("score_function", "softmax"),
                           ("hidden_act", "gelu"), ("layer_group_size", 3), ("num_key_value_heads", 1), ("n_group", 3),
                           ("topk_group", 3), ("num_experts_per_tok", 5), ("qk_rope_head_dim", 7), ("q_lora_rank", None),
                           ("rope_scaling", {"rope_type": "other"}), ("short_conv_kernel_size", 9)]:
            with self.subTest(key):
                self.assertIn(key if key != "rope_scaling" else "rope_type", self.refused(**{key: value}))

    def test_the_graph_is_what_the_config_says(self):
        graph, facts = traced()
        lines = str(graph).splitlines()

        def of(what):
            return [line for line in lines if what in line]

        self.assertEqual(len(of("= kda(")), 2)  # layers 0 and 2
        self.assertEqual(len(of("= mla(")), 2)  # layers 1 and 3
        for line in of("= kda("):
            self.assertIn("lower_bound=-5", line)
            self.assertIn("bounded", line)
        self.assertTrue(of("model.layers.0.attention.f_proj.weight") and of("model.layers.0.attention.o_proj.weight"))
        self.assertTrue(of("model.layers.1.attention.g_proj.weight") and of("model.layers.1.attention.dense.weight"))
        self.assertEqual(len(of("= sigmoid_scale(")), 2)
        for line in of("= sigmoid_scale("):
            self.assertIn("heads=2", line)
        for line in of("= rope("):
            self.assertIn("interleaved", line)
        self.assertEqual(len(of("= moe_experts(")), 3)  # the first layer is dense
        self.assertTrue(of("model.layers.1.mlp.gate.expert_bias") and of("model.word_embeddings.weight"))
        self.assertEqual(facts, {"max_context": 4096, "vocab_size": 96, "eos_token_ids": []})


if __name__ == "__main__":
    unittest.main()
