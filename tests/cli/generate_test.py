"""firstlight generate, end to end on the demo model."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from harness import MODEL, PATIENCE, PROGRAM, Terminal, environment, main, run

QUESTION = "Who made the heaven?"
GREEDY = ("--temperature", "0", "--max-tokens", "12")


def answer(*arguments, **more):
    done = run("generate", MODEL, *arguments, **more)
    assert done.returncode == 0, done
    return done.stdout


def answer_json(*arguments):
    return json.loads(answer(*arguments, "--json"))


class Generate(unittest.TestCase):
    def test_the_prompt_comes_from_anywhere(self):
        expected = answer(QUESTION, *GREEDY)
        self.assertTrue(expected)
        self.assertEqual(answer(*GREEDY, stdin=QUESTION.encode()), expected)
        self.assertEqual(answer("-", *GREEDY, stdin=QUESTION.encode() + b"\n"), expected)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "prompt.txt")
            file.write_text(QUESTION + "\n", encoding="utf-8")
            self.assertEqual(answer("--file", file, *GREEDY), expected)

    def test_the_template_is_what_raw_text_says_by_hand(self):
        by_hand = f"<|im_system|>Be brief.<|im_end|><|im_user|>{QUESTION}<|im_end|><|im_assistant|>"
        with_template = answer_json(QUESTION, "--system", "Be brief.", *GREEDY)
        raw = answer_json(by_hand, "--raw", *GREEDY)
        self.assertEqual(raw["tokens"], with_template["tokens"])
        self.assertEqual(raw["prompt_tokens"], with_template["prompt_tokens"])

    def test_json_tells_everything(self):
        done = run("generate", MODEL, QUESTION, *GREEDY, "--json")
        result = json.loads(done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertEqual(result["text"], answer(QUESTION, *GREEDY))
        self.assertEqual(result["generated_tokens"], len(result["tokens"]))
        self.assertEqual(result["cached_tokens"], 0)
        self.assertGreater(result["decode_tokens_per_second"], 0)
        self.assertNotIn("seed", result)
        self.assertIn(result["finish_reason"], ("end_token", "length"))

    def test_seeds_repeat_and_differ(self):
        sampled = ("--temperature", "1.5", "--top-p", "1", "--max-tokens", "16", "--ignore-eos")
        first = answer_json(QUESTION, *sampled)
        again = answer_json(QUESTION, *sampled, "--seed", str(first["seed"]))
        self.assertEqual(again["tokens"], first["tokens"])
        others = {tuple(answer_json(QUESTION, *sampled, "--seed", str(seed))["tokens"]) for seed in range(3)}
        self.assertEqual(len(others), 3)

    def test_threads_and_chunks_do_not_change_the_answer(self):
        for dtype in ("bf16", "f32"):
            flags = (QUESTION, "--dtype", dtype, *GREEDY)
            self.assertEqual(answer(*flags, "--threads", "1"), answer(*flags, "--threads", "3"))

    def test_every_ending_is_named(self):
        exact = answer_json(QUESTION, "--temperature", "0", "--max-tokens", "3", "--ignore-eos")
        self.assertEqual((exact["finish_reason"], exact["generated_tokens"]), ("length", 3))

        long = answer_json("In the beginning", "--raw", "--temperature", "0", "--max-tokens", "12", "--ignore-eos")
        middle = long["text"][len(long["text"]) // 2:][:2]
        stopped = answer_json("In the beginning", "--raw", "--temperature", "0", "--max-tokens", "12", "--ignore-eos",
                              "--stop", "never to be seen", "--stop", middle)
        self.assertEqual(stopped["finish_reason"], "stop_string")
        self.assertEqual(stopped["text"], long["text"][:long["text"].index(middle)])

        done = run("generate", MODEL, "In the beginning", "--raw", "--temperature", "0", "--ignore-eos", "--ctx", "20")
        self.assertEqual(done.returncode, 0)
        self.assertIn("the context of 20 tokens is full", done.stderr)
        self.assertIn("end: context_full", done.stderr)

    def test_penalties_change_the_answer(self):
        plain = answer_json("In the beginning", "--raw", "--temperature", "0", "--max-tokens", "30", "--ignore-eos")
        for flag, value in (("--repetition-penalty", "3"), ("--frequency-penalty", "5"), ("--presence-penalty", "9")):
            changed = answer_json("In the beginning", "--raw", "--temperature", "0", "--max-tokens", "30",
                                  "--ignore-eos", flag, value)
            self.assertNotEqual(changed["tokens"], plain["tokens"], flag)

    def test_speed_is_told_on_standard_error(self):
        done = run("generate", MODEL, QUESTION, *GREEDY)
        self.assertRegex(done.stderr, r"prompt: \d+ tokens, .* tokens/s; answer: \d+ tokens, .* tokens/s; end: ")
        self.assertNotIn("\x1b", done.stderr + done.stdout)

    def test_any_python_on_the_path(self):
        expected = answer(QUESTION, *GREEDY)
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "python3")
            fake.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
            fake.chmod(0o755)
            pathlib.Path(folder, "jinja2.py").write_text("raise ImportError('wrong jinja2')", encoding="utf-8")
            env = environment(PATH=folder, PYTHONHOME=folder, PYTHONPATH=folder, VIRTUAL_ENV=folder, LC_ALL="C")
            self.assertEqual(answer(QUESTION, *GREEDY, env=env), expected)


class Interrupted(unittest.TestCase):
    ENDLESS = ("generate", MODEL, "In the beginning", "--raw", "--ignore-eos", "--threads", "1")

    def test_ctrl_c_ends_with_130_and_keeps_the_text(self):
        process = subprocess.Popen([PROGRAM, *map(str, self.ENDLESS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = os.read(process.stdout.fileno(), 1)
        self.assertTrue(first)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn(b"end: cancelled", errors)
        (first + rest).decode()  # whole characters only

    def test_ctrl_c_while_loading_or_reading(self):
        process = subprocess.Popen([PROGRAM, "generate", str(MODEL)], stdin=subprocess.PIPE)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE), 130)
        process.stdin.close()

    def test_a_closed_pipe_ends_it(self):
        process = subprocess.Popen([PROGRAM, *map(str, self.ENDLESS)], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        process.stdout.read(1)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGPIPE)


class OnATerminal(unittest.TestCase):
    def test_progress_colours_and_final_newline(self):
        with Terminal("generate", MODEL, QUESTION, *GREEDY, env=environment(NO_COLOR=None)) as terminal:
            terminal.expect(r"loading \[[#.]+\] [\d.]+ .*B of [\d.]+ .B")
            terminal.expect(r"\r\x1b\[K")
            terminal.expect(r"\S\r\n\x1b\[2mprompt: .*\x1b\[0m\r\n")
            self.assertEqual(terminal.exit_code(), 0)

    def test_no_color(self):
        with Terminal("generate", MODEL, QUESTION, *GREEDY, env=environment(NO_COLOR="1")) as terminal:
            terminal.expect(r"\r\nprompt: ")
            self.assertEqual(terminal.exit_code(), 0)
            self.assertNotIn("\x1b[2m", terminal.screen)

    def test_a_prompt_can_be_typed(self):
        with Terminal("generate", MODEL, *GREEDY) as terminal:
            terminal.expect("end it with Ctrl-D")
            terminal.type(QUESTION + "\n\x04")
            terminal.expect("prompt: ")
            self.assertEqual(terminal.exit_code(), 0)


if __name__ == "__main__":
    main()
