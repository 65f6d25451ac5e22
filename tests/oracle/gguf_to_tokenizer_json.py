"""Writes the vocabulary of a GGUF file of kind "llama" (SentencePiece BPE) as a tokenizer.json.

    python3 gguf_to_tokenizer_json.py VOCAB.gguf > tokenizer.json

GGUF keeps a score for each token instead of merges: of all neighbours that together are a token, those with the highest
score are joined first. Each way to cut a token into two tokens becomes a merge; merges are sorted by falling score, and
those of one score by the ids of their halves. The parts around the model are those of the tokenizer.json that Llama 2
checkpoints carry.
"""

import json
import struct
import sys

KINDS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MARK = "\u2581"


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, layout):
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def value(self, kind):
        if kind == STRING:
            size = self.number("<Q")
            self.at += size
            return self.data[self.at - size:self.at].decode()
        if kind == ARRAY:
            inner = self.number("<I")
            return [self.value(inner) for _ in range(self.number("<Q"))]
        return self.number(KINDS[kind])


def metadata(data):
    reader = Reader(data)
    if data[:4] != b"GGUF":
        sys.exit("not a GGUF file")
    reader.at = 8
    reader.number("<Q")  # tensors
    fields = {}
    for _ in range(reader.number("<Q")):
        name = reader.value(STRING)
        fields[name] = reader.value(reader.number("<I"))
    return fields


def merges_of(tokens, scores):
    ids = {token: i for i, token in enumerate(tokens)}
    found = []
    for token, score in zip(tokens, scores):
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None:
                found.append((-score, left, right))
    return [[tokens[left], tokens[right]] for _, left, right in sorted(found)]


def tokenizer_json(fields):
    if fields["tokenizer.ggml.model"] != "llama":
        sys.exit("not a vocabulary of kind llama")
    tokens = fields["tokenizer.ggml.tokens"]
    kinds = fields["tokenizer.ggml.token_type"]
    # Only ordinary tokens are made by joining.
    joinable = [t if k == NORMAL else "" for t, k in zip(tokens, kinds)]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": k == USER_DEFINED, "special": k != USER_DEFINED}
             for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (UNKNOWN, CONTROL, USER_DEFINED)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": MARK},
            {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [tokens.index("<s>")], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": merges_of(joinable, fields["tokenizer.ggml.scores"])},
    }


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        json.dump(tokenizer_json(metadata(file.read())), sys.stdout, ensure_ascii=False)
