"""Appending, replaying and opening against raw apsw doing the same to the same disk, in one run.

    python -P tests/bench/bench_store.py

Prints one JSON line a benchmark. Ours and the raw statements take turns, so that other load on the machine meets both;
`ratio` is raw time over our time, so 1 is as fast and more is faster.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import apsw
import orjson

from emelex_core import Event, MemoryStore, limits
from emelex_core.clock import system_clock, touched_at
from emelex_core.db.statements import load
from emelex_core.home import Home
from emelex_core.sessions import append
from emelex_core.sessions.append import Batch, Tail
from emelex_core.sessions.lease import SessionLease

SESSIONS: Final = load("emelex_core", "sessions")
APPENDS: Final = 400
TEXT: Final = "x" * 1_024
LONG_APPENDS: Final = 200
REPLAY_EVENTS: Final = 100_000
REPLAY_ROUNDS: Final = 5
OPENS: Final = 200

Both: TypeAlias = tuple[int, int]
RAW_SCHEMA = (
    "CREATE TABLE events (row INTEGER PRIMARY KEY, session TEXT, sequence INTEGER, payload BLOB, "
    "UNIQUE (session, sequence))"
)
RAW_ADD = "INSERT INTO events (session, sequence, payload) VALUES (?, ?, ?)"
RAW_LEASE = "SELECT chain, lease_token FROM sessions WHERE id = ?"
RAW_SCAN = "SELECT sequence, payload FROM events WHERE session_id = ? ORDER BY sequence"


def main() -> None:
    """Run every benchmark in a temporary directory on the default disk."""
    with tempfile.TemporaryDirectory(prefix="emelex-bench-") as directory:
        place = Path(directory)
        place.chmod(0o700)
        for bench in (append_turn, append_same_rows, append_to_long, replay_history, open_store):
            report(bench.__name__, **bench(place))


def append_turn(place: Path) -> dict[str, float]:
    """Two events of 1 KiB in one durable transaction, against the same bytes in one raw transaction."""
    with MemoryStore.open(place / "append", create=True) as store:
        session = store.start_session(place, title="bench")
        raw = raw_database(place / "append.sqlite3")
        payload = orjson.dumps({"parts": [{"text": TEXT, "type": "text"}]})
        with store.claim_session(session.id, place) as lease:
            turn = [Event.user(TEXT), Event.assistant(TEXT)]
            sequence = iter(range(10**9))

            def write() -> None:
                raw.execute("BEGIN IMMEDIATE")
                raw.executemany(RAW_ADD, [(session.id, next(sequence), payload) for _ in turn])
                raw.execute("COMMIT")

            ours, bare = alternate(lambda: lease.append_turn(turn), write, APPENDS)
        raw.close()
    return compare(ours, bare)


def append_same_rows(place: Path) -> dict[str, float]:
    """The same turn, against the same rows through the same statements on a raw connection: what our code adds."""
    with MemoryStore.open(place / "rows", create=True) as store:
        ours_session, raw_session = (store.start_session(place, title="bench") for _ in range(2))
        raw = apsw.Connection(str(store.database.path), flags=apsw.SQLITE_OPEN_READWRITE)
        raw.pragma("synchronous", "EXTRA")
        raw.pragma("foreign_keys", "ON")
        raw.pragma("wal_autocheckpoint", 2_000)
        raw.create_scalar_function("touched_at", lambda *both: touched_at(*cast(Both, both)), 2, deterministic=True)
        turn = [Event.user(TEXT), Event.assistant(TEXT)]
        with store.claim_session(ours_session.id, place) as lease, store.claim_session(raw_session.id, place) as other:
            found: list[Any] = raw.execute(RAW_LEASE, (raw_session.id,)).fetchall()
            (row,) = found
            batches = laid_out(raw_session.id, row[0], turn)

            def write() -> None:
                before, batch = next(batches)
                raw.execute("BEGIN IMMEDIATE")
                values = {"id": raw_session.id, "token": row[1], "cursor": before, "last_sequence": batch.tail.sequence}
                values |= {"chain": batch.tail.chain, "bytes": batch.bytes, "now": store.clock()}
                raw.execute(SESSIONS["advance"], {**values, "lease_ms": limits.LEASE_MS, "from_journal": False})
                raw.executemany(append.SQL["add"], batch.rows)
                raw.execute("COMMIT")

            ours, bare = alternate(lambda: lease.append_turn(turn), write, APPENDS)
            other.replay()
        raw.close()
    return compare(ours, bare)


def laid_out(session_id: str, chain: bytes, turn: list[Event]) -> Iterator[tuple[int, Batch]]:
    """Rows laid out in advance, so that the raw side has nothing to do but to write them."""
    tail = Tail(sequence=0, chain=chain)
    ready: list[tuple[int, Batch]] = []
    for _ in range(APPENDS + 1):
        batch = append.lay_out(session_id, tail, [append.prepare(turn)], now=system_clock())
        ready.append((tail.sequence, batch))
        tail = batch.tail
    return iter(ready)


def append_to_long(place: Path) -> dict[str, float]:
    """A turn behind 100,000 events against one behind 10, in one store: a cost that does not grow has the ratio 1."""
    with MemoryStore.open(place / "long", create=True) as store:
        short, long = (store.start_session(place, title="bench") for _ in range(2))
        turn = [Event.user(TEXT), Event.assistant(TEXT)]
        with store.claim_session(short.id, place) as few, store.claim_session(long.id, place) as many:
            few.append_turns([turn] * 5)
            fill(many)
            behind_many, behind_few = alternate(
                lambda: many.append_turn(turn), lambda: few.append_turn(turn), LONG_APPENDS
            )
    return compare(behind_many, behind_few)


def replay_history(place: Path) -> dict[str, float]:
    """A proven replay of 100,000 events, against a scan of the same rows that parses, hashes and keeps what it parsed.

    `keeping_nothing` is the ratio to a scan that drops each row at once.
    """
    with MemoryStore.open(place / "replay", create=True) as store:
        session = store.start_session(place, title="bench")
        with store.claim_session(session.id, place) as lease:
            fill(lease)
            found = store.get_session(session.id)

            def scan(kept: list[object]) -> None:
                raw = apsw.Connection(str(store.database.path), flags=apsw.SQLITE_OPEN_READONLY)
                digest = hashlib.sha256()
                for _, payload in raw.execute(RAW_SCAN, (session.id,)):
                    kept.append(orjson.loads(payload))
                    digest.update(payload)
                raw.close()

            ours, bare = alternate(lease.replay, lambda: scan([]), REPLAY_ROUNDS)
            _, dropping = alternate(lambda: None, lambda: scan(Nothing()), REPLAY_ROUNDS)
    rate = round(REPLAY_EVENTS / statistics.median(ours))
    nothing = round(statistics.median(dropping) / statistics.median(ours), 3)
    return {**compare(ours, bare), "keeping_nothing": nothing, "events_per_second": rate, "bytes": found.event_bytes}


class Nothing(list[object]):
    """A list that stays empty."""

    def append(self, item: object, /) -> None:
        """Drop it."""


def fill(lease: SessionLease) -> None:
    """Append 100,000 events of some 60 MB, a short question and a long answer in turns."""
    turn = [Event.user("a short question about the importer " * 4), Event.assistant("an answer " * 100)]
    for _ in range(REPLAY_EVENTS // 2_000):
        lease.append_turns([turn] * 1_000)


def open_store(place: Path) -> dict[str, float]:
    """Opening a store of 1,000 events and closing it, against apsw opening and reading the same file, its WAL included.

    `beyond_ms` is what our checks, settings and locks add to apsw's own open.
    """
    home = Home(place / "open")
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(place, title="bench")
        with store.claim_session(session.id, place) as lease:
            lease.append_turns([[Event.user(TEXT), Event.assistant(TEXT)]] * 500)

    def bare_open() -> None:
        raw = apsw.Connection(str(home.database), flags=apsw.SQLITE_OPEN_READWRITE)
        raw.pragma("user_version")
        raw.close()

    ours, bare = alternate(lambda: MemoryStore.open(home).close(), bare_open, OPENS)
    found = compare(ours, bare)
    return {**found, "beyond_ms": round(found["ms"] - found["raw_ms"], 3)}


def alternate(ours: Callable[[], object], bare: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """Time both in turns, the first of each pair changing, after one round that counts for nothing."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        order = ((0, ours), (1, bare)) if turn % 2 else ((1, bare), (0, ours))
        for which, call in order:
            started = time.perf_counter()
            call()
            if turn:
                times[which].append(time.perf_counter() - started)
    return times


def compare(ours: list[float], bare: list[float]) -> dict[str, float]:
    """The ratio of the medians, and both in milliseconds."""
    mine, raw = statistics.median(ours), statistics.median(bare)
    return {"ratio": round(raw / mine, 3), "ms": round(mine * 1_000, 3), "raw_ms": round(raw * 1_000, 3)}


def raw_database(path: Path) -> apsw.Connection:
    """A database of one table at the durability of ours."""
    raw = apsw.Connection(str(path))
    raw.pragma("journal_mode", "wal")
    raw.pragma("synchronous", "EXTRA")
    raw.pragma("wal_autocheckpoint", 2_000)
    raw.execute(RAW_SCHEMA)
    return raw


def report(name: str, **figures: float) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps({"bench": name, **figures}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
