"""firstlight quantize: what it writes runs with the bits of a run with --quantize; what it refuses."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from harness import MODEL, PROGRAM, ROOT, environment, main, run

GOLDENS = ROOT / "tests/data/goldens"


def tensors(path):
    """Name -> (dtype, shape, bytes) of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


class Quantize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def prompts(self, source):
        if source == MODEL:
            return ROOT / "demo/eval/heldout.safetensors"
        return source / "expect.safetensors"

    def values(self, model, prompts, *flags):
        path = self.folder / "values.safetensors"
        done = run("forward", model, "--prompts", prompts, "--out", path, "--values", "logits", *flags)
        self.assertEqual(done.returncode, 0, done)
        return tensors(path)

    def quantize(self, source, *flags):
        shutil.rmtree(self.out, ignore_errors=True)
        done = run("quantize", source, self.out, *flags)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done)
        self.assertEqual(os.listdir(self.folder).count("out"), 1)
        return done.stderr

    def refused(self, code, message, *arguments):
        before = sorted(self.folder.rglob("*"))
        done = run("quantize", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertRegex(done.stderr, message)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_run_has_the_bits_of_a_run_with_the_flag(self):
        for source in (MODEL, GOLDENS / "kimi_linear_b", GOLDENS / "llama3_scaled"):
            for form in ("int8", "int4", "mxfp4"):
                with self.subTest(source=source.name, form=form):
                    notes = self.quantize(source, "--format", form)
                    prompts = self.prompts(source)
                    want = self.values(source, prompts, "--quantize", form)
                    # What the layout cannot hold is rounded by the flag.
                    self.assertEqual(self.values(self.out, prompts, "--quantize", form), want)
                    if "stay as they are" not in notes:
                        self.assertEqual(self.values(self.out, prompts), want)
                    self.assertNotEqual(self.values(source, prompts), want)

    def test_demo_model_is_quantised_as_a_whole(self):
        self.assertNotIn("stay as they are", self.quantize(MODEL, "--format", "int4"))
        written = tensors(self.out / "model.safetensors")
        stored = tensors(MODEL / "model.safetensors")
        name = "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight"
        self.assertEqual([written[f"{name}_{piece}"][:2] for piece in ("packed", "scale", "shape")],
                         [("I32", [96, 8]), ("BF16", [96, 2]), ("I64", [2])])
        self.assertNotIn(name, written)
        for plain in ("model.embed_tokens.weight", "model.layers.1.block_sparse_moe.gate.weight",
                      "model.layers.1.self_attn.indexer.weights_proj.weight", "model.layers.1.self_attn.kv_b_proj.weight",
                      "model.norm.weight"):
            self.assertEqual(written["language_model." + plain], stored["language_model." + plain])
        for name in os.listdir(MODEL):
            if name not in ("config.json", "model.safetensors"):
                self.assertEqual((self.out / name).read_bytes(), (MODEL / name).read_bytes(), name)
        config = json.loads((self.out / "config.json").read_text())
        declared = config["text_config"].pop("quantization_config")
        self.assertEqual(config, json.loads((MODEL / "config.json").read_text()))
        self.assertEqual(declared["quant_method"], "compressed-tensors")
        self.assertIn("language_model.model.layers.1.self_attn.kv_b_proj", declared["ignore"])
        self.assertNotIn("language_model.lm_head", declared["ignore"])

    def test_experts_alone(self):
        self.quantize(MODEL, "--experts", "mxfp4")
        written = tensors(self.out / "model.safetensors")
        self.assertTrue(all(".experts." in name for name in written if name.endswith("_packed")))
        self.assertEqual(written["language_model.lm_head.weight"],
                         tensors(MODEL / "model.safetensors")["language_model.lm_head.weight"])
        prompts = self.prompts(MODEL)
        self.assertEqual(self.values(self.out, prompts), self.values(MODEL, prompts, "--quantize-experts", "mxfp4"))
        self.assertEqual(self.values(self.out, prompts, "--quantize", "int8"),
                         self.values(MODEL, prompts, "--quantize", "int8", "--quantize-experts", "mxfp4"))

    def test_tied_embeddings_stay(self):
        notes = self.quantize(GOLDENS / "gemma3_text", "--format", "int8")
        self.assertRegex(notes, r'1 tensors \(.*\) stay as they are stored, the first of them "model.embed_tokens.weight"')
        self.assertIn("model.embed_tokens.weight", tensors(self.out / "model.safetensors"))
        prompts = self.prompts(GOLDENS / "gemma3_text")
        self.assertEqual(self.values(self.out, prompts, "--quantize", "int8"),
                         self.values(GOLDENS / "gemma3_text", prompts, "--quantize", "int8"))

    def test_a_head_without_weights_of_its_own_is_declared_plain(self):
        for golden, tied in [("gemma3_text", True), ("mixtral", False)]:
            self.quantize(GOLDENS / golden, "--format", "int8")
            declared = json.loads((self.out / "config.json").read_text())["quantization_config"]
            self.assertEqual("lm_head" in declared["ignore"], tied, golden)

    def test_signals_that_were_ignored_stay_so(self):
        def ignore():
            for name in (signal.SIGINT, signal.SIGHUP):
                signal.signal(name, signal.SIG_IGN)

        program = subprocess.Popen([PROGRAM, "quantize", MODEL, self.out, "--format", "int4"], preexec_fn=ignore,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        while program.poll() is None:
            for name in (signal.SIGINT, signal.SIGHUP):
                program.send_signal(name)
            time.sleep(0.002)
        self.assertEqual(program.returncode, 0)

    def test_threads_change_nothing(self):
        self.quantize(MODEL, "--format", "int4", "--threads", "1")
        one = (self.out / "model.safetensors").read_bytes()
        self.quantize(MODEL, "--format", "int4", "--threads", "3")
        self.assertEqual((self.out / "model.safetensors").read_bytes(), one)

    def test_refusals(self):
        self.refused(2, "--format or --experts", MODEL, self.out)
        self.refused(2, "--format", MODEL, self.out, "--format", "int2")
        self.refused(2, "excludes", MODEL, self.out, "--format", "int8", "--experts", "int4")
        self.refused(1, "nothing.*No such file", self.folder / "nothing", self.out, "--format", "int8")
        self.refused(1, "is quantised already \\(fp8\\)", GOLDENS / "deepseek_v32_fp8_f32scale", self.out, "--format", "int8")
        self.refused(1, f"^error: {self.out}: is no folder that exists, and below is to be", MODEL, self.out / "below",
                     "--format", "int8")
        self.refused(1, f"^error: {self.folder}/no/way: is no folder", MODEL, self.folder / "no/way/out", "--format", "int8")
        self.refused(2, "OUT: must not be empty", MODEL, "", "--format", "int8")
        self.out.mkdir()
        self.refused(1, "out: exists, and is not replaced", MODEL, self.out, "--format", "int8")
        self.out.rmdir()
        self.out.symlink_to("nowhere")
        self.refused(1, "out: exists, and is not replaced", MODEL, self.out, "--format", "int8")

    def test_values_that_are_no_numbers_are_named(self):
        source = self.folder / "source"
        shutil.copytree(MODEL, source)
        name = "language_model.lm_head.weight"
        data = bytearray((source / "model.safetensors").read_bytes())
        (length,) = struct.unpack("<Q", data[:8])
        at = json.loads(data[8:8 + length])[name]["data_offsets"][0]
        position = 8 + length + at + 2 * 128 * 700
        data[position:position + 2] = b"\x80\x7f"
        (source / "model.safetensors").write_bytes(data)
        for form in ("int8", "int4", "mxfp4"):
            self.refused(1, f'tensor "{name}", row 700: has a value that is not finite', source, self.out, "--format", form)


if __name__ == "__main__":
    main()
