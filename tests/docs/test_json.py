"""docs/json.md against what the commands print: every documented key is there, no other key is, types agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_endpoint import Reply, serving
from emelex_core.jobs.kinds import JobKind
from emelex_core.journal.turns import Journal
from emelex_queue import claims
from emelex_workers import maintain
from emelex_workers.observe import narrate
from emelex_workers.pool.events import WorkerEnded
from journals import HELLO, Call, proposal
from pictures import picture
from program import Program
from stores import edit
from tinymodels import tiny_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([a-z ]+) \|")
TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
    "any": lambda value: True,
}
Table = dict[str, str]


def shapes() -> dict[str, Table]:
    """Every shape of the page: its keys and their types."""
    found: dict[str, Table] = {}
    for section in re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        rows = [match.groups() for line in body.split("\n## ")[0].splitlines() if (match := ROW.match(line))]
        found[name.strip()] = dict(rows)
    return found


SHAPES = shapes()


def problems(value: Any, table: Table, path: str = "") -> Iterator[str]:
    """Yield each place at which a value is not what its table says."""
    stated = table.get(path)
    if path and stated is None and any(key.startswith(f"{path}.") for key in table):
        stated = "object"
    if path and stated is None:
        yield f"{path} is not documented"
        return
    if stated is not None:
        if not any(TYPES[name](value) for name in stated.split(" or ")):
            yield f"{path} is {value!r}, not {stated}"
        if stated == "any":
            return
    if isinstance(value, dict):
        yield from _members(value, table, path)
    elif isinstance(value, list) and f"{path}[]" in table:
        for element in value:
            yield from problems(element, table, f"{path}[]")


def _members(value: dict[str, Any], table: Table, path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    children = {
        key[len(prefix) :].split(".")[0].split("[")[0] for key in table if key.startswith(prefix) and key != path
    }
    wild = next((child for child in children if child.startswith("<")), None)
    for key, member in value.items():
        yield from problems(member, table, prefix + (wild if wild and key not in children else key))
    if wild is None:
        yield from (f"{prefix}{child} is missing" for child in sorted(children - value.keys()))


@pytest.fixture
def printed(emelex: Program, everything: None) -> dict[str, list[Any]]:
    """What each command prints in a Home that holds something of everything, by shape."""
    del everything
    return {name: list(values) for name, values in _printed(emelex).items()}


def _printed(emelex: Program) -> dict[str, list[Any]]:
    listed = emelex("memory", "sessions", "list", "--json").lines
    jobs = emelex("memory", "jobs", "list", "--json").lines
    return {
        "status": [emelex("memory", "status", "--json").json],
        "session": listed,
        "session_document": [emelex("memory", "sessions", "show", one["id"], "--json").json for one in listed],
        "export": [emelex("memory", "sessions", "export", one["id"]).json for one in listed],
        "exported_session": [emelex("memory", "sessions", "export", listed[0]["id"], "-o", "x.json", "--json").json],
        "job": [*jobs, *emelex("memory", "failures", "--json").lines],
        "job_with_record": [emelex("memory", "jobs", "show", job["id"], "--json").json for job in jobs],
        "knowledge": emelex("memory", "knowledge", "list", "--json").lines,
        "knowledge_entry": [emelex("memory", "knowledge", "show", "rule.parcels", "--json").json],
        "paths": [emelex("paths", "--json").json],
        "version": [emelex("--version", "--json").json],
        "config": [emelex("config", "show", "--origin", "--json").json],
        "doctor": [emelex("doctor", "--json").json],
        "error": [{"error": emelex("memory", "jobs", "show", "00000000", "--json").error}],
        "retried_memory_job": emelex("memory", "retry", "--all", "--json").lines,
    }


def _require(name: str, values: list[Any]) -> None:
    assert values, f"nothing printed a {name}"
    wrong = [problem for value in values for problem in problems(value, SHAPES[name])]
    assert not wrong, f"{name}: {wrong}"


def test_what_is_stored_is_printed_as_documented(printed: dict[str, list[Any]]) -> None:
    """Status, Sessions, jobs, Knowledge, the machine, errors."""
    for name, values in printed.items():
        _require(name, values)


def test_imports_are_printed_as_documented(emelex: Program, transcript: Callable[..., Path]) -> None:
    """Dry, new, again, and removed."""
    path = transcript()
    runs = [emelex("import", "auto", path, *flags, "--json").lines for flags in (["--dry-run"], [], [])]
    emelex("memory", "sessions", "delete", runs[-1][0]["id"])
    runs.append(emelex("import", "auto", path, "--json").lines)
    assert runs[-1][-1]["removed"] == 1
    _require("import_session", [line for run in runs for line in run[:-1]])
    _require("import_complete", [run[-1] for run in runs])


def test_publishing_is_printed_as_documented(emelex: Program, store: Any, talk: Callable[..., Any]) -> None:
    """A distillation that is there, and one of nothing."""
    empty = store.start_session(emelex.workspace, title="empty")
    _require("published_job", [emelex("memory", "distill", talk(1).id, "--json").json])
    _require("nothing_to_distill", [emelex("memory", "distill", empty.id, "--json").json])


def test_what_is_undone_is_printed_as_documented(
    emelex: Program, store: Any, talk: Callable[..., Any], learn: Callable[..., None]
) -> None:
    """A pause, its end, a cancelled job, a deleted Session with Knowledge that stays."""
    session = talk(1)
    learn("rule.parcels")
    other = talk(1)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    _require("cancelled_memory_job", [emelex("memory", "jobs", "cancel", lease.job.id, "--json").json])
    paused = [emelex("memory", "pause", *flags, "--json").lines for flags in (["--reason", "why"], [])]
    _require("paused_queue", [line for lines in paused for line in lines])
    _require("resumed_queue", emelex("memory", "resume", "--json").lines)
    gone = [emelex("memory", "sessions", "delete", one.id, "--json").json for one in (session, other)]
    assert [line["knowledge"] for line in gone] == [1, 0]
    _require("deleted_session", gone)


def test_recoveries_are_printed_as_documented(emelex: Program, store: Any) -> None:
    """Of a turn without calls, and of one with a call that had started."""
    sessions: list[str] = []
    for batch in ((), (Call("call-1"),)):
        session = store.start_session(emelex.workspace, title="interrupted")
        sessions.append(session.id)
        with store.claim_session(session.id, emelex.workspace) as lease:
            journal = Journal(lease, clock=store.clock)
            journal.begin(HELLO)
            for call in batch:
                journal.plan((HELLO, proposal(call)), (call,))
                journal.start(call)
    command = ("memory", "sessions", "recover")
    _require("recovered_turn", [emelex(*command, sessions[0], "--json").json])
    _require("recovered_tools", [emelex(*command, sessions[1], "--accept-unknown-effects", "--json").json])


def test_knowledge_is_printed_as_documented(
    emelex: Program, store: Any, talk: Callable[..., Any], learn: Callable[..., None]
) -> None:
    """What a person does with it, what waits for them, what is found, what is undone."""
    knowledge = ("memory", "knowledge")
    talk(1)
    learn("rule.parcels")
    added = [emelex(*knowledge, "add", "mine", text, "--json").json for text in ("one", "two")]
    acts = [("activate", "mine", "--version", "1"), ("pin", "mine"), ("unpin", "mine"), ("forget", "mine")]
    _require("knowledge_action", [*added, *[emelex(*knowledge, *act, "--json").json for act in acts]])
    _require("knowledge_hit", emelex(*knowledge, "search", "weighed", "--json").lines)
    histories = [emelex(*knowledge, "history", key, "--json").json for key in ("mine", "rule.parcels")]
    _require("knowledge_history", histories)
    emelex(*knowledge, "add", "rule.parcels", "never weigh")
    for _ in range(2):
        talk(1)
        learn("rule.parcels")
    proposals = emelex(*knowledge, "review", "--json").lines
    _require("proposal", proposals)
    verbs = zip(("reject", "accept"), proposals, strict=True)
    _require("decided_proposal", [emelex(*knowledge, verb, found["id"], "--json").json for verb, found in verbs])
    _require("undone_run", [emelex(*knowledge, "undo", proposals[0]["job"], "--json").json])


def test_search_and_erasure_are_printed_as_documented(
    emelex: Program, talk: Callable[..., Any], learn: Callable[..., None]
) -> None:
    """Found, counted, replaced, erased, and erased once more from what was left."""
    sessions = ("memory", "sessions")
    first, second = talk(1), talk(1)
    learn("rule.parcels")
    _require("transcript_hit", emelex(*sessions, "search", "weigh", "parcels", "--json").lines)
    redact = (*sessions, "redact", second.id, "--pattern", "depot-[0-9]", "--json")
    _require("redacted_session", [emelex(*redact, "--dry-run").json, emelex(*redact).json])
    document = emelex(*sessions, "show", second.id, "--json").json
    assert document["redactions"]
    _require("session_document", [document])
    emelex(*sessions, "delete", first.id)
    erased = [emelex(*sessions, "delete", one.id, "--derived", "--json").json for one in (first, second)]
    assert [line["deleted"] is None for line in erased] == [True, False]
    _require("erased_session", erased)


def test_assets_are_printed_as_documented(emelex: Program, store: Any, show: Callable[..., Any]) -> None:
    """Listed, by Session, copied out, and verified: sound and damaged."""
    refs = [store.store_asset(picture(seed)) for seed in (1, 2)]
    session = show(*refs)
    _require("asset", emelex("memory", "assets", "list", "--json").lines)
    _require("linked_asset", emelex("memory", "assets", "list", "--session", session.id, "--json").lines)
    copy = ("memory", "assets", "export", refs[0].sha256, "-o", "a.png", "--json")
    _require("exported_asset", [emelex(*copy).json])
    sound = emelex("memory", "assets", "verify", "--json").json
    (store.assets_directory / refs[0].sha256).unlink()
    damaged = emelex("memory", "assets", "verify", "--json").json
    assert (sound["problems"], damaged["problem_count"]) == ([], 1)
    _require("verified_assets", [sound, damaged])


def test_the_whole_store_is_printed_as_documented(emelex: Program, everything: None, tmp_path: Path) -> None:
    """Export, check with a finding, backup, restore into another Home, rebind to another directory."""
    del everything
    session = emelex("memory", "sessions", "list", "--json").lines[0]["id"]
    edit(emelex.database, "UPDATE events SET created_at = 1 WHERE session_id = ? AND sequence = 1", (session,))
    *findings, counts = emelex("memory", "check", "--json").lines
    made = emelex("memory", "backup", tmp_path / "b", "--accept-damage", "--json").json
    *places, restored = emelex("memory", "restore", tmp_path / "b", "--home", tmp_path / "h", "--json").lines
    (tmp_path / "moved").mkdir()
    rebind = ("memory", "sessions", "rebind", session, "--force", "-C", tmp_path / "moved", "--json")
    shapes_printed = {
        "finding": findings,
        "check_complete": [counts],
        "backup_complete": [made],
        "restored_workspace": places,
        "restore_complete": [restored],
        "rebound_session": [emelex(*rebind, "--dry-run").json, emelex(*rebind).json],
    }
    edit(emelex.database, "DELETE FROM sessions WHERE id = ?", (session,))
    shapes_printed["store_export"] = [emelex("memory", "export", "--all").json]
    shapes_printed["exported"] = [emelex("memory", "export", "--all", "-o", "all.json", "--json").json]
    for name, values in shapes_printed.items():
        _require(name, values)


def test_what_keeps_running_is_printed_as_documented(emelex: Program, everything: None, tmp_path: Path) -> None:
    """Maintenance that keeps, announces, removes, or finds another run; the queue live; files for service managers."""
    del everything
    kept, free = (f"SELECT id FROM sessions ORDER BY row LIMIT 1 OFFSET {offset}" for offset in (2, 1))
    for chosen, days in ((kept, 40), (free, 40)):
        age = days * 86_400_000
        edit(emelex.database, f"UPDATE sessions SET updated_at = updated_at - {age} WHERE id = ({chosen})")
    edit(emelex.database, "UPDATE sessions SET updated_at = updated_at - 2160000000 WHERE row = 1")
    top = emelex("memory", "top", "--json").json
    dry, done = (emelex("memory", "maintain", *flags, "--json").json for flags in (["--dry-run"], []))
    assert all(dry["sessions"][key] for key in ("removed", "kept", "expiring"))
    with maintain._alone(emelex.database):
        skipped = emelex("memory", "maintain", "--json").json
    install = ("service", "install", "systemd", "--to", tmp_path / "units", "--json")
    for name, values in {
        "maintenance": [dry, done, emelex("memory", "gc", "--json").json],
        "maintenance_skipped": [skipped],
        "removal": emelex("memory", "removals", "--json").lines,
        "top": [top],
        "service_file": emelex("service", "print", "cron", "--json").lines,
        "service_installed": [emelex(*install).json],
    }.items():
        _require(name, values)
    event = WorkerEnded(worker="Worker-1", pid=1, why="killed", signal="SIGKILL")
    _require("pool_event", [json.loads(narrate.line(event, now=0, as_json=True))])


@pytest.mark.model
def test_models_are_printed_as_documented(emelex: Program, tmp_path: Path) -> None:
    """The built-in one, one that is installed, verified, damaged, and removed again."""
    certified = emelex("models", "verify", "builtin:smollm2-135m", "--certify", "--json").lines
    _require("certified_model", certified[1:])
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model({"tokenizer.ggml.token_type": None}))
    _require("imported_model", [emelex("models", "import", path, "--json").json for _ in range(2)])
    _require("model", emelex("models", "list", "--json").lines)
    _require("default_model", [emelex("models", "default", "--json").json])
    _require("model_path", [emelex("models", "path", "local:m", "--json").json])
    whole = emelex("models", "verify", "--json").lines
    Path(emelex("models", "path", "local:m").out.strip()).unlink()
    broken = emelex("models", "verify", "--json").lines
    _require("verified_model", [*whole, *broken])
    swept = emelex("models", "gc", "--json").json
    _require("collected_models", [swept])
    _require("removed_model", [emelex("models", "remove", swept["damaged"][0], "--json").json])


@pytest.mark.model
def test_a_repeated_job_is_printed_as_documented(emelex: Program, talk: Callable[..., Any]) -> None:
    """By the model that made it, which gives the same; and beside a changed record."""
    talk(1)
    emelex("memory", "work")
    (job,) = emelex("memory", "jobs", "list", "--json").lines
    _require("rerun_job", [emelex("memory", "jobs", "rerun", job["id"], "--dry-run", "--json").json])


@pytest.mark.model
def test_work_is_printed_as_documented(emelex: Program, talk: Callable[..., Any]) -> None:
    """A job that completes, one that is retried, one that fails, and a compaction of nothing."""
    talk(12)
    _require("nothing_to_compact", [emelex("memory", "compact", talk(1).id, "--json").json])
    (emelex.home / "config.toml").write_text(
        '[models.endpoint.off]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\ncontext_tokens = 600\n'
        "[compaction]\ncontext_tokens = 6000\nkeep_turns = 1\n",
        "utf-8",
    )
    off = ("memory", "work", "--model", "endpoint:off", "--no-chunking", "--json")
    lines = [*emelex(*off, "--kind", "compaction").lines, *emelex(*off).lines]
    talk(1)
    lines += emelex("memory", "work", "--json").lines
    by_type: dict[str, list[Any]] = {}
    for line in lines:
        by_type.setdefault(line["type"], []).append(line)
    assert set(by_type) == {"job_started", "job_completed", "job_retry", "job_failed", "memory_worker_complete"}
    for name, values in by_type.items():
        _require(name, values)


def test_a_released_job_is_printed_as_documented() -> None:
    """Its line is that of a completed one without candidates; the signal itself is tests/cli/test_work.py's."""
    from emelex_cli.work_cmd import ended
    from emelex_workers.progress import JobEnded

    event = JobEnded(
        outcome="released",
        job="j",
        kind="compaction",
        session="s",
        attempt=1,
        seconds=0.5,
        engine_seconds=0.25,
        prompt_tokens=1,
        output_tokens=0,
    )
    _require("job_released", [ended(event)])


