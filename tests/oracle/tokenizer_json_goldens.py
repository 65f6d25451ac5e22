"""Makes tests/data/tokenizers/json: small vocabularies, and what the Python package `tokenizers` makes of texts with them
under many combinations of normalizers, pre-tokenizers, decoders and added tokens.

Needs `tokenizers` 0.23. Deterministic: python3 tokenizer_json_goldens.py
"""

import copy
import gzip
import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests/data/tokenizers/json"
MARK = "\u2581"

GPT2 = None  # ByteLevel's own pattern
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
NESTED = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def corpus():
    files = sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("src/*/README.md"))
    return [f.read_text(encoding="utf-8") for f in files]


def train(normalizer, pre_tokenizer, size, alphabet, special):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>" if special else None))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=special,
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def byte_model():
    return train(None, pre_tokenizers.ByteLevel(add_prefix_space=False), 700, pre_tokenizers.ByteLevel.alphabet(), [])


def letter_model():
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    ascii_letters = [chr(c) for c in range(33, 127)] + [MARK, "é", "中", "ß"]
    normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    model = train(normalizer, pre_tokenizers.Split("\n", "removed"), 900, ascii_letters, special)
    model["byte_fallback"] = True
    model["fuse_unk"] = True
    return model


def added(id, content, special=True, normalized=False, **flags):
    return {"id": id, "content": content, "single_word": flags.get("single_word", False),
            "lstrip": flags.get("lstrip", False), "rstrip": flags.get("rstrip", False), "normalized": normalized,
            "special": special}


def sequence(key, parts):
    return {"type": "Sequence", key: parts}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTES_GPT2 = {**BYTES, "use_regex": True}
