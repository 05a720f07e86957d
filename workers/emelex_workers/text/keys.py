"""Sameness of sentences, told by code: content words, frames, and the key of a piece of Knowledge.

The module owns these invariants:

- A frame is what a sentence is about without its values: numbers and polarity are left out, so that `the port is 8080`
  and `the port is 9090`, or `always X` and `never X`, share one frame and the newer one supersedes the older.
- A key is made of the sentence's own words: lower case, words joined by `-` behind a category and a dot, at most 256
  bytes.
- The same sentence gives the same key, in every run.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from typing import Final, TypeAlias

from emelex_core import limits

Frame: TypeAlias = frozenset[str]

KEY_WORDS_MAX: Final = 7
_WORD_CHARACTERS_MAX: Final = 40
_SUBJECT_CHARACTERS: Final = 24
"""Numbers inside names count only near the beginning, where the subject stands."""

_WORD: Final = re.compile(r"[^\W_]+(?:[._/@+-][^\W_]+)*(?:['’][^\W_]+)?")
_VALUED: Final = re.compile(
    r"\W*(?:[\w'’-]+:\s)?(?:now |actually,? |und |and |ab jetzt )?(?P<subject>(?:the|our|my|your|his|her|their"
    r"|die|der|das|mein\w*|unser\w*|le|la|mon|ma"
    r"|notre|el|mi|nuestr[oa]|de|het|mijn|ons|onze|il|o|a)\s(?:[\w'’./-]+\s){0,4}?[\w-]*"
    r"(?:address|port|version|name|number|limit|deadline|budget|timeout|url|host|domain|e-?mail|branch|region"
    r"|theme|colou?r|language|currency|price"
    r"|owner|manager|contact|phone|plan|date|time|directory|folder|id|database|editor|timezone"
    r"|adresse|nummer|frist|termin|preis|farbe|sprache|währung|ansprechpartner|zeit|datum|grenze|numéro"
    r"|date limite|prix|couleur|langue|délai"
    r"|dirección|número|nombre|plazo|precio|color|idioma|fecha|límite|naam|prijs|kleur|taal|datum|indirizzo"
    r"|numero|nome|prezzo|endereço|preço|prazo)"
    r"(?:\s(?:of|for|von|für|del?|du|para|van|voor)(?:\s[\w'’./-]+){1,4}?){0,2})\s(?:is|are|will be|has changed to"
    r"|changed to|was changed to|lautet|ist|est|es|será|ist jetzt|wird"
    r"|sera|sarà|zal|è|é)(?=\s)",
    re.I,
)
_CJK: Final = re.compile("[\u2e80-\u9fff\uac00-\ud7af]")
_WORDS_WITHOUT_CONTENT: Final = """
not never no always must should shall only ever please dont don't doesn't isn't can't cannot won't mustn't shouldn't
avoid  nicht nie niemals immer kein keine keinen keiner bitte ne pas jamais toujours nunca siempre niet nooit altijd
geen mai sempre não
a an the and or but so if then than that this these those it its it's is are was were be been being am do does did
done  have has had having will would can could may might of in on at to from by for with into onto as about over
under up out off  i me my we us our you your he she they them their there here what which who whom when where why
how all any each also just  very too really now still again some more most such same own per via let's let i'm we're
i've we've you're that's there's  from now make sure remember note
der die das den dem des ein eine einen einem einer und oder aber wenn dann dass ist sind war waren sein wird werden
hat haben  ich du er sie es wir ihr mein unser euer dein zu zum zur im in am an auf aus bei mit nach von vom für
über unter um auch nur  noch schon sich man soll sollen muss müssen ab jetzt doch mal
le la les un une des du de et ou mais est sont être il elle on nous vous je tu que qui dans sur pour par avec ce
cette ces se  el los las una unos y o pero es son ser está en con por para que se su sus lo nos yo  het een en of
maar zijn wordt worden ik je wij we jullie van op te voor met bij dat die dit deze er ook  il lo gli uno e ma sono
essere di da nel con per che si os um uma em ao
"""
_STOP_WORDS: Final = frozenset(_WORDS_WITHOUT_CONTENT.split())


def content_words(text: str) -> tuple[str, ...]:
    """Return the sentence's content words in order, case folded, with numbers and names."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    words = (match[0][:_WORD_CHARACTERS_MAX] for match in _WORD.finditer(folded))
    return tuple(
        word for word in words if word not in _STOP_WORDS and not (len(word) == 1 and word.isascii() and word.isalpha())
    )


def frame(text: str) -> Frame:
    """Return what a sentence is about, without its values."""
    return frozenset(word for word in content_words(text) if not word[0].isdigit())


