"""Replacing found places of a text, and following quotes through that. Pure; see redaction.py.

Offsets are characters. Places that overlap are one. What replaces a place is `MASK`, so that its length does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

MASK: Final = "[redacted]"
Span: TypeAlias = tuple[int, int]
Finder: TypeAlias = Callable[[str], Sequence[Span]]
"""Says which places of a text go, as (start, end); it must find nothing in MASK."""
_STRUCTURE: Final = frozenset({"type", "call_id", "name", "ref", "status"})
"""Members of a part that hold it together; texts of people, models and tools stand in the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A text before and after, and the places of it that were replaced."""

    before: str
    after: str
    spans: tuple[Span, ...]

    def follow(self, quote: str) -> str | None:
        """What a quote of the text before reads in the text after; None where it never stood there."""
        start = self.before.find(quote)
        return (
            None if start < 0 else self.after[self._place(start, end=False) : self._place(start + len(quote), end=True)]
        )

    def _place(self, offset: int, *, end: bool) -> int:
        """Where an offset lands; inside a place, at that edge of the mask which keeps the whole of it."""
        shift = 0
        for left, right in self.spans:
            if offset >= right:
                shift += len(MASK) - (right - left)
            elif offset > left:
                return left + shift + (len(MASK) if end else 0)
            else:
                break
        return offset + shift


def mask(text: str, find: Finder) -> Masked:
    """Replace every place that is found."""
    spans = _merged(find(text))
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += [text[at:start], MASK]
        at = end
    return Masked(before=text, after="".join([*pieces, text[at:]]), spans=spans)


def mask_value(value: Any, find: Finder, seen: list[Masked]) -> Any:
    """Replace in every string of a JSON value, keys too; what changed is added to `seen`."""
    if isinstance(value, str):
        masked = mask(value, find)
        if masked.spans:
            seen.append(masked)
        return masked.after
    if isinstance(value, list):
        return [mask_value(member, find, seen) for member in _items(value)]
    if isinstance(value, dict):
        return {mask_value(name, find, seen): mask_value(member, find, seen) for name, member in _members(value)}
    return value


def mask_parts(parts: list[dict[str, Any]], find: Finder) -> tuple[list[dict[str, Any]], list[Masked]]:
    """Replace in the texts of an event's parts; what holds a part together stays."""
    seen: list[Masked] = []
    changed = [
        {name: member if name in _STRUCTURE else mask_value(member, find, seen) for name, member in part.items()}
        for part in parts
    ]
    return changed, seen


def _items(value: Any) -> Iterable[Any]:
    return cast("list[Any]", value)


def _members(value: Any) -> Iterable[tuple[str, Any]]:
    return cast("dict[str, Any]", value).items()


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)
