"""A fold as bytes, so that a killed worker's successor goes on with it.

The module owns these invariants:

- `restored(saved(fold))` goes on exactly as the fold would have: the same events after it give the same Summary.
- Only code of this release reads what it wrote: `VERSION` is part of the settings that a state is kept under.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

import msgspec

from emelex_core.jobs.ledger import Leaf
from emelex_workers.text import keys
from emelex_workers.text.actions import ActionLog, Command, FileTouch, OpenCall, Task
from emelex_workers.text.fold import Fold
from emelex_workers.text.foreign import ForeignWords
from emelex_workers.text.outline import Line, Outline

VERSION: Final = "fold-state-1"


class _State(msgspec.Struct, kw_only=True, array_like=True):
    """What a fold has read; its leaves stand in the ledger."""

    tokens: int
    found: list[Line]
    commands: list[Command]
    files: list[FileTouch]
    tasks: list[tuple[str, Task]]
    delegations: list[tuple[str, int]]
    errors: list[tuple[str, int]]
    open_calls: list[tuple[str, OpenCall]]
    plan_sequence: int
    actions_dropped: int
    foreign: list[keys.Frame]
    names: list[tuple[str, int, int]]
    skipped: dict[str, int]
    media: dict[str, int]
    media_sequence: int
    dropped: int
    last_user_sequence: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_State)


def saved(fold: Fold) -> bytes:
    """Return what a fold has read, its prior Summary and its leaves not included."""
    log = fold.log
    return _ENCODER.encode(
        _State(
            tokens=fold.tokens,
            found=fold.found,
            commands=list(log.commands.values()),
            files=list(log.files.values()),
            tasks=list(log.tasks.items()),
            delegations=list(log.delegations.items()),
            errors=list(log.errors.items()),
            open_calls=list(log.open_calls.items()),
            plan_sequence=log.plan_sequence,
            actions_dropped=log.dropped,
            foreign=fold.foreign.said(),
            names=[(name, *seen) for name, seen in fold.names.items()],
            skipped=dict(fold.skipped),
            media=dict(fold.media),
            media_sequence=fold.media_sequence,
            dropped=fold.dropped,
            last_user_sequence=fold.last_user_sequence,
        )
    )


def restored(state: bytes, leaves: tuple[Leaf, ...], prior: Outline | None) -> Fold:
    """Return the fold that was saved, beside the Summary that it began with."""
    read = _DECODER.decode(state)
    log = ActionLog(
        commands=OrderedDict((command.text, command) for command in read.commands),
        files=OrderedDict((touch.path, touch) for touch in read.files),
        tasks=OrderedDict(read.tasks),
        delegations=OrderedDict(read.delegations),
        errors=OrderedDict(read.errors),
        open_calls=OrderedDict(read.open_calls),
        plan_sequence=read.plan_sequence,
        dropped=read.actions_dropped,
    )
    return Fold(
        prior=prior,
        leaves=list(leaves),
        tokens=read.tokens,
        found=read.found,
        log=log,
        foreign=ForeignWords.of(read.foreign),
        names={name: (times, sequence) for name, times, sequence in read.names},
        skipped=Counter(read.skipped),
        media=Counter(read.media),
        media_sequence=read.media_sequence,
        dropped=read.dropped,
        last_user_sequence=read.last_user_sequence,
    )
