"""An event as spans: sentences, list items, headings and code lines that can be quoted byte for byte.

The module owns these invariants:

- A span's `text` is the part's own text between its byte offsets, unchanged: line ends, spaces and all.
- `safe` is the only form that may leave: one line, secrets masked, control-token text and control characters taken out.
- Spans of one part are in order and never overlap; what lies between them is white space, markers or a fence.
- Only text parts have spans: reasoning is never evidence, tool output never speaks as prose.
- Time is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emelex_core.events import EventKind, TextPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import secrets

SAFE_CHARACTERS_MAX: Final = 4_096
"""`safe` is cut here; a longer sentence is data, not prose."""


class Shape(StrEnum):
    """What a span is in its text. Code and quoted matter are somebody else's words."""

    SENTENCE = "sentence"
    ITEM = "item"
    HEADING = "heading"
    TABLE = "table"
    QUOTE = "quote"
    CODE = "code"


PROSE: Final = frozenset({Shape.SENTENCE, Shape.ITEM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of an event that can be quoted.

    `part` is the index among the event's parts; `start` and `end` are byte offsets into that part's UTF-8 text.
    `secret` says that a secret was masked in `safe`.
    """

    event_id: str
    sequence: int
    speaker: EventKind
    part: int
    start: int
    end: int
    text: str
    safe: str
    shape: Shape
    secret: bool


_LINE: Final = re.compile("[^\r\n\x85\u2028\u2029]+")
_FENCE: Final = re.compile(r"\s{0,12}(?:```|~~~)")
_MARKERS: Final = re.compile(
    r"[^\S\r\n]*(?P<quote>(?:>[^\S\r\n]?){1,8})?[^\S\r\n]*(?P<heading>#{1,6}[^\S\r\n]+)?"
    r"(?P<item>(?:[-*+•‣▪●·–—✅✔✓❌☐☑][^\S\r\n]+|\d{1,3}[.)][^\S\r\n]+){1,4})?(?:\[[ xX]\][^\S\r\n]+)?"
)
_TAG_OPEN: Final = re.compile(r"\s{0,12}<([A-Za-z][\w-]{0,60})[^<>\n]{0,200}>")
_TAG_CLOSE: Final = re.compile(r"</([A-Za-z][\w-]{0,60})>")
_INLINE_CODE: Final = re.compile(r"`[^`\r\n]*`")
_STOP: Final = re.compile(r"[。！？｡](?:[」』”’）\"')]*)|[.!?…؟।]+(?:[\"'”’»)\]*_]*)(?=\s)")
_ABBREVIATED_WORDS: Final = """
e.g i.e etc vs cf al approx resp incl dr mr mrs ms prof no fig st jr sr inc ltd ca z.b d.h bzw usw vgl nr u.a o.ä
ggf evtl  p.ex ej sra bijv d.w.z
"""
_ABBREVIATIONS: Final = frozenset(_ABBREVIATED_WORDS.split())
_CONTROL_TOKEN: Final = re.compile(
    r"<\|[^|<>\n]{0,40}\|?>?|\[/?INST\]|</?s>|<</?SYS>>|<(?:start|end)_of_turn>|<｜[^｜<>\n]{0,40}｜?>?"
)
_EMPHASIS: Final = re.compile(r"\*\*(?=\S)(.{1,300}?)(?<=\S)\*\*")
_ORDINAL_NEXT: Final = re.compile(
    r"(?:Jan|Feb|März|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez|Quartal|Stock|Etage|Klasse|Version|Auflage)[a-zä]*"
)
_BOLD_LINE: Final = re.compile(r"\*\*[^*\n]{1,120}\*\*:?")
_SPACE: Final = re.compile(r"\s+")


def spans(event: StoredEvent) -> Iterator[Span]:
    """Yield the spans of an event's own words, in order."""
    for index, part in enumerate(event.parts):
        if isinstance(part, TextPart):
            yield from _part_spans(event, index, part.text)


def plain(text: str) -> str:
    """Return a text as one line without control or bidi characters; control-token text is replaced by a note."""
    if "<" in text or "[" in text:
        text = _CONTROL_TOKEN.sub("[control token]", text)
    if "**" in text:
        text = _EMPHASIS.sub(r"\1", text)
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() or unicodedata.category(character)[0] != "C" else " "
            for character in text
        )
    return _SPACE.sub(" ", text).strip()


def cut(text: str, characters_max: int) -> str:
    """Cut a one-line text to a bound, at a clause or word boundary where there is one, and mark the cut with `…`."""
    if len(text) <= characters_max:
        return text
    room = text[: characters_max - 1]
    for marks in (".!?;。！？；", ",:，：", " "):
        end = max(room.rfind(mark) for mark in marks)
        if end >= characters_max // 2:
            return room[: end + 1].rstrip() + "…"
    return room + "…"


def _part_spans(event: StoredEvent, index: int, text: str) -> Iterator[Span]:
    suspect = secrets.may_hold(text)
    found = secrets.find(text) if suspect else ()
    cursor, offset = 0, 0
    for start, end, shape in _regions(text):
        offset += len(text[cursor:start].encode())
        quoted = text[start:end]
        size = len(quoted.encode())
        touched = tuple(secret for secret in found if secret.start < end and secret.end > start) if found else ()
        safe = secrets.mask_ranges(quoted, touched, offset=start) if touched else quoted
        shown = plain(safe)
        # Only what `plain` joins or writes can make a secret of a text that has nothing of one.
        safe = cut(secrets.mask(shown) if suspect or shown != quoted else shown, SAFE_CHARACTERS_MAX)
        if safe:
            yield Span(
                event_id=event.id,
                sequence=event.sequence,
                speaker=event.kind,
                part=index,
                start=offset,
                end=offset + size,
                text=quoted,
                safe=safe,
                shape=shape,
                secret=secrets.REMOVED in safe,
            )
        cursor, offset = end, offset + size


def _regions(text: str) -> Iterator[tuple[int, int, Shape]]:
    """Yield (start, end, shape) in characters: blocks of lines, cut into sentences."""
    open_block: tuple[int, int, Shape] | None = None
    for start, end, shape, marked in _shaped_lines(text):
        if open_block and not marked and shape is Shape.SENTENCE and _is_wrapped(text, open_block, start):
            open_block = (open_block[0], end, open_block[2])
            continue
        if open_block:
            yield from _sentences(text, *open_block)
        open_block = (start, end, shape)
    if open_block:
        yield from _sentences(text, *open_block)


def _shaped_lines(text: str) -> Iterator[tuple[int, int, Shape, bool]]:
    """Yield each line's content without its markers, its shape, and whether it had a marker."""
    last_close = {match[1]: match.start() for match in _TAG_CLOSE.finditer(text)}
    fenced, quoted_until = False, -1
    for line in _LINE.finditer(text):
        if _FENCE.match(line[0]):
            fenced = not fenced
            continue
        markers = _MARKERS.match(text, line.start(), line.end())
        start = markers.end() if markers else line.start()
        end = line.start() + len(line[0].rstrip())
        tag = _TAG_OPEN.match(line[0])
        if tag and last_close.get(tag[1], -1) >= line.start():
            quoted_until = max(quoted_until, last_close[tag[1]])
        if start >= end:
            continue
        if fenced:
            yield line.start(), end, Shape.CODE, True
        elif line.start() <= quoted_until or tag or (markers and markers["quote"]):
            yield start, end, Shape.QUOTE, True
        elif text[start] == "|" and text[end - 1] == "|" and end - start > 2:
            yield start, end, Shape.TABLE, True
        elif (markers and markers["heading"]) or _BOLD_LINE.fullmatch(text, start, end):
            yield start, end, Shape.HEADING, True
        elif markers and markers["item"]:
            yield start, end, Shape.ITEM, True
        else:
            yield start, end, Shape.SENTENCE, False


def _is_wrapped(text: str, block: tuple[int, int, Shape], start: int) -> bool:
    """Whether a line goes on with the sentence of the line before: a long line without a stop, then a small letter."""
    tail = text[max(text.rfind("\n", block[0], block[1]) + 1, block[0]) : block[1]]
    gap = text[block[1] : start]
    return (
        block[2] in PROSE
        and block[1] - block[0] <= SAFE_CHARACTERS_MAX
        and gap.count("\n") <= 1
        and len(tail) >= 50
        and tail[-1] not in ".!?:;。！？"
        and text[start].islower()
    )


def _sentences(text: str, start: int, end: int, shape: Shape) -> Iterator[tuple[int, int, Shape]]:
    if shape not in PROSE and shape is not Shape.QUOTE:
        yield start, end, shape
        return
    codes = deque(match.span() for match in _INLINE_CODE.finditer(text, start, end))
    position = start
    for stop in _STOP.finditer(text, start, end):
        while codes and codes[0][1] <= stop.start():
            codes.popleft()
        if (codes and codes[0][0] <= stop.start()) or not _ends_sentence(text, position, stop, end):
            continue
        yield position, stop.end(), shape
        position = stop.end()
        while position < end and text[position].isspace():
            position += 1
    if position < end:
        yield position, end, shape


def _ends_sentence(text: str, start: int, stop: re.Match[str], end: int) -> bool:
    if stop[0][0] in "。！？｡":
        return True
    following = text[stop.end() : min(stop.end() + 16, end)].lstrip()
    if following[:1].islower():
        return False
    if not stop[0].startswith("."):
        return True
    word = text[max(start, stop.start() - 12) : stop.start()].rsplit(None, 1)
    last = word[-1].lower().lstrip("(\"'") if word else ""
    if last.isdecimal() and len(last) <= 2 and _ORDINAL_NEXT.match(following):
        return False
    return last not in _ABBREVIATIONS and not (len(last) == 1 and last.isalpha())
