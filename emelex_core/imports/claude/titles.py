"""The title of a Claude Code Session, out of all that could be one.

The module owns two invariants:

- A person's own title wins over a model's, that over a summary row's, and that over the first words.
- A summary row names the Session only when the record that it points to stands in this file: other Sessions' summaries
  are written into it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from emelex_core.imports.files.lenient import JsonObject
from emelex_core.imports.reading.reader import clean_title, text_of

_WORDS: Final = "words"
_RANKED: Final = ("custom-title", "ai-title", "summary", _WORDS)
_SUMMARIES_MAX: Final = 64


class Titles:
    """Collects what could be the title. `knows` tells whether a record was read."""

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self._found: dict[str, str] = {}
        self._waiting: dict[str, str] = {}

    @property
    def best(self) -> str | None:
        """The title so far, or None."""
        return next((title for kind in _RANKED if (title := self._found.get(kind))), None)

    @property
    def lacks_words(self) -> bool:
        """Whether no person's words were offered yet."""
        return _WORDS not in self._found

    @property
    def of_others(self) -> int:
        """How many summary rows point to no record of this file."""
        return len(self._waiting)

    def offer_words(self, title: str) -> None:
        """The first words of a person."""
        self._found[_WORDS] = title

    def learn(self, row: JsonObject) -> None:
        """Take up the title that a row holds, and the summary that waits for it."""
        if self._waiting:
            uuid = row.get("uuid")
            if isinstance(uuid, str) and uuid in self._waiting:
                self._found["summary"] = self._waiting.pop(uuid)
        match row.get("type"):
            case "custom-title":
                self._set("custom-title", row.get("customTitle"))
            case "ai-title":
                self._set("ai-title", row.get("aiTitle"))
            case "summary":
                self._learn_summary(row)
            case _:
                pass

    def _learn_summary(self, row: JsonObject) -> None:
        leaf, title = row.get("leafUuid"), clean_title(text_of(row.get("summary")))
        if not isinstance(leaf, str) or title is None:
            return
        if self._knows(leaf):
            self._found["summary"] = title
        elif len(self._waiting) < _SUMMARIES_MAX:
            self._waiting[leaf] = title

    def _set(self, kind: str, value: Any) -> None:
        title = clean_title(text_of(value))
        if title:
            self._found[kind] = title
