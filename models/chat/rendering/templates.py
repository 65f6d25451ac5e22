"""Jinja chat templates, rendered as the ecosystem renders them, in jinja2's sandbox.

A template is a hostile file. The sandbox keeps it from the interpreter's insides; what it may cost is bounded from
outside, by the process that this runs in (worker.py).
"""
import copy
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox


class TemplateRefusal(jinja2.TemplateError):
    """The template's own raise_exception()."""


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %} marks the assistant's text for training; here only its body counts."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    # jinja2's own filter escapes HTML characters, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateRefusal(message)


def make_dict(*args, **kwargs):
    """dict() without the type dict, whose attributes are no template's business."""
    return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    """namespace() that keeps no attribute with which it could pose as something else."""

    def __init__(*args, **kwargs):  # a template may write namespace(self=…)
        jinja2.utils.Namespace.__init__(*args, **kwargs)
        for name in jinja2.utils.Namespace.__getattribute__(args[0], "_Namespace__attrs"):
            _check_name(name)

    def __setitem__(self, name, value):
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name):
    if str(name).startswith("_"):
        raise jinja2.sandbox.SecurityError(f"a namespace cannot hold {name!r:.100}")


_now = datetime.datetime.now  # what strftime_now() asks


def strftime_now(pattern):
    return _now().strftime(pattern)


def _environment(kind):
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace, dict=make_dict)
    return environment


_IMMUTABLE = _environment(jinja2.sandbox.ImmutableSandboxedEnvironment)
_MUTABLE = _environment(jinja2.sandbox.SandboxedEnvironment)


@functools.lru_cache(maxsize=16)  # compiling takes 17 ms, rendering 0.1 ms; a server has few templates
def _compiled(template, mutable):
    return (_MUTABLE if mutable else _IMMUTABLE).from_string(template)


def render(template, variables, now=None):
    """The text. `now` is the time that strftime_now() tells, ISO 8601; None: the clock's.

    Some published templates append to lists (Kimi K2 queues its tool ids). The immutable sandbox refuses that; such a
    template runs in the mutable one, on copies.
    """
    global _now
    moment = None if now is None else datetime.datetime.fromisoformat(now)
    _now = datetime.datetime.now if moment is None else lambda: moment
    try:
        return _compiled(template, False).render(variables)
    except jinja2.sandbox.SecurityError:
        return _compiled(template, True).render(copy.deepcopy(variables))


def line_of(error):
    """The template's line in which a rendering failed, or None."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line
