"""`firstlight tokenize` and `firstlight detokenize`: rows in, rows out, with and without a model around the tokenizer."""

import json
import pathlib
import tempfile
import unittest

from harness import MODEL, main, run

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 7, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u00c3": 4, "\u00a9": 5, "<": 6},
              "merges": ["a b"]},
}


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


class Tokenize(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))

    def tearDown(self):
        self.temporary.cleanup()

    def answers(self, command, lines, code=0, folder=None):
        done = run(command, folder or self.folder, "--jsonl", "-", stdin="\n".join(lines).encode())
        self.assertEqual(done.returncode, code, done)
        return rows(done), done.stderr

    def test_there_and_back(self):
        found, _ = self.answers("tokenize", ['{"id": "x", "text": "ab a\u00e9"}', "",
                                             '{"id": 2, "text": "<s>ab", "parse_special": true}'])
        self.assertEqual(found, [{"id": "x", "ids": [2, 3, 0, 4, 5]}, {"id": 2, "ids": [7, 2]}])
        found, _ = self.answers("detokenize", ['{"id": "x", "ids": [7, 2, 3, 4, 5, 4]}', '{"id": 1, "ids": []}'])
        self.assertEqual(found, [{"id": "x", "text": "<s>ab \u00e9\ufffd"}, {"id": 1, "text": ""}])

    def test_a_file_and_ascii(self):
        file = self.folder / "rows.jsonl"
        file.write_text('{"id": "\u00e9", "ids": [4, 5]}\r\n')
        done = run("detokenize", self.folder, "--jsonl", file)
        self.assertEqual(done.stdout, '{"id":"\\u00e9","text":"\\u00e9"}\n')

    def test_bad_rows_are_answered_too(self):
        found, message = self.answers("tokenize", ["{", '{"id": 1}', '{"id": 2, "text": "z"}', '{"id": 3, "text": "b"}',
                                                   '{"id": 4, "text": "a", "parse_special": 1}'], code=1)
        self.assertEqual([row["id"] for row in found], [None, 1, 2, 3, 4])
        self.assertIn(":1", found[0]["error"])
        self.assertIn("text: expected a string", found[1]["error"])
        self.assertIn("no token for the byte 122", found[2]["error"])
        self.assertEqual(found[3]["ids"], [1])
        self.assertIn("parse_special: expected true or false", found[4]["error"])
        self.assertIn("4 of 5 rows failed", message)
        found, _ = self.answers("detokenize", ['{"id": 1, "ids": [8]}', '{"id": 2, "ids": [-1]}', '{"id": 3, "ids": 1}'],
                                code=1)
        self.assertIn("ids[0]: expected an id from 0 to 7", found[0]["error"])
        self.assertIn("ids[0]", found[1]["error"])
        self.assertIn("ids: expected an array", found[2]["error"])

    def test_the_tokenizer_of_a_checkpoint(self):
        text = "Hello, world! \u4e2d\u6587"
        found, _ = self.answers("tokenize", [json.dumps({"id": 1, "text": text})], folder=MODEL)
        back, _ = self.answers("detokenize", [json.dumps({"id": 1, "ids": found[0]["ids"]})], folder=MODEL)
        self.assertEqual(back, [{"id": 1, "text": text}])

    def test_refusals(self):
        (self.folder / "tokenizer.json").write_text("{}")
        done = run("tokenize", self.folder, "--jsonl", "-")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tokenizer.json: model: is missing", done.stderr)
        done = run("tokenize", MODEL, "--jsonl", "/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent", done.stderr)
        self.assertEqual(run("tokenize", MODEL).returncode, 2)


if __name__ == "__main__":
    main()
