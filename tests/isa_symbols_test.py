"""No object built with AVX flags may define a function that the rest of the program could end up using.

An inline function of a shared header is emitted as a weak symbol by every file that does not inline it, and the linker
keeps any one copy: if that is the one built with AVX-512 flags, the program dies on machines without them. So every
weak symbol of such an object must be in the namespace of its instruction set. Needs an optimised build.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

BUILD = pathlib.Path(os.environ["FIRSTLIGHT_BUILD"])


def strays(symbols, isa):
    """Weak symbols in `symbols` (nm -C output) outside the namespace of `isa`."""
    found = []
    for line in symbols.splitlines():
        # Weak definitions: W (functions), V (objects), u (unique objects).
        if match := re.match(r"^[0-9a-f]+ [WVu] (.+)$", line):
            # DW.ref.*: a pointer to the exception handler, data without instructions.
            if f"firstlight::{isa}::" not in match[1] and not match[1].startswith("DW.ref."):
                found.append(match[1])
    return found


class IsaSymbols(unittest.TestCase):
    def test_objects(self):
        seen = 0
        for isa in ("avx2", "avx512"):
            for path in sorted(BUILD.rglob(f"*_{isa}.cc.o")):
                seen += 1
                symbols = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True)
                with self.subTest(object=str(path.relative_to(BUILD))):
                    self.assertEqual(strays(symbols.stdout, isa), [])
        self.assertGreater(seen, 0, "no objects of per-ISA files in the build folder")

    def test_a_stray_is_caught(self):
        good = "0000000000000000 W firstlight::avx512::dot(float const*)\n                 U memcpy\n0000 T stuff\n"
        self.assertEqual(strays(good, "avx512"), [])
        self.assertEqual(strays(good, "avx2"), ["firstlight::avx512::dot(float const*)"])
        bad = good + "0000000000000000 W std::vector<float, std::allocator<float> >::size() const\n"
        self.assertEqual(len(strays(bad, "avx512")), 1)


if __name__ == "__main__":
    sys.argv[0] = "isa_symbols_test"
    unittest.main()
