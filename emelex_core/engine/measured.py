"""What a server without a tokenizer showed of its tokens: its own counts of earlier prompts (ADR 0024).

Two sizes are made of them, which are not worth the same. The module owns these invariants:

- `prompt_bound` decides whether a prompt fits, so nothing in it is extrapolated: messages that the server has counted
  stand with its count, all others with their UTF-8 bytes, which no byte-level tokenizer exceeds.
- `text_estimate` may lie beside the truth, and whoever shows it says so. It is never below what was observed, and never
  above the bytes; before anything was observed it is the bytes.
- A server whose counts contradict each other, because it leaves out what it had cached or cut off, is not believed any
  more: then everything is bytes.
"""

from __future__ import annotations

import hashlib
import math
import string
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeVar

from emelex_core.engine import wire
from emelex_core.engine.neutral import neutral
from emelex_core.engine.ports import Message

TEMPLATE_TOKENS: Final = 64
"""Room for a system message that a template adds by itself, and for the opening of the answer."""
MESSAGE_TOKENS: Final = 16
"""Room for one message's delimiters and role."""
MARGIN: Final = 1.25
"""How much denser than any text that was observed the letters of another may be."""
SAMPLE_BYTES_MIN: Final = 512
"""In less the template's own tokens weigh too much."""
BYTES_PER_TOKEN_MAX: Final = 8
"""No prose and no code has longer tokens on average: a smaller count is not one of the whole prompt."""
KEPT_MAX: Final = 4_096
"""How many counts are kept, the newest ones; about a megabyte."""

_PLAIN: Final = (string.ascii_letters + " ").encode()
"""Bytes that tokenizers join into long tokens. Digits, signs and all that is not ASCII may be a token each."""

Key = TypeVar("Key")


class Meter:
    """The counts that one server gave, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._believed = True
        self._density: float | None = None
        self._totals: OrderedDict[bytes, int] = OrderedDict()
        self._runs: OrderedDict[tuple[bytes, ...], int] = OrderedDict()
        self._run_sizes: dict[bytes, list[int]] = {}

    @property
    def calibrated(self) -> bool:
        """Whether a text's estimate rests on an observation."""
        return self._density is not None

    def text_estimate(self, text: str) -> int:
        """About how many tokens a text has, rather too many than too few."""
        data = text.encode()
        density = self._density
        if density is None:
            return len(data)
        plain, dense = _split(data)
        return min(len(data), math.ceil(plain * min(density * MARGIN, 1.0)) + dense)

    def prompt_bound(self, messages: Sequence[Message]) -> int:
        """How many tokens a prompt has at most, without its images."""
        digests = [_digest(message) for message in messages]
        tokens, place = TEMPLATE_TOKENS, 0
        with self._lock:
            while place < len(messages):
                size, counted = self._counted_run(digests, place) or (1, _bytes_bound(messages[place]))
                tokens += counted
                place += size
        return tokens

    def observe(self, messages: Sequence[Message], tokens: int, *, beside: str = "") -> None:
        """Take the server's count of a prompt. `beside` is what else it put into it: the tools that were offered."""
        bound = TEMPLATE_TOKENS + sum(map(_bytes_bound, messages)) + len(beside.encode())
        if any(message.images for message in messages) or tokens > bound:
            return
        digests = [_digest(message) for message in messages]
        prefixes = _prefixes(digests, beside)
        with self._lock:
            if not self._believed:
                return
            known = self._totals.get(prefixes[-1])
            place = max((size for size in range(len(digests)) if prefixes[size] in self._totals), default=0)
            before = self._totals.get(prefixes[place], 0) if place else 0
            if tokens <= before or (known is not None and known != tokens):
                self._disbelieve()
                return
            if _plausible(messages[place:], tokens - before):
                _keep(self._totals, prefixes[-1], tokens)
                self._keep_run(tuple(digests[place:]), tokens - before)
                self._take_density(messages[place:], tokens - before, beside="" if place else beside)

    def _counted_run(self, digests: list[bytes], place: int) -> tuple[int, int] | None:
        """The longest run of messages from a place on that was counted: its length and its tokens."""
        for size in self._run_sizes.get(digests[place], ()):
            counted = self._runs.get(tuple(digests[place : place + size]))
            if counted is not None:
                return size, counted
        return None

    def _keep_run(self, run: tuple[bytes, ...], tokens: int) -> None:
        _keep(self._runs, run, tokens)
        sizes = self._run_sizes.setdefault(run[0], [])
        if len(run) not in sizes:
            sizes.append(len(run))
            sizes.sort(reverse=True)
        if len(self._run_sizes) > KEPT_MAX:
            self._run_sizes.pop(next(iter(self._run_sizes)))

    def _take_density(self, messages: Sequence[Message], tokens: int, *, beside: str) -> None:
        """Note how dense letters were at least, so that no observed text would be estimated below its count."""
        plain, dense = map(sum, zip(*(_split(_words(message)) for message in messages), strict=True))
        if beside or plain < SAMPLE_BYTES_MIN:
            return
        density = max((tokens - dense) / plain, tokens / (plain + dense))
        self._density = max(self._density or 0.0, density)

    def _disbelieve(self) -> None:
        self._believed = False
        self._density = None
        self._totals.clear()
        self._runs.clear()
        self._run_sizes.clear()


def _keep(counts: OrderedDict[Key, int], key: Key, tokens: int) -> None:
    counts[key] = tokens
    counts.move_to_end(key)
    if len(counts) > KEPT_MAX:
        counts.popitem(last=False)


def _plausible(messages: Sequence[Message], tokens: int) -> bool:
    return tokens * BYTES_PER_TOKEN_MAX >= sum(len(_words(message)) for message in messages)


def _bytes_bound(message: Message) -> int:
    return MESSAGE_TOKENS + len(_words(message))


def _words(message: Message) -> bytes:
    """A message's words as they are sent."""
    return neutral(wire.words_of(message)).encode()


def _split(data: bytes) -> tuple[int, int]:
    """How many bytes are plain letters, and how many are not."""
    dense = len(data.translate(None, _PLAIN))
    return len(data) - dense, dense


def _digest(message: Message) -> bytes:
    hashed = hashlib.blake2b(message.role.value.encode() + b"\0" + _words(message), digest_size=16)
    return hashed.digest()


def _prefixes(digests: list[bytes], beside: str) -> list[bytes]:
    """The digest of each prefix of a prompt, the empty one first."""
    found = [hashlib.blake2b(beside.encode(), digest_size=16).digest()]
    for digest in digests:
        found.append(hashlib.blake2b(found[-1] + digest, digest_size=16).digest())
    return found
