"""Hostile templates and conversations: the rendering process answers or ends, within its limits, and never misleads."""
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
CHAT = ROOT / "models" / "chat"
DATA = ROOT / "tests" / "data" / "templates"
sys.path[:0] = [str(CHAT / "rendering"), str(CHAT)]
import formats  # noqa: E402
import guard  # noqa: E402
import templates  # noqa: E402
import typescript  # noqa: E402

PYTHON = "/usr/bin/python3"
MEMORY = 256 << 20
SEED = int(os.environ.get("SEED", "1"))
ROUNDS = int(os.environ.get("ROUNDS", "400"))


class Worker:
    """The process as the engine starts it, restarted when it has ended."""

    def __init__(self):
        self.process = None

    def start(self):
        self.socket, theirs = socket.socketpair()
        read, self.lifeline = os.pipe()
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-B", "-W", "ignore", "-X", "utf8", str(CHAT / "rendering" / "worker.py"), str(MEMORY), "2",
             str(1 << 20)], stdin=theirs, stdout=theirs, stderr=read, env={})
        theirs.close()
        os.close(read)
        self.socket.settimeout(60)
        assert self.reply() == b"0"

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.socket.close()
            os.close(self.lifeline)
            self.process = None

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def reply(self):
        return self.read(struct.unpack("<Q", self.read(8))[0])

    def render(self, template, row, patience=1.5):
        """The reply, or None if the process had to be ended or ended itself."""
        if self.process is None:
            self.start()
        fields = ["render", template, "", row, "", ""]
        try:
            self.socket.settimeout(patience)
            self.socket.sendall(struct.pack("<I", len(fields)))
            for field in fields:
                data = field.encode(errors="replace")
                self.socket.sendall(struct.pack("<Q", len(data)) + data)
            reply = self.reply()
        except (TimeoutError, EOFError, ConnectionError):
            self.stop()
            return None
        peak = int(pathlib.Path(f"/proc/{self.process.pid}/status").read_text().split("VmPeak:")[1].split()[0])
        assert peak * 1024 <= MEMORY, peak
        if reply[:1] == b"~":
            self.stop()
        return reply


PIECES = ["{{", "}}", "{%", "%}", "{%-", "-%}", "{#", "#}", " for x in messages ", " endfor ", " if x ", " endif ", " set y = ",
          "x", ".content", "['role']", " | tojson", " | map(attribute='x') | list", " * 9999999", " ** 99", "range(99999)",
          ".__class__", "| attr('__globals__')", " % ", "'%s'", "(", ")", "[", "]", "\n", "  ", "namespace(a=1)", ".append(1)",
          ".format(x)", "'{0.__class__}'", " macro m() ", " endmacro ", "m()", "'\\u00e9'", "9**(9**9)", " generation ", " break ",
          "caller()", "self", "loop.cycle(1)", "| batch(10**9)", "| indent(10**9)", "\ud800", "\0", "| random", "strftime_now('%Y')"]


def mutate(rnd, text):
    text = list(text[:4000])
    for _ in range(rnd.randint(1, 6)):
        at = rnd.randrange(len(text) + 1)
        how = rnd.randrange(4)
        if how == 0:
            text[at:at] = rnd.choice(PIECES)
        elif how == 1:
            del text[at:at + rnd.randint(1, 40)]
        elif how == 2:
            to = rnd.randrange(len(text) + 1)
            text[at:at] = text[to:to + rnd.randint(1, 60)]
        else:
            text = text[:at] + list("".join(rnd.choices(PIECES, k=3))) + text[at:]
    return "".join(text)


class Hostile(unittest.TestCase):
    def test_mutated_templates_and_rows(self):
        rnd = random.Random(SEED)
        worker = Worker()
        self.addCleanup(worker.stop)
        sources = [p.read_text() for p in sorted(DATA.glob("*.jinja"))] + ["".join(PIECES[:8])]
        rows = [line for p in sorted(DATA.glob("*.jsonl")) for line in p.read_text().splitlines()]
        kinds = {}
        for n in range(ROUNDS):
            template = mutate(rnd, rnd.choice(sources))
            row = rnd.choice(rows) if n % 3 else mutate(rnd, rnd.choice(rows))
            with self.subTest(n=n, template=template, row=row):
                reply = worker.render(template, row)
                kind = reply[:1].decode() if reply else "ended"
                kinds[kind] = kinds.get(kind, 0) + 1
                self.assertIn(kind, ("0", "?", "!", "~", "ended"))
                if kind == "!":
                    self.assertNotIn(b"Too many open files", reply)
            if n % 20 == 0:
                self.assertEqual(worker.render("{{ messages[0] }}", '{"messages": [1]}', patience=60)[-1:], b"1")
        self.assertGreater(kinds["0"], 0)
        self.assertGreater(kinds["!"], 0)

    def test_every_filter_and_test_is_at_hand_without_files(self):
        worker = Worker()
        self.addCleanup(worker.stop)
        environment = templates._IMMUTABLE
        for name in list(environment.filters):
            reply = worker.render("{{ ['abc', 'b'] | %s }}{{ 'a b' | %s }}" % (name, name), '{"messages": []}', patience=60)
            self.assertNotIn(b"files", reply, name)
            self.assertNotIn(b"Import", reply, name)
        for template in ("{{ 'abc def' | wordwrap(3) }}", "{{ lipsum() }}", "{{ {'a': 1} | pprint }}", "{{ 'http://x' | urlize }}"):
            self.assertEqual(worker.render(template, '{"messages": []}', patience=60)[:1], b"0", template)


