"""Finding transcripts: both layouts of each agent, and one clear refusal for everything else (K9, K12)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from emelex_core.errors import Invalid, NotFound
from emelex_core.imports.discover import discover
from emelex_core.imports.records import CLAUDE_CODE, CODEX, FORMATS
from emelex_core.imports.sniff import record_format

SESSION = "11111111-2222-4333-8444-555555555555"
ROLLOUT = "rollout-2026-02-03T04-05-00-019b0000-0000-7000-8000-000000000001.jsonl"
CLAUDE_LINE = (
    json.dumps({"type": "user", "uuid": "u1", "sessionId": SESSION, "message": {"content": "hi"}}).encode() + b"\n"
)
CODEX_LINE = json.dumps({"timestamp": "t", "type": "session_meta", "payload": {"id": "x"}}).encode() + b"\n"


def _put(root: Path, name: str, content: bytes = CLAUDE_LINE) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _names(root: Path, **options: str) -> list[str]:
    return [str(file.path.relative_to(root.resolve())) for file in discover([root], **options)]


def test_both_layouts_of_claude_code_parents_first(tmp_path: Path) -> None:
    for name in (
        f"projects/-work/{SESSION}.jsonl",
        f"projects/-work/{SESSION}/subagents/agent-a1.jsonl",
        f"projects/-work/{SESSION}/subagents/workflows/w1/agent-a2.jsonl",
        "projects/-work/agent-a3.jsonl",
        "projects/-work/notes.md",
    ):
        _put(tmp_path, name)
    _put(tmp_path, "history.jsonl", b'{"display":"hi","timestamp":1,"project":"/w"}\n')
    found = discover([tmp_path])
    assert [(file.path.name, file.parent_source_id) for file in found] == [
        (f"{SESSION}.jsonl", None),
        ("agent-a1.jsonl", SESSION),
        ("agent-a2.jsonl", SESSION),
        ("agent-a3.jsonl", None),
    ]
    assert all(file.format == CLAUDE_CODE and not file.packed for file in found)
    assert found.skipped == {"other_file": 1}


def test_both_layouts_of_codex_and_one_copy_of_each_rollout(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor().compress(CODEX_LINE)
    other = ROLLOUT.replace("04-05", "05-06")
    _put(tmp_path, f"sessions/2026/02/03/{ROLLOUT}", CODEX_LINE)
    _put(tmp_path, f"sessions/2026/02/03/{ROLLOUT}.zst", packed)
    _put(tmp_path, f"archived_sessions/{ROLLOUT}", CODEX_LINE)
    _put(tmp_path, f"archived_sessions/{other}.zst", packed)
    _put(tmp_path, "history.jsonl", b'{"session_id":"x","ts":1,"text":"hi"}\n')
    found = discover([tmp_path])
    assert [(file.path.name, file.format, file.packed) for file in found] == [
        (ROLLOUT, CODEX, False),
        (f"{other}.zst", CODEX, True),
    ]
    assert found.skipped == {"copy": 2, "other_file": 1}


def test_the_records_decide_and_not_the_name(tmp_path: Path) -> None:
    _put(tmp_path, f"sessions/{ROLLOUT}", CLAUDE_LINE)
    _put(tmp_path, "projects/-w/a.jsonl", zstandard.ZstdCompressor().compress(CODEX_LINE))
    assert [(file.format, file.packed) for file in discover([tmp_path])] == [(CODEX, True), (CLAUDE_CODE, False)]
    assert _names(tmp_path, format=CODEX) == ["projects/-w/a.jsonl"]


def test_a_file_named_twice_is_found_once(tmp_path: Path) -> None:
    path = _put(tmp_path, "a.jsonl")
    assert len(discover([path, tmp_path, path])) == 1


def test_links_and_special_files_below_a_directory_are_not_followed(tmp_path: Path) -> None:
    _put(tmp_path, "real/a.jsonl")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "real" / "link.jsonl").symlink_to(tmp_path / "real" / "a.jsonl")
    os.mkfifo(tmp_path / "real" / "pipe.jsonl")
    _put(tmp_path, "real/empty.jsonl", b"")
    found = discover([tmp_path])
    assert len(found) == 1
    assert found.skipped == {"symlink": 2, "special_file": 1, "empty_file": 1}


def test_a_link_that_was_named_is_followed(tmp_path: Path) -> None:
    path = _put(tmp_path, "real/a.jsonl")
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    assert [file.path for file in discover([link])] == [path.resolve()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40, "not a transcript"),
        (b"plain words\n", "not a transcript"),
        (b'{"type":"thread.started","thread_id":"x"}\n', "not a transcript"),
        (CODEX_LINE, "it is a codex transcript"),
    ],
)
def test_a_named_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = _put(tmp_path, "given.jsonl", content)
    with pytest.raises(Invalid, match=reason) as caught:
        discover([path], format=CLAUDE_CODE)
    assert str(path) in caught.value.message


def test_what_is_missing_or_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    os.mkfifo(tmp_path / "pipe")
    for name, error in (
        ("absent", NotFound),
        ("empty", NotFound),
        ("one", Invalid),
        ("pipe", Invalid),
        ("n" * 300, Invalid),
    ):
        with pytest.raises(error) as caught:
            discover([tmp_path / name])
        assert name in caught.value.message
        if name == "empty":
            assert caught.value.hint is not None
            assert all(form in caught.value.hint for form in FORMATS)
    with pytest.raises(Invalid, match="no reader"):
        discover([tmp_path], format="telegram")


@contextmanager
def _without_privileges() -> Iterator[None]:
    """Be a user whom file modes bind: the tests may run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_what_may_not_be_read_never_looks_like_nothing() -> None:
    """Behaviour 189: below a directory it is a problem to report, and it is the error when nothing else is there."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        closed = _put(root, "closed/a.jsonl")
        closed.chmod(0)
        opened = _put(root, "open/b.jsonl")
        opened.chmod(0o644)
        with _without_privileges():
            for path in (closed, closed.parent):
                with pytest.raises(Invalid, match="Permission denied") as caught:
                    discover([path])
                assert str(closed) in caught.value.message
            found = discover([root])
        assert [file.path.name for file in found] == ["b.jsonl"]
        assert [str(closed) in problem.message for _, problem in found.problems] == [True]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, CLAUDE_CODE),
        ({"type": "summary", "summary": "s", "leafUuid": "l"}, CLAUDE_CODE),
        ({"type": "permission-mode", "sessionId": "s"}, CLAUDE_CODE),
        ({"type": "response_item", "payload": {}}, CODEX),
        ({"record_type": "state"}, CODEX),
        ({"id": "x", "timestamp": "t", "instructions": None}, CODEX),
        ({"type": "message", "role": "user", "content": []}, CODEX),
        ({"id": "x", "timestamp": "t"}, None),
        ({"role": "user", "content": "hi"}, None),
        ({"type": ["user"]}, None),
        ({}, None),
    ],
)
def test_one_record_tells_the_format(record: dict[str, object], expected: str | None) -> None:
    assert record_format(record) == expected
