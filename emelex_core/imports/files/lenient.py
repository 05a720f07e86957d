"""Foreign JSON made storable: what the entry gate would refuse is replaced by a labelled text and counted.

The module owns these invariants:

- No bytes raise: a line becomes a dictionary, or None and a defect by name.
- What comes out passes `codec.encode`: strict UTF-8, finite numbers, integers of 64 bits, bounded depth and nodes.
- The fast path (orjson) decides for almost every line; the slow path only sees lines that it refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from typing import Any, Final, TypeAlias, TypeGuard, cast

import orjson

from emelex_core import limits

JsonObject: TypeAlias = dict[str, Any]
JsonList: TypeAlias = list[Any]

DEEP_VALUE: Final = "[value nested too deep to import]"
ARGUMENT_STRING_BYTES_MAX: Final = limits.MIB
"""One string inside a call's arguments; a longer one is cut, so that its neighbours stay addressable."""
_SALVAGE_BYTES_MAX: Final = limits.EVENT_BYTES_MAX
_SALVAGE_ATTEMPTS_MAX: Final = 16
_ARGUMENT_DEPTH_MAX: Final = limits.JSON_DEPTH_MAX - 8
"""Arguments sit inside a part, a list and a payload; the difference is their room."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_RECORD_START: Final = re.compile(
    rb'\{"(?:type|parentUuid|timestamp|uuid|isSidechain|sessionId|record_type|logicalParentUuid|id)":'
)
_BOM: Final = b"\xef\xbb\xbf"


def load_record(data: bytes, defects: Counter[str]) -> JsonObject | None:
    """Return one line's JSON object, or None; count in `defects` what had to be replaced or why there is none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _load_slowly(data, defects)
        if value is None:
            return None
    found = as_object(value)
    if found is None:
        defects["not_object"] += 1
    return found


def as_object(value: Any) -> JsonObject | None:
    """Return the value when it is a JSON object, else None."""
    return cast(JsonObject, value) if isinstance(value, dict) else None


def as_list(value: Any) -> JsonList | None:
    """Return the value when it is a JSON array, else None."""
    return value if _is_list(value) else None


def as_word(value: Any) -> str:
    """Return a text, or an empty one for anything else, so that a kind can be looked up whatever stands there."""
    return value if isinstance(value, str) else ""


def _is_list(value: Any) -> TypeGuard[JsonList]:
    return isinstance(value, list)


def as_items(value: Any) -> JsonList:
    """Return an array's items, or the one value that stands where an array may stand."""
    items = as_list(value)
    return [value] if items is None else items


def load_exact(data: bytes, value: JsonObject, defects: Counter[str]) -> JsonObject:
    """Return the object with integers kept exactly; `value` itself where no number is long enough to matter.

    orjson reads an integer of more than 64 bits as a float. Such a number is rare, so the exact parse runs only where
    its digits stand in the bytes; a line that orjson refused was read exactly in the first place.
    """
    if _LONG_NUMBER.search(data) is None:
        return value
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return value
    return as_object(_load_slowly(data, defects)) or value


def load_arguments(text: str, defects: Counter[str]) -> JsonObject:
    """Read a call's arguments from JSON text; text that is no JSON object stands whole under the key `input`."""
    if not text.strip():
        return {}
    data = text.encode("utf-8", "replace")
    found: Counter[str] = Counter()
    value = load_record(data, found)
    if value is None:
        defects["unparsed_arguments"] += 1
        return {"input": fit_text(text, defects, name="cut_arguments")}
    defects.update(found)
    value = load_exact(data, value, defects)
    return bound_arguments(value, defects)


def bound_arguments(value: JsonObject, defects: Counter[str]) -> JsonObject:
    """Return arguments within the bounds of one event: deep values and long strings become labelled texts."""
    bound = _Bound(defects)
    result = bound.object(value, 1)
    if bound.nodes > limits.IMPORT_ARGUMENT_NODES_MAX:
        defects["arguments_as_text"] += 1
        return {"input": fit_text(orjson.dumps(result).decode(), defects, name="cut_arguments")}
    if len(orjson.dumps(result)) > limits.IMPORT_TEXT_BYTES_MAX:
        return {"input": fit_text(orjson.dumps(result).decode(), defects, name="cut_arguments")}
    return result


