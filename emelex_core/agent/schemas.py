"""JSON Schemas of tools: bounded when a tool is registered, checked against arguments by a library.

The module owns these invariants:

- A schema is a JSON object of at most 64 KiB and depth 64 that describes an object (behaviour 66).
- It refers to itself only. Nothing is ever fetched: there is no registry to look into, and `$id` is refused.
- What a model is told of an error is short, and names the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol, TypeGuard

from emelex_core import codec, limits
from emelex_core.errors import Invalid

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_FETCHED: Final = ("$id", "$schema", "$vocabulary")
_WORDS_MAX: Final = 400


class ArgumentCheck(Protocol):
    """Says what is wrong with a call's arguments."""

    def __call__(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the first fault in one line, or None for arguments that fit."""
        ...


def argument_check(schema: Mapping[str, Any], *, what: str) -> ArgumentCheck:
    """Compile a schema. Raises: Invalid naming `what` for a schema that is too deep, too large, wrong or not closed."""
    plain = dict(schema)
    codec.encode(plain, what=what, bytes_max=limits.TOOL_SCHEMA_BYTES_MAX)
    if plain.get("type") != "object":
        raise Invalid(f"{what}: a tool's parameters are an object")
    _check_closed(plain, what)
    # Late, since nothing but an agent needs it.
    library: Any = import_module("jsonschema")
    referencing: Any = import_module("referencing")
    try:
        library.Draft202012Validator.check_schema(plain)
    except library.exceptions.SchemaError as error:
        raise Invalid(f"{what}: {_line(error.message)}") from None
    # The library's own registry would fetch what it does not know; an empty one cannot.
    validator = library.Draft202012Validator(plain, registry=referencing.Registry())

    def check(arguments: Mapping[str, Any]) -> str | None:
        try:
            found = library.exceptions.best_match(validator.iter_errors(arguments))
        except (RecursionError, referencing.exceptions.Unresolvable):
            return "the arguments cannot be checked against the tool's schema"
        if found is None:
            return None
        return f"{_line(found.json_path)}: {_line(found.message)}"

    return check


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value out of the codec is a JSON object."""
    return isinstance(value, dict)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _check_closed(schema: dict[str, Any], what: str) -> None:
    """Refuse whatever could point out of the schema; names of properties are not keywords, and may be anything."""
    stack: list[Any] = [schema]
    while stack:
        item = stack.pop()
        if is_object(item):
            for key in _REFERENCES:
                target = item.get(key, "#")
                if isinstance(target, str) and not target.startswith("#"):
                    raise Invalid(f"{what}: {key} points out of the schema")
            if any(isinstance(item.get(key), str) for key in _FETCHED):
                raise Invalid(f"{what}: a tool's schema has no {', '.join(_FETCHED)}")
            stack.extend(item.values())
        elif _is_array(item):
            stack.extend(item)


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _WORDS_MAX else f"{flat[:_WORDS_MAX]}…"
