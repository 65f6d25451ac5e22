"""firstlight chat, at a terminal and in a pipe, on the demo model."""

import json
import pathlib
import tempfile
import unittest

from harness import MODEL, Terminal, environment, main, run

GREEDY = ("--temperature", "0", "--max-tokens", "12")
ENDLESS = ("--ignore-eos", "--max-tokens", "100000", "--threads", "1")


def script(*lines, flags=GREEDY):
    """The finished chat; its standard error as lines."""
    done = run("chat", MODEL, *flags, stdin="".join(line + "\n" for line in lines).encode())
    done.notes = done.stderr.splitlines()
    return done


class InAPipe(unittest.TestCase):
    def test_answers_are_those_of_generate(self):
        done = script("Who made the heaven?", "/exit", "never read")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout, run("generate", MODEL, "Who made the heaven?", *GREEDY).stdout + "\n")

    def test_a_system_message_by_flag_or_command(self):
        by_flag = script("Hello", flags=(*GREEDY, "--system", "Be brief."))
        by_command = script("/system Be brief.", "Hello")
        self.assertEqual(by_flag.stdout, by_command.stdout)
        removed = script("/system Be brief.", "/system", "Hello")
        self.assertEqual(removed.stdout, script("Hello").stdout)

    def test_later_turns_read_only_what_is_new(self):
        done = script("Tell me who made the heaven and the earth, and all that is in them.", "/stats", "And the sea?",
                      "/stats", flags=("--temperature", "0", "--max-tokens", "5", "--ignore-eos"))
        numbers = [list(map(int, [word for word in line.replace(",", "").split() if word.isdigit()]))
                   for line in done.notes if line.startswith("last prompt:")]
        (first_prompt, first_cached), (second_prompt, second_cached) = numbers
        self.assertEqual(first_cached, 0)
        # At the least all of the first prompt but the opening of its answer.
        self.assertGreaterEqual(second_cached, first_prompt - 2)
        self.assertGreater(second_prompt, second_cached)

    def test_a_kept_cache_changes_no_answer(self):
        first = script("Hello", "Who made the sea?")
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "talk.json")
            saved = script("Hello", f"/save {file}")
            self.assertEqual(saved.returncode, 0)
            loaded = script(f"/load {file}", "Who made the sea?")
            self.assertEqual(first.stdout, saved.stdout + loaded.stdout)
            messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
            self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
            self.assertEqual(messages[0]["content"], "Hello")
            self.assertEqual(messages[1]["content"] + "\n", saved.stdout)

    def test_reset_forgets(self):
        done = script("Hello", "/reset", "Hello")
        lines = script("Hello").stdout
        self.assertEqual(done.stdout, lines + lines)

    def test_a_full_context_is_announced_and_reset_helps(self):
        long = "and the sea " * 12
        flags = ("--temperature", "0", "--ctx", "60", "--ignore-eos")
        done = script(long, long, "/reset", "Hello", flags=flags)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"the context of 60 tokens is full: the answer stops here\. /reset starts over")
        self.assertRegex(done.stderr, r"the context of 60 cannot hold and answer: /reset")
        # The second message got no answer, the third did.
        first, last = script(long, flags=flags).stdout, script("Hello", flags=flags).stdout
        self.assertEqual(done.stdout, first + last)

    def test_wrong_commands(self):
        done = script("/frob", "/save", "/reset now", "/load /nonexistent", "//x", "/help")
        self.assertEqual(done.returncode, 0)
        for message in ("no command /frob", "/save needs a file name", "/reset takes nothing", "/nonexistent: "):
            self.assertIn(message, done.stderr)
        self.assertEqual(done.stdout, run("generate", MODEL, "/x", *GREEDY).stdout + "\n")

    def test_wrong_files_leave_the_conversation_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "talk.json")
            for text in ("", "{", "{}", "[1]", '[{"role": "user"}]', '{"messages": [{"role": 1, "content": ""}]}'):
                file.write_text(text, encoding="utf-8")
                done = script("Hello", f"/load {file}", f"/save {folder}/out.json")
                self.assertIn(f"error: {file}", done.stderr, text)
                saved = json.loads(pathlib.Path(folder, "out.json").read_text(encoding="utf-8"))
                self.assertEqual(len(saved["messages"]), 2)


class AtATerminal(unittest.TestCase):
    def setUp(self):
        self.env = environment(NO_COLOR="1", LC_ALL="C", HOME="/nonexistent")

    def test_editing_history_and_characters(self):
        with Terminal("chat", MODEL, *GREEDY, env=self.env) as terminal:
            terminal.expect("/help lists the commands")
            terminal.expect("> ")
            terminal.type("Hxello é€\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x7f\n")  # seven to the left, then back
            terminal.expect(r"\n> ")
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "talk.json")
                terminal.type(f"/save {file}\n")
                terminal.expect("2 messages written")
                terminal.expect("> ")
                messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
                self.assertEqual(messages[0]["content"], "Hello é€")
                terminal.type("\x1b[A\x1b[A\n")  # two up: the message again
                terminal.expect(r"\n> ")
                terminal.type(f"/save {file}\n")
                terminal.expect("4 messages written")
                messages = json.loads(file.read_text(encoding="utf-8"))["messages"]
                self.assertEqual(messages[2]["content"], "Hello é€")
            terminal.type("/exit\n")
            self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_stops_the_answer_only(self):
        with Terminal("chat", MODEL, *ENDLESS, env=self.env) as terminal:
            terminal.expect("> ")
            terminal.type("In the beginning\n")
            terminal.expect(r"In the beginning\r\n\s*\S")
            terminal.type("\x03")
            terminal.expect("stopped")
            terminal.expect("> ")
            terminal.type("/stats\n")
            terminal.expect(r"last answer: \d+ tokens")
            terminal.expect("> ")  # before it, the terminal is not in the state in which Ctrl-D is read
            terminal.type("\x04")
            self.assertEqual(terminal.exit_code(), 0)

    def test_two_hasty_ctrl_c_do_not_end_the_chat(self):
        with Terminal("chat", MODEL, *ENDLESS, env=self.env) as terminal:
            terminal.expect("> ")
            terminal.type("In the beginning\n")
            terminal.expect(r"In the beginning\r\n\s*\S")
            terminal.type("\x03\x03")
            terminal.expect("stopped")
            terminal.expect("> ")
            terminal.type("/exit\n")
            self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_twice_at_the_prompt_leaves(self):
        with Terminal("chat", MODEL, env=self.env) as terminal:
            terminal.expect("> ")
            terminal.type("half a li\x03")
            terminal.expect("Ctrl-C once more")
            terminal.expect("> ")
            terminal.type("/stats\n")  # something else in between: counting begins anew
            terminal.expect("context: ")
            terminal.expect("> ")
            terminal.type("\x03")
            terminal.expect("Ctrl-C once more")
            terminal.expect("> ")
            terminal.type("\x03")
            self.assertEqual(terminal.exit_code(), 130)


if __name__ == "__main__":
    main()
