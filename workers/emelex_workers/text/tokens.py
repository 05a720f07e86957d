"""What a line names: paths, URLs, numbers with units, identifiers, quotes.

The module owns these invariants:

- A token is the exact text of the line, without the punctuation that surrounds it.
- `holds` decides whether a text names a token: as a whole, never as a piece of a longer name or number.
- Every expression is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

TEXTS_REMEMBERED_MAX: Final = 1_024
"""A line is asked for its names several times in a row: for its rank, its facts and what it alone mentions."""


class TokenKind(StrEnum):
    """What a token is, most telling first."""

    URL = "url"
    MAIL = "mail"
    PATH = "path"
    HASH = "hash"
    VERSION = "version"
    ISSUE = "issue"
    IDENTIFIER = "identifier"
    CONSTANT = "constant"
    FLAG = "flag"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One name in a text, with its character offset."""

    kind: TokenKind
    text: str
    start: int


_EXTENSIONS: Final = (
    "py|pyi|ipynb|js|mjs|cjs|jsx|ts|tsx|json|jsonl|toml|ya?ml|ini|cfg|conf|env|md|mdx|rst|txt|html?|css|scss"
    "|less|svg|png|jpe?g|gif"
    "|pdf|csv|tsv|parquet|sqlite3?|db|sql|sh|bash|zsh|fish|ps1|bat|rb|go|rs|java|kt|swift|scala|php|c|h|cc|cpp"
    "|hpp|cs|lua|pl|r"
    "|lock|log|xml|gz|zip|tar|tgz|zst|whl|gguf|proto|graphql|vue|svelte|tf|service|socket|timer|plist"
    "|dockerfile|pem|crt|tex|bib"
)
_UNITS: Final = (
    "%|‰|°C|°F|ns|µs|us|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|days?|weeks?|months?|years?|[kKMGT]i?B|bytes?"
    "|bits?|[kMG]bit/s|[MG]Hz|Hz"
    "|px|em|rem|pt|mm|cm|km|m|kg|g|l|€|\\$|£|EUR|USD|GBP|CHF|tokens?|rows?|lines?|files?|tests?|x|Uhr|Stunden?"
    "|Tagen?|Minuten?|Sekunden?|Euro"
    "|jours?|heures?|días?|horas?"
)
_PATTERN: Final = re.compile(
    r"(?P<url>(?:https?|ftp|ssh|git|s3|gs|wss?|file|postgres(?:ql)?|redis|mysql|mongodb(?:\+srv)?)://[^\s<>\"'`"
    r"|\\^{}\[\]]{1,2000})"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,5})"
    r"|(?P<path>(?<![\w/.~-])(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w.@+~-]{1,120}[/\\]?){1,40}(?::\d{1,6})?"
    r"|(?<![\w/.-])[\w.@+-]{1,120}(?:/[\w.@+*-]{1,120}){1,40}/?(?::\d{1,6})?"
    rf"|(?<![\w/.-])[\w.+-]{{0,120}}\w\.(?:{_EXTENSIONS})(?::\d{{1,6}})?(?![\w/-])"
    r"|(?<![\w/])\.(?:env|gitignore|dockerignore|npmrc|editorconfig|pre-commit|github|claude|venv)(?:[\w./-]{0,60}))"
    r"|(?P<hash>(?<![\w-])(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?=[0-9a-f]{0,63}[a-f])(?=[0-9a-f]{0,63}[0-9])[0-9a-f]{7,64})(?![\w-]))"
    r"|(?P<issue>(?<![\w&])#\d{1,7}(?!\w)|(?<![\w-])[A-Z][A-Z0-9]{1,9}-\d{1,7}(?![\w-]))"
    r"|(?P<version>(?<![\w.])(?:v\d{1,5}(?:\.\d{1,6}){0,4}|\d{1,5}(?:\.\d{1,6}){2,4})(?:[-+.]?(?:rc|a|b|alpha"
    r"|beta|dev|post)\.?\d{0,4})?(?!\w))"
    rf"|(?P<number>(?<![\w.])[+-]?[$€£]?\d[\d.,:'_]{{0,24}}\d?(?:\s?(?:{_UNITS})(?![\w]))?)"
    r"|(?P<flag>(?<![\w-])--?[A-Za-z][\w-]{0,60}(?==|\b))"
    r"|(?P<identifier>(?<![\w.])[$@]?[A-Za-z_][A-Za-z0-9]{0,80}(?:_[A-Za-z0-9]{1,80}){1,20}(?:\(\))?(?!\w)"
    r"|(?<!\w)[a-z][a-z0-9]{0,60}[A-Z][A-Za-z0-9]{0,80}(?:\(\))?(?!\w)"
    r"|(?<!\w)[A-Z][A-Za-z0-9]{0,60}[a-z0-9][A-Z][A-Za-z0-9]{0,80}(?:\(\))?(?!\w)"
    r"|(?<![\w.])[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{1,60}){1,8}(?:\(\))?(?![\w])"
    r"|(?<!\w)[A-Za-z_]\w{1,60}\(\)"
    r"|(?<!\w)[A-Za-z]{1,30}\d{1,10}[A-Za-z0-9]{0,20}(?!\w))"
    r"|(?P<constant>(?<!\w)[A-Z][A-Z0-9]{1,40}(?!\w))"
)
_CODE: Final = re.compile(r"`([^`\r\n]{1,200})`")
_QUOTED: Final = re.compile(
    '"([^"\r\n]{2,300})"|“([^”\r\n]{2,300})”|„([^“”\r\n]{2,300})[“”]|«([^»\r\n]{2,300})»|「([^」\r\n]{1,300})」'
)
_TAIL: Final = ".,;:!?)]}'\"*_"
_SLASHED_WORD: Final = re.compile(r"[^\W\d_]+(?:/[^\W\d_]+)+")


