"""The chat formats: jinja templates, and the files of this folder's parent, each the format of a family in Python.

A format's file holds
  serves(config)   whether it is the family's of this config.json;
  encode(row)      the prompt as parts (text, literal): literal text never becomes a control token;
  SEPARATE         whether the parts are tokenised each on its own (True), or as one text;
  prepare(row)     optional: the row with what the family's own template wants beside it; then a template, where the
                   checkpoint has one, goes before encode().
A row is {"messages", "tools", "kwargs": variables of the template, "now" ...} as parsed from JSON.
"""
import importlib
import json
import pathlib

import guard
import templates
from conversation import Refusal

FOLDER = pathlib.Path(__file__).parent.parent


def load():
    """All formats in Python by name."""
    return {p.stem: importlib.import_module(p.stem) for p in sorted(FOLDER.glob("*.py"))}


def find(formats, config, has_template):
    """The name of the format that serves this config.json, or ""."""
    config = json.loads(config)
    found = [name for name, f in formats.items()
             if f.serves(config) and (hasattr(f, "prepare") if has_template else True)]
    if len(found) > 1:
        raise Refusal(f"several chat formats serve this config: {', '.join(found)}")
    return found[0] if found else ""


def parse_row(text):
    row = json.loads(text)
    if not isinstance(row, dict):
        raise Refusal("a conversation must be an object with `messages`")
    if row.get("kwargs") is None:
        row["kwargs"] = {}
    if not isinstance(row["kwargs"], dict):
        raise Refusal("`kwargs` must be an object")
    if not isinstance(row.get("now"), (str, type(None))):
        raise Refusal("`now` must be a text like 2026-07-28T12:00:00")
    return row


def render(formats, template, name, row, defaults, controls):
    """(separate, parts). Texts, each may be empty: the template's, the format's name, the row's JSON, and as JSON the
    variables where the row does not say otherwise, and the control tokens' texts that the conversation must not forge."""
    row = parse_row(row)
    if name and name not in formats:
        raise Refusal(f"there is no chat format {name}; there are: {', '.join(formats)}")
    if name and not (template and hasattr(formats[name], "prepare")):
        return formats[name].SEPARATE, list(formats[name].encode(row))
    if name:
        row = formats[name].prepare(row)
    if "messages" not in row:
        raise Refusal("`messages` is missing")
    defaults = {"add_generation_prompt": True, **(json.loads(defaults) if defaults else {})}
    conversation = {"messages": row["messages"], "tools": row.get("tools"), "documents": row.get("documents"),
                    **row["kwargs"]}
    controls = tuple(json.loads(controls)) if controls else ()
    return False, guard.split(lambda c: templates.render(template, {**defaults, **c}, row.get("now")), conversation,
                              controls)


def describe(error):
    """(whether the template itself refused, its message or a sentence on what failed)"""
    if isinstance(error, templates.TemplateRefusal):
        return True, str(error)
    if isinstance(error, Refusal):
        return False, str(error)
    line = templates.line_of(error)
    where = "" if line is None else f" in line {line}"
    return False, f"the chat template fails{where}: {type(error).__name__}: {error}"
