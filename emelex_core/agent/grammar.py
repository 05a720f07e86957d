"""A grammar (GBNF) under which a model can only answer in words or make a call that fits a tool's schema.

The module owns these invariants:

- Whatever the grammar lets pass as a call is JSON that the codec accepts: no lone surrogate, no number that overflows,
  no key twice, at most one space between tokens.
- It is bounded: a schema that is too large or says what a grammar cannot becomes "any JSON object" for its tool. The
  schema itself is checked afterwards all the same.
- Words never begin with `{`, so that the first character tells which of the two it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from emelex_core.agent.calls import ToolDeclaration
from emelex_core.agent.schemas import is_object

RULES_MAX: Final = 400
"""Rules that one tool's schema may take before it is replaced by any object."""
PROPERTIES_MAX: Final = 24
CHOICES_MAX: Final = 64
DEPTH_MAX: Final = 12

_BASE: Final = r"""
words ::= [^{ \t\r\n\x00] [^\x00]*
ws ::= " "?
object ::= "{" ws ( pair ( "," ws pair )* )? "}"
pair ::= string ":" ws value
array ::= "[" ws ( value ( "," ws value )* )? "]"
value ::= object | array | string | number | boolean | "null"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f\x7f] | "\\" ( ["\\/bfnrt] | "u" plane )
plane ::= [0-9a-cA-CefEF] hex hex hex | [dD] [0-7] hex hex
hex ::= [0-9a-fA-F]
integer ::= "-"? ( "0" | [1-9] [0-9]{0,14} )
number ::= integer ( "." [0-9]{1,15} )? ( [eE] [-+]? [0-9]{1,2} )?
boolean ::= "true" | "false"
"""
_PRIMITIVES: Final = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "null": '"null"',
    "object": "object",
    "array": "array",
}
_BEYOND: Final = ("allOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames", "$ref", "$dynamicRef")
"""What changes a schema's meaning and no grammar of ours says."""


def call_grammar(tools: Sequence[ToolDeclaration], *, required: bool) -> str:
    """The grammar of an answer: words or one call, or with `required` one call. There is at least one tool."""
    rules = _Rules()
    calls = [_call_rule(rules, index, tool) for index, tool in enumerate(tools)]
    root = " | ".join(calls if required else [*calls, "words"])
    return f"root ::= {root}\n" + "".join(f"{line}\n" for line in rules.lines) + _BASE.lstrip()


class _TooMuch(Exception):
    """A schema is beyond what a grammar says."""


