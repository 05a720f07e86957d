"""Literal words: how what a person types becomes a query that has no syntax (behaviour 147; reports, K11).

The module owns these invariants:

- A query is words between white space, and all of them must be found. Nothing in a word means anything but itself:
  quotes, `%`, `_`, `*`, `AND` are text.
- The index knows letters and digits only. It finds a word by these, next to each other; the rest of the word is then
  looked for in the text itself. Words without any, and those of scripts that put no space between words, are only
  looked for in texts.
- Case and diacritics make no difference; anything else does.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from emelex_core import codec, limits

NOTHING: Final = '""'
"""A query of the index that finds nothing."""
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese: the index takes a whole run of these for one word."""
_TOKEN: Final = re.compile(r"[^\W_]+")
_AROUND: Final = 70
"""Characters of a snippet on each side of what was found."""
_PROMPT_WORDS_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for. `match` is for the index, None where it cannot help; `text` is what was typed."""

    text: str
    words: tuple[str, ...]
    match: str | None
    exact: tuple[str, ...]
    """Folded words that hold more than letters and digits: the index alone does not prove them."""

    def proves(self, text: str) -> bool:
        """Whether a text that the index has found holds every word as it was typed."""
        if not self.exact:
            return True
        folded = fold(text)
        return all(word in folded for word in self.exact)

    def holds(self, text: str) -> bool:
        """Whether a text that the index knows nothing of holds every word."""
        folded = fold(text)
        return all(_holds(fold(word), folded) for word in self.words)


def parse(text: str) -> Query:
    """Read what was typed. Raises: Invalid when it is blank or over 256 bytes."""
    codec.check_line(text, what="the search", bytes_max=limits.SEARCH_QUERY_BYTES_MAX)
    words = tuple(dict.fromkeys(text.split()))
    indexed = [word for word in words if _is_indexed(word)]
    return Query(
        text=text.strip(),
        words=words,
        match=" AND ".join(map(_quoted, indexed)) or None,
        exact=tuple(fold(word) for word in words if not (word in indexed and word.isalnum())),
    )


def any_of(prompt: str) -> str:
    """The query of the index for texts that share words with a prompt, the more the better."""
    found = dict.fromkeys(word.casefold() for word in _TOKEN.findall(prompt))
    return " OR ".join(_quoted(word) for word in list(found)[:_PROMPT_WORDS_MAX]) or NOTHING


def fold(text: str) -> str:
    """Text without case and diacritics."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).casefold()


def snippet(text: str, query: Query) -> str:
    """The place of a text where the first word that can be seen in it stands, on one line, with what is around it."""
    found = next((match for word in query.words if (match := _find(word, text)) is not None), None)
    start, end = (0, 0) if found is None else found.span()
    left, right = max(start - _AROUND, 0), min(end + _AROUND, len(text))
    cut = " ".join(text[left:right].split())
    return f"{'…' if left else ''}{cut}{'…' if right < len(text) else ''}"


def _find(word: str, text: str) -> re.Match[str] | None:
    return re.search(re.escape(word), text, re.IGNORECASE)


def _is_indexed(word: str) -> bool:
    return "\0" not in word and any(map(str.isalnum, word)) and _UNSPACED.search(word) is None


def _quoted(word: str) -> str:
    doubled = word.replace('"', '""')
    return f'"{doubled}"'


def _holds(word: str, folded: str) -> bool:
    """A word of letters and digits stands alone; any other may stand anywhere."""
    if not word.isalnum() or _UNSPACED.search(word) is not None:
        return word in folded
    return re.search(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", folded) is not None
