"""Exit codes and messages of wrong command lines and wrong input, and what needs no model."""

import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

from harness import MODEL, PROGRAM, environment, main, run


# Commands that run a model, and what each needs besides its folder.
COMMANDS_OF_MODELS = {"generate": ["x"], "chat": [], "forward": ["--prompts", "x", "--out", "y"], "bench": []}
# Commands whose first argument is a folder.
FOLDERS_FIRST = {**COMMANDS_OF_MODELS, "inspect": [], "quantize": ["/nonexistent/out", "--format", "int8"],
                 "tokenize": ["--jsonl", "-"], "detokenize": ["--jsonl", "-"], "render": ["--jsonl", "-"]}


class Usage(unittest.TestCase):
    def refused(self, arguments, message, stdin=b""):
        done = run(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, message)

    def test_help_explains_every_command(self):
        top = run("--help")
        self.assertEqual(top.returncode, 0)
        for command in ("generate", "chat", "inspect", "forward", "quantize", "bench", "render", "tokenize", "detokenize", "version"):
            self.assertRegex(top.stdout, rf"\n  {command} ")
            self.assertEqual(run(command, "--help").returncode, 0)

    def test_no_or_wrong_command(self):
        self.refused([], "subcommand is required")
        self.refused(["frobnicate"], "no command frobnicate; the commands are generate chat")
        self.refused(["--frobnicate"], "no flag --frobnicate that stands before a command")

    def test_contradictions(self):
        self.refused(["generate"], "DIR is required")
        self.refused(["generate", MODEL, "x", "--file", "y"], "excludes --file")
        self.refused(["generate", MODEL, "x", "--raw", "--system", "y"], "--system excludes --raw")
        self.refused(["generate", MODEL, "x", "--bogus"], "--bogus")
        for flag, one, other in [("--quantize", "int8", "int4"), ("--quantize-experts", "int8", "int4"),
                                 ("--threads", "4", "2")]:
            self.refused(["generate", MODEL, "x", flag, one, flag, other], flag)

    def test_contradictions_of_how_a_model_is_run(self):
        for flags, message in [
            (["--dtype", "f32", "--quantize", "int8"], "--dtype f32 computes with them as stored"),
            (["--quantize-experts", "int4", "--dtype", "f32"],
             "--quantize-experts holds weights in few bits for bf16 runs; --dtype f32 computes with them as stored"),
            (["--dtype", "f32", "--activations", "8"], "--activations 8 has no effect"),
            (["--candidates", "100"], "--candidates has no effect: it is of --key-search two-stage"),
            (["--key-search", "full", "--min-context", "100"], "--min-context has no effect"),
            (["--load-format", "dummy", "--packed-cache", "/tmp"], "--packed-cache names a folder"),
        ]:
            for command in COMMANDS_OF_MODELS:
                with self.subTest(command=command, flags=flags):
                    # Before anything is read: the folder need not be there.
                    self.refused([command, "/nonexistent", *COMMANDS_OF_MODELS[command], *flags], message)

    def test_empty_names_are_refused(self):
        for command, more in FOLDERS_FIRST.items():
            with self.subTest(command=command):
                self.refused([command, "", *more], "(DIR|SOURCE): must not be empty")
        for command, flag in [("generate", "--file"), ("forward", "--prompts"), ("forward", "--out"), ("bench", "--json"),
                              ("render", "--jsonl"), ("render", "--encoder"), ("tokenize", "--jsonl"),
                              ("detokenize", "--jsonl"), ("chat", "--packed-cache")]:
            with self.subTest(command=command, flag=flag):
                self.refused([command, MODEL, flag, ""], f"{flag}: must not be empty")

    def test_lists_have_no_empty_entries(self):
        for flag, value in [("--values", "hidden,,logits"), ("--values", ""), ("--force", "topk,")]:
            self.refused(["forward", MODEL, "--prompts", "x", "--out", "y", flag, value],
                         f'{flag}: a list must not have empty entries, as "{value}" has')
        self.refused(["forward", MODEL, "--prompts", "x", "--out", "y", "--force", "topk,hidden"],
                     "--force: must be experts or topk, not hidden")

    def test_flags_without_effect(self):
        for flag in ("--top-k", "--top-p", "--min-p", "--seed"):
            self.refused(["generate", MODEL, "x", "--temperature", "0", flag, "1"], f"{flag} has no effect")

    def test_values_out_of_range(self):
        for flag, value, message in [
            ("--temperature", "-1", "temperature must be"),
            ("--temperature", "warm", "--temperature"),
            *((flag, "", f"{flag}: must not be empty")
              for flag in ("--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--presence-penalty",
                           "--frequency-penalty")),
            ("--top-p", "1.5", "top_p must be"),
            ("--top-p", "nan", "top_p must be"),
            ("--min-p", "-1", "min_p must be"),
            ("--top-k", "-1", "top_k must be"),
            ("--repetition-penalty", "0", "repetition_penalty must be"),
            ("--presence-penalty", "inf", "presence_penalty must be"),
            ("--seed", "-1", "--seed: must be a whole number"),
            ("--max-tokens", "0", "--max-tokens: must be a whole number from 1"),
            ("--ctx", "99999999999999999999", "--ctx: must be"),
            ("--threads", "0", "--threads: must be a whole number from 1 to 1024"),
            ("--dtype", "f16", "--dtype: must be bf16 or f32, not f16"),
            ("--stop", "", "stop"),
        ]:
            with self.subTest(flag=flag, value=value):
                self.refused(["generate", MODEL, "x", flag, value], message)
                self.refused(["chat", MODEL, flag, value], message)

    def test_version(self):
        done = run("version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^firstlight \d+\.\d+\.\d+\ncpu: .*\nkernels: .*\nbuild: .*\n$")
        self.assertEqual(run("--version").stdout, done.stdout)
        forced = run("version", env=environment(FIRSTLIGHT_ISA="generic"))
        self.assertIn("kernels: generic", forced.stdout)