SPM_DECODER = sequence("decoders", [{"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                                    {"type": "ByteFallback"}, {"type": "Fuse"},
                                    {"type": "Strip", "content": " ", "start": 1, "stop": 0}])
GEMMA_DECODER = sequence("decoders", SPM_DECODER["decoders"][:3])
PREPEND = {"type": "Prepend", "prepend": MARK}
BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def cases(built):
    """Yields (name, model, parts)."""
    def by_bytes(name, pre_tokenizer, **parts):
        return name, "bytes", {"pre_tokenizer": pre_tokenizer, "decoder": BYTES_GPT2, **parts}

    def by_letters(name, **parts):
        return name, "letters", {"decoder": SPM_DECODER, **parts}

    yield by_bytes("gpt2", {k: v for k, v in BYTES_GPT2.items() if k != "use_regex"})
    yield by_bytes("gpt2 prefix space", {**BYTES_GPT2, "add_prefix_space": True})
    for name, pattern in (("llama3", LLAMA3), ("qwen", QWEN), ("qwen35", QWEN35), ("o200k", O200K), ("nested", NESTED)):
        yield by_bytes(name, sequence("pretokenizers", [split(pattern), BYTES]))
    yield by_bytes("deepseek", sequence("pretokenizers", [*map(split, DEEPSEEK), BYTES]))
    yield by_bytes("nfc", sequence("pretokenizers", [split(QWEN), BYTES]), normalizer={"type": "NFC"})
    for form in ("NFD", "NFKC", "NFKD"):
        yield by_bytes(form.lower(), BYTES_GPT2, normalizer={"type": form})
    yield by_bytes("lowercase without accents", BYTES_GPT2, normalizer=sequence("normalizers", [
        {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]))
    yield by_bytes("strip and replace", BYTES_GPT2, normalizer=sequence("normalizers", [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "ll"}, "content": "LL"}]))
    yield by_bytes("digits", sequence("pretokenizers", [{"type": "Digits", "individual_digits": True}, BYTES_GPT2]))
    yield by_bytes("digits together",
                   sequence("pretokenizers", [{"type": "Digits", "individual_digits": False}, BYTES_GPT2]))
    for behavior in BEHAVIORS:
        yield by_bytes("punctuation " + behavior,
                       sequence("pretokenizers", [{"type": "Punctuation", "behavior": behavior}, BYTES]))
        for invert in (False, True):
            yield by_bytes(f"split {behavior} {invert}",
                           sequence("pretokenizers", [split(r"[a-m]|\s", behavior, invert), BYTES]))
    yield by_bytes("split by text", sequence("pretokenizers", [split("ll", "MergedWithNext", kind="String"), BYTES]))
    yield by_bytes("empty matches", sequence("pretokenizers", [split("l*|(?=e)"), BYTES]))
    yield by_bytes("falcon", sequence("pretokenizers", [
        {"type": "Punctuation", "behavior": "Contiguous"}, BYTES_GPT2, {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]")]))
    yield by_bytes("whitespace", sequence("pretokenizers", [{"type": "Whitespace"}, BYTES]))
    yield by_bytes("whitespace split", sequence("pretokenizers", [{"type": "WhitespaceSplit"}, BYTES]))
    yield by_bytes("delimiter", sequence("pretokenizers", [{"type": "CharDelimiterSplit", "delimiter": "e"}, BYTES]))
    yield by_bytes("byte normalizer", None, normalizer={"type": "ByteLevel"})
    yield by_bytes("ignore merges", sequence("pretokenizers", [split(LLAMA3), BYTES]), model={"ignore_merges": True})
    yield by_bytes("added", sequence("pretokenizers", [split(LLAMA3), BYTES]), added_tokens=[
        added(700, "<|a|>"), added(701, "<|a|>b", special=False), added(702, "Hello", special=False, single_word=True),
        added(703, "<l>", lstrip=True), added(704, "<r>", rstrip=True), added(705, "<lr>", lstrip=True, rstrip=True),
        added(706, "  ", special=False), added(707, "\u2192", special=False)])
    yield by_bytes("added normalized", BYTES_GPT2, normalizer={"type": "Lowercase"}, added_tokens=[
        added(700, "<A>", normalized=True), added(701, "HELLO", special=False, normalized=True, single_word=True),
        added(702, "<B>"), added(703, "<C>", normalized=True, rstrip=True)])
    yield by_letters("llama2", normalizer=sequence("normalizers", [PREPEND, BLANKS]),
                     added_tokens=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")])
    yield by_letters("gemma", normalizer=BLANKS, pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
                     decoder=GEMMA_DECODER, added_tokens=[added(1, "<s>"), added(900, "\n\n", special=False),
                                                          added(built["letters"]["vocab"][MARK * 2], MARK * 2, special=False)])
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}
            yield by_letters(f"metaspace {scheme} {cut}", pre_tokenizer=metaspace, decoder=metaspace,
                             added_tokens=[added(1, "<s>"), added(2, "</s>", rstrip=True)])
    yield by_letters("metaspace spm decoder", pre_tokenizer={"type": "Metaspace", "replacement": MARK,
                                                             "prepend_scheme": "first", "split": False})
    yield by_letters("unknown", normalizer=BLANKS, decoder=None, model={"byte_fallback": False, "fuse_unk": False})
    yield by_letters("unknown together", normalizer=BLANKS, decoder=None, model={"byte_fallback": False})


TEXTS = ["", " ", "  ", "\n", "\n\n", "\r\n", "\t\n \t", "Hello", " Hello", "Hello world", "Hello  world ", "  Hello\n\n  world\n",
         "don't DON'T they'll we've 'tis rock'n'roll 'S\u017f", "1 22 333 4444 55555 1.5e-3 0x1F \u00b2\u00bd\u0663\u0664",
         "HTTPServer camelCase snake_case ABCdef dEF", "a,b;c: (d) [e] {f} <g> \"h\" !!! ...--- ==> /* */ //",
         "for (int i = 0; i < n; ++i) {\n\t\treturn x[i];\n}\n\n", "caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m \u212b A\u030a \u1e9b\u0323 \u01c4\u01c5\u0130\u0131\u00df",
         "\u4e2d\u6587\u5b57\u7b26\u3002\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u1173\u11af", "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
         "\U0001f600\U0001f469\u200d\U0001f680 \U0001f1eb\U0001f1f7 \u2764\ufe0f \U0001d49c \ufb01 \uff21\uff11", "a\u00a0b\u2003c\u3000d\u200be\ufefff\u0085g\u2028h\u001ci\u180e",
         "<|a|><|a|>b Hello Hello! Hello1 xHello _Hello", "x <l> y  <r>  z \n <lr>\t <l><r> <lr>", "<s>Hello</s> world<s> <unk></s>  x",
         "\u2192a \u2192 <A><a>HELLO hello Hellox <B> <b> <c>  <C> y", "\u2581Hello\u2581 \u2581\u2581 x", "<0x0A> <0x41>", "hello" * 9, "a" * 70, " " * 40 + "x",
         "\u0301\u0301a\u0301\u0323\u0302\u0323 \u0f71\u0f72\u0f74 \u0344\u0958", "e\u00e9\u00e9 \u4e2d\u4e2d\u00df"]


def random_texts(rng, count):
    pool = [*"abcdelmos ABLT 0123 .,'!-\n\t", "\u00e9", "\u0301", "\u4e2d", "\u3042", "\U0001f600", "  ", "\r\n", "'s", "ll", "he", "<s>", "<|a|>", MARK]
    for _ in range(count):
        yield "".join(rng.choice(pool) for _ in range(rng.randrange(1, 24)))


def load(parts, model, with_added):
    whole = {"version": "1.0", "truncation": None, "padding": None,
             "added_tokens": parts.get("added_tokens", []) if with_added else [],
             "normalizer": parts.get("normalizer"), "pre_tokenizer": parts.get("pre_tokenizer"), "post_processor": None,
             "decoder": parts.get("decoder"), "model": {**model, **parts.get("model", {})}}
    return Tokenizer.from_str(json.dumps(whole))


def rows(parts, model, rng):
    for parse_special in (True, False):
        if not parse_special and not parts.get("added_tokens"):
            continue
        tokenizer = load(parts, model, parse_special)
        texts = TEXTS if parse_special or len(parts["added_tokens"]) > 3 else TEXTS[-12:]
        for text in [*texts, *random_texts(rng, 8)]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            row = {"text": text, "parse_special": parse_special, "ids": ids}
            # The package decodes normalized added tokens as what the normalizer made of them, not as their text.
            if parse_special and not any(token["normalized"] for token in parts.get("added_tokens", [])):
                row["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
            yield row


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    built = {"bytes": byte_model(), "letters": letter_model()}
    for name, model in built.items():
        (HERE / f"{name}.model.json").write_text(json.dumps(model, separators=(",", ":")) + "\n")
    rng = random.Random(5)
    lines = []
    for name, model, parts in cases(built):
        case = {"name": name, "model": model, "parts": parts, "rows": list(rows(parts, copy.deepcopy(built[model]), rng))}
        lines.append(json.dumps(case, separators=(",", ":")) + "\n")
    (HERE / "cases.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