def fit_text(
    text: str, defects: Counter[str], *, name: str = "cut_text", bytes_max: int = limits.IMPORT_TEXT_BYTES_MAX
) -> str:
    """Return the text, or its beginning and a marker that states the cut, so that its JSON form fits `bytes_max`."""
    if len(text) * 6 + 2 <= bytes_max or encoded_bytes(text) <= bytes_max:
        return text
    defects[name] += 1
    data = text.encode("utf-8")
    room = bytes_max - 128
    keep = min(len(data), room)
    while True:
        head = data[:keep].decode("utf-8", "ignore")
        size = encoded_bytes(head)
        if size <= room:
            return f"{head}\n[cut on import: {len(data) - len(head.encode())} of {len(data)} bytes left out]"
        keep = min(keep - 1, keep * room // size)


def encoded_bytes(text: str) -> int:
    """Bytes of a text in canonical JSON, quotes included."""
    return len(orjson.dumps(text))


def _load_slowly(data: bytes, defects: Counter[str]) -> Any:
    """Parse what orjson refused. Counts are applied only when a value comes out, besides the reason for None."""
    found: Counter[str] = Counter()
    try:
        text = _prune(data.removeprefix(_BOM), found).decode("utf-8")
    except UnicodeDecodeError:
        defects["not_utf8"] += 1
        return None
    try:
        value = json.loads(
            text,
            strict=False,
            parse_constant=lambda word: _named(word, "non_finite_number", found),
            parse_float=lambda digits: _finite(digits, found),
            parse_int=lambda digits: _integer(digits, found),
        )
    except (json.JSONDecodeError, RecursionError):
        return _salvage(data, defects)
    defects.update(found)
    return _without_surrogates(value, defects)


def _salvage(data: bytes, defects: Counter[str]) -> JsonObject | None:
    """Return the whole record behind a torn one: a crashed writer's half line fuses with its next append.

    Only a record that ends exactly where the line ends parses, so that an inner object is never taken for one.
    """
    if len(data) <= _SALVAGE_BYTES_MAX:
        starts = (match.start() for match in _RECORD_START.finditer(data, 1))
        for _, start in zip(range(_SALVAGE_ATTEMPTS_MAX), starts, strict=False):
            try:
                value = orjson.loads(data[start:])
            except orjson.JSONDecodeError:
                continue
            defects["fused_line"] += 1
            return as_object(value)
    defects["not_json"] += 1
    return None


def _prune(data: bytes, found: Counter[str]) -> bytes:
    """Replace values nested deeper than the bound by a labelled text, in one linear pass over the tokens."""
    if data.count(b"[") + data.count(b"{") <= limits.IMPORT_NESTING_MAX:
        return data
    pieces: list[bytes] = []
    depth = done = start = 0
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in b"[{":
            depth += 1
            if depth == limits.IMPORT_NESTING_MAX + 1:
                start = match.start()
        elif token in b"]}":
            depth -= 1
            if depth == limits.IMPORT_NESTING_MAX:
                pieces += (data[done:start], orjson.dumps(DEEP_VALUE))
                done = match.end()
                found["deep_value"] += 1
    return b"".join((*pieces, data[done:])) if pieces else data


def _named(word: str, name: str, found: Counter[str]) -> str:
    found[name] += 1
    return word


def _finite(digits: str, found: Counter[str]) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else _named(digits[:64], "non_finite_number", found)


def _integer(digits: str, found: Counter[str]) -> int | str:
    if len(digits) <= 20:
        number = int(digits)
        if -(2**63) <= number < 2**64:
            return number
    return _named(digits, "big_integer", found)


def _without_surrogates(value: Any, defects: Counter[str]) -> Any:
    """Replace lone surrogates in keys and strings by U+FFFD. The depth is bounded by `_prune`."""
    if isinstance(value, str):
        clean, count = _SURROGATE.subn("\ufffd", value)
        if count:
            defects["lone_surrogate"] += count
        return clean
    if (items := as_list(value)) is not None:
        return [_without_surrogates(item, defects) for item in items]
    if (fields := as_object(value)) is not None:
        return {_without_surrogates(key, defects): _without_surrogates(item, defects) for key, item in fields.items()}
    return value


class _Bound:
    """Walks arguments, counts their nodes and replaces what is too deep or too long."""

    def __init__(self, defects: Counter[str]) -> None:
        self.nodes = 0
        self._defects = defects

    def object(self, value: JsonObject, depth: int) -> JsonObject:
        self.nodes += 1
        return {key: self._any(item, depth + 1) for key, item in value.items()}

    def _any(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            self.nodes += 1
            return fit_text(value, self._defects, name="cut_argument", bytes_max=ARGUMENT_STRING_BYTES_MAX)
        fields, items = as_object(value), as_list(value)
        if (fields is not None or items is not None) and depth > _ARGUMENT_DEPTH_MAX:
            self._defects["deep_value"] += 1
            value, fields, items = DEEP_VALUE, None, None
        if fields is not None:
            return self.object(fields, depth)
        self.nodes += 1
        return value if items is None else [self._any(item, depth + 1) for item in items]


def bounded_id(value: Any) -> str | None:
    """Return an id or a tool's name within its bound; a longer one keeps its beginning and a digest of the whole."""
    if not isinstance(value, str) or not value:
        return None
    if len(value) * 4 <= limits.TOOL_CALL_ID_BYTES_MAX or len(value.encode()) <= limits.TOOL_CALL_ID_BYTES_MAX:
        return value
    return f"{value[:32]}…{hashlib.sha256(value.encode()).hexdigest()}"


def json_text(value: Any) -> str:
    """Return a JSON value as text, or a label where it is nested too deep to be written."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return DEEP_VALUE
