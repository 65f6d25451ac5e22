"""Benchmarks refuse flags that leave nothing to measure, before they measure anything."""

import os
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(os.environ["FIRSTLIGHT_BUILD"]) / "bench"
REFUSED = {
    "mla_bench": [(["--only", "nothing"], "no line's name holds this; the lines are:\n  decode at 8192")],
    "attention_bench": [(["--only", "3"], "no such group; there are\n  1 (8 heads on 8)"), (["--only", "x"], "usage:")],
    "dsa_index_bench": [(["--search", "none"], "full|certified|two-stage"), (["--context", "5"], "8192|32768|131072"),
                        (["--nothing", "5"], "usage:")],
    "kda_bench": [(["--nothing", "5"], "usage:")],
}
BUILT = [name for name in REFUSED if (FOLDER / name).exists()]


class BenchFlags(unittest.TestCase):
    def test_what_leaves_nothing_to_measure(self):
        for name in BUILT:
            for flags, message in REFUSED[name]:
                with self.subTest(name, flags=flags):
                    done = subprocess.run([FOLDER / name, *flags], capture_output=True, text=True, timeout=120)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                    self.assertIn(message, done.stderr)


if __name__ == "__main__":
    if not BUILT:
        print("SKIPPED: no benchmark is built (make bench)")
        sys.exit(77)
    unittest.main()
