"""The ledger of a job under way: what is finished of it, so that a killed worker's successor does not do it again.

The module owns these invariants (issue 8, item 1; behaviours 165, 178):

- The leaves of a fold follow each other without gap or overlap, so that each event is in exactly one; the schema holds
  them to it.
- A state is that of exactly the bytes up to its sequence (`chain`), read under exactly its settings; anything else is
  dropped, and the work begins anew.
- A call of the model is written down when it has ended, under the digest of everything that decided it.
- What is written here is never a result: it goes when its job completes or fails for good, by the schema's own trigger.
- Only a running job has a ledger to write to: a worker whose job was settled meanwhile writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.db.statements import load

SQL: Final = load("emelex_core", "ledger")
STATE_BYTES_MAX: Final = 64 * limits.MIB
"""A larger state is not kept; the schema refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One finished piece of a source: so many events among `first_sequence` to `last_sequence`, and their tokens."""

    first_sequence: int
    last_sequence: int
    events: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a fold has come: its leaves in order, and what was read of them, in a form that the reader chose.

    `chain` is the digest of the Session's history up to the last leaf's end.
    """

    leaves: tuple[Leaf, ...]
    state: bytes
    chain: bytes


def refusals(database: Database, job_id: str) -> int:
    """How often the gate has refused this job's text: what the next attempt changes depends on it alone."""
    with database.read() as transaction:
        found = transaction.one(SQL["refusals"], {"job_id": job_id})
    return 0 if found is None else cast(int, found[0])


def count_refusal(database: Database, job_id: str) -> None:
    """Note that the gate refused what this attempt made."""
    with database.write() as transaction:
        transaction.run(SQL["begin"], {"job_id": job_id})
        transaction.run(SQL["count_refusal"], {"job_id": job_id})


def progress(database: Database, job_id: str, settings: str) -> Progress | None:
    """What is finished under these settings, the digest of all that decides a leaf; None where nothing is."""
    with database.read() as transaction:
        found = transaction.one(SQL["state"], {"job_id": job_id, "settings": settings})
        if found is None:
            return None
        rows = transaction.all(SQL["leaves"], {"job_id": job_id})
    leaves = tuple(
        Leaf(
            first_sequence=cast(int, row[0]),
            last_sequence=cast(int, row[1]),
            events=cast(int, row[2]),
            tokens=cast(int, row[3]),
        )
        for row in rows
    )
    return Progress(leaves=leaves, state=cast(bytes, found[0]), chain=cast(bytes, found[1]))


def keep(database: Database, job_id: str, settings: str, done: Progress, *, known: int) -> None:
    """Write down the leaves after the first `known`, and the state that they led to, which supersedes the one before.

    With 0 known, whatever stood there is dropped.
    """
    if len(done.state) > STATE_BYTES_MAX:
        return
    with database.write() as transaction:
        transaction.run(SQL["begin"], {"job_id": job_id})
        if known == 0:
            transaction.run(SQL["drop_leaves"], {"job_id": job_id})
        stands: dict[str, Value] = {"job_id": job_id, "settings": settings, "state": done.state, "chain": done.chain}
        if transaction.run(SQL["keep_state"], stands):
            _add(transaction, job_id, done.leaves, known)


def find_call(database: Database, job_id: str, digest: str) -> bytes | None:
    """What a call of the model with this digest gave in an earlier attempt, or None."""
    with database.read() as transaction:
        found = transaction.one(SQL["find_call"], {"job_id": job_id, "digest": digest})
    return None if found is None else cast(bytes, found[0])


def keep_call(database: Database, job_id: str, digest: str, generation: bytes) -> None:
    """Write down what a call gave; the first one of a digest stands."""
    with database.write() as transaction:
        transaction.run(SQL["begin"], {"job_id": job_id})
        transaction.run(SQL["keep_call"], {"job_id": job_id, "digest": digest, "generation": generation})


def _add(transaction: Transaction, job_id: str, leaves: Sequence[Leaf], known: int) -> None:
    for index in range(known, len(leaves)):
        leaf = leaves[index]
        parameters: dict[str, Value] = {
            "job_id": job_id,
            "first_sequence": leaf.first_sequence,
            "last_sequence": leaf.last_sequence,
            "previous_last": leaves[index - 1].last_sequence if index else None,
            "events": leaf.events,
            "tokens": leaf.tokens,
        }
        transaction.run(SQL["add_leaf"], parameters)