def test_every_shape_is_held_against_a_command() -> None:
    """A shape that no test above prints would be a promise without proof."""
    tested = set(re.findall(r'"([a-z_]+)"', Path(__file__).read_text("utf-8")))
    assert set(SHAPES) <= tested, sorted(set(SHAPES) - tested)
    stated = {name for table in SHAPES.values() for row in table.values() for name in row.split(" or ")}
    assert stated <= set(TYPES)


def test_the_check_finds_what_is_wrong() -> None:
    """An unknown key, a missing one, a wrong type; wildcards, arrays and nested keys."""
    table = {"a": "integer", "b": "object", "b.<n>": "string", "c": "array", "c[]": "object", "c[].d": "null"}
    right = {"a": 1, "b": {"x": "y"}, "c": [{"d": None}]}
    assert list(problems(right, table)) == []
    assert list(problems({**right, "z": 1}, table)) == ["z is not documented"]
    assert list(problems({"b": {}, "c": []}, table)) == ["a is missing"]
    assert list(problems({**right, "a": True}, table)) == ["a is True, not integer"]
    assert list(problems({**right, "b": {"x": 1}}, table)) == ["b.<n> is 1, not string"]
    assert list(problems({**right, "c": [{}]}, table)) == ["c[].d is missing"]


def test_the_shapes_of_a_chat(emelex: Program) -> None:
    """Every event of turns that answer, call, are denied and fail."""
    (emelex.workspace / "notes.txt").write_text("Dock 7.\n")
    calls = [("read_file", '{"path": "notes.txt"}'), ("shell", '{"command": "true"}')]
    with serving(Reply(text="Looking.", calls=calls), Reply(text="Dock 7.")) as endpoint:
        endpoint.configure(emelex.home)
        emelex("memory", "knowledge", "add", "dock", "The dock is known to be 7.")
        lines = emelex("chat", "Which dock is it?", "--json").lines
    lines += emelex("resume", "And now?", "--json").lines
    for name in (
        "turn_started",
        "knowledge_recalled",
        "text_delta",
        "tool_proposed",
        "approval_asked",
        "approval_decided",
        "tool_started",
        "tool_finished",
        "checkpointed",
        "turn_completed",
        "turn_failed",
        "chat_complete",
    ):
        _require(name, [line for line in lines if line["type"] == name])
