"""--packed-cache: the file appears where it should, the next start is silent, and answers do not change."""

import pathlib
import shutil
import tempfile
import unittest

from harness import MODEL, main, run

ARGUMENTS = ("--raw", "The", "--max-tokens", "8", "--temperature", "0", "--quantize", "int8")


class PackedCache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kept = pathlib.Path(folder.name)

    def generate(self, *arguments, model=MODEL):
        done = run("generate", model, *ARGUMENTS, *arguments)
        self.assertEqual(done.returncode, 0, done)
        return done

    def notices(self, done):
        return [line for line in done.stderr.splitlines() if "packed" in line]

    def test_second_start(self):
        plain = self.generate("--packed-cache", "off")
        first = self.generate("--packed-cache", self.kept)
        (file,) = self.kept.iterdir()
        self.assertTrue(file.name.startswith("model-") and file.name.endswith("-firstlight-int8.packed"), file)
        self.assertIn("for the next start", "".join(self.notices(first)))
        second = self.generate("--packed-cache", self.kept)
        self.assertEqual(self.notices(second), [])
        self.assertEqual(plain.stdout, first.stdout)
        self.assertEqual(plain.stdout, second.stdout)
        file.write_bytes(file.read_bytes()[:-1])
        third = self.generate("--packed-cache", self.kept)
        self.assertEqual(len(self.notices(third)), 2, third)
        self.assertIn(str(file), self.notices(third)[0])
        self.assertEqual(plain.stdout, third.stdout)

    def test_a_small_model_leaves_nothing_behind(self):
        model = self.kept / "model"
        shutil.copytree(MODEL, model)
        before = sorted(model.iterdir())
        self.generate(model=model)
        self.assertEqual(sorted(model.iterdir()), before)

    def test_quantize_does_not_copy_it(self):
        model = self.kept / "model"
        shutil.copytree(MODEL, model)
        self.generate("--packed-cache", model, model=model)
        self.assertEqual(len(list(model.glob("*.packed"))), 1)
        done = run("quantize", model, self.kept / "out", "--format", "int8")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(list((self.kept / "out").glob("*.packed")), [])

    def test_bad_use(self):
        absent = run("generate", MODEL, "x", "--packed-cache", self.kept / "absent")
        self.assertEqual(absent.returncode, 1, absent)
        self.assertIn("a folder that exists", absent.stderr)
        dummy = run("bench", MODEL, "--load-format", "dummy", "--packed-cache", self.kept)
        self.assertEqual(dummy.returncode, 2, dummy)
        self.assertIn("--packed-cache", dummy.stderr)


if __name__ == "__main__":
    main()
