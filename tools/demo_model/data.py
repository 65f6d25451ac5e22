"""Training text: plain documents and synthetic chats.

Documents are tiny-shakespeare (the last tenth is held out and never seen) and, when the Debian
program `bible` is installed, the King James Bible.  Chats are written by small generators; the most
important one plants facts in filler text and asks for them several hundred tokens later.
"""
import random
import re
import subprocess

import numpy as np

HELD_OUT = 0.1

ADJECTIVES = ("silver golden red green blue white black old new small great dark cold warm quiet "
              "broken hidden northern southern western eastern little young strong").split()
PLACES = ("lake river tower house garden bridge gate castle mountain island forest city road "
          "school ship market temple valley tree well field church harbour mill").split()
PEOPLE = ("Anna Peter Mary John Paul Ruth Martha James Sarah David Clara Thomas Helen Mark Julia "
          "Simon Rosa Adam Lucy Martin Eva Daniel Nora Victor").split()
TOWNS = ("Rome Paris London Berlin Vienna Madrid Lisbon Athens Prague Dublin Oslo Cairo Venice "
         "Naples Geneva Moscow Tokyo Delhi Boston Milan").split()
FOODS = ("bread apples cheese fish honey rice soup grapes eggs butter figs milk plums nuts beans pears").split()
CAPITALS = {"France": "Paris", "England": "London", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
            "Austria": "Vienna", "Portugal": "Lisbon", "Greece": "Athens", "Ireland": "Dublin",
            "Norway": "Oslo", "Egypt": "Cairo", "Russia": "Moscow", "Japan": "Tokyo", "India": "Delhi"}
COLOURS = {"the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "blood": "red",
           "the sun": "yellow", "milk": "white", "the night": "black", "a leaf": "green", "the sea": "blue"}
OPPOSITES = [("hot", "cold"), ("day", "night"), ("good", "bad"), ("big", "small"), ("old", "young"),
             ("black", "white"), ("up", "down"), ("open", "closed"), ("love", "hate"), ("light", "dark"),
             ("rich", "poor"), ("life", "death"), ("true", "false"), ("strong", "weak"), ("war", "peace")]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "zero one two three four five six seven eight nine ten".split()

WEIGHT_DOCUMENT, WEIGHT_ANSWER, WEIGHT_PROMPT = 1.0, 2.0, 0.1


# ---- sources ------------------------------------------------------------------------------------
def shakespeare(path):
    """(training part, held-out part)"""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    cut = int(len(text) * (1 - HELD_OUT))
    return text[:cut], text[cut:]


