"""`firstlight render`: rows in, rows out; limits that hold; a process that leaves nothing behind."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import PATIENCE, PROGRAM, ROOT, environment, main, run

DATA = ROOT / "tests" / "data" / "templates"
ENDLESS = "{{ 9**(9**9) }}"


def render(*arguments, stdin=b""):
    done = run("render", *arguments, stdin=stdin)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def children(pid):
    """Processes whose parent is `pid`."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                found.append(int(stat.parent.name))
        except OSError:
            pass
    return found


class Render(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def check_rows(self, name, *arguments):
        expected = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
        done, rows = render(*arguments, "--jsonl", DATA / name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.isascii())
        self.assertEqual([row["id"] for row in rows], [row["id"] for row in expected])
        for row, wanted in zip(rows, expected):
            for key in ("rendered", "text", "typescript"):
                if key in wanted:
                    self.assertEqual(row["rendered"], wanted[key], row["id"])
            if "error" in wanted:
                self.assertEqual(row["error"]["kind"], wanted["error"]["kind"])
            if "segments" in wanted and "--segments" in arguments:
                self.assertEqual(row["segments"], wanted["segments"])

    def test_templates(self):
        for name in ("vllm-chatml", "Qwen-Qwen3-0.6B", "Kimi-K2-Instruct"):
            self.check_rows(f"{name}.jsonl", DATA / f"{name}.jinja")

    def test_formats(self):
        for name in ("kimi_k3", "kimi_k25", "deepseek_v32"):
            self.check_rows(f"{name}.jsonl", "--encoder", name)
            self.check_rows(f"{name}.jsonl", "--encoder", name, "--segments")

    def test_a_folder_without_weights(self):
        self.file("config.json", '{"model_type": "deepseek_v32"}')
        self.check_rows("deepseek_v32.jsonl", self.folder)
        shutil.copy(DATA / "vllm-chatml.jinja", self.folder / "chat_template.jinja")
        self.check_rows("vllm-chatml.jsonl", self.folder)

    def test_bad_rows_lose_nothing_else(self):
        template = self.file("t.jinja", "{{ messages[0] }}{{ raise_exception('no \\u00e9') if messages[0] == 2 }}")
        rows = b'{"id": "a", "messages": [1]}\n\nnot json\n{"id": "b"}\n{"messages": []}\n{"id": 7, "messages": [2]}\n'
        done, found = render(template, "--jsonl", "-", stdin=rows)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^error: -: lines that are no rows: 2\n$")
        self.assertEqual(found[0], {"id": "a", "rendered": "1"})
        self.assertEqual(found[1]["id"], None)
        self.assertRegex(found[1]["error"]["message"], "^standard input:3: is not valid JSON at line 1, column")
        self.assertEqual(found[2], {"id": "b", "error": {"kind": "runtime", "message": "`messages` is missing"}})
        self.assertRegex(found[3]["error"]["message"], "^standard input:5: `id` is missing")
        self.assertEqual(found[4], {"id": 7, "error": {"kind": "raise_exception", "message": "no é"}})

    def test_a_hostile_row_loses_nothing_else(self):
        template = self.file("t.jinja", "{{ 'x' * messages[0] }}")
        rows = "".join(json.dumps({"id": i, "messages": [n]}) + "\n" for i, n in enumerate((1, 10**10, 10**8, 2)))
        done, found = render(template, "--jsonl", "-", stdin=rows.encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row.get("rendered") for row in found], ["x", None, None, "xx"])
        self.assertEqual(found[1]["error"], {"kind": "limit", "message": "the chat template needs more than 512 MiB of memory"})
        self.assertEqual(found[2]["error"]["message"], "the chat template makes a text of more than 64 MiB")

    def test_usage(self):
        self.assertEqual(run("render", DATA / "vllm-chatml.jinja").returncode, 2)
        done = run("render", "--jsonl", "-")
        self.assertEqual(done.returncode, 2)
        self.assertIn("SOURCE or --encoder is required", done.stderr)
        done = run("render", "--encoder", "nope", "--jsonl", "-")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn('no chat format "nope"; there are: deepseek_v32, kimi_k25, kimi_k3', done.stderr)
        for arguments, message in [
            (["/nonexistent.jinja", "--jsonl", "-"], "^error: /nonexistent.jinja"),
            ([self.folder, "--jsonl", "-"], "no chat template"),
            ([DATA / "vllm-chatml.jinja", "--jsonl", "/nonexistent"], "^error: /nonexistent"),
        ]:
            done = run("render", *arguments)
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr, message)

    def start(self, template):
        """The running program with a rendering process; returns both."""
        process = subprocess.Popen([PROGRAM, "render", self.file("t.jinja", template), "--jsonl", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=environment(SECRET="1"), pass_fds=[self.ours()])
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        process.stdin.write(b'{"id": 1, "messages": []}\n')
        process.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while not (found := [c for c in children(process.pid) if self.is_ready(c)]):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process, found[0]

    def ours(self):
        """A descriptor that the program inherits and its child must not."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        return read

    @staticmethod
    def is_ready(pid):
        """Whether it has gone to its limits, the last thing before its first request."""
        try:
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        except OSError:
            return False
        return any(line.startswith("Max open files") and line.split()[3] == "3" for line in limits.splitlines())

    def test_the_rendering_process_inherits_nothing(self):
        process, child = self.start("x")
        self.assertEqual(process.stdout.readline(), b'{"id":1,"rendered":"x"}\n')
        self.assertEqual(sorted(os.listdir(f"/proc/{child}/fd")), ["0", "1", "2"])
        self.assertNotIn(b"SECRET", pathlib.Path(f"/proc/{child}/environ").read_bytes())
        process.stdin.close()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.gone(child)

    def test_the_rendering_process_dies_with_its_owner(self):
        process, child = self.start(ENDLESS)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        process.stdin.close()
        self.gone(child)

    def gone(self, pid):
        # Well before its own limit of processor time; a zombie is gone too.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
                used = sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                self.assertLess(used / os.sysconf("SC_CLK_TCK"), 9, "it goes on computing")
            except OSError:
                return
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


if __name__ == "__main__":
    main()
