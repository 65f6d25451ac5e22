"""The module `firstlight` in an ordinary Python: graphs by hand, errors that name things, model files."""
import json
import os
import pathlib
import sys
import unittest

import firstlight as fl

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "models"))
import config  # noqa: E402
import tracing  # noqa: E402
from layers.quantization import read_quantization  # noqa: E402


class Vocabulary(unittest.TestCase):
    def setUp(self):
        self.g = fl.Graph("by hand")
        self.x = fl.embedding(self.g.tokens(), self.g.weight("embed", [10, 8]))

    def test_builds_a_graph(self):
        up, gate = fl.linear(self.x, [self.g.weight("up", [6, 8]), self.g.weight("gate", [6, 8])])
        y = fl.silu_mul(gate, up)
        self.assertEqual(y.shape, [6])
        self.assertEqual(repr(y), "<f32[T, 6]>")
        self.assertIn("silu_mul(%3, up=%2) : f32[T, 6]", str(self.g))

    def test_errors_name_what_is_wrong(self):
        w = self.g.weight("w", [6, 8])
        cases = [
            (lambda: fl.linear(self.x), "`weight` is missing"),
            (lambda: fl.linear(self.x, self.g.weight("v", [6, 7])), "width 8"),
            (lambda: fl.linear(self.x, w, scale=2), "`scale`"),
            (lambda: fl.linear(self.x, w, weight=w), "given twice"),
            (lambda: fl.linear(w, w), "not a weight"),
            (lambda: fl.rms_norm(self.x, self.g.weight("n", [8]), eps="small"), "eps"),
            (lambda: fl.add(self.x, fl.embedding(*self.other())), "another graph"),
            (lambda: self.g.weight("w", [8, 6]), "used with shapes"),
            (lambda: fl.add(self.x, 3), "must be a value"),
        ]
        for call, text in cases:
            with self.assertRaises((ValueError, TypeError)) as caught:
                call()
            self.assertIn(text, str(caught.exception))

    def test_parts_of_a_stack(self):
        stack, width = [4, 12, 8], 6

        def part(e, rows):
            return self.g.weight("experts.gate_up", [width, 8], part_of=stack, at=[e], rows=rows)

        fl.linear(self.x, [part(e, (0, 1, 2)) for e in range(4)])
        fl.linear(self.x, [part(1, (1, 1, 2)), self.g.weight("qkv", [3, 8], part_of=[9, 8], rows=(3, 3))])
        fl.linear(self.x, self.g.weight("down", [5, 8], part_of=[2, 8, 5], at=[1], transposed=True))
        text = str(self.g)
        for line in ("[experts.gate_up[{0..3}].rows(0, 1, 2)]", "[experts.gate_up[1].rows(1, 1, 2), qkv.rows(3, 3)]",
                     "weight=[down[1].T]"):
            self.assertIn(line, text)
        for call, error in [
            (lambda: self.g.weight("experts.gate_up", [6, 8], part_of=[4, 13, 8], at=[0], rows=(0, 1, 2)), "do not fit"),
            (lambda: self.g.weight("experts.gate_up", [8, 8], part_of=[4, 8, 8], at=[0]),
             "used with shapes [4, 12, 8] and [4, 8, 8]"),
            (lambda: part(4, (0, 1, 2)), "weight experts.gate_up: at=[4] of a tensor [4, 12, 8] lies outside"),
            (lambda: self.g.weight("qkv", [4, 8], part_of=[9, 8], rows=(3, 3)), "has shape [3, 8], not [4, 8]"),
            (lambda: self.g.weight("v", [3, 8], rows=(3, 3)), "need `part_of`"),
            (lambda: self.g.weight("v", [3, 8], part_of=[9, 8], rows=(3,)), "(first, count, every)"),
            (lambda: self.g.weight("v", [1 << 40, 8], part_of=[1 << 62, 1 << 62, 8], at=[0]), "larger than any model"),
            (lambda: self.g.weight("down", [2, 8, 5]), "both as it is stored and transposed"),
            (lambda: self.g.weight("e.0", [6, 8], or_part=("e", [4, 12, 8], [0], (0, 5))), "the part of e has [5, 8]"),
            (lambda: self.g.weight("e.0", [6, 8], or_part=("e", [4, 12, 8], [4], (0, 6))), "weight e: at=[4]"),
            (lambda: self.g.weight("e.0", [6, 8], or_part=("e", [1 << 40, 1 << 40, 8], [0], (0, 6))),
             "weight e: shape"),
        ]:
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertIn(error, str(caught.exception))

    def other(self):
        self.second = fl.Graph("second")
        return self.second.tokens(), self.second.weight("embed", [10, 8])

    def test_every_operator_is_documented(self):
        for name in ("linear", "kda", "mla", "dsa_index", "moe_experts", "depth_mix"):
            text = getattr(fl, name).__doc__
            self.assertIn("Source:", text)
            self.assertIn("Inputs:", text)


