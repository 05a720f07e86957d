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
from typing import Final

import apsw
import orjson

from emelex_core import Event, MemoryStore, limits
from emelex_core.clock import system_clock
from emelex_core.db.connection import connect
from emelex_core.db.statements import load
from emelex_core.home import Home
from emelex_core.sessions import append
from emelex_core.sessions.append import Batch, Tail

SESSIONS: Final = load("emelex_core", "sessions")
APPENDS: Final = 400
TEXT: Final = "x" * 1_024
REPLAY_EVENTS: Final = 100_000
REPLAY_ROUNDS: Final = 3
OPENS: Final = 200

RAW_SCHEMA = (
    "CREATE TABLE events (row INTEGER PRIMARY KEY, session TEXT, sequence INTEGER, payload BLOB, "
    "UNIQUE (session, sequence))"
)
RAW_ADD = "INSERT INTO events (session, sequence, payload) VALUES (?, ?, ?)"
RAW_SCAN = "SELECT sequence, payload FROM events ORDER BY sequence"


def main() -> None:
    """Run every benchmark in a temporary directory on the default disk."""
    with tempfile.TemporaryDirectory(prefix="emelex-bench-") as directory:
        place = Path(directory)
        place.chmod(0o700)
        for bench in (append_turn, append_same_rows, replay_history, open_store):
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
        turn = [Event.user(TEXT), Event.assistant(TEXT)]
        with store.claim_session(ours_session.id, place) as lease, store.claim_session(raw_session.id, place) as other:
            (row,) = raw.execute("SELECT chain, lease_token FROM sessions WHERE id = ?", (raw_session.id,)).fetchall()
            batches = laid_out(raw_session.id, row[0], turn)

            def write() -> None:
                before, batch = next(batches)
                raw.execute("BEGIN IMMEDIATE")
                values = {"id": raw_session.id, "token": row[1], "cursor": before, "last_sequence": batch.tail.sequence}
                values |= {"chain": batch.tail.chain, "bytes": batch.bytes, "now": store.clock()}
                raw.execute(SESSIONS["advance"], {**values, "lease_ms": limits.LEASE_MS})
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


def replay_history(place: Path) -> dict[str, float]:
    """A proven replay of 100,000 events, against a scan that parses and hashes the same bytes."""
    with MemoryStore.open(place / "replay", create=True) as store:
        session = store.start_session(place, title="bench")
        with store.claim_session(session.id, place) as lease:
            turn = [Event.user("a short question about the importer"), Event.assistant("an answer " * 30)]
            for _ in range(REPLAY_EVENTS // 2_000):
                lease.append_turns([turn] * 1_000)

            def scan() -> None:
                raw = apsw.Connection(str(store.database.path), flags=apsw.SQLITE_OPEN_READONLY)
                digest = hashlib.sha256()
                for _, payload in raw.execute(RAW_SCAN):
                    orjson.loads(payload)
                    digest.update(payload)
                raw.close()

            ours, bare = alternate(lease.replay, scan, REPLAY_ROUNDS)
    return {**compare(ours, bare), "events_per_second": round(REPLAY_EVENTS / statistics.median(ours))}


def open_store(place: Path) -> dict[str, float]:
    """Opening a current store and closing it, against apsw opening the same file with the same settings."""
    home = Home(place / "open")
    MemoryStore.open(home, create=True).close()

    def recipe() -> None:
        connect(home.database, read_only=False, guard=lambda raw: None).close()

    ours, bare = alternate(lambda: MemoryStore.open(home).close(), recipe, OPENS)
    return compare(ours, bare)


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
