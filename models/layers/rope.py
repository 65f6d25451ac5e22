"""Frequencies of rotary position embedding, in radians a token, from the settings of config.json.

RoFormer, arXiv 2104.09864; YaRN, arXiv 2309.00071. The "linear" and "llama3" forms are those of the releases that
introduced them (position interpolation, arXiv 2306.15595; Llama 3.1).
"""
import math

import firstlight as fl

LARGEST_CONTEXT = 1 << 32
KINDS = "default linear llama3 yarn"


class Rope:
    """`base`, and the scaling section or None. `frequencies(dim)` are those of `dim` rotated channels."""

    def __init__(self, base, kind="default", scaling=None):
        self.base, self.kind, self.scaling = base, kind, scaling

    def frequencies(self, dim):
        plain = [self.base ** (-2 * i / dim) for i in range(dim // 2)]
        s = self.scaling
        if self.kind == "linear":
            return [f / s.factor for f in plain]
        if self.kind == "llama3":
            return [llama3(f, s) for f in plain]
        if self.kind == "yarn":
            return yarn(plain, self.base, s)
        return plain

    def angles(self, g, dim):
        """Cosine and sine for `dim` rotated channels at the step's positions; all layers share them."""
        return fl.rope_angles(g.tokens(), frequencies=self.frequencies(dim), scale=self.angle_scale)

    @property
    def angle_scale(self):
        """Factor of cosine and sine: YaRN's attention factor."""
        s = self.scaling
        if self.kind != "yarn":
            return 1.0
        if s.attention_factor is not None:
            return s.attention_factor
        if s.mscale and s.mscale_all_dim:
            return magnitude(s.factor, s.mscale) / magnitude(s.factor, s.mscale_all_dim)
        return magnitude(s.factor, 1.0)


def magnitude(factor, mscale):
    """YaRN, section 3.4: sqrt(1/t) = 0.1 ln(s) + 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def llama3(f, s):
    """Long wavelengths are divided by `factor`, short ones kept, those between interpolated."""
    wavelength = 2 * math.pi / f
    context = s.original_max_position_embeddings
    if wavelength < context / s.high_freq_factor:
        return f
    if wavelength > context / s.low_freq_factor:
        return f / s.factor
    kept = (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    return (1 - kept) * f / s.factor + kept * f


def yarn(plain, base, s):
    """YaRN, section 3.2: a ramp over the pairs between beta_fast and beta_slow turns in the original context."""
    pairs = len(plain)

    def pair_of(turns):
        return pairs * math.log(s.original_max_position_embeddings / (turns * 2 * math.pi)) / math.log(base)

    low, high = pair_of(s.beta_fast), pair_of(s.beta_slow)
    if s.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    high = high + 0.001 if low == high else high
    out = []
    for i, f in enumerate(plain):
        interpolated = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append(f / s.factor * interpolated + f * (1 - interpolated))
    return out


def read_rope(c, why_plain=None, yarn=""):
    """The settings of a config in either published form: `rope_theta` with `rope_scaling` (null or an object), or
    `rope_parameters` with everything. `why_plain`: the family's configs may omit `rope_scaling`, and why that means
    none. `yarn`: settings of YaRN that the family's configs always carry; others have YaRN's own defaults."""
    if c.has("rope_parameters"):
        return read_scaling(c, c.section("rope_parameters"), None, yarn)
    if not c.has("rope_theta"):
        c.require(False, "`rope_theta` (or `rope_parameters`, which holds it in newer configs) is missing")
        return Rope(1e4)
    c.floats("rope_theta", low=1.5, high=1e11)
    if not c.has("rope_scaling") and why_plain is None:
        c.section("rope_scaling")  # missing
    s = c.optional_section("rope_scaling", why="null: not scaled")
    return Rope(c.rope_theta) if s is None else read_scaling(c, s, c.rope_theta, yarn)


def read_scaling(c, s, base, yarn=""):
    """One scaling section; `base` is None where it holds `rope_theta` itself."""
    names = [name for name in ("rope_type", "type") if s.has(name)] or ["rope_type"]  # newer and older name
    s.texts(" ".join(names))
    kind_name, kind = names[0], getattr(s, names[0])
    c.require(getattr(s, names[-1]) == kind, f"`{s.path}.type` and `{s.path}.rope_type` differ")
    if base is None:
        s.floats("rope_theta", low=1.5, high=1e11)
        base = s.rope_theta
    if kind not in KINDS.split():
        c.require(kind is None, f"`{s.path}.{kind_name}` must be one of {KINDS}, got {kind!r:.40}")
        return Rope(1e4)
    if kind != "default":
        s.floats("factor", low=1, high=1e6)
    if kind in ("llama3", "yarn"):
        s.ints("original_max_position_embeddings", high=LARGEST_CONTEXT)
    if kind == "llama3":
        s.floats("low_freq_factor high_freq_factor", low=1e-6, high=1e6)
        c.require(not c.complete or s.low_freq_factor < s.high_freq_factor,
                  f"`{s.path}.low_freq_factor` must be below `high_freq_factor`")
    if kind == "yarn":
        # Those that may be absent: the paper's recommendation for Llama, and values derived from `factor`.
        absent = {"beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": None, "mscale": None, "mscale_all_dim": None}
        for name, value in absent.items():
            if name in yarn.split() or s.has(name):
                s.floats(name, low=0, high=1e6)
            else:
                setattr(s, name, value)
        # Whether the ramp's ends are rounded to whole pairs; later configs can switch it off.
        if "truncate" in yarn.split() or s.has("truncate"):
            s.flags("truncate")
        else:
            s.truncate = True
        c.require(not c.complete or 0 < s.beta_slow <= s.beta_fast,
                  f"`{s.path}.beta_slow` must be positive and at most `beta_fast`")
    return Rope(base, kind, s)