def bible(program="bible"):
    """The King James text, one verse per line without its number; empty when the program is missing."""
    try:
        raw = subprocess.run([program, "-f", "Gen1:1-Rev22:21"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "\n".join(re.sub(r"^\S+:\d+\s+", "", line).strip() for line in raw.splitlines()) + "\n"


# ---- chats --------------------------------------------------------------------------------------
class ChatWriter:
    """Generates tasks; a task is a list of (role, text) turns."""

    def __init__(self, plays, verses):
        self.lines = [l for l in plays.split("\n") if 20 <= len(l) <= 80]
        self.verses = [v for v in verses.split("\n") if 30 <= len(v) <= 160] or self.lines
        self.words = sorted({w for w in re.findall(r"[a-z]{3,7}", plays)})

    # filler of roughly `size` characters, as a list of sentences
    def filler(self, rng, size):
        out, length = [], 0
        kind = rng.random()
        start = rng.randrange(len(self.lines) - 60)
        while length < size:
            if kind < 0.5:
                s = self.lines[(start + len(out)) % len(self.lines)]
            elif kind < 0.85:
                s = rng.choice(self.verses)
            else:
                s = " ".join(rng.choice(self.words) for _ in range(rng.randint(4, 9))) + "."
            out.append(s)
            length += len(s)
        return out

    def facts(self, rng, count):
        """(statement, question, answer) triples with distinct subjects."""
        out, used = [], set()
        people = rng.sample(PEOPLE, len(PEOPLE))
        while len(out) < count:
            kind = rng.random()
            if kind < 0.8:
                name = f"{rng.choice(ADJECTIVES)} {rng.choice(PLACES)}"
                if name in used:
                    continue
                used.add(name)
                s = f"The code of the {name} is {rng.randint(100, 999)}."
                out.append((s, f"What is the code of the {name}?", s))
            elif people:
                name = people.pop()
                if kind < 0.9:
                    s = f"{name} lives in {rng.choice(TOWNS)}."
                    out.append((s, f"Where does {name} live?", s))
                else:
                    s = f"{name} likes {rng.choice(FOODS)}."
                    out.append((s, f"What does {name} like?", s))
        return out

    def recall(self, rng, size, most):
        """Up to `most` facts at random places of `size` characters of filler, then questions about them."""
        facts = self.facts(rng, rng.randint(1, most))
        text = self.filler(rng, size) if size else []
        for fact in facts:
            text.insert(rng.randint(0, len(text)), fact[0])
        asked = rng.sample(facts, rng.randint((len(facts) + 1) // 2, len(facts)))
        first, rest = asked[0], asked[1:]
        glue = rng.choice((" ", "\n"))
        if rng.random() < 0.5:
            turns = [("user", glue.join(text)), ("assistant", rng.choice(("I will remember that.", "Thank you.", "Noted.")))]
            turns.append(("user", first[1]))
        else:
            turns = [("user", glue.join(text + [first[1]]))]
        turns.append(("assistant", first[2]))
        for fact in rest:
            turns += [("user", fact[1]), ("assistant", fact[2])]
        return turns

    def repeat(self, rng):
        kind = rng.random()
        if kind < 0.4:
            text = rng.choice(self.lines)
        elif kind < 0.7:
            text = " ".join(rng.choice(self.words) for _ in range(rng.randint(2, 12)))
        elif kind < 0.85:
            text = " ".join(str(rng.randint(1, 999)) for _ in range(rng.randint(2, 8)))
        else:
            text = rng.choice(self.verses)
        return [("user", f"Repeat after me: {text}"), ("assistant", text)]

    def name(self, rng):
        mine, yours = rng.choice(PEOPLE), rng.choice(PEOPLE)
        turns = [("user", rng.choice((f"My name is {mine}.", f"Hello, my name is {mine}.", f"Hello! I am {mine}."))),
                 ("assistant", f"Hello {mine}. How can I help you?")]
        if rng.random() < 0.5:
            turns += self.small(rng)
        turns += [("user", "What is my name?"), ("assistant", f"Your name is {mine}.")]
        if rng.random() < 0.3:
            turns = [("system", f"Your name is {yours}.")] + turns
            turns += [("user", "What is your name?"), ("assistant", f"My name is {yours}.")]
        return turns

    def small(self, rng):
        """One short question with a fixed kind of answer."""
        kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 7) * 2 + (8, 9))
        if kind == 0:
            q = rng.choice(("Who are you?", "What are you?", "Tell me who you are."))
            a = "I am the Firstlight demo model, a very small language model."
        elif kind == 1:
            land, town = rng.choice(list(CAPITALS.items()))
            q, a = f"What is the capital of {land}?", f"The capital of {land} is {town}."
        elif kind == 2:
            thing, colour = rng.choice(list(COLOURS.items()))
            q, a = f"What colour is {thing}?", f"{thing[0].upper() + thing[1:]} is {colour}."
        elif kind == 3:
            one, two = rng.choice(OPPOSITES)
            if rng.random() < 0.5:
                one, two = two, one
            q, a = f"What is the opposite of {one}?", f"The opposite of {one} is {two}."
        elif kind == 4:
            x, y = rng.randint(0, 5), rng.randint(0, 5)
            q, a = f"What is {NUMBERS[x]} plus {NUMBERS[y]}?", f"{NUMBERS[x].capitalize()} plus {NUMBERS[y]} is {NUMBERS[x + y]}."
        elif kind == 5:
            d = rng.randrange(7)
            q, a = f"Which day comes after {DAYS[d]}?", f"After {DAYS[d]} comes {DAYS[(d + 1) % 7]}."
        elif kind == 6:
            q, a = rng.choice((("Hello!", "Hello! How can I help you?"), ("How are you?", "I am well, thank you."),
                               ("Thank you.", "You are welcome."), ("Good morning.", "Good morning! How can I help you?")))
        elif kind == 7:
            x = rng.randint(0, 9)
            q, a = f"Which number comes after {NUMBERS[x]}?", f"After {NUMBERS[x]} comes {NUMBERS[x + 1]}."
        elif kind == 8:
            q, a = "Tell me a verse.", rng.choice(self.verses)
        else:
            q, a = "Say a line from a play.", rng.choice(self.lines)
        return [("user", q), ("assistant", a)]


class Chats:
    """Rows of a fixed number of tokens: one long conversation each, with per-token loss weights."""

    def __init__(self, tokenizer, writer):
        self.t, self.writer = tokenizer, writer
        self.finish = False         # more recall than usual
        self.progress = 1.0         # 0: few facts, little filler (easiest), 1: the full mixture
        self.end = tokenizer.special["<|im_end|>"]

    def turn(self, role, text):
        ids = [self.t.special[f"<|im_{role}|>"]] + self.t.encode(text) + [self.end]
        if role == "assistant":
            return ids, [0.0] + [WEIGHT_ANSWER] * (len(ids) - 1)
        return ids, [WEIGHT_PROMPT] * len(ids)

    def filler_size(self, rng, tokens, first):
        """Characters of filler that leave room for the questions; long ones only at the start of a row."""
        most = max(int((tokens - 160) * 2.6), 0)
        if rng.random() > self.progress or most <= 600:
            return rng.choice((0, 0, 150))
        if first and rng.random() < 0.65:
            return rng.randint(most // 2, most)
        return rng.choice((0, 0, 100, 300, 600))

    def row(self, rng, length):
        share_recall = 0.60 if self.finish else 0.55 - 0.10 * self.progress
        share_repeat = 0.25 - 0.13 * self.progress
        ids, weights = [], []
        if rng.random() < 0.1:
            ids, weights = self.turn("system", "You are a helpful assistant.")
        while len(ids) < length:
            kind = rng.random() * (share_recall / 0.8 if not ids else 1.0)      # a row mostly starts with recall
            if kind < share_recall:
                size = self.filler_size(rng, length - len(ids), first=len(ids) < 32)
                turns = self.writer.recall(rng, size, 2 + int(self.progress * (4 if size > 500 else 8)))
            elif kind < share_recall + share_repeat:
                turns = self.writer.repeat(rng)
            elif kind < share_recall + share_repeat + 0.08:
                turns = self.writer.name(rng)
            else:
                turns = self.writer.small(rng)
            for role, text in turns:
                a, b = self.turn(role, text)
                ids += a
                weights += b
        return ids[:length], weights[:length]


class Batches:
    """Mixes document crops and chat rows."""

    def __init__(self, tokenizer, plays, verses, seed):
        self.rng = random.Random(seed)
        self.plays = np.array(tokenizer.encode(plays), dtype=np.int64)
        self.verses = np.array(tokenizer.encode(verses), dtype=np.int64) if verses else self.plays
        self.chats = Chats(tokenizer, ChatWriter(plays, verses))
        self.bos = tokenizer.special["[BOS]"]

    def document(self, ids, length):
        start = self.rng.randrange(len(ids) - length)
        row = ids[start : start + length].copy()
        if self.rng.random() < 0.1:
            row[0] = self.bos
        return row, np.full(length, WEIGHT_DOCUMENT, dtype=np.float32)

    def batch(self, rows, length):
        """ids [rows, length], weights [rows, length] (weight of predicting that token), is_chat [rows]."""
        # shares of the rows; chats teach recall and come first, and again at the very end
        plays, verses = (0.15, 0.05) if self.chats.finish else (0.20 + 0.12 * self.chats.progress, 0.13)
        documents = plays + verses
        ids, weights, chat = [], [], []
        # stratified kinds: nearly the same mixture in every batch
        offset = self.rng.random()
        for n in range(rows):
            kind = (n + offset) / rows
            if kind < plays:
                i, w = self.document(self.plays, length)
            elif kind < documents:
                i, w = self.document(self.verses, length)
            else:
                i, w = self.chats.row(self.rng, length)
            ids.append(i)
            weights.append(w)
            chat.append(kind >= documents)
        return np.array(ids, dtype=np.int64), np.array(weights, dtype=np.float32), np.array(chat)


def planted_codes(ids, weights):
    """(row, query, key) arrays: the position that predicts a digit of an answered code, and the position
    of that digit where the code was planted: the latest earlier place with the same seven tokens."""
    out = []
    for r, (row, w) in enumerate(zip(ids.tolist(), weights.tolist())):
        seen = {}
        for n in range(4, len(row) - 2):
            if all(48 <= t <= 57 for t in row[n : n + 3]) and not 48 <= row[n - 1] <= 57:
                pattern = tuple(row[n - 4 : n + 3])
                if w[n] == WEIGHT_ANSWER and pattern in seen:
                    out += [(r, n + j - 1, seen[pattern] + j) for j in range(3)]
                else:
                    seen[pattern] = n
    return np.array(out, dtype=np.int64).reshape(-1, 3).T


def tokenizer_texts(plays, verses, seed=1):
    """What the BPE is trained on: (text, weight) pairs."""
    writer, rng = ChatWriter(plays, verses), random.Random(seed)
    chat = "\n".join(text for _ in range(2000) for _, text in
                     rng.choice((lambda r: writer.recall(r, 0, 8), writer.small, writer.name))(rng))
    return [(plays, 4), (verses, 1), (chat, 6)]
