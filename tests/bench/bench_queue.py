"""Claiming and completing against the same raw statements, and the cost of a claim as the table grows, in one run.

    python -P tests/bench/bench_queue.py [ROWS…]

Prints one JSON line a benchmark. Ours and the raw statements take turns; `ratio` is raw time over our time.
`claim_cost` is flat when its `ms` stays within 1.3 of the smallest table's.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import apsw

from emelex_core import Event, MemoryStore, limits
from emelex_core.db.statements import load
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from emelex_queue.lease import SQL

PAIRS: Final = 300
CLAIMS: Final = 200
SIZES: Final = (1_000, 100_000, 1_000_000)
KIND: Final = JobKind.DISTILLATION
EVENTS: Final = load("emelex_core", "events")

FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, published_at, completed_at, through_sequence,
                  source_event_count, source_first_event_id, source_last_event_id, source_sha256)
SELECT printf('%s-%034d', :mark, i), 'distillation', :session_id, :state, 0, 1, 1,
       CASE :state WHEN 'completed' THEN 1 END, 1, 1, :event_id, :event_id, printf('%s%063d', :mark, i)
  FROM n
"""


def main(sizes: tuple[int, ...]) -> None:
    """Run every benchmark in temporary directories on the default disk."""
    with tempfile.TemporaryDirectory(prefix="emelex-bench-") as directory:
        place = Path(directory)
        place.chmod(0o700)
        report("claim_and_complete", **claim_and_complete(place))
        smallest: float | None = None
        for size in sizes:
            cost = claim_cost(place, size)
            smallest = cost if smallest is None else smallest
            report("claim_cost", rows=size, ms=round(cost * 1_000, 4), growth=round(cost / smallest, 3))


def claim_and_complete(place: Path) -> dict[str, float]:
    """An empty job through both transactions, against the same statements on a raw connection, a commit each."""
    with filled(place / "pair", pending=2 * PAIRS + 10, completed=0) as store:
        raw = raw_connection(store)
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(2 * PAIRS):
            started = time.perf_counter()
            if turn % 2:
                raw_pair(raw, store)
            else:
                lease = claims.claim(store.database, KIND, clock=store.clock)
                assert lease is not None
                lease.complete(lambda transaction: None, record={})
            times[turn % 2].append(time.perf_counter() - started)
        raw.close()
    ours, bare = statistics.median(times[0]), statistics.median(times[1])
    return {"ratio": round(bare / ours, 3), "ms": round(ours * 1_000, 3), "raw_ms": round(bare * 1_000, 3)}


def claim_cost(place: Path, size: int) -> float:
    """The median of a claim's statements alone, rolled back each time, with half the rows done and half waiting."""
    with filled(place / str(size), pending=size // 2, completed=size // 2) as store:
        raw = raw_connection(store)
        times: list[float] = []
        for _ in range(CLAIMS):
            raw.execute("BEGIN IMMEDIATE")
            started = time.perf_counter()
            raw_claim(raw, store)
            times.append(time.perf_counter() - started)
            raw.execute("ROLLBACK")
        raw.close()
    return statistics.median(times)


def filled(home: Path, *, pending: int, completed: int) -> MemoryStore:
    """A store with one Session of one event and so many jobs on it."""
    store = MemoryStore.open(home, create=True)
    session = store.start_session(home.parent, title="bench")
    with store.claim_session(session.id, home.parent) as lease:
        event_id = lease.append_turn([Event.user("x")]).event_ids[0]
        job = lease.release(distill=True)
    assert job is not None
    with store.database.write() as transaction:
        # The real digest must stand in each row that our own code completes, so its uniqueness has to go.
        (digest,) = transaction.all("SELECT source_sha256 FROM jobs")[0]
        transaction.run("DROP INDEX jobs_by_source")
        for mark, state, count in (("a", "completed", completed), ("b", "pending", pending)):
            if count:
                values = {"mark": mark, "state": state, "count": count, "session_id": session.id, "event_id": event_id}
                transaction.run(FILL, values)
        transaction.run("UPDATE jobs SET source_sha256 = :digest WHERE state = 'pending'", {"digest": digest})
    return store


def raw_connection(store: MemoryStore) -> apsw.Connection:
    """A connection of its own, at the durability of ours."""
    raw = apsw.Connection(str(store.database.path), flags=apsw.SQLITE_OPEN_READWRITE)
    raw.pragma("synchronous", "EXTRA")
    raw.pragma("foreign_keys", "ON")
    raw.pragma("wal_autocheckpoint", 2_000)
    raw.create_scalar_function("owner_alive", lambda slot: True, 1)
    return raw


def raw_claim(raw: apsw.Connection, store: MemoryStore) -> tuple[object, ...]:
    """The statements of a claim."""
    now = store.clock()
    span = {"now": now, "lease_ms": limits.LEASE_MS}
    raw.execute(SQL["clamp_leases"], span)
    raw.execute(SQL["clamp_sessions"], span)
    raw.execute(SQL["expired"], {"now": now, "limit": limits.EXPIRED_PER_CLAIM_MAX}).fetchall()
    values = {"kind": KIND.value, "session_id": None, "token": b"x" * 16, "owner": 1, **span}
    values["backoff_max_ms"] = limits.BACKOFF_MAX_MS
    (row,) = raw.execute(SQL["claim"], values).fetchall()
    return tuple(row)


def raw_pair(raw: apsw.Connection, store: MemoryStore) -> None:
    """The statements of a claim and of a completion, also those that look whether the source is as it was."""
    raw.execute("BEGIN IMMEDIATE")
    job_id, _, session_id, *_ = raw_claim(raw, store)
    raw.execute("COMMIT")
    raw.execute("BEGIN IMMEDIATE")
    now = store.clock()
    raw.execute(SQL["session_is_live"], {"session_id": session_id, "now": now}).fetchall()
    for _ in ("first", "last"):
        raw.execute(EVENTS["at"], {"session_id": session_id, "sequence": 1}).fetchall()
    raw.execute(EVENTS["page"], {"session_id": session_id, "after": 0, "through": 1, "limit": -1}).fetchall()
    raw.execute(SQL["complete"], {"id": job_id, "token": b"x" * 16, "now": now})
    raw.execute(SQL["add_record"], {"id": job_id, "record": b"{}", "now": now})
    raw.execute("COMMIT")


def report(name: str, **figures: float) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps({"bench": name, **figures}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)
