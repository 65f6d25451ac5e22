"""Finds the family file of a config and traces it. Called once at load."""
import importlib
import json
import pathlib

import firstlight
from config import ConfigError, Section

NOT_FAMILIES = {"tracing", "config"}
FACTS = ["max_context", "vocab_size", "eos_token_ids"]  # that the engine needs besides the graph


def families():
    """All family modules, by file name, and what is wrong with those that cannot be read."""
    here = pathlib.Path(__file__).parent
    modules, broken = [], []
    for name in sorted(p.stem for p in here.glob("*.py") if p.stem not in NOT_FAMILIES):
        try:
            modules.append(importlib.import_module(name))
        except Exception as error:  # somebody is working on it: the others still serve their models
            broken.append(f"{name}.py cannot be read: {type(error).__name__}: {error}")
    return modules, broken


def family_of(config):
    """The one family file that serves this config."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError("`model_type` is missing" if kind is None else f"`model_type` must be a text, got {kind!r:.60}")
    modules, broken = families()
    found = [m for m in modules if m.serves(config)]
    if len(found) != 1:
        known = ", ".join(m.__name__ for m in modules)
        what = f"`model_type` {kind!r:.60} is served by " + (
            "no model file" if not found else "several model files: " + ", ".join(m.__name__ for m in found)
        )
        raise ConfigError("\n".join([f"{what}; there are: {known}", *broken]))
    return found[0]


def trace(text, most_weights=None):
    """config.json as text -> (graph, facts). `facts` is what the engine needs besides the graph; `most_weights`: how
    many tensors the graph may ask for (None: any number)."""
    config = json.loads(text)
    if not isinstance(config, dict):
        raise ConfigError("the file must hold one JSON object")
    family = family_of(config)
    root = Section(config)
    c = family.read(root)
    root.finish()
    g = firstlight.Graph(family.__name__)
    if most_weights is not None:
        g.limit_weights(most_weights)
    facts = family.build(g, c)
    missing = FACTS if not isinstance(facts, dict) else [name for name in FACTS if name not in facts]
    if missing:
        raise ConfigError(f"`build` of {family.__name__}.py returned no {', '.join(f'`{name}`' for name in missing)}")
    return g, facts
