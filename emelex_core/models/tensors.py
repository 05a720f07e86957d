"""Tensors as a GGUF header describes them: whether they can lie where they say (ggml's types and block sizes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COUNT_MAX: Final = 65_536
NAME_BYTES_MAX: Final = 63
DIMENSIONS_MAX: Final = 4
ALIGNMENT_DEFAULT: Final = 32
ALIGNMENTS: Final = frozenset(1 << power for power in range(3, 21))
_ITEMS_MAX: Final = 2**62

BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""Items and bytes of one block, by ggml's number of the type; a test compares them with the native library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor's description: its shape in items, ggml's number of its type, and its place in the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def items(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


def fault(described: Sequence[Tensor], *, alignment: int, room: int) -> str | None:
    """Say what keeps the first bad tensor from lying within `room` bytes of data; None when all do."""
    seen: set[str] = set()
    for tensor in described:
        what = _fault(tensor, alignment=alignment, room=room)
        if what is None and tensor.name in seen:
            what = "stands twice"
        if what is not None:
            return f"tensor {tensor.name!r} {what}"
        seen.add(tensor.name)
    return None


def _fault(tensor: Tensor, *, alignment: int, room: int) -> str | None:
    block = BLOCKS.get(tensor.kind)
    if block is None:
        return f"is of unknown type {tensor.kind}"
    if not 1 <= tensor.items <= _ITEMS_MAX:
        return f"holds {tensor.items} items"
    items, size = block
    if tensor.shape[0] % items:
        return f"has rows of {tensor.shape[0]} items, which are no blocks of {items}"
    if tensor.offset % alignment:
        return f"lies at {tensor.offset}, which is not aligned to {alignment}"
    if tensor.offset + tensor.items // items * size > room:
        return "lies beyond the end of the file"
    return None
