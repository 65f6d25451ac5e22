"""Finds the family file of a config and traces it. Called once at load."""
import importlib
import json
import pathlib

import firstlight
from config import ConfigError, Section

NOT_FAMILIES = {"tracing", "config"}


def families():
    """All family modules, by file name."""
    here = pathlib.Path(__file__).parent
    names = sorted(p.stem for p in here.glob("*.py") if p.stem not in NOT_FAMILIES)
    return [importlib.import_module(name) for name in names]


def family_of(config):
    """The one family file that serves this config."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError("`model_type` is missing" if kind is None else f"`model_type` must be a text, got {kind!r:.60}")
    found = [m for m in families() if m.serves(config)]
    if len(found) != 1:
        known = ", ".join(m.__name__ for m in families())
        what = f"`model_type` {kind!r:.60} is served by " + (
            "no model file" if not found else "several model files: " + ", ".join(m.__name__ for m in found)
        )
        raise ConfigError(f"{what}; there are: {known}")
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
    return g, facts