class _Rules:
    """Rules that are being collected; `take_back` forgets those of a schema that turned out to be too much."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._allowed = 0

    def allow(self) -> int:
        """Let the next schema take its share; return where its rules begin."""
        self._allowed = self._count + RULES_MAX
        return len(self.lines)

    def take_back(self, start: int) -> None:
        """Forget the rules from there on."""
        del self.lines[start:]

    def add(self, body: str) -> str:
        """Name a rule and keep it."""
        if self._count >= self._allowed:
            raise _TooMuch
        self._count += 1
        name = f"r{self._count}"
        self.lines.append(f"{name} ::= {body}")
        return name


def _call_rule(rules: _Rules, index: int, tool: ToolDeclaration) -> str:
    start = rules.allow()
    try:
        arguments = _object(rules, tool.parameters, 0)
    except _TooMuch:
        rules.take_back(start)
        arguments = "object"
    name = f"call{index}"
    opening = f'"{{" ws {_literal(json.dumps("tool"))} ":" ws {_literal(json.dumps(tool.name))} "," ws'
    rules.lines.append(f'{name} ::= {opening} {_literal(json.dumps("arguments"))} ":" ws {arguments} "}}"')
    return name


def _schema(rules: _Rules, schema: Any, depth: int) -> str:
    """The rule of one schema, or a term without a rule of its own."""
    if schema is True or schema == {}:
        return "value"
    if not is_object(schema) or depth > DEPTH_MAX or any(key in schema for key in _BEYOND):
        raise _TooMuch
    if "const" in schema or "enum" in schema:
        choices = [schema["const"]] if "const" in schema else list(schema["enum"])
        if not 1 <= len(choices) <= CHOICES_MAX:
            raise _TooMuch
        return rules.add(" | ".join(_literal(json.dumps(choice, ensure_ascii=False)) for choice in choices))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return rules.add(" | ".join(_schema(rules, choice, depth + 1) for choice in schema[key]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return rules.add(" | ".join(_schema(rules, {**schema, "type": one}, depth + 1) for one in schema["type"]))
    if kind == "object":
        return _object(rules, schema, depth)
    if kind == "array" and "items" in schema and "prefixItems" not in schema:
        item = _schema(rules, schema["items"], depth + 1)
        return rules.add(f'"[" ws ( {item} ( "," ws {item} )* )? "]"')
    if not isinstance(kind, str) or kind not in _PRIMITIVES:
        raise _TooMuch
    if kind == "string" and schema.get("minLength", 0) == 1:
        return rules.add(r'"\"" char+ "\""')
    if kind == "integer" and "minimum" in schema:
        return rules.add(_integers(schema["minimum"], schema.get("maximum")))
    return _PRIMITIVES[kind]


def _object(rules: _Rules, schema: Mapping[str, Any], depth: int) -> str:
    """An object with its properties in their order, the required ones first; each at most once."""
    properties: dict[str, Any] = schema.get("properties", {})
    if any(key in schema for key in _BEYOND) or depth > DEPTH_MAX or len(properties) > PROPERTIES_MAX:
        raise _TooMuch
    if not properties:
        return "object" if schema.get("additionalProperties", True) is not False else '"{" ws "}"'
    required = [name for name in schema.get("required", ()) if name in properties]
    optional = [name for name in properties if name not in required]
    pairs = {name: _pair(rules, name, properties[name], depth) for name in (*required, *optional)}
    tail = ""
    for name in reversed(optional):
        # Each optional pair may be left out by itself; what follows it is a rule, so that nothing is written twice.
        tail = rules.add(f'( "," ws {pairs[name]} )?{f" {tail}" if tail else ""}')
    if required:
        first = ' "," ws '.join(pairs[name] for name in required)
        return rules.add(f'"{{" ws {first}{f" {tail}" if tail else ""} "}}"')
    return rules.add(f'"{{" ws ( {" | ".join(_starts(rules, optional, pairs))} )? "}}"')


def _starts(rules: _Rules, optional: list[str], pairs: dict[str, str]) -> list[str]:
    """One alternative for each property that may come first, with those behind it."""
    found: list[str] = []
    tail = ""
    for name in reversed(optional):
        found.append(f"{pairs[name]}{f' {tail}' if tail else ''}")
        tail = rules.add(f'( "," ws {pairs[name]} )?{f" {tail}" if tail else ""}')
    return found[::-1]


def _pair(rules: _Rules, name: str, schema: Any, depth: int) -> str:
    value = _schema(rules, schema, depth + 1)
    return rules.add(f'{_literal(json.dumps(name, ensure_ascii=False))} ":" ws {value}')


def _integers(low: Any, high: Any) -> str:
    """Whole numbers from `low`, not below zero, to `high` or without end; any integer where it is not that simple."""
    if not isinstance(low, int) or low < 0 or (high is not None and (not isinstance(high, int) or high < low)):
        return "integer"
    if high is None:
        return r'"0" | [1-9] [0-9]{0,14}' if low == 0 else "[1-9] [0-9]{0,14}"
    spans: list[str] = []
    for digits in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (digits - 1) if digits > 1 else 0)
        spans += _span(str(first), str(min(high, 10**digits - 1)))
    return " | ".join(spans)


def _span(first: str, last: str) -> list[str]:
    """Alternatives for the numbers between two of equally many digits."""
    if not first:
        return [""]
    rest = len(first) - 1
    zeros, nines = "0" * rest, "9" * rest
    if first[0] == last[0]:
        return [f"[{first[0]}] {tail}".strip() for tail in _span(first[1:], last[1:])]
    found: list[str] = []
    from_digit, to_digit = int(first[0]), int(last[0])
    if first[1:] != zeros:
        found += [f"[{from_digit}] {tail}" for tail in _span(first[1:], nines)]
        from_digit += 1
    partial = [f"[{to_digit}] {tail}" for tail in _span(zeros, last[1:])] if last[1:] != nines else []
    to_digit -= bool(partial)
    if from_digit <= to_digit:
        found.append(f"[{from_digit}-{to_digit}]{f' [0-9]{{{rest}}}' if rest else ''}")
    return found + partial


def _literal(text: str) -> str:
    """Text as a literal of the grammar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
