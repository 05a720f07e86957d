"""The entry gate: one codec for all text and JSON (behaviours 38 and 183).

The module owns these invariants:

- Text is strict UTF-8: a lone surrogate is refused by name, NUL is kept, nothing is normalised.
- JSON numbers are finite, and integers fit 64 bits; objects have unique string keys; depth and nodes are capped.
- Caps are checked while walking, before a serialised form exists.
- Stored bytes are canonical: UTF-8, keys sorted, no white space (orjson).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from emelex_core import limits
from emelex_core.errors import Corrupt, Invalid

Json: TypeAlias = Any
"""A JSON value as Python holds it: dict, list, str, int, float, bool or None."""

_Path: TypeAlias = "tuple[_Path, str | int] | None"
"""Where a value stands: its container's place, and its key or index there."""
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1


def check_text(text: str, *, what: str, bytes_max: int | None = None) -> bytes:
    """Return the text's UTF-8 bytes, or raise Invalid naming `what` for a lone surrogate or too many bytes."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Invalid(f"{what}: character {error.start} is a lone surrogate, which is not text") from None
    if bytes_max is not None and len(data) > bytes_max:
        raise Invalid(f"{what}: {len(data)} bytes; at most {bytes_max} are accepted")
    return data


def check_line(text: str, *, what: str, bytes_max: int) -> str:
    """Accept a short non-blank text such as a title or a key, and return it unchanged; raise Invalid otherwise."""
    check_text(text, what=what, bytes_max=bytes_max)
    if not text.strip():
        raise Invalid(f"{what}: it is blank")
    return text


def check_json(value: Json, *, what: str, bytes_max: int, halves: bool = False) -> None:
    """Walk a JSON value and raise Invalid, naming the place in it, at the first thing that may not be stored.

    With `halves` a text may hold lone surrogates, which the caller joins or refuses. The walk is iterative: a value
    nested deeper than Python's stack is refused like any other.
    """
    nodes = 0
    size = 0
    stack: list[tuple[Json, int, _Path]] = [(value, 1, None)]
    while stack:
        item, depth, path = stack.pop()
        nodes += 1
        if nodes > limits.JSON_NODES_MAX:
            raise Invalid(f"{what}: more than {limits.JSON_NODES_MAX} JSON values")
        if isinstance(item, str):
            # What is ASCII is text, as long as it has characters; only the rest needs to be encoded to know.
            if item.isascii():
                size += len(item)
            elif halves:
                size += len(item.encode("utf-8", "surrogatepass"))
            else:
                size += len(check_text(item, what=_place(what, path)))
        elif item is None or item is True or item is False:
            size += 4
        elif isinstance(item, int):
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                raise Invalid(f"{_place(what, path)}: the integer does not fit 64 bits")
            size += 1
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise Invalid(f"{_place(what, path)}: the number is not finite")
            size += 1
        elif _is_container(item):
            if depth > limits.JSON_DEPTH_MAX:
                raise Invalid(f"{what}: nested deeper than {limits.JSON_DEPTH_MAX}")
            size += _push_children(item, depth, path, stack, what)
        else:
            raise Invalid(f"{_place(what, path)}: {type(item).__name__} is not a JSON type")
        if size > bytes_max:
            raise Invalid(f"{what}: more than {bytes_max} bytes")


def _is_container(item: Json) -> bool:
    return isinstance(item, (dict, list, tuple))


def _push_children(
    item: dict[Any, Json] | list[Json] | tuple[Json, ...],
    depth: int,
    path: _Path,
    stack: list[tuple[Json, int, _Path]],
    what: str,
) -> int:
    """Put a container's children on the stack and return the bytes of its keys."""
    if not isinstance(item, dict):
        stack.extend((child, depth + 1, (path, index)) for index, child in enumerate(item))
        return len(item)
    size = 0
    for key, child in item.items():
        if not isinstance(key, str):
            raise Invalid(f"{_place(what, path)}: an object key is {type(key).__name__}, not text")
        size += (len(key) if key.isascii() else len(check_text(key, what=f"{_place(what, path)} key"))) + 1
        stack.append((child, depth + 1, (path, key)))
    return size


def _place(what: str, path: _Path) -> str:
    """Spell where a value stands; only an error needs that."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:40]}")
    return what + "".join(reversed(steps))


def encode(value: Json, *, what: str, bytes_max: int) -> bytes:
    """Check a value and return its canonical bytes; raise Invalid without a serialised form for what fails."""
    check_json(value, what=what, bytes_max=bytes_max)
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"{what}: cannot be JSON: {error}") from None
    if len(data) > bytes_max:
        raise Invalid(f"{what}: {len(data)} bytes; at most {bytes_max} are accepted")
    return data


def decode_stored(data: bytes | str, *, what: str) -> Json:
    """Read canonical bytes of our own back; what does not parse is Corrupt, naming `what`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{what}: stored JSON does not parse: {error}") from None


def parse_strict(data: bytes | str, *, what: str, bytes_max: int, halves: bool = False) -> Json:
    """Parse foreign JSON (a model's, a tool's, a person's) strictly; raise Invalid naming what and where.

    Beyond JSON's grammar this refuses duplicate keys, NaN and Infinity, numbers that overflow, and integers of more
    than 64 bits. `halves` is for texts that come in pieces (`check_json`).
    """
    raw = data if isinstance(data, bytes) else check_text(data, what=what)
    if len(raw) > bytes_max:
        raise Invalid(f"{what}: {len(raw)} bytes; at most {bytes_max} are accepted")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{what}: byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, what),
            parse_constant=lambda name: _refuse_number(name, what),
            parse_int=lambda digits: _integer(digits, what),
        )
    except RecursionError:
        raise Invalid(f"{what}: nested deeper than {limits.JSON_DEPTH_MAX}") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"{what}: not JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    check_json(value, what=what, bytes_max=bytes_max, halves=halves)
    return value


def _unique(pairs: list[tuple[str, Json]], what: str) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counted = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counted.items() if count > 1)
        raise Invalid(f"{what}: the key {twice[:80]!r} stands twice in one object")
    return result


def _integer(digits: str, what: str) -> int:
    if len(digits) > 20:
        raise Invalid(f"{what}: an integer of {len(digits)} digits does not fit 64 bits")
    return int(digits)


def _refuse_number(name: str, what: str) -> NoReturn:
    raise Invalid(f"{what}: {name} is not a finite number")
