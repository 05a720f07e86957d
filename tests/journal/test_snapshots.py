"""What a Session was begun with: stored once, never changed, told by name when it differs (behaviours 61 to 66)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emelex_core import Event, MemoryStore, Session, SessionLease, SessionSnapshot, limits
from emelex_core.archive.export import export_session
from emelex_core.errors import Invalid, SnapshotMismatch
from emelex_core.journal import snapshots
from stores import rows

TOOLS: dict[str, dict[str, Any]] = {
    "shell": {"parameters": {"type": "object"}, "effect": "executes", "timeout": 30},
    "read_file": {"parameters": {"type": "object"}, "effect": "reads"},
}
CONFIG = {"system": "Be brief.", "sampling": {"temperature": 0.0, "seed": 7}}


def make(**changes: Any) -> SessionSnapshot:
    """A snapshot of the sample, with changes."""
    return SessionSnapshot.of(**{"config": CONFIG, "root": "/srv/parcels", "tools": TOOLS, **changes})


def test_an_empty_session_gets_its_snapshot_once(store: MemoryStore, session: Session, lease: SessionLease) -> None:
    """61: canonical bytes; keeping the same again writes nothing."""
    assert store.session_snapshot(session.id) is None
    snapshots.keep(lease, make(), clock=store.clock)
    assert store.session_snapshot(session.id) == make()
    before = rows(store.database.path, "SELECT * FROM session_snapshots")
    reordered = make(config=dict(reversed(CONFIG.items())), tools=dict(reversed(TOOLS.items())))
    snapshots.keep(lease, reordered, clock=store.clock)
    assert rows(store.database.path, "SELECT * FROM session_snapshots") == before
    assert lease.replay().tail.sequence == 0


def test_a_history_without_a_snapshot_gets_none(store: MemoryStore, session: Session, lease: SessionLease) -> None:
    """62: current semantics are never adopted for what was said under others."""
    lease.append_turn([Event.user("hello")])
    with pytest.raises(SnapshotMismatch):
        snapshots.require_same(session.id, None, make(), is_empty=False)
    with pytest.raises(SnapshotMismatch):
        snapshots.keep(lease, make(), clock=store.clock)
    assert store.session_snapshot(session.id) is None


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"tools": {**TOOLS, "shell": {**TOOLS["shell"], "timeout": 60}}}, "tools.shell.timeout: 30 != 60"),
        ({"config": {**CONFIG, "system": "Be long."}}, 'system: "Be brief." != "Be long."'),
        ({"config": {**CONFIG, "sampling": {"temperature": 1, "seed": 7}}}, "sampling.temperature: 0.0 != 1"),
        ({"config": {**CONFIG, "sampling": {"temperature": 0.0}}}, "sampling.seed: 7 != absent"),
        ({"tools": {"shell": TOOLS["shell"]}}, "tools.read_file: "),
        (
            {"tools": {**TOOLS, "shell": {**TOOLS["shell"], "parameters": {"type": "object", "required": ["a"]}}}},
            'tools.shell.parameters.required: absent != ["a"]',
        ),
        ({"config": {**CONFIG, "system": True}}, 'system: "Be brief." != true'),
    ],
)
def test_a_difference_is_told_by_its_place(
    store: MemoryStore, session: Session, lease: SessionLease, changes: dict[str, Any], difference: str
) -> None:
    """63: the error names what differs, and the stored snapshot stands."""
    snapshots.keep(lease, make(), clock=store.clock)
    with pytest.raises(SnapshotMismatch) as refused:
        snapshots.keep(lease, make(**changes), clock=store.clock)
    assert refused.value.difference.startswith(difference)
    assert difference in refused.value.message
    assert store.session_snapshot(session.id) == make()


def test_true_is_not_one_and_one_is_not_a_float() -> None:
    """Python's equality would let `1`, `1.0` and `true` pass for each other."""
    for left, right in ((1, 1.0), (1, True), (0, False)):
        mine, its = make(config={"x": left}), make(config={"x": right})
        assert mine.difference(its) is not None
    assert make().difference(make()) is None


def test_many_differences_are_counted() -> None:
    """The first three are named, and how many more there are."""
    mine, its = (make(config={f"k{number}": value for number in range(5)}) for value in (1, 2))
    assert mine.difference(its) == "k0: 1 != 2; k1: 1 != 2; k2: 1 != 2; and 2 more"


def test_only_the_spelling_of_the_root_may_change(store: MemoryStore, session: Session, lease: SessionLease) -> None:
    """64: another path of the same directory is noted; nothing else of the snapshot moves."""
    snapshots.keep(lease, make(), clock=store.clock)
    moved = make(root="/srv/renamed")
    assert make().difference(moved) is None
    snapshots.keep(lease, moved, clock=store.clock)
    found = store.session_snapshot(session.id)
    assert found == moved
    assert found is not None
    assert found.root_path == "/srv/renamed"
    with pytest.raises(SnapshotMismatch):
        snapshots.keep(lease, make(root="/elsewhere", config={}), clock=store.clock)
    assert store.session_snapshot(session.id) == moved


def nested(depth: int) -> Any:
    """A schema of so many objects, one in the other."""
    value: Any = {"type": "string"}
    for _ in range(depth - 1):
        value = {"x": value}
    return value


def test_a_schema_may_have_sixty_four_levels() -> None:
    """66: counted from the schema itself, wherever it stands in the snapshot."""
    fits = {"deep": {"parameters": nested(limits.JSON_DEPTH_MAX)}}
    assert make(tools=fits).difference(make(tools=fits)) is None
    with pytest.raises(Invalid, match=r"tools\.deep\.parameters"):
        make(tools={"deep": {"parameters": nested(limits.JSON_DEPTH_MAX + 1)}})


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"x": float("nan")}},
        {"config": {"x": "\ud800"}},
        {"config": {"x": 2**64}},
        {"config": {"x": "y" * (limits.SNAPSHOT_BYTES_MAX + 1)}},
        {"tools": {"a": {"parameters": {}, "x": float("inf")}}},
        {"tools": {"a": {"parameters": {"x": "y" * limits.SNAPSHOT_BYTES_MAX}}}},
        {"root": "/\ud800"},
    ],
    ids=["nan", "surrogate", "65 bits", "large", "infinite", "large schema", "path"],
)
def test_what_is_no_json_makes_no_snapshot(changes: dict[str, Any]) -> None:
    """K10 and the limits table: 2 MiB each."""
    with pytest.raises(Invalid):
        make(**changes)


def test_a_snapshot_is_exported_and_goes_with_its_session(
    store: MemoryStore, session: Session, lease: SessionLease, workspace: Path
) -> None:
    """156 and 161: the export carries it, a deletion takes it along."""
    snapshots.keep(lease, make(), clock=store.clock)
    lease.release()
    pieces: list[bytes] = []
    export_session(store, pieces.append, store.get_session(session.id))
    exported = json.loads(b"".join(pieces))["sessions"][0]["snapshot"]
    assert exported["config"] == CONFIG
    assert exported["authority"] == {"root": {"path": "/srv/parcels"}, "tools": TOOLS}
    store.delete_session(session.id)
    assert rows(store.database.path, "SELECT count(*) FROM session_snapshots") == [(0,)]
