"""Tool declarations as TypeScript, as Kimi-K2.5 was trained on them.

A JSON schema becomes a type: a function of the indent it stands at, and the comment lines that explain it.
"""
import dataclasses
import json
from typing import Callable


class Undeclarable(Exception):
    """A schema that has no such form."""


@dataclasses.dataclass
class Type:
    text: Callable[[str], str]  # the type at an indent
    description: str = ""
    limits: str = ""

    def comments(self, indent):
        lines = comment_lines(self.description, indent) if self.description else []
        if self.limits:
            lines.append(f"{indent}// {self.limits}")
        return "".join(line + "\n" for line in lines)


UNION_NAMES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null",
               "object": "{}", "array": "Array<any>"}
LIMITS = {"string": ("maxLength", "minLength", "pattern"), "number": ("maximum", "minimum"),
          "integer": ("maximum", "minimum"), "array": ("maxItems", "minItems")}
ENUM_TYPES = {"string": str, "number": (int, float), "integer": int, "boolean": bool}


def comment_lines(text, indent):
    if not isinstance(text, str):
        raise Undeclarable("a description is no text")
    return [f"{indent}// {line}" if line else "" for line in text.split("\n")]


class Schemas:
    """The schema of one function's parameters, with what its references name."""

    def __init__(self):
        self.definitions = {}
        self.refers_to_root = False

    def parse(self, schema):
        if isinstance(schema, bool):
            return Type(lambda indent: "any" if schema else "null")
        if not isinstance(schema, dict):
            raise Undeclarable(f"no schema: {schema!r:.100}")
        description = schema.get("description", "")
        if "$ref" in schema:
            return Type(self.reference(schema["$ref"]), description)
        if "anyOf" in schema:
            choices = [self.parse(choice) for choice in self.entries(schema, "anyOf", list)]
            return Type(lambda indent: " | ".join(choice.text(indent) for choice in choices), description)
        if "enum" in schema:
            return Type(self.enumeration(schema), description)
        if "type" in schema:
            return self.typed(schema, schema["type"], description)
        if not schema:
            return Type(lambda indent: "any")
        raise Undeclarable(f"a schema without a type: {schema!r:.100}")

    def entries(self, schema, key, kind):
        if not isinstance(schema[key], kind):
            raise Undeclarable(f"`{key}` is of the wrong type")
        return schema[key]

    def typed(self, schema, kind, description):
        if isinstance(kind, list):
            if not all(isinstance(k, str) and k in UNION_NAMES for k in kind):
                raise Undeclarable(f"an unknown type among {kind!r:.100}")
            return Type(lambda indent: " | ".join(UNION_NAMES[k] for k in kind), description)
        if kind == "object":
            return self.parse_object(schema)
        limits = ", ".join(f"{k}: {schema[k]}" for k in LIMITS.get(str(kind), ()) if k in schema)
        if kind == "array":
            item = self.parse(schema["items"]) if schema.get("items") else Type(lambda indent: "any")
            return Type(lambda indent: self.array(item, indent), description, limits)
        return Type(lambda indent: "number" if kind == "integer" else str(kind), description, limits)

    def array(self, item, indent):
        comments = item.comments(indent + "  ")
        if not comments:
            return f"Array<{item.text(indent)}>"
        return f"Array<\n{comments}{indent}  {item.text(indent + '  ')}\n{indent}>"

    def reference(self, ref):
        if ref == "#":
            self.refers_to_root = True
            return lambda indent: "parameters"
        name = ref.removeprefix("#/$defs/").split("/")[-1] if isinstance(ref, str) else None
        if name is None or not ref.startswith("#/$defs/") or name not in self.definitions:
            raise Undeclarable(f"an unknown reference: {ref!r:.100}")
        return lambda indent: name

    def enumeration(self, schema):
        values, kind = self.entries(schema, "enum", list), schema.get("type")
        if isinstance(kind, list):
            others = [k for k in kind if k != "null"] or ["null"]
            if len(kind) not in (1, 2) or len(kind) == 2 and "null" not in kind:
                raise Undeclarable(f"an enumeration of several types: {kind!r:.100}")
            kind = kind[0] if len(kind) == 1 else others[0]
        wanted = ENUM_TYPES.get(kind, object) if isinstance(kind, str) else object
        if not all(value is None or isinstance(value, wanted) for value in values):
            raise Undeclarable(f"an enumeration with a value that is no {kind}")
        text = " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)
        return lambda indent: text

    def parse_object(self, schema):
        if schema.get("$defs"):
            self.definitions.update(self.entries(schema, "$defs", dict))
        more = schema.get("additionalProperties")
        if isinstance(more, bool):
            rest = Type(lambda indent: "any" if more else "never")
        elif more is None:
            rest = None
        else:
            rest = self.parse(more)
        fields = self.fields(schema)
        fields.sort(key=lambda field: (field.optional, field.name))

        def text(indent):
            lines = [field.text(indent + "  ") for field in fields]
            if rest is not None:
                lines.append(f"{indent}  [k: string]: {rest.text(indent + '  ')}")
            return "{\n" + ",\n".join(lines) + f"\n{indent}}}" if lines else "{}"

        return Type(text, schema.get("description", ""))

    def fields(self, schema):
        """The properties in the schema's order."""
        if "properties" not in schema:
            return []
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise Undeclarable("`required` is no list")
        return [Field(name, self.parse(p), name not in required, p.get("default") if isinstance(p, dict) else None)
                for name, p in self.entries(schema, "properties", dict).items()]


@dataclasses.dataclass
class Field:
    name: str
    type: Type
    optional: bool
    default: object

    def text(self, indent):
        comments = self.type.comments(indent)
        if self.default is not None:
            plain = isinstance(self.default, (bool, int, float))
            default = repr(self.default) if plain else json.dumps(self.default, ensure_ascii=False)
            comments += f"{indent}// Default: {default}\n"
        return f"{comments}{indent}{self.name}{'?' if self.optional else ''}: {self.type.text(indent)}"


def declare_function(function):
    schemas = Schemas()
    root = function.get("parameters") or {}
    if not isinstance(root, dict):
        raise Undeclarable("`parameters` is no object")
    parameters = schemas.parse_object(root)
    lines = []
    argument = None
    if schemas.refers_to_root:
        argument = "parameters"
        fields = ",\n".join(field.text("  ") for field in schemas.fields(root))
        lines.append("interface parameters {" + (f"\n{fields}\n" if fields else "") + "}")
    for name, schema in list(schemas.definitions.items()):
        definition = schemas.parse(schema)
        if not isinstance(schema, dict):
            raise Undeclarable(f"the definition of {name} is no object")
        if schema.get("description"):
            lines += comment_lines(schema["description"], "")
        lines.append(f"interface {name} {definition.text('')}")
    if function.get("description"):
        lines.append("\n".join(comment_lines(function["description"], "")))
    lines.append(f"type {function.get('name', 'function')} = (_: {argument or parameters.text('')}) => any;")
    return "\n".join(line for line in lines)


def declare(tools):
    """The declaration of OpenAI-style tools; None if none of them is a function."""
    functions = []
    for tool in tools:
        if not isinstance(tool.get("function", {}), dict):
            raise Undeclarable(f"no tool: {tool!r:.100}")
        if tool.get("type") == "function" and tool.get("function"):
            functions.append(declare_function(tool["function"]))
    if not functions:
        return None
    return "# Tools\n\n## functions\nnamespace functions {\n" + "\n".join(functions) + "\n}\n"
