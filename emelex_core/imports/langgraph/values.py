"""Checkpoint values of LangGraph, decoded as data.

The serializer writes objects as MessagePack extensions, or as JSON objects marked `lc`, that name a module, a class and
what to build it from.

The module owns these invariants:

- No class is looked up, no module imported, nothing built: an object becomes a `Built`, its names are words.
- Extensions inside extensions are opened to `IMPORT_NESTING_MAX` levels; deeper ones become a label.
- What comes out holds JSON values and `Built` only, and passes for text: bytes become a label.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from emelex_core import limits
from emelex_core.imports.files.lenient import (
    DEEP_VALUE,
    JsonList,
    JsonObject,
    as_list,
    as_object,
    as_word,
    load_record,
)

_SINGLE_ARGUMENT, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _ARRAY = range(7)
_CODES_WITH_FIELDS: Final = frozenset({_KEYWORDS, _PYDANTIC_1, _PYDANTIC_2})
_ADDRESS_WORDS: Final = 3
"""Module, class, and what it is built from; a method may follow."""


@dataclass(frozen=True, slots=True)
class Built:
    """An object as it was written: the name of its class, and its fields, or the one value that it was built from."""

    name: str
    fields: JsonObject
    value: Any = None


class Undecodable(Exception):
    """The bytes are no value of this serializer."""


def decode(kind: Any, data: bytes, defects: Counter[str]) -> JsonObject:
    """Return a checkpoint's fields. `kind` is the serializer's own word for how it wrote them. Raises: Undecodable."""
    if kind == "json":
        value: Any = load_record(data, defects)
    elif kind == "msgpack":
        try:
            value = msgspec.msgpack.decode(data, ext_hook=_Hook(1))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Undecodable(str(error)) from None
    else:
        raise Undecodable(f"written as {as_word(kind)[:40] or '?'}")
    fields = as_object(_plain(value, 1, defects))
    if fields is None:
        raise Undecodable("no object")
    return fields


class _Hook:
    """Opens one extension: a MessagePack array of module, class, arguments, and perhaps a method."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def __call__(self, code: int, data: memoryview) -> Any:
        if self._depth > limits.IMPORT_NESTING_MAX:
            return DEEP_VALUE
        value = msgspec.msgpack.decode(data, ext_hook=_Hook(self._depth + 1))
        address = as_list(value)
        if code == _ARRAY or address is None or len(address) < _ADDRESS_WORDS:
            return Built("?", {}, None)
        return _built(address[1], address[2], with_fields=code in _CODES_WITH_FIELDS)


def _built(name: Any, argument: Any, *, with_fields: bool) -> Built:
    fields = as_object(argument) if with_fields else None
    return Built(as_word(name), {}, argument) if fields is None else Built(as_word(name), fields)


def _plain(value: Any, depth: int, defects: Counter[str]) -> Any:
    """Return a value with JSON keys and storable scalars, and marked JSON objects as `Built`."""
    if depth > limits.IMPORT_NESTING_MAX:
        defects["deep_value"] += 1
        return DEEP_VALUE
    match value:
        case Built(name=name, fields=fields, value=inner):
            return Built(name, _object(fields, depth, defects), _plain(inner, depth + 1, defects))
        case dict():
            return _marked(_object(value, depth, defects))
        case list() | tuple():
            return [_plain(item, depth + 1, defects) for item in cast(JsonList, value)]
        case str():
            return value
        case bytes():
            return f"[{len(value)} bytes]"
        case None | bool():
            return value
        case int():
            return value
        case float():
            return value if math.isfinite(value) else _named(value, defects)
        case _:
            # A MessagePack timestamp.
            return str(value)


def _object(value: Any, depth: int, defects: Counter[str]) -> JsonObject:
    return {key if isinstance(key, str) else str(key): _plain(item, depth + 1, defects) for key, item in value.items()}


def _named(number: float, defects: Counter[str]) -> str:
    defects["non_finite_number"] += 1
    return str(number)


def _marked(fields: JsonObject) -> Any:
    """JSON marks an object with `lc`, its class's path as `id`, and `kwargs` or `args`."""
    path = as_list(fields.get("id"))
    if fields.get("lc") not in (1, 2) or fields.get("type") != "constructor" or not path:
        return fields
    arguments = as_list(fields.get("args")) or [None]
    kwargs = as_object(fields.get("kwargs"))
    return Built(as_word(path[-1]), {}, arguments[0]) if kwargs is None else Built(as_word(path[-1]), kwargs)
