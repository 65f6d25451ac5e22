"""Byte-level BPE in the published Kimi form: `tiktoken.model` plus `tokenizer_config.json`."""
import base64
import json
import os
from collections import Counter, defaultdict

import regex

PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
SPLIT = regex.compile(PATTERN, regex.V1)
NAMED = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"]
LAST = ["[UNK]", "[PAD]"]
SPECIALS = 24                   # ids after the merges; unnamed ones are <|reserved_token_{id}|>


def train(texts, size):
    """`size` byte strings: the 256 bytes, then merges by falling frequency.  texts: (text, weight) pairs."""
    weights = Counter()
    for text, weight in texts:
        for piece, count in Counter(SPLIT.findall(text)).items():
            weights[piece.encode()] += count * weight
    words = [[bytes([b]) for b in word] for word in weights]
    counts = list(weights.values())
    pairs, where = Counter(), defaultdict(set)
    for n, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[n]
            where[pair].add(n)
    tokens = [bytes([b]) for b in range(256)]
    known = set(tokens)
    while len(tokens) < size:
        best = max(pairs, key=lambda p: (pairs[p], p))
        joined = best[0] + best[1]
        if joined not in known:
            tokens.append(joined)
            known.add(joined)
        for n in list(where[best]):
            word = words[n]
            for pair in zip(word, word[1:]):
                pairs[pair] -= counts[n]
                where[pair].discard(n)
            new, i = [], 0
            while i < len(word):
                if i + 1 < len(word) and (word[i], word[i + 1]) == best:
                    new.append(joined)
                    i += 2
                else:
                    new.append(word[i])
                    i += 1
            words[n] = new
            for pair in zip(new, new[1:]):
                pairs[pair] += counts[n]
                where[pair].add(n)
        del pairs[best]
    return tokens


class Tokenizer:
    def __init__(self, tokens):
        self.tokens = tokens
        self.rank = {t: i for i, t in enumerate(tokens)}
        base = len(tokens)
        self.vocab_size = base + SPECIALS
        names = {base + i: name for i, name in enumerate(NAMED)}
        names |= {self.vocab_size - len(LAST) + i: name for i, name in enumerate(LAST)}
        self.named = names
        self.special = {name: i for i, name in names.items()}
        self.cache = {}

    def piece(self, data):
        if data in self.rank:
            return [self.rank[data]]
        parts = [bytes([b]) for b in data]
        while True:
            ranks = [self.rank.get(a + b, 1 << 30) for a, b in zip(parts, parts[1:])]
            if not ranks or min(ranks) == 1 << 30:
                return [self.rank[p] for p in parts]
            i = ranks.index(min(ranks))
            parts[i : i + 2] = [parts[i] + parts[i + 1]]

    def encode(self, text):
        ids = []
        for piece in SPLIT.findall(text):
            got = self.cache.get(piece)
            if got is None:
                got = self.cache[piece] = self.piece(piece.encode())
            ids += got
        return ids

    def decode(self, ids):
        parts = []
        for i in ids:
            if i < len(self.tokens):
                parts.append(self.tokens[i])
            else:
                parts.append(self.named.get(i, f"<|reserved_token_{i}|>").encode())
        return b"".join(parts).decode("utf-8", "replace")

    def save(self, folder):
        with open(os.path.join(folder, "tiktoken.model"), "w") as f:
            for i, token in enumerate(self.tokens):
                f.write(f"{base64.b64encode(token).decode()} {i}\n")
        config = {
            "tokenizer_class": "TikTokenTokenizer",
            "bos_token": "[BOS]", "eos_token": "<|im_end|>", "unk_token": "[UNK]", "pad_token": "[PAD]",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1048576,
            "added_tokens_decoder": {
                str(i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                         "single_word": False, "special": True}
                for i, name in sorted(self.named.items())
            },
        }
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump(config, f, indent=2)
            f.write("\n")

    @classmethod
    def load(cls, folder):
        tokens = []
        with open(os.path.join(folder, "tiktoken.model")) as f:
            for line in f:
                tokens.append(base64.b64decode(line.split()[0]))
        return cls(tokens)