def similarity(left: Frame, right: Frame) -> float:
    """Share of common words among all words of two frames, 0 to 1."""
    if not left or not right:
        return 0.0
    return len(left & right) / len(left | right)


def containment(inner: Frame, outer: Frame) -> float:
    """Share of the first frame's words that the second has, 0 to 1."""
    return len(inner & outer) / len(inner) if inner else 0.0


def subject(text: str) -> Frame | None:
    """Return what a sentence gives a value to, such as `the delivery address`; None where it gives none."""
    match = _VALUED.match(text)
    return frozenset(content_words(match["subject"])) or None if match else None


def identity(text: str) -> Frame:
    """Return what a newer sentence must share with this one to supersede it: its subject, or else its frame."""
    return subject(text) or frame(text)


class FrameIndex:
    """Frames seen so far, asked for a near one without comparing with each.

    Two frames of which a share `near` of all words is common have a word in common among their first few, in any fixed
    order (prefix filtering); only frames that share such a word are compared.
    """

    def __init__(self, near: float) -> None:
        self._near = near
        self._by_word: dict[str, list[Frame]] = {}

    def add(self, shape: Frame) -> bool:
        """Add a frame and return True; return False and add nothing when a near one is known."""
        words = sorted(shape, key=lambda word: (-len(word), word))
        prefix = words[: len(words) - math.ceil(self._near * len(words)) + 1]
        for word in prefix:
            if any(similarity(shape, known) >= self._near for known in self._by_word.get(word, ())):
                return False
        for word in prefix:
            self._by_word.setdefault(word, []).append(shape)
        return True


class ContainmentIndex:
    """Frames of which one may hold another's words, asked without comparing with each.

    A frame that holds a share `least` of n words lacks at most n - least · n of them, so it has one of any so many and
    one; the rarest are looked up.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self.frames: list[Frame] = []
        self._by_word: dict[str, list[Frame]] = {}

    def __len__(self) -> int:
        return len(self.frames)

    def add(self, outer: Frame) -> None:
        """Add a frame."""
        self.frames.append(outer)
        for word in outer:
            self._by_word.setdefault(word, []).append(outer)

    def holds(self, inner: Frame) -> bool:
        """Whether a frame that was added holds at least the share of these words."""
        postings = sorted((self._by_word.get(word, []) for word in inner), key=len)
        asked = postings[: len(inner) - math.ceil(self._least * len(inner)) + 1]
        return any(containment(inner, outer) >= self._least for posting in asked for outer in posting)


def normal_form(text: str) -> str:
    """Return the text for comparison as a whole: case folded words with single spaces."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def key_of(text: str, category: str) -> str:
    """Make the key of a sentence, such as `rule.tests-run-pytest`; a sentence without usable words gets a digest."""
    valued = _VALUED.match(text)
    about = valued["subject"] if valued else text
    words = list(dict.fromkeys(word for word in content_words(about) if _is_key_word(word, about)))
    if not words:
        words = [hashlib.sha256(normal_form(text).encode()).hexdigest()[:12]]
    slug = "-".join(_slug(word) for word in words[:KEY_WORDS_MAX])
    return _bounded(f"{category}.{slug}")


def numbered(key: str) -> str:
    """Return the next key beside one that is taken: `fact.port`, `fact.port-2`, `fact.port-3`."""
    stem, dash, number = key.rpartition("-")
    count = int(number) if dash and number.isascii() and number.isdigit() and len(number) <= 3 else 0
    suffix = f"-{max(count, 1) + 1}"
    base = stem if count else key
    room = limits.KNOWLEDGE_KEY_BYTES_MAX - len(suffix)
    return base.encode()[:room].decode(errors="ignore") + suffix


def words_of_key(key: str) -> Frame:
    """Return the words of a key, whatever its category."""
    return frozenset(word for word in re.split(r"[-._/\s]+", key.partition(".")[2] or key) if word)


def _is_key_word(word: str, text: str) -> bool:
    if word[0].isdigit():
        return False
    named = any(mark in word for mark in "./@+") or any(character.isdigit() for character in word)
    return not named or 0 <= text.casefold().find(word) <= _SUBJECT_CHARACTERS


def _slug(word: str) -> str:
    slug = re.sub(r"[^\w]+", "-", word.replace("'", "")).strip("-_")
    return slug[:12] if _CJK.search(slug) else slug


def _bounded(key: str) -> str:
    data = key.encode()[: limits.KNOWLEDGE_KEY_BYTES_MAX]
    return data.decode(errors="ignore").rstrip("-.")
