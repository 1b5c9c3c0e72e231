"""Settings: derives a JSON Schema from a dataclass, checks values against it, and converts them to the dataclass."""

import dataclasses
import json
import re
import types
import typing
from typing import Any

_ABSENT: Any = dataclasses.MISSING

_PRIMITIVES: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}

#: The keywords of `setting`, and the types whose values they limit.
_LIMITED = {
    "minLength": ("string",),
    "maxLength": ("string",),
    "pattern": ("string",),
    "minimum": ("number", "integer"),
    "maximum": ("number", "integer"),
    "minItems": ("array",),
    "maxItems": ("array",),
}

_ARTICLES = {"object": "an object", "array": "a list", "integer": "an integer", "null": "null"}

Schema = dict[str, Any]
Mistake = tuple[str, str]


def setting(
    description: str,
    *,
    default: Any = _ABSENT,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
) -> Any:
    """A field of the settings, which is required unless it has a default. For a list, the limits of texts and
    numbers apply to its elements."""
    schema = {
        "description": description,
        "minLength": min_length,
        "maxLength": max_length,
        "pattern": pattern,
        "minimum": minimum,
        "maximum": maximum,
        "minItems": min_items,
        "maxItems": max_items,
    }
    metadata = {"schema": {key: value for key, value in schema.items() if value is not None}}
    if default is _ABSENT:
        return dataclasses.field(metadata=metadata)
    # The default is copied, because the plugin may change the value.
    return dataclasses.field(default_factory=lambda: json.loads(json.dumps(default)), metadata=metadata)


def schema_of(settings: type) -> Schema:
    """Returns the JSON Schema of a dataclass."""
    hints = typing.get_type_hints(settings)
    properties: Schema = {}
    required = []
    for field in dataclasses.fields(settings):
        schema = _schema_of_type(_without_none(hints[field.name]))
        place = f"{settings.__name__}.{field.name}"
        _add(schema, field.metadata.get("schema", {}), place)
        if field.default is not _ABSENT:
            default = field.default
        elif callable(field.default_factory):
            default = field.default_factory()
        else:
            default = _ABSENT
        if default is _ABSENT:
            required.append(json_name(field.name))
        elif default is not None:
            schema["default"] = default
        properties[json_name(field.name)] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return schema


def _add(schema: Schema, more: Schema, place: str) -> None:
    for keyword, value in more.items():
        of_elements = keyword not in ("description", "minItems", "maxItems")
        target = schema["items"] if of_elements and "items" in schema else schema
        if keyword in _LIMITED and target["type"] not in _LIMITED[keyword]:
            raise TypeError(f"{place}: {keyword} is not checked for type {target['type']}")
        target[keyword] = value


def _schema_of_type(hint: Any) -> Schema:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return schema_of(hint)
    if hint in _PRIMITIVES:
        return {"type": _PRIMITIVES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return {"type": "array", "items": _schema_of_type(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema_of_type(arguments[1])}
    if origin is typing.Literal and all(isinstance(value, str) for value in arguments):
        return {"type": "string", "enum": list(arguments)}
    raise TypeError(
        f"{hint}: not a type of settings; use str, int, float, bool, list[...], dict[str, ...], "
        "Literal of strings, or a dataclass"
    )


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    rest = [one for one in typing.get_args(hint) if one is not type(None)]
    return rest[0] if len(rest) == 1 else hint


def json_name(name: str) -> str:
    """Returns the name of a field in settings, such as `refuseLatest` for `refuse_latest`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def child(pointer: str, key: str | int) -> str:
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def check(schema: Schema, value: Any) -> list[Mistake]:
    """Returns the pointers and messages of all mistakes in a value. Sets absent properties to their defaults."""
    mistakes: list[Mistake] = []
    _visit(schema, value, "", mistakes)
    return mistakes


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _with_article(kind: str) -> str:
    return _ARTICLES.get(kind, f"a {kind}")


def _is_equal(one: Any, other: Any) -> bool:
    """Returns whether two JSON values are equal. `True` equals `1` in Python, but not in JSON."""
    if _type_of(one) != _type_of(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


def _visit(schema: Schema, value: Any, pointer: str, mistakes: list[Mistake]) -> None:
    def mistake(message: str) -> None:
        mistakes.append((pointer, message))

    kind, found = schema["type"], _type_of(value)
    is_whole = found == "number" and value == int(value)
    if not (is_whole if kind == "integer" else found == kind):
        what = str(value) if kind == "integer" and found == "number" else _with_article(found)
        mistake(f"expected {_with_article(kind)}, found {what}")
        return
    if "enum" in schema and not any(_is_equal(one, value) for one in schema["enum"]):
        mistake(f"{_text(value)} is not allowed; use one of: {', '.join(map(_text, schema['enum']))}")
    if found == "object":
        _visit_object(schema, value, pointer, mistakes)
    elif found == "array":
        if len(value) < schema.get("minItems", 0):
            mistake(f"too few elements; the minimum is {schema['minItems']}")
        if len(value) > schema.get("maxItems", len(value)):
            mistake(f"too many elements; the maximum is {schema['maxItems']}")
        for index, element in enumerate(value if "items" in schema else []):
            _visit(schema["items"], element, child(pointer, index), mistakes)
    elif found == "string":
        if len(value) < schema.get("minLength", 0):
            minimum = f"too short; the minimum is {schema['minLength']} characters"
            mistake(minimum if value else "empty; write a text")
        if len(value) > schema.get("maxLength", len(value)):
            mistake(f"too long; the maximum is {schema['maxLength']} characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            mistake(f"{_text(value)} does not match the pattern {schema['pattern']}")
    elif found == "number":
        if value < schema.get("minimum", value):
            mistake(f"{value} is too small; the minimum is {schema['minimum']}")
        if value > schema.get("maximum", value):
            mistake(f"{value} is too large; the maximum is {schema['maximum']}")


def _visit_object(schema: Schema, value: dict[str, Any], pointer: str, mistakes: list[Mistake]) -> None:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key, member in value.items():
        if key in properties:
            _visit(properties[key], member, child(pointer, key), mistakes)
        elif isinstance(others, dict):
            _visit(others, member, child(pointer, key), mistakes)
        elif not others:
            fix = f"use one of: {', '.join(properties)}" if properties else "remove it"
            mistakes.append((child(pointer, key), f"unknown setting; {fix}"))
    for key in schema.get("required", []):
        if key not in value:
            mistakes.append((child(pointer, key), "missing; set it"))
    for key, member in properties.items():
        if key not in value and "default" in member:
            value[key] = json.loads(json.dumps(member["default"]))


def build(hint: Any, value: Any) -> Any:
    """Converts a checked value to its dataclass."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        names = {json_name(name): name for name in hints}
        return hint(**{names[key]: build(_without_none(hints[names[key]]), member) for key, member in value.items()})  # type: ignore[operator]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return [build(arguments[0], element) for element in value]
    if origin is dict:
        return {key: build(arguments[1], member) for key, member in value.items()}
    return float(value) if hint is float else int(value) if hint is int else value
