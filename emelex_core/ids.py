"""Identifiers.

Sessions and jobs get random ids (UUIDv4), so that a prefix of eight characters tells them apart for people. Events and
turns get time-ordered ids (UUIDv7), so that their index grows at one end. Order never comes from an id: sequences and
row numbers carry it.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final

PREFIX_CHARACTERS_MIN: Final = 8
"""An id may be shortened to a unique prefix of this many characters or more (contract.md)."""

_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 0x3] for digit in "0123456789abcdef"}
"""The first digit of the fourth group: two bits of the variant (RFC 9562), two of noise."""
_PREFIX = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}\Z")


def random_id() -> str:
    """Return a new UUIDv4 as 36 lower-case characters."""
    return _version(int.from_bytes(os.urandom(16), "big"), 4)


def ordered_id() -> str:
    """Return a new UUIDv7 (RFC 9562) as 36 lower-case characters."""
    return ordered_ids(1)[0]


def ordered_ids(count: int) -> list[str]:
    """Return so many new UUIDv7 of one instant, for the price of one look at the clock and one at the random source."""
    stamp = f"{time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF:012x}"
    instant = f"{stamp[:8]}-{stamp[8:]}-7"
    noise = os.urandom(10 * count).hex()
    # The fourth digit of the noise gives two bits beside the variant.
    return [
        f"{instant}{noise[at : at + 3]}-{_VARIANT[noise[at + 3]]}{noise[at + 4 : at + 7]}-{noise[at + 7 : at + 19]}"
        for at in range(0, 20 * count, 20)
    ]


def is_prefix(text: str) -> bool:
    """Whether the text can be an id or the beginning of one."""
    return _PREFIX.fullmatch(text) is not None


def _version(value: int, version: int) -> str:
    """Set version and variant bits (RFC 9562) and write 128 bits as text; the module `uuid` takes 5 ms to import."""
    value = value & ~(0xF << 76) | version << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
