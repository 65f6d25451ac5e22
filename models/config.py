"""Strict reading of config.json: every key is read, fixed, optional by its format, or ignored by name.

A Section collects problems instead of failing at the first one; `finish()` raises one error with all of them.
"""


class ConfigError(Exception):
    """What is wrong with config.json, one problem a line."""


# No dimension of a model is near this; a larger one is a mistake or an attack, and products stay small.
LARGEST = 1 << 24
MOST_TAPS = 8  # of a short convolution
MOST_PROBLEMS = 40  # that one error lists
LARGEST_HEAD = 1 << 16  # heads, and widths of a head or a latent


class Section:
    """One object of config.json. Keys that were read become attributes."""

    def __init__(self, data, path="", problems=None):
        self._data = data if isinstance(data, dict) else {}
        self._path, self._known = path, set()
        self._problems = [] if problems is None else problems
        self._children = []
        if not isinstance(data, dict):
            self._problem(f"`{path}` must be an object, got {data!r:.60}")

    # ---- reading ---------------------------------------------------------------------------------
    def ints(self, names, low=1, high=LARGEST):
        """Integers within [low, high]."""
        self._read(names, lambda v: type(v) is int and low <= v <= high, f"an integer in {low}..{high}")

    def floats(self, names, low=-1e30, high=1e30):
        """Finite numbers within [low, high]."""
        self._read(names, lambda v: type(v) in (int, float) and low <= v <= high, f"a number in {low:g}..{high:g}")

    def flags(self, names):
        self._read(names, lambda v: type(v) is bool, "true or false")

    def texts(self, names):
        self._read(names, lambda v: type(v) is str, "a text")

    def optional_text(self, name):
        """The key must be there; null stands for "does not apply"."""
        self._read(name, lambda v: v is None or type(v) is str, "null or a text")

    def int_lists(self, names):
        self._read(names, lambda v: type(v) is list and all(type(i) is int for i in v), "a list of integers")

    def text_lists(self, names):
        self._read(names, lambda v: type(v) is list and all(type(i) is str for i in v), "a list of texts")

    def text_list(self, name):
        """A list of texts, returned: for keys whose name is a method's here."""
        self.text_lists(name)
        return self.__dict__.pop(name)

    def one_of(self, name, values):
        """One of a few values, each of which is implemented."""
        self._read(name, lambda v: any(type(v) is type(known) and v == known for known in values),
                   "one of " + ", ".join(repr(known) for known in values))

    def optional_float(self, name, low=-1e30, high=1e30):
        """The key must be there; null stands for "does not apply"."""
        self._read(name, lambda v: v is None or type(v) in (int, float) and low <= v <= high,
                   f"null or a number in {low:g}..{high:g}")

    def optional_int(self, name, low=1, high=LARGEST):
        """The key must be there; null stands for "does not apply"."""
        self._read(name, lambda v: v is None or type(v) is int and low <= v <= high, f"null or an integer in {low}..{high}")

    def fixed(self, **values):
        """Keys whose only supported value is the given one; anything else is a model this file does not compute."""
        for name, value in values.items():
            self._read(name, lambda v, value=value: type(v) is type(value) and v == value, f"{value!r} (nothing else is implemented)")

    def default(self, why, **values):
        """Keys that the family's published configs omit: `why` says what their absence means there."""
        assert why
        for name, value in values.items():
            self._known.add(name)
            found = self._data.get(name, value)
            numeric = type(value) in (int, float) and type(found) in (int, float)
            if not (type(found) is type(value) or numeric or value is None or found is None):
                self._problem(f"`{self._full(name)}` must be like {value!r}, got {found!r:.60}")
                found = value
            setattr(self, name, found)

    def default_int(self, name, why, value, low=1, high=LARGEST):
        """An integer that the family's published configs omit or leave null: `why` says what that means there."""
        assert why
        self._known.add(name)
        found = self._data.get(name)
        if found is not None and not (type(found) is int and low <= found <= high):
            self._problem(f"`{self._full(name)}` must be an integer in {low}..{high}, got {found!r:.60}")
            found = None
        setattr(self, name, value if found is None else found)

    def token_ids(self, name, why_absent=None):
        """One id or a list of ids, read as a list. `why_absent`: the key may be missing or null, and why."""
        def good(v):
            ids = v if type(v) is list else [v]
            return bool(ids) and all(type(i) is int and 0 <= i < LARGEST for i in ids)

        if why_absent is not None and self._data.get(name) is None:
            self._known.add(name)
            setattr(self, name, [])
            return
        self._read(name, good, f"a token id or a list of them, each in 0..{LARGEST - 1}")
        value = getattr(self, name)
        setattr(self, name, sorted(set(value)) if type(value) is list and good(value) else [value] if good(value) else [])

    def section(self, name):
        """A nested object that must be there."""
        self._known.add(name)
        if name not in self._data:
            self._problem(f"`{self._full(name)}` is missing")
        child = Section(self._data.get(name, {}), self._full(name), self._problems)
        child._absent = name not in self._data
        self._children.append(child)
        setattr(self, name, child)
        return child

    def optional_section(self, name, why):
        """A nested object or None."""
        assert why
        self._known.add(name)
        return self.section(name) if self._data.get(name) is not None else None

    @property
    def path(self):
        """Where this section stands in the file."""
        return self._path

    def has(self, name):
        """Whether the key is there: for formats in which one of several keys says a thing."""
        return name in self._data

    def ignore(self, names):
        """Keys that are known and have no effect on inference."""
        self._known.update(names.split())

    def ignore_rest(self):
        """Everything: the section is of a kind that cannot be read, which is a problem already."""
        self._known.update(self._data)

    def require(self, condition, text):
        """A relation between keys that were read."""
        if not condition:
            self._problem(text)

    @property
    def complete(self):
        """Whether no problem has been found so far: relations between keys can be looked at."""
        return not self._problems

    def finish(self):
        """Raises ConfigError when a key is missing, wrong or unknown."""
        self._find_unknown()
        if self._problems:
            shown, more = self._problems[:MOST_PROBLEMS], len(self._problems) - MOST_PROBLEMS
            raise ConfigError("\n".join(shown + ([f"and {more} more problems"] if more > 0 else [])))

    # ---- inside ----------------------------------------------------------------------------------
    _absent = False

    def _full(self, name):
        return f"{self._path}.{name}" if self._path else name

    def _problem(self, text):
        self._problems.append(text)

    def _read(self, names, good, expected):
        for name in names.split():
            self._known.add(name)
            value = self._data.get(name)
            if name not in self._data:
                if not self._absent:
                    self._problem(f"`{self._full(name)}` is missing")
            elif not good(value):
                self._problem(f"`{self._full(name)}` must be {expected}, got {value!r:.60}")
            setattr(self, name, value)

    def _find_unknown(self):
        for name in self._data:
            if name not in self._known:
                self._problem(f"`{self._full(name if len(name) <= 80 else name[:80] + '...')}` is unknown: neither read nor on this family's list of ignored keys")
        for child in self._children:
            child._find_unknown()
