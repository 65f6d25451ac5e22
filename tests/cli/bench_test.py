"""firstlight bench and --load-format dummy, on folders that hold a config.json and nothing else."""

import json
import pathlib
import resource
import shutil
import subprocess
import tempfile
import unittest

from harness import MODEL, PATIENCE, PROGRAM, ROOT, environment, main, run

GOLDENS = ROOT / "tests/data/goldens"
BAILING = ROOT / "tests/data/bailing_moe3"


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(GOLDENS / "kimi_linear_b/config.json", self.folder)

    def figures(self, *arguments, folder=None):
        done = run("bench", folder or self.folder, "--load-format", "dummy", "--json", "-", *arguments)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def refused(self, code, message, *arguments):
        done = run("bench", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertRegex(done.stderr, message)

    def test_every_figure_is_there(self):
        out = self.figures("--prompt", "40,9", "--decode", "3", "--depth", "70,0", "--streams", "1,2", "--repeat", "2",
                           "--chunk", "16", "--threads", "2")
        self.assertEqual(out["model"]["family"], "kimi_linear")
        self.assertEqual(out["model"]["load_format"], "dummy")
        self.assertGreater(out["model"]["weight_bytes"], 0)
        self.assertEqual(out["machine"]["threads"], 2)
        for peak in ("read_bytes", "f32_operations", "bf16_operations", "int8_operations"):
            self.assertGreater(out["machine"][f"{peak}_per_second"], 0)
        self.assertEqual([(r["kind"], r["tokens"], r["depth"], r["streams"], r["steps"]) for r in out["results"]], [
            (kind, *row) for depth in (0, 70) for kind, row in [
                ("prefill", (9, depth, 1, 1)), ("prefill", (40, depth, 1, 3)),
                ("decode", (3, depth, 1, 3)), ("decode", (6, depth, 2, 3))]])
        for r in out["results"]:
            self.assertEqual(len(r["runs"]), 2)
            self.assertGreaterEqual(r["tokens_per_second_best"], r["tokens_per_second_median"])
            self.assertAlmostEqual(r["tokens_per_second_best"], r["tokens"] / min(x["seconds"] for x in r["runs"]))
            for name in ("bytes_per_token", "flops_per_token", "share_of_bound_median", "share_of_bound_best"):
                self.assertGreater(r[name], 0)
            self.assertEqual("distinct_experts_per_step" in r, r["kind"] == "decode")
            self.assertNotIn("operators", r)
        at_0, at_70 = out["results"][1], out["results"][5]
        self.assertGreater(at_70["flops_per_token"], at_0["flops_per_token"])

    def test_operators(self):
        out = self.figures("--only", "decode", "--decode", "4", "--repeat", "1", "--operators",
                           "--dtype", "f32")
        (result,) = out["results"]
        rows = {row["operator"]: row for row in result["operators"]}
        self.assertIn("kda (self_attn)", rows)
        self.assertIn("moe_experts (mlp)", rows)
        self.assertIn("linear (head)", rows)
        for row in rows.values():
            self.assertGreater(row["seconds_best"], 0)
            self.assertGreaterEqual(row["seconds_mean"], row["seconds_best"] * (1 - 1e-9))
        self.assertAlmostEqual(sum(row["bytes"] for row in rows.values()), result["bytes_per_token"], delta=1)
        self.assertAlmostEqual(sum(row["flops"] for row in rows.values()), result["flops_per_token"], delta=1)

    def test_a_table_and_a_file(self):
        file = self.folder / "figures.json"
        done = run("bench", BAILING, "--load-format", "dummy", "--only", "prefill", "--prompt", "20", "--repeat", "1",
                   "--depth", "150", "--fast-fill", "64", "--operators", "--json", file)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"(?m)^prefill +20 +150 +1 \|")
        self.assertRegex(done.stdout, r"(?m)^    moe_experts \(mlp\) +3 ")
        self.assertIn("contexts repeat the cache of their first 64 tokens", done.stdout)
        self.assertEqual(json.loads(file.read_text())["fast_fill"], 64)

    def test_a_checkpoint_with_weights(self):
        done = run("bench", GOLDENS / "kimi_linear_b", "--only", "decode", "--decode", "2", "--repeat", "1", "--json", "-")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(done.stdout)["model"]["load_format"], "auto")

    def test_a_run_that_fails_leaves_the_file_of_figures_alone(self):
        figures, link = self.folder / "figures.json", self.folder / "link.json"
        link.symlink_to(figures)
        for path in (figures, link):
            self.refused(1, "nothing/config.json", self.folder / "nothing", "--json", path)
            self.assertFalse(figures.exists())
        figures.write_text("earlier")
        self.refused(1, "nothing/config.json", self.folder / "nothing", "--json", figures)
        self.assertEqual(figures.read_text(), "earlier")
        self.assertTrue(link.is_symlink())

    def test_a_file_that_grows_too_large_leaves_the_earlier_one(self):
        figures = self.folder / "figures.json"
        for earlier in (None, "earlier"):
            if earlier:
                figures.write_text(earlier)
            done = run("bench", self.folder, "--load-format", "dummy", "--only", "decode", "--decode", "2", "--repeat", "1",
                       "--json", figures, limits={resource.RLIMIT_FSIZE: 512})
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr, "figures.json: cannot be written: File too large")
            self.assertEqual(figures.read_text() if earlier else figures.exists(), earlier or False)
        self.assertEqual(sorted(f.name for f in self.folder.iterdir()), ["config.json", "figures.json"])

    def test_outputs_that_would_cost_something_are_refused(self):
        config = self.folder / "config.json"
        before = config.read_bytes()
        link = self.folder / "link"
        link.symlink_to("config.json")
        for path in (config, link):
            self.refused(1, "is a file of the checkpoint, and is not replaced", self.folder, "--load-format", "dummy",
                         "--json", path)
        self.assertEqual(config.read_bytes(), before)
        log = self.folder / "log"
        log.write_text("precious\n")
        with open(log, "ab") as appended:
            done = subprocess.run([PROGRAM, "bench", self.folder, "--load-format", "dummy", "--json", "/dev/stdout"],
                                  stdout=appended, stderr=subprocess.PIPE, timeout=PATIENCE, env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/dev/stdout: leads to a file that is open, and is not replaced", done.stderr)
        self.assertEqual(log.read_text(), "precious\n")
        self.refused(1, "cannot be created: File name too long", self.folder, "--load-format", "dummy", "--json",
                     self.folder / ("x" * 256))

    def test_a_file_of_figures_keeps_its_mode_and_may_have_a_long_name(self):
        figures = self.folder / ("x" * 250)
        figures.write_text("earlier")
        figures.chmod(0o600)
        self.assertEqual(run("bench", self.folder, "--load-format", "dummy", "--only", "decode", "--decode", "1", "--repeat",
                             "1", "--json", figures).returncode, 0)
        self.assertIn("results", json.loads(figures.read_text()))
        self.assertEqual(figures.stat().st_mode & 0o777, 0o600)

    def test_flags_without_effect(self):
        for flags, message in [(["--fast-fill", "64"], "--fast-fill has no effect with contexts that are not a page"),
                               (["--fast-fill", "64", "--depth", "127"], "--fast-fill has no effect"),
                               (["--fast-fill", "128", "--depth", "64,128"], "--fast-fill has no effect"),
                               (["--only", "decode", "--chunk", "3"], "--chunk has no effect"),
                               (["--only", "decode", "--mla-prefill", "expanded"], "--mla-prefill expanded has no effect")]:
            with self.subTest(flags):
                self.refused(2, message, self.folder, "--load-format", "dummy", *flags)

    def test_a_step_is_no_longer_than_what_is_measured(self):
        out = self.figures("--prompt", "8", "--decode", "2", "--repeat", "1", "--chunk", str(1 << 20))
        self.assertEqual([r["tokens"] for r in out["results"]], [8, 2])

    def test_refusals(self):
        self.refused(1, "no safetensors|model.safetensors", self.folder)
        self.refused(2, "--ctx 100 is less than the 1012 tokens", self.folder, "--load-format", "dummy", "--ctx", "100",
                     "--depth", "500")
        self.refused(1, "maximum", self.folder, "--load-format", "dummy", "--depth", "4000000000")
        self.refused(1, "/nonexistent/config.json", "/nonexistent", "--load-format", "dummy")
        self.refused(1, "none/x: cannot be created", self.folder, "--load-format", "dummy", "--decode", "1", "--prompt", "1",
                     "--json", self.folder / "none" / "x")
        self.refused(2, "--json: must not be empty", self.folder, "--json", "")
        for flag in ("--prompt", "--depth", "--streams"):
            for value in ("512,,2", ",2", "2,", ",", ""):
                with self.subTest(flag, value=value):
                    self.refused(2, f'{flag}: a list must not have empty entries, as "{value}" has', self.folder,
                                 "--load-format", "dummy", flag, value)
        for flag, value, message in [("--prompt", "0", "from 1"), ("--depth", "-1", "from 0"), ("--decode", "x", "from 1"),
                                     ("--streams", "2,0", "from 1"), ("--only", "both", "prefill or decode"),
                                     ("--load-format", "random", "auto or dummy"), ("--fast-fill", "63", "from 64")]:
            with self.subTest(flag):
                self.refused(2, message, self.folder, flag, value)


class DummyWeights(unittest.TestCase):
    def test_generate_needs_a_tokenizer_and_no_weights(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in MODEL.iterdir():
                if file.suffix != ".safetensors":
                    (folder / file.name).symlink_to(file)
            arguments = ("generate", folder, "x", "--temperature", "0", "--max-tokens", "8", "--ignore-eos", "--json",
                         "--load-format", "dummy")
            first, again = run(*arguments, "--threads", "1"), run(*arguments, "--threads", "2")
            self.assertEqual(first.returncode, 0, first)
            self.assertEqual(json.loads(first.stdout)["tokens"], json.loads(again.stdout)["tokens"])
            self.assertEqual(run(*arguments[:-2]).returncode, 1)
            (folder / "tiktoken.model").unlink()
            self.assertRegex(run(*arguments).stderr, "tiktoken.model|tokenizer")


if __name__ == "__main__":
    main()
