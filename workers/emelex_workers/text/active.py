"""What is active in a workspace, asked about one new line: is it said already, does it change an entry, or end one?

The module owns these invariants (behaviours 138, 139, 177; measured.md "Quality"):

- A line that says the same in nearly the same words, with the same names, numbers and negations, is no news.
- A line about the same as an entry takes over its key, whatever value, polarity or wording it brings: the newest
  stands.
- A tombstone needs a cue word in the line and exactly one entry that the rest of the line is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from emelex_workers.text import cues, keys
from emelex_workers.text.cues import Cue
from emelex_workers.text.expressions import Expression
from emelex_workers.text.tokens import names

NEAR: Final = 0.85
"""From this share of common words on, two lines are nearly the same."""
ABOUT: Final = 0.8
"""From this share of a key's or a line's words on, two are about the same."""
_FRAME_WORDS_MIN: Final = 3

_ENDED: Final = Expression(
    r"\b(?:no longer|not any ?more|any ?more$|any longer|is gone|are gone|was dropped|has been dropped|was removed"
    r"|has been removed|obsolete|was cancelled|is cancelled|stopped using|stop using|got rid of|do(?:es)? not exist"
    r"|nicht mehr|gibt es nicht|wurde abgeschafft|ist entfallen|veraltet|ya no|dejamos de|fue eliminad[oa]|obsolet[oa]"
    r"|ne \w+ plus|n['’]\w+ plus|niet meer|non \w+ più|não \w+ mais)\b"
)
_WORDS_OF_ENDING: Final = """
longer any more anymore gone dropped removed been was cancelled obsolete stopped stop using use got rid of exist exists
mehr gibt wurde abgeschafft entfallen veraltet verwenden nutzen ya dejamos usar usamos eliminado eliminada obsoleto
obsoleta plus utilisons meer più mais
"""
_CUE_WORDS: Final = frozenset(_WORDS_OF_ENDING.split())


def ended_words(line: str) -> keys.Frame:
    """What a line says is no longer so, as words; none where it says nothing of the kind."""
    if _ENDED.search(line) is None:
        return frozenset()
    return frozenset(keys.content_words(line)) - _CUE_WORDS


def is_about(words: keys.Frame, line: str) -> bool:
    """Whether a line holds nearly all of these words."""
    return keys.containment(words, frozenset(keys.content_words(line))) >= ABOUT


class Active:
    """The active entries, by what they say and what they are about."""

    def __init__(self, existing: Mapping[str, str]) -> None:
        self._existing = existing
        self._forms = {keys.normal_form(content) for content in existing.values()}
        self._by_word: dict[str, list[str]] = {}
        self._by_identity: dict[keys.Frame, str] = {}
        for key, content in existing.items():
            shape = keys.identity(content)
            if len(shape) >= 2:
                self._by_identity.setdefault(shape, key)
            for word in set(keys.content_words(content)):
                self._by_word.setdefault(word, []).append(key)

    def says(self, line: str) -> bool:
        """Whether an entry says the same already."""
        if keys.normal_form(line) in self._forms:
            return True
        said = frozenset(keys.content_words(line))
        return len(said) >= _FRAME_WORDS_MIN and any(
            keys.similarity(said, frozenset(keys.content_words(content))) >= NEAR
            and set(names(content)) == set(names(line))
            and cues.count(content, Cue.NEGATION) == cues.count(line, Cue.NEGATION)
            for content in (self._existing[key] for key in self._near(said))
        )

    def key_for(self, line: str, made: str) -> str:
        """Return the key of the entry that is about the same, or the key that was made for the line."""
        if made in self._existing:
            return made
        known = self._by_identity.get(keys.identity(line))
        if known is not None:
            return known
        words = keys.words_of_key(made)
        near = [
            key for key in self._existing if len(words) >= 2 and keys.similarity(words, keys.words_of_key(key)) >= ABOUT
        ]
        return min(near, default=made)

    def ended_by(self, line: str) -> str | None:
        """Return the key of the one entry of which the line says that it is no longer so."""
        about = ended_words(line)
        held = [key for key in self._near(about) if is_about(about, self._existing[key])]
        return held[0] if len(held) == 1 else None

    def _near(self, words: keys.Frame) -> list[str]:
        """Keys of entries that share a word with a line, each once."""
        return list(dict.fromkeys(key for word in sorted(words) for key in self._by_word.get(word, ())))