class QuantizationConfig(unittest.TestCase):
    """models/layers/quantization.py on the forms that published configs have."""

    FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    WEIGHTS = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": 32, "num_bits": 4,
               "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": True, "type": "int"}
    INT4 = {"config_groups": {"group_0": {"input_activations": None, "output_activations": None, "targets": ["Linear"],
                                          "weights": WEIGHTS}},
            "format": "pack-quantized", "ignore": ["lm_head", "re:.*self_attn.*"], "kv_cache_scheme": None,
            "quant_method": "compressed-tensors", "quantization_status": "compressed"}

    def read(self, quantization):
        root = config.Section({"quantization_config": quantization})
        arguments = read_quantization(root)
        root.finish()
        fl.Graph("by hand").quantization(**arguments)
        return arguments

    def fails(self, quantization):
        with self.assertRaises((config.ConfigError, ValueError)) as caught:
            self.read(quantization)
        return str(caught.exception)

    def test_published_forms(self):
        self.assertEqual(self.read(None), {})
        self.assertEqual(self.read(self.FP8), {"format": "fp8", "block": [128, 128], "not_converted": []})
        self.assertEqual(self.read({**self.FP8, "scale_fmt": "ue8m0", "fmt": "float8_e4m3fn",
                                    "modules_to_not_convert": ["gate"]})["not_converted"], ["gate"])
        self.assertEqual(self.read(self.MXFP4), {"format": "mxfp4", "block": [1, 32], "not_converted": ["lm_head"]})
        self.assertEqual(self.read(self.INT4), {"format": "int", "bits": 4, "block": [1, 32],
                                                "not_converted": ["lm_head", "re:.*self_attn.*"]})
        self.assertEqual(self.read(self.weights(num_bits=8, strategy="channel", group_size=None))["block"], [1, 0])

    def weights(self, **changed):
        group = {**self.INT4["config_groups"]["group_0"], "weights": {**self.WEIGHTS, **changed}}
        return {**self.INT4, "config_groups": {"group_0": group}}

    def test_everything_else_is_named(self):
        for key in ("quant_method", "activation_scheme", "weight_block_size"):
            self.assertIn(key, self.fails({k: v for k, v in self.FP8.items() if k != key}))
        for key in self.INT4:
            self.assertIn(key, self.fails({k: v for k, v in self.INT4.items() if k != key}))
        for key in set(self.WEIGHTS) - {"observer", "observer_kwargs"}:
            weights = self.weights()
            del weights["config_groups"]["group_0"]["weights"][key]
            self.assertIn(key, self.fails(weights))
        for quantization, text in [
            ({**self.FP8, "fmt": "e5m2"}, "fmt"), ({**self.FP8, "weight_block_size": [128]}, "weight_block_size"),
            ({**self.FP8, "weight_block_size": [0, 128]}, "weight_block_size"),
            ({**self.FP8, "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
            ({**self.FP8, "brand_new": 1}, "brand_new"), ({**self.FP8, "quant_method": "gptq"}, "quant_method"),
            ({**self.FP8, "quant_method": ["fp8"]}, "quant_method"), ([], "quantization_config"),
            ({**self.INT4, "format": "nvfp4-pack-quantized"}, "format"), (self.weights(num_bits=3), "num_bits"),
            (self.weights(symmetric=False), "symmetric"), (self.weights(type="float"), "type"),
            (self.weights(group_size=None), "group_size"), (self.weights(group_size=0), "group_size"),
            (self.weights(strategy="tensor_group"), "strategy"), (self.weights(scale_dtype="torch.uint8"), "scale_dtype"),
            ({**self.INT4, "sparsity_config": {"format": "dense"}}, "sparsity_config"),
        ]:
            self.assertIn(text, self.fails(quantization))


class ModelFiles(unittest.TestCase):
    def trace(self, folder):
        return tracing.trace((folder / "config.json").read_text())

    def test_published_configs_give_the_reviewed_graphs(self):
        """After a wanted change: firstlight inspect --graph tests/data/configs/X > models/graphs/X.txt"""
        for folder in sorted((ROOT / "tests/data/configs").iterdir()):
            graph, _ = self.trace(folder)
            reviewed = (ROOT / "models/graphs" / (folder.name + ".txt")).read_text()
            self.assertTrue(str(graph) == reviewed, f"the graph of {folder.name} differs from models/graphs")

    def test_each_family_serves_its_own_config_only(self):
        """A golden is named after the file that serves it, and after no other that fits better."""
        families = [path.stem for path in (ROOT / "models").glob("*.py")]
        for folder in sorted((ROOT / "tests/data/goldens").iterdir()):
            text = json.loads((folder / "config.json").read_text())
            expected = max((name for name in families if folder.name.startswith(name)), key=len)
            self.assertEqual(tracing.family_of(text).__name__, expected, folder.name)
        for kind, text in (("brand_new", "kimi_linear"), ([], "`model_type` must be a text"), (None, "`model_type` is missing"),
                           ("x" * 10**6, "`model_type` 'xxx")):
            with self.assertRaises(config.ConfigError) as caught:
                tracing.family_of({"model_type": kind})
            self.assertIn(text, str(caught.exception))
            self.assertLess(len(str(caught.exception)), 1000)

    def test_a_graph_has_no_more_weights_than_a_checkpoint_can_hold(self):
        text = (ROOT / "tests/data/goldens/mixtral/config.json").read_text()
        tracing.trace(text, 200)
        with self.assertRaises(ValueError) as caught:
            tracing.trace(text, 50)
        self.assertIn("more than 50 weights", str(caught.exception))

    def test_a_long_list_of_problems_is_cut(self):
        text = json.loads((ROOT / "tests/data/goldens/mixtral/config.json").read_text())
        text.update({f"switch_{i}": 1 for i in range(1000)}, **{"z" * 10**5: 1})
        with self.assertRaises(config.ConfigError) as caught:
            tracing.trace(json.dumps(text))
        self.assertIn("and 961 more problems", str(caught.exception))
        self.assertLess(len(str(caught.exception)), 10000)

    def test_published_configs(self):
        """Every published config of a served family is read without a complaint."""
        folder = pathlib.Path(os.environ.get("FIRSTLIGHT_SHARED", ROOT / "../shared")) / "data/configs"
        if not folder.is_dir():
            self.skipTest(f"the published configs are not here ({folder})")
        read = []
        for path in sorted(folder.glob("*/config.json")):
            text = path.read_text()
            try:
                tracing.family_of(json.loads(text))
            except config.ConfigError:
                continue
            if "NVFP4" in path.parent.name:  # a weight format that is not read
                with self.assertRaises(config.ConfigError):
                    tracing.trace(text)
                continue
            with self.subTest(path.parent.name):
                tracing.trace(text)
                read.append(path.parent.name)
        self.assertGreaterEqual(len(read), 22)

    def test_layers_that_share_a_choice(self):
        """The three published ways to say it agree: indexer_types, a frequency, a pattern."""
        text = json.loads((ROOT / "tests/data/goldens/kimi_k31_b/config.json").read_text())
        t = text["text_config"]
        del t["indexer_types"]

        def topk_nodes(**keys):
            changed = json.loads(json.dumps(text))
            changed["text_config"].update(keys)
            return str(tracing.trace(json.dumps(changed))[0]).count("dsa_index(")

        full = sorted(i - 1 for i in t["linear_attn_config"]["full_attn_layers"])
        count = t["num_hidden_layers"]
        self.assertEqual(topk_nodes(indexer_types=["full"] * count), len(full))
        self.assertEqual(topk_nodes(index_topk_freq=1, index_skip_topk_offset=0), len(full))
        self.assertEqual(topk_nodes(index_topk_pattern="F" * count), len(full))
        wanted = [i for i in full if max(i - 1 + 1, 0) % 3 == 0]
        if full[0] in wanted:
            self.assertEqual(topk_nodes(index_topk_freq=3, index_skip_topk_offset=1), len(wanted))
        for bad in (dict(index_topk_pattern="F"), dict(indexer_types=["shared"] * count), dict(indexer_types="full")):
            with self.assertRaises(config.ConfigError):
                topk_nodes(**bad)


if __name__ == "__main__":
    unittest.main()
