"""The GEMM's inner loops keep their accumulators in registers.

The compiler puts a whole accumulator array on the stack when a single loop over it is not unrolled, which halves the
speed and breaks nothing else. So the built objects are disassembled: no inner loop of a tile may use a stack operand.
Needs an optimised build (-O2 or more).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BUILD = pathlib.Path(os.environ["FIRSTLIGHT_BUILD"])
MULTIPLY_ADD = re.compile(r"\bv(fmadd\d+ps|dpbf16ps|pmaddwd|pmaddubsw|pdpbusd)\b")


def functions(disassembly):
    """Yields (name, [(address, text)]) of every function."""
    for block in re.split(r"\n(?=[0-9a-f]{16} <)", disassembly):
        lines = block.splitlines()
        if not lines or not (head := re.match(r"[0-9a-f]{16} <(.*)>:", lines[0])):
            continue
        code = [re.match(r"\s*([0-9a-f]+):\s+(.*)", line) for line in lines[1:]]
        yield head[1], [(int(m[1], 16), m[2]) for m in code if m]


def inner_loop(code):
    """The shortest backward jump around a multiply-add, as instructions; None without one."""
    best = None
    index = {address: i for i, (address, _) in enumerate(code)}
    for i, (address, text) in enumerate(code):
        jump = re.match(r"j\w+\s+([0-9a-f]+)", text)
        start = index.get(int(jump[1], 16)) if jump else None
        if start is None or start > i or not any(MULTIPLY_ADD.search(t) for _, t in code[start:i]):
            continue
        if best is None or i - start < len(best):
            best = [t for _, t in code[start : i + 1]]
    return best


def tiles(disassembly, kinds=("tile",)):
    return [(name, code) for name, code in functions(disassembly) if any(f"::{kind}<" in name for kind in kinds)]


@unittest.skipIf(shutil.which("objdump") is None, "needs objdump")
class HotLoops(unittest.TestCase):
    def check(self, isa, least, kinds=("tile",)):
        objects = sorted(BUILD.rglob(f"gemm_{isa}.cc.o"))
        self.assertTrue(objects, f"no gemm_{isa}.cc.o below {BUILD}")
        for path in objects:
            run = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True,
                                 text=True)
            found = tiles(run.stdout, kinds)
            self.assertGreaterEqual(len(found), least)
            for name, code in found:
                with self.subTest(tile=name):
                    loop = inner_loop(code)
                    self.assertIsNotNone(loop)
                    self.assertEqual([t for t in loop if "%rsp" in t], [])

    def test_avx512(self):
        self.check("avx512", 3 * 12)

    def test_avx2(self):
        self.check("avx2", 3 * 6)
        self.check("avx2", 3 * 6, ("quantised_tile",))
        self.check("avx2", 2 * 6, ("widened_tile",))

    def test_a_spill_is_seen(self):
        text = ("0000000000000000 <void x::tile<1>()>:\n"
                "   0:\tvmovaps %zmm1,-0x40(%rsp)\n"
                "   8:\tvdpbf16ps %zmm2,%zmm1,%zmm3\n"
                "  10:\tvmovaps %zmm3,0x40(%rsp)\n"
                "  18:\tjne    8 <void x::tile<1>()+0x8>\n")
        (name, code), = tiles(text)
        self.assertEqual(len(inner_loop(code)), 3)
        self.assertTrue(any("%rsp" in t for t in inner_loop(code)))


if __name__ == "__main__":
    sys.argv[0] = "hot_loops_test"
    unittest.main()