class Input(unittest.TestCase):
    def refused(self, arguments, message, stdin=b""):
        done = run(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, message)

    def test_missing_files_are_named(self):
        self.refused(["generate", "/nonexistent", "x"], r"^error: /nonexistent/config\.json")
        self.refused(["generate", MODEL, "--file", "/nonexistent"], "^error: /nonexistent")
        for command, more in FOLDERS_FIRST.items():
            with self.subTest(command=command):
                self.refused([command, "/nonexistent", *more], r"^error: /nonexistent")

    def test_flags_that_a_file_leaves_without_effect(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in MODEL.iterdir():
                if file.name != "generation_config.json":
                    (folder / file.name).symlink_to(file)
            (folder / "generation_config.json").write_text('{"temperature": 0}', encoding="utf-8")
            self.refused(["generate", folder, "x", "--top-k", "1"],
                         r"--top-k has no effect: at temperature 0 \(generation_config.json\)")
        self.refused(["generate", MODEL, "x", "--activations", "8"], "--activations 8 has no effect")

    def test_a_place_for_the_output_is_looked_for_before_anything_is_read(self):
        for place, message in [("/nonexistent/o", "^error: /nonexistent/o: cannot be created"),
                               ("/dev/null", "^error: /dev/null: is not a regular file")]:
            self.refused(["forward", "/nonexistent", "--prompts", "/nonexistent", "--out", place], message)

    def test_threads_that_the_system_does_not_give(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in (["quantize", MODEL, pathlib.Path(folder) / "out", "--format", "int8"],
                            ["generate", MODEL, "x", "--max-tokens", "1"]):
                done = run(*command, "--threads", "1024", limits={resource.RLIMIT_AS: 4 << 30})
                self.assertEqual(done.returncode, 1, done)
                self.assertRegex(done.stderr, r"(?m)^error: only \d+ of 1024 threads could be started")
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_what_a_file_says_reaches_the_terminal_harmlessly(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text('{"model_type": "mixtral", "zz\\u001b[2J": 1}')
            done = run("inspect", folder)
            self.assertEqual(done.returncode, 1)
            self.assertNotIn("\x1b[2J", done.stderr)
            self.assertIn("zz\\x1b[2J", done.stderr)

    def test_a_generation_config_out_of_range_is_bad_input(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in pathlib.Path(MODEL).iterdir():
                (pathlib.Path(folder) / file.name).symlink_to(file)
            (pathlib.Path(folder) / "generation_config.json").unlink()
            (pathlib.Path(folder) / "generation_config.json").write_text('{"repetition_penalty": 1e30}')
            done = run("generate", folder, "x")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "(?s)generation_config.json.*repetition_penalty")
            self.assertNotIn("--help", done.stderr)

    def test_prompts(self):
        self.refused(["generate", MODEL, ""], "the prompt is empty")
        self.refused(["generate", MODEL], "the prompt is empty")
        self.refused(["generate", MODEL, "-"], "the prompt is empty", stdin=b"\n")
        self.refused(["generate", MODEL], "not valid UTF-8", stdin=b"\xff")
        self.refused(["generate", MODEL, "--ctx", "4", "a long prompt with many words"],
                     r"the prompt has \d+ tokens, but the context holds only 4")
        self.refused(["generate", MODEL, "x", "--ctx", "1000000000000"], "maximum")

    def test_without_a_template_the_familys_format_asks_for_its_tokens(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in MODEL.iterdir():
                if file.name != "chat_template.jinja":
                    (folder / file.name).symlink_to(file)
            self.refused(["generate", folder, "x"], re.escape('"<|open|>", which the tokenizer does not have'))
            self.assertEqual(run("generate", folder, "--raw", "x", "--max-tokens", "1").returncode, 0)
            (folder / "generation_config.json").unlink()
            (folder / "generation_config.json").write_text('{"top_p": 7}', encoding="utf-8")
            self.refused(["generate", folder, "--raw", "x"], "(?s)generation_config.json.*top_p")

    def test_a_full_disk_is_noticed(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "generate", MODEL, "x"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)


if __name__ == "__main__":
    main()
