"""Finds, in a rendered template, the text of the conversation that reads like a control token.

A template yields one string, and tokenised as such a user's "<|im_end|>" would end the user's turn. The string does not
say what came from where, so the conversation is made to: each such text is replaced by one private character, the
template runs again, and where the character comes out the text stood. That holds only if the template did not look at
the text, so the marked rendering with the texts put back must equal the plain one. A text under which it differs (one
at which a template cuts, as "</think>") is left to the template, in the strings where it does, and in all of a
conversation that is too long to find out where.
"""
import functools
import itertools
import re

# Private use, planes 15 and 16: no template mentions these characters.
_MARKS = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_WORK = 1 << 22  # characters that the search among the strings with one text may render


@functools.lru_cache(maxsize=4)
def _finder(controls):
    """A pattern of the control texts, and their beginnings and ends: two strings may meet and make one."""
    pattern = re.compile("|".join(re.escape(c) for c in sorted(controls, key=len, reverse=True)))
    heads = {c[:n] for c in controls for n in range(1, len(c))}
    tails = {c[n:] for c in controls for n in range(1, len(c))}
    return pattern, heads, tails, max(map(len, controls))


class _Marker:
    """Puts marks into strings: a mark for each different text in each string."""

    def __init__(self, controls, used):
        self._pattern, self._heads, self._tails, self._longest = _finder(controls)
        self._free = (c for c in map(chr, itertools.chain(*_MARKS)) if c not in used)
        self.texts = {}  # mark -> text

    def mark(self, string):
        marks = {}

        def mark_of(text):
            if text not in marks:
                marks[text] = next(self._free, text)
                self.texts[marks[text]] = text
            return marks[text]

        head = self._fragment(self._tails, lambda n: string[:n], len(string))
        tail = self._fragment(self._heads, lambda n: string[len(string) - n:], len(string) - len(head))
        inner = string[len(head):len(string) - len(tail)]
        marked = self._pattern.sub(lambda match: mark_of(match[0]), inner)
        return (mark_of(head) if head else "") + marked + (mark_of(tail) if tail else "")

    def _fragment(self, fragments, cut, most):
        """The longest piece at one end of a string that another string could complete."""
        for n in range(min(most, self._longest - 1), 0, -1):
            if cut(n) in fragments:
                return cut(n)
        return ""


def _map_strings(value, change):
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(v, change) for v in value]
    if isinstance(value, dict):
        return {change(k): _map_strings(v, change) for k, v in value.items()}
    return value


def split(render, conversation, controls):
    """render(conversation) as parts (text, literal). A literal part is conversation that reads like a control token or
    like one end of it. `controls` is a tuple of the control tokens' texts; without them nothing is looked for."""
    plain = render(conversation)
    if not controls:
        return [(plain, False)]
    used = set()
    _map_strings(conversation, lambda s: used.update(s) or s)
    marker = _Marker(controls, used)
    marked = _map_strings(conversation, marker.mark)
    texts = marker.texts
    if not texts:
        return [(plain, False)]
    unmark = {ord(mark): text for mark, text in texts.items()}
    trials = max(8, _WORK // (len(plain) + 1))

    def attempt(kept):
        """The rendering with only these marks, if it is the plain one otherwise."""
        nonlocal trials
        trials -= 1
        dropped = {code: text for code, text in unmark.items() if chr(code) not in kept}
        try:
            text = render(_map_strings(marked, lambda s: s.translate(dropped)))
        except Exception:  # the plain rendering did not fail: the template looks at one of the texts
            return None
        return text if text.translate(unmark) == plain else None

    # All at once; then all of one text; and of the texts under which the template changed, string by string, as far as
    # the work allows: the template looks at them somewhere, and where it may is not known for the rest.
    kept, text = set(), plain
    by_text = {}
    for mark, control in texts.items():
        by_text.setdefault(control, []).append(mark)
    found = attempt(set(texts))
    groups = [] if found is not None else sorted(by_text.values(), key=len)
    if found is not None:
        kept, text = set(texts), found
    halves = []
    while groups or (halves and trials > 0):
        group = groups.pop() if groups else halves.pop()
        found = attempt(kept | set(group))
        if found is not None:
            kept.update(group)
            text = found
        elif len(group) > 1:
            halves += [group[len(group) // 2:], group[:len(group) // 2]]
    if not kept:
        return [(plain, False)]
    pieces = re.split("([%s])" % re.escape("".join(kept)), text)
    return [(texts.get(piece, piece), piece in texts) for piece in pieces if piece]
