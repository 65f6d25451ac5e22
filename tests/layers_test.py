"""Holds the includes of src/ to the directions of docs/architecture.md and fails with the offending lines.

  * a folder includes only what stands below it (ALLOWED);
  * Python and pybind11 appear only in src/python, CLI11 only in src/cli, GoogleTest only in tests;
  * a kernel file, which is compiled with the flags of one instruction set, includes no standard containers or
    algorithms: their inline functions would be emitted with those flags, and the linker may keep that copy for the
    whole program (tests/isa_symbols_test.py looks for such copies in the built objects).
"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each folder may include: a folder, or a single header of one. Its own headers are always allowed.
CONTRACTS = {"ops/contract.h", "ops/registry.h"}
ENGINE = {"base", "device", "ops", "graph", "checkpoint", "cache", "text", "vision", "dist"}
ALLOWED = {
    "base": set(),
    "device": {"base"},
    "ops": {"base", "device"},
    "graph": {"base"} | CONTRACTS,
    "checkpoint": {"base"},
    "text": {"base"},
    "vision": {"base"},
    "cache": {"base", "ops/contract.h"},
    "dist": {"base", "device"},
    "plan": {"base", "graph"} | CONTRACTS,
    "python": {"base", "graph", "checkpoint/config.h", "text/prompt.h"} | CONTRACTS,
    "engine": ENGINE,
    "serve": ENGINE | {"engine", "python"},
    "cli": ENGINE | {"engine", "python", "plan", "serve"},
}

# Third-party headers with one door each.
DOORS = [
    (re.compile(r"^(Python\.h|pybind11/)"), "python"),
    (re.compile(r"^CLI/"), "cli"),
]

KERNEL_FILE = re.compile(r"(\.inc|_(avx512|avx2|generic)\.(cc|h))$")
CONTAINERS = {
    "algorithm", "array", "deque", "forward_list", "functional", "iostream", "list", "map", "memory", "numeric",
    "queue", "set", "span", "sstream", "stack", "string", "string_view", "unordered_map", "unordered_set", "vector",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def includes(path):
    """Yields (line number, own header or None, system header or None)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def allowed(folder, header):
    target = header.split("/")[0]
    return target == folder or target in ALLOWED[folder] or header in ALLOWED[folder]


def problems(src):
    """All violations below the folder `src`, as sentences."""
    found = []
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".cc", ".h", ".inc"}:
            continue
        name = path.relative_to(src)
        folder = name.parts[0]
        if folder not in ALLOWED:
            found.append(f"src/{name}: folder src/{folder} is not in the list of tests/layers_test.py")
            continue
        for number, own, system in includes(path):
            where = f"src/{name}:{number}"
            header = own or system
            if own and not allowed(folder, own):
                may = ", ".join(sorted(ALLOWED[folder])) or "nothing"
                found.append(f'{where}: includes "{own}", but src/{folder} may include only {may}')
            for pattern, door in DOORS:
                if pattern.match(header) and folder != door:
                    found.append(f"{where}: includes {header}, which belongs to src/{door} alone")
            if header.startswith("gtest/") and not re.search(r"test", path.name):
                found.append(f"{where}: includes {header} outside a test")
            if KERNEL_FILE.search(path.name) and system in CONTAINERS:
                found.append(f"{where}: includes <{system}>, which a kernel file must not")
    return found


class Layers(unittest.TestCase):
    def test_tree(self):
        found = problems(ROOT / "src")
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_bad_examples_are_caught(self):
        examples = {
            ("base/a.cc", '#include "device/cpu/isa.h"'): "base",
            ("graph/a.cc", '#include "ops/kernel.h"'): "graph",
            ("cache/a.h", '#include "graph/graph.h"'): "cache",
            ("engine/a.cc", '#include "cli/options.h"'): "engine",
            ("ops/linear/a.cc", '#  include "graph/graph.h"'): "ops",
            ("engine/a.cc", "#include <pybind11/embed.h>"): "src/python alone",
            ("text/a.cc", "#include <Python.h>"): "src/python alone",
            ("engine/a.cc", "#include <CLI/CLI.hpp>"): "src/cli alone",
            ("engine/a.cc", "#include <gtest/gtest.h>"): "outside a test",
            ("ops/linear/kernels.inc", "#include <vector>"): "kernel file",
            ("device/cpu/gemm_avx512.cc", "#include <string>"): "kernel file",
            ("stray/a.cc", ""): "not in the list",
        }
        for (name, line), expected in examples.items():
            with self.subTest(name=name, line=line), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "src", name)
                path.parent.mkdir(parents=True)
                path.write_text(line + "\n", encoding="utf-8")
                found = problems(pathlib.Path(folder, "src"))
                self.assertEqual(len(found), 1, found)
                self.assertIn(name, found[0])
                self.assertIn(expected, found[0])


if __name__ == "__main__":
    sys.argv[0] = "layers_test"
    unittest.main()