@lru_cache(maxsize=TEXTS_REMEMBERED_MAX)
def tokens(text: str) -> tuple[Token, ...]:
    """Return the names in a text, in order and without overlap."""
    return tuple(_found(text))


def names(text: str) -> tuple[str, ...]:
    """Return each different name of a text once, inline code included, in order."""
    found = dict.fromkeys(token.text for token in tokens(text))
    found.update(dict.fromkeys(match[1].strip() for match in _CODE.finditer(text) if match[1].strip()))
    return tuple(found)


def quotations(text: str) -> tuple[str, ...]:
    """Return what stands between quotation marks in a text."""
    return tuple(next(group for group in match.groups() if group) for match in _QUOTED.finditer(text))


def is_telling(token: Token) -> bool:
    """Whether a name says something by itself: no bare number, no word that is merely written in capitals."""
    if token.kind is TokenKind.NUMBER:
        return len(token.text) >= 3 and not token.text.isdecimal()
    return token.kind is not TokenKind.CONSTANT or any(not letter.isalpha() for letter in token.text)


def holds(text: str, name: str) -> bool:
    """Whether a text names exactly this: not inside a longer word, path or number."""
    position = text.find(name)
    while position >= 0:
        before, after = text[position - 1 : position], text[position + len(name) :][:2]
        if not (_joins(name[0], before) or _continues(name[-1], after)):
            return True
        position = text.find(name, position + 1)
    return False


def _found(text: str) -> Iterator[Token]:
    for match in _PATTERN.finditer(text):
        kind = TokenKind(match.lastgroup or "identifier")
        name = _trimmed(kind, match[0])
        if len(name) < 1 or (kind is TokenKind.PATH and _is_alternative(name)):
            continue
        yield Token(kind=kind, text=name, start=match.start())


def _joins(first: str, before: str) -> bool:
    return bool(before) and (_is_word(first) or first in "./") and (_is_word(before) or before in "/\\")


def _continues(last: str, after: str) -> bool:
    """Whether the next characters carry the name on; a full stop or comma does so only inside a number."""
    if not after or not (_is_word(last) or last == "/"):
        return False
    if _is_word(after[0]) or (after[0] in "/\\" and last != "/"):
        return True
    return len(after) == 2 and after[0] in ".," and last.isdigit() and after[1].isdigit()


def _is_word(character: str) -> bool:
    """CJK letters are written without spaces, so they end a name."""
    return character == "_" or (character.isalnum() and ord(character) < 0x2E80)


def _trimmed(kind: TokenKind, text: str) -> str:
    if kind is TokenKind.URL and text.count("(") >= text.count(")") and text.endswith(")"):
        return text
    if kind in {TokenKind.NUMBER, TokenKind.VERSION}:
        return text.rstrip(".,;:!?'_ ")
    return text.rstrip(_TAIL) if not text.endswith("()") else text


def _is_alternative(text: str) -> bool:
    """Whether a slash only separates plain words, as in `and/or`."""
    return _SLASHED_WORD.fullmatch(text) is not None and text.count("/") <= 2 and text.lower() == text