class Guard(unittest.TestCase):
    CONTROLS = ("<|a|>", "<|ab|>", "</t>", "[X]")

    def conversation(self, rnd):
        words = [*self.CONTROLS, "<|", "|>", "<", "/t>", "[", "X]", "a", "b|", " ", "é", chr(0xF0000)]
        return {"m": ["".join(rnd.choices(words, k=rnd.randint(0, 5))) for _ in range(3)]}

    def test_parts_make_the_plain_text_and_hide_nothing(self):
        rnd = random.Random(SEED)
        shapes = ["{% for x in m %}[X]{{ x }}{% endfor %}", "{{ m | tojson }}", "{{ m[0] | trim }}|{{ m[1].split('</t>')[0] }}",
                  "{{ m | join }}", "{{ m[0] | upper }}{{ m[1][:3] }}{{ m[2] | length }}",
                  "{{ 'yes' if '<|a|>' in m[0] else 'no' }}{{ m[0] }}{{ m[1] | replace('<|ab|>', '') }}"]
        for n in range(ROUNDS * 5):
            conversation, shape = self.conversation(rnd), rnd.choice(shapes)
            plain = templates.render(shape, conversation)
            parts = guard.split(lambda c, shape=shape: templates.render(shape, c), conversation, self.CONTROLS)
            self.assertEqual("".join(text for text, _ in parts), plain)
            if shape in shapes[:4:3]:  # nothing but what stands in the template may be control
                structure = "".join("\1" if literal else text for text, literal in parts)
                found = sum(structure.count(c) for c in self.CONTROLS)
                self.assertEqual(found, 3 if shape == shapes[0] else 0, (shape, conversation, parts))

    def test_a_long_conversation_is_guarded_too(self):
        """One text at which the template cuts everywhere must not keep the others from being found."""
        shape = "{% for x in m %}<|a|>{{ x.split('</t>')[-1] }}{% endfor %}"
        said = ["first <|a|> of all"] + [f"{i} thoughts</t> answer {'long ' * 400}" for i in range(400)]
        parts = guard.split(lambda c: templates.render(shape, c), {"m": said}, self.CONTROLS)
        self.assertIn(("<|a|>", True), parts)
        self.assertEqual(sum(text == "<|a|>" and literal for text, literal in parts), 1)

    def test_the_text_that_a_template_looks_at_is_its_own(self):
        shape = "{{ m[0].split('</t>')[-1] }}"
        parts = guard.split(lambda c: templates.render(shape, c), {"m": ["a</t>b<|a|>"]}, self.CONTROLS)
        self.assertEqual(parts, [("b", False), ("<|a|>", True)])


class Formats(unittest.TestCase):
    def test_any_json_is_rendered_or_refused(self):
        """No format in Python fails with anything but a refusal, whatever the conversation holds."""
        rnd = random.Random(SEED)
        found = formats.load()
        rows = {name: [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()] for name in found}
        for n in range(ROUNDS * 5):
            name = rnd.choice(sorted(found))
            row = self.spoil(rnd, rnd.choice(rows[name]))
            row.pop("segments", None)
            try:
                separate, parts = formats.render(found, "", name, json.dumps(row), "", "")
            except formats.Refusal as error:
                self.assertNotIn("\n", str(error))
                continue
            with self.subTest(name=name, row=row):
                self.assertTrue(all(isinstance(t, str) and t and isinstance(literal, bool) for t, literal in parts))
                self.assertEqual(separate, found[name].SEPARATE)

    def spoil(self, rnd, value, depth=0):
        if depth > 0 and rnd.random() < 0.03:
            return rnd.choice([None, 3, "x", "", [], {}, True, [None], {"type": "x"}, 1e300, ["text"]])
        if isinstance(value, dict):
            return {k: self.spoil(rnd, v, depth + 1) for k, v in value.items() if depth == 0 or rnd.random() > 0.02}
        return [self.spoil(rnd, v, depth + 1) for v in value] if isinstance(value, list) else value

    def test_schemas_without_a_declaration(self):
        for parameters in ([], {"properties": {"a": {"description": "no type"}}}, {"properties": {"a": {"$ref": "#/x"}}},
                           {"properties": {"a": {"enum": [1], "type": "string"}}}, {"properties": {"a": {"type": ["odd"]}}}):
            with self.assertRaises(typescript.Undeclarable):
                typescript.declare([{"type": "function", "function": {"name": "f", "parameters": parameters or [1]}}])


if __name__ == "__main__":
    unittest.main()
