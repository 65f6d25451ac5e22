"""Makes split.jsonl, precut.jsonl and utf8_replace.jsonl, which the tests of src/text read.

Needs the Python package `regex` (set operations in classes). Deterministic: python3 tokenizer_goldens.py
"""

import json
import random
import unicodedata
from pathlib import Path

import regex

HERE = Path(__file__).parents[1] / "data/tokenizers"

KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
PATTERN = regex.compile(KIMI, regex.V1)

# Characters whose class or script other dialects see differently, or that end words in special ways.
TRICKY = ("、。〈〉「」・ー々〇〡⺀⼀㊀\u302a\U00016ff0 \u180e\u200b\ufeff\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028"
          "\u2029\u202f\u205f\u3000ǅʰªıſKÅ\u0301\u20dd\u0e31กำ한국어かなカナ漢字中文١²½Ⅷ🙂👩\u200d🚀🇫🇷𝒜𠀀")


def assigned():
    """Code points whose category and script the Unicode versions 14 and later agree on."""
    found = []
    for value in range(0x20, 0x32000):
        c = chr(value)
        category = unicodedata.category(c)
        if category in ("Cn", "Cs") or not regex.fullmatch(r"\p{%s}" % category, c):
            continue
        found.append(c)
    return found


def split_texts(rng):
    everything = assigned()
    contractions = ["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'x", "'\u017f", "''s", "\u2019s"]
    ascii_text = [chr(c) for c in range(1, 128)]
    spaces = [" ", "  ", "\t", "\n", "\r\n", "\r", " \n", "\n ", "\v", "\f"]
    words = ["a", "A", "Ab", "aB", "HTTPServer", "don", "é", "ß", "Я", "1", "12345", "(", "...", "=="]
    pools = [
        (ascii_text + spaces * 5 + words * 4 + contractions * 2, 150),
        (spaces + ["a", "."], 60),
        (list(TRICKY) + contractions + words + spaces, 200),
        (everything, 150),
        (everything + list(TRICKY) * 200 + words * 500 + spaces * 500, 150),
    ]
    for pool, count in pools:
        for _ in range(count):
            yield "".join(rng.choice(pool) for _ in range(rng.randrange(1, 40)))


def write(name, rows):
    with open(HERE / name, "w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=True) + "\n")


def splits(rng):
    for text in split_texts(rng):
        pieces = PATTERN.findall(text)
        assert "".join(pieces) == text
        yield {"text": text, "pieces": [len(p.encode()) for p in pieces]}


def precut(text):
    """The first-party rule, in characters: chunks first, then runs within a chunk."""
    cuts = []
    for begin in range(0, len(text), 400_000):
        chunk = text[begin:begin + 400_000]
        run, kind, start = 0, chunk[0].isspace(), 0
        for i, c in enumerate(chunk):
            if c.isspace() != kind:
                run, kind = 1, not kind
                continue
            run += 1
            if run > 25_000:
                cuts.append(chunk[start:i])
                start, run = i, 1
        cuts.append(chunk[start:])
    return cuts


def precuts(rng):
    cases = [
        [["a", 25_000]], [["a", 25_001]], [["a", 50_001]], [[" ", 25_001]], [["é", 30_000]],
        [["a", 24_999], [" ", 1], ["b", 25_001]], [["a b", 10_000]], [["a ", 200_001]],
        [["ab ", 133_333], ["c", 30_000]], [["\x1c", 20_000], ["\u3000", 20_000]],
        [["\u180e", 20_000], ["a", 20_000]], [["word ", 250_000]], [["中", 70_000], ["\n", 60_000]],
    ]
    for _ in range(12):
        unit = ["a", " ", "中", "🙂", "\u00a0", "x y", "\x1f\n"]
        cases.append([[rng.choice(unit), rng.randrange(1, 90_000)] for _ in range(rng.randrange(1, 6))])
    for runs in cases:
        cuts = precut("".join(unit * count for unit, count in runs))
        yield {"runs": runs, "cuts": [len(c.encode()) for c in cuts]}


def replacements(rng):
    edges = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
             0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    rows = [bytes([a, b]) for a in edges for b in edges]
    for _ in range(600):
        rows.append(bytes(rng.choice(edges) for _ in range(rng.randrange(3, 9))))
    for raw in rows:
        yield {"hex": raw.hex(), "text": raw.decode("utf-8", "replace")}


def main():
    write("kimi/split.jsonl", splits(random.Random(1)))
    write("kimi/precut.jsonl", precuts(random.Random(2)))
    write("utf8_replace.jsonl", replacements(random.Random(3)))


main()
