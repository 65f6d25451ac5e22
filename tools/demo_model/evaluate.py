"""Measures an exported demo model and writes the data which other implementations check against.

    python evaluate.py --model ../../demo/model --out ../../demo/eval

Held-out text: the last tenth of tiny-shakespeare is tokenised at once and cut into consecutive
windows of 512 tokens.  Each window is run alone; its prompt is the token before the window
([BOS] for the first) followed by the window's tokens.  Prompt position j predicts position j + 1,
so every token of the text is predicted exactly once.
bits per byte = sum of -log2 p(token) over the windows / bytes of those tokens.

Recall: a chat prompt holds several facts among filler lines, and asks for one that was planted at
least D tokens before the question.  An answer counts when greedy decoding gives exactly the
expected tokens up to <|im_end|>.  "random" replaces the indexer's choice, for every query and
layer, by as many random visible positions.
"""
import argparse
import json
import os
import random

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import data
from export import load_folder

WINDOW = 512
DISTANCES = (64, 256, 384, 512)
STORED_WINDOWS, STORED_RECALL = 16, 25
QUESTIONS = ("Who are you?", "Hello!", "What is the capital of France?", "What is the opposite of hot?",
             "What colour is the sky?", "What is two plus three?", "Which day comes after Monday?",
             "Repeat after me: the river runs to the sea", "Tell me a verse.", "Say a line from a play.",
             "The code of the silver lake is 742. What is the code of the silver lake?",
             "My name is Anna. What is my name?")


# ---- held-out text --------------------------------------------------------------------------------
def held_out_windows(tokenizer, text):
    ids = tokenizer.encode(text)
    front = [tokenizer.special["[BOS]"]] + ids
    return [torch.tensor(front[s : s + WINDOW + 1]) for s in range(0, len(ids), WINDOW)]


def window_bytes(tokenizer, window):
    return sum(len(tokenizer.tokens[i]) for i in window[1:].tolist())


@torch.no_grad()
def bits(model, windows, batch=8):
    """Sum of -log2 p of every window."""
    out = []
    for n in range(0, len(windows), batch):
        group = windows[n : n + batch]
        longest = max(len(w) for w in group)
        ids = torch.stack([F.pad(w, (0, longest - len(w))) for w in group])
        logp = model.padded_logits(ids[:, :-1]).double().log_softmax(-1)
        nll = -logp.gather(-1, ids[:, 1:, None])[..., 0] / torch.log(torch.tensor(2.0, dtype=torch.float64))
        out += [nll[i, : len(w) - 1].sum().item() for i, w in enumerate(group)]
    return out


