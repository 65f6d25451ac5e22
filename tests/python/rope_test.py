"""Rotary frequencies of models/layers/rope.py against those of an independent implementation."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "models"))
from config import ConfigError, Section  # noqa: E402
from layers.rope import read_rope  # noqa: E402

CASES = json.loads((ROOT / "tests/data/rope_frequencies.json").read_text())


def read(config, **how):
    c = Section(config)
    rope = read_rope(c, **how)
    c.finish()
    return rope


class RopeTest(unittest.TestCase):
    def test_frequencies_and_scale_in_both_forms_of_config(self):
        for case in CASES:
            scaling = case["rope_scaling"]
            older = {"type" if k == "rope_type" else k: v for k, v in scaling.items()}
            forms = [{"rope_theta": case["rope_theta"], "rope_scaling": scaling},
                     {"rope_theta": case["rope_theta"], "rope_scaling": older},
                     {"rope_parameters": {"rope_theta": case["rope_theta"], **scaling}}]
            for form in forms:
                with self.subTest(form=form):
                    rope = read(form)
                    self.assertAlmostEqual(rope.angle_scale, case["scale"], places=12)
                    found = rope.frequencies(case["dim"])
                    self.assertEqual(len(found), len(case["frequencies"]))
                    for ours, theirs in zip(found, case["frequencies"]):
                        self.assertLess(abs(ours - theirs), 1e-6 * theirs)  # theirs are f32

    def test_plain(self):
        self.assertEqual(read({"rope_theta": 100.0, "rope_scaling": None}).frequencies(4), [1.0, 0.1])
        self.assertEqual(read({"rope_theta": 100.0}, why_plain="omitted").frequencies(4), [1.0, 0.1])

    def test_what_is_wrong_is_named(self):
        yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
        cases = [
            ({"rope_theta": 1e4}, {}, "`rope_scaling` is missing"),
            ({"rope_scaling": None}, {}, "`rope_theta`"),
            ({}, {}, "`rope_parameters`"),
            ({"rope_theta": 1e4, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, {}, "'dynamic'"),
            ({"rope_theta": 1e4, "rope_scaling": {**yarn, "type": "linear"}}, {}, "rope_type` differ"),
            ({"rope_theta": 1e4, "rope_scaling": {**yarn, "low_freq_factor": 1.0}}, {}, "`rope_scaling.low_freq_factor`"),
            ({"rope_theta": 1e4, "rope_scaling": {**yarn, "beta_fast": 0.5}}, {}, "`rope_scaling.beta_slow`"),
            ({"rope_theta": 1e4, "rope_scaling": yarn}, {"yarn": "beta_fast truncate"}, "`rope_scaling.beta_fast`"),
            ({"rope_theta": 1e4, "rope_scaling": yarn}, {"yarn": "truncate"}, "`rope_scaling.truncate`"),
            ({"rope_theta": "big", "rope_scaling": None}, {}, "`rope_theta`"),
            ({"rope_parameters": {**yarn}}, {}, "`rope_parameters.rope_theta`"),
            ({"rope_parameters": {"rope_theta": 1e4}}, {}, "`rope_parameters.rope_type`"),
            ({"rope_parameters": 3}, {}, "`rope_parameters`"),
        ]
        for config, how, text in cases:
            with self.subTest(config=config), self.assertRaises(ConfigError) as error:
                read(config, **how)
            self.assertIn(text, str(error.exception))


if __name__ == "__main__":
    unittest.main()
