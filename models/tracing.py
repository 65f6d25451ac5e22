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
    found = [m for m in families() if m.serves(config)]
    if len(found) != 1:
        known = ", ".join(m.__name__ for m in families())
        what = f"`model_type` {config.get('model_type')!r} is served by " + (
            "no model file" if not found else "several model files: " + ", ".join(m.__name__ for m in found)
        )
        raise ConfigError(f"{what}; there are: {known}")
    return found[0]


def trace(text):
    """config.json as text -> (graph, facts). `facts` is what the engine needs besides the graph."""
    config = json.loads(text)
    if not isinstance(config, dict):
        raise ConfigError("the file must hold one JSON object")
    family = family_of(config)
    root = Section(config)
    c = family.read(root)
    root.finish()
    g = firstlight.Graph(family.__name__)
    facts = family.build(g, c)
    return g, facts