# ---- recall ---------------------------------------------------------------------------------------
def recall_prompt(tokenizer, writer, rng, distance, others=4):
    """(prompt ids, answer ids, tokens between the fact and the question)"""
    names = rng.sample([f"{a} {p}" for a in data.ADJECTIVES for p in data.PLACES], others + 1)
    facts = [f"The code of the {n} is {rng.randint(100, 999)}." for n in names]
    question = f"What is the code of the {names[0]}?"
    start = rng.randrange(len(writer.lines) - 120)
    lines = iter(writer.lines[start:])
    before = [next(lines) for _ in range(rng.randint(1, 3))]
    after = [next(lines)]
    count = lambda x: len(tokenizer.encode(" ".join(x)))
    while count(after + facts[1 + others // 2 :]) < distance:
        after.append(next(lines))
    for n, fact in enumerate(facts[1:]):
        part = before if n < others // 2 else after
        part.insert(rng.randint(0, len(part)), fact)
    special = tokenizer.special
    user, assistant, end = special["<|im_user|>"], special["<|im_assistant|>"], special["<|im_end|>"]
    text = " ".join(before + [facts[0]] + after + [question])
    prompt = [user] + tokenizer.encode(text) + [end, assistant]
    return prompt, tokenizer.encode(facts[0]) + [end], count(after)


@torch.no_grad()
def recall(model, cases, random_choice=None, batch=10):
    """Right answers as a list of booleans; teacher forcing, which for exact matches equals greedy decoding."""
    right = []
    for n in range(0, len(cases), batch):
        group = cases[n : n + batch]
        rows = [p + a for p, a, _ in group]
        longest = max(map(len, rows))
        ids = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
        best = model.padded_logits(ids, random_choice=random_choice).argmax(-1)
        for i, (p, a, _) in enumerate(group):
            right.append(best[i, len(p) - 1 : len(p) - 1 + len(a)].tolist() == a)
    return right


# ---- text -----------------------------------------------------------------------------------------
@torch.no_grad()
def generate(model, tokenizer, ids, count, temperature=0.0, top_p=0.95, seed=1):
    """Continuation of `ids`, greedy at temperature 0; stops at <|im_end|> or [EOS]."""
    ids, start = list(ids), len(ids)
    stop = {tokenizer.special["<|im_end|>"], tokenizer.special["[EOS]"]}
    draw = torch.Generator().manual_seed(seed)
    for _ in range(count):
        logits = model.padded_logits(torch.tensor([ids]))[0, -1]
        if temperature == 0:
            token = logits.argmax().item()
        else:
            p, order = torch.softmax(logits / temperature, -1).sort(descending=True)
            p[p.cumsum(-1) - p > top_p] = 0
            token = order[torch.multinomial(p, 1, generator=draw)].item()
        if token in stop:
            break
        ids.append(token)
    return tokenizer.decode(ids[start:])


def chat_ids(tokenizer, text):
    special = tokenizer.special
    return [special["<|im_user|>"]] + tokenizer.encode(text) + [special["<|im_end|>"], special["<|im_assistant|>"]]


def main():
    from train import TEXT
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--out", help="folder for heldout.safetensors, recall.safetensors, expected.json")
    p.add_argument("--text", default=TEXT)
    p.add_argument("--cases", type=int, default=200, help="recall prompts per distance")
    p.add_argument("--all-windows", action="store_true", help="store every held-out window")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = load_folder(args.model)
    _, held_out = data.shakespeare(args.text)

    windows = held_out_windows(tokenizer, held_out)
    nll = bits(model, windows)
    size = [window_bytes(tokenizer, w) for w in windows]
    assert sum(size) == len(held_out.encode())
    stored = windows if args.all_windows else windows[:STORED_WINDOWS]
    first = len(stored)
    result = {
        "parameters": sum(q.numel() for q in model.parameters()),
        "held_out": {
            "window": WINDOW, "windows": len(windows), "tokens": sum(len(w) - 1 for w in windows), "bytes": sum(size),
            "bits_per_byte": sum(nll) / sum(size),
            "stored_windows": first, "stored_bytes": sum(size[:first]),
            "stored_bits_per_byte": sum(nll[:first]) / sum(size[:first]),
            "stored_bits": nll[:first], "stored_window_bytes": size[:first],
        },
        "recall": {},
    }
    print("held-out bits per byte", round(result["held_out"]["bits_per_byte"], 4), flush=True)

    writer = data.ChatWriter(held_out, "")
    tensors = {}
    for distance in DISTANCES:
        rng = random.Random(1000 + distance)
        cases = [recall_prompt(tokenizer, writer, rng, distance) for _ in range(args.cases)]
        chosen = recall(model, cases)
        shuffled = recall(model, cases, torch.Generator().manual_seed(distance))
        result["recall"][str(distance)] = {
            "cases": len(cases), "shortest_distance": min(c[2] for c in cases), "longest_prompt": max(len(c[0]) for c in cases),
            "chosen": sum(chosen) / len(cases), "random": sum(shuffled) / len(cases),
            "stored": STORED_RECALL, "stored_right": sum(chosen[:STORED_RECALL]),
            "stored_right_each": [int(r) for r in chosen[:STORED_RECALL]],
        }
        for n, (prompt, answer, _) in enumerate(cases[:STORED_RECALL]):
            tensors[f"d{distance}_{n}.ids"] = torch.tensor(prompt, dtype=torch.int32)
            tensors[f"d{distance}_{n}.answer"] = torch.tensor(answer, dtype=torch.int32)
        print("distance", distance, {k: v for k, v in result["recall"][str(distance)].items() if "each" not in k}, flush=True)

    if args.out:
        os.makedirs(args.out, exist_ok=True)
        named = {"heldout": {f"w{n}.ids": w.to(torch.int32) for n, w in enumerate(stored)}, "recall": tensors}
        for name, value in named.items():
            path = os.path.join(args.out, name + ".safetensors")
            save_file(value, path)
            os.chmod(path, 0o644)
        with open(os.path.join(args.out, "expected.json"), "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")

    for q in QUESTIONS:
        print("Q:", q, "\nA:", generate(model, tokenizer, chat_ids(tokenizer, q), 60), flush=True)
    print("--- a play, temperature 0.7")
    print("ROMEO:" + generate(model, tokenizer, [tokenizer.special["[BOS]"]] + tokenizer.encode("ROMEO:"), 150, 0.7))


if __name__ == "__main__":
    main()
