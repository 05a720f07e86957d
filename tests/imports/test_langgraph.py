"""LangGraph's checkpoint store, from databases made here (formats.md, section 5)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from emelex_core import limits
from emelex_core.imports.langgraph.values import Built, Undecodable, decode
from emelex_core.imports.records import LANGGRAPH
from emelex_core.imports.sniff import sniff_format
from foreign import Talk, library, read

SCHEMA = """
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
                          parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
                          PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
                     task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
                     PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
Row = dict[str, Any]


def ext(code: int, *values: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(list(values)))


def built(name: str, /, **fields: Any) -> msgspec.msgpack.Ext:
    return ext(5, "langchain_core.messages", name, fields, "model_validate_json")


def human(own: str | None, content: Any) -> Any:
    return built("HumanMessage", content=content, type="human", id=own, additional_kwargs={}, response_metadata={})


def ai(own: str | None, content: Any, *calls: Row, **fields: Any) -> Any:
    return built("AIMessage", content=content, type="ai", id=own, tool_calls=list(calls), **fields)


def call(own: str | None, name: str = "ls", **args: Any) -> Row:
    return {"name": name, "args": args, "id": own, "type": "tool_call"}


def tool(own: str | None, content: Any, call_id: str | None, **fields: Any) -> Any:
    return built("ToolMessage", content=content, type="tool", id=own, tool_call_id=call_id, **fields)


TALK = [human("h1", "list"), ai("a1", "Listing.", call("c1", path=".")), tool("t1", "a.txt", "c1"), ai("a2", "One.")]
LINES = ["user list", 'assistant Listing. + ls[c1]{"path": "."}', "tool [c1] a.txt", "assistant One."]


class Store:
    """A checkpoint store, written as LangGraph writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.execute(SCHEMA)

    def put(
        self,
        own: str,
        parent: str | None,
        messages: Sequence[Any] | None,
        *,
        thread: str = "t",
        namespace: str = "",
        **channels: Any,
    ) -> None:
        """Write one checkpoint."""
        values = channels if messages is None else {"messages": list(messages), **channels}
        state = {"v": 4, "ts": "2026-01-02T03:04:05+00:00", "id": own, "channel_values": values}
        self.raw(own, parent, "msgpack", msgspec.msgpack.encode(state), thread=thread, namespace=namespace)

    def raw(
        self, own: str, parent: str | None, kind: str, data: Any, *, thread: str = "t", namespace: str = ""
    ) -> None:
        """Write one checkpoint's bytes."""
        self.connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, '{}')", (thread, namespace, own, parent, kind, data)
        )

    def write(self, own: str, channel: str = "messages") -> None:
        """Note a write that a step made on a checkpoint."""
        self.connection.execute(
            "INSERT INTO writes VALUES ('t', '', ?, 'task', 0, ?, 'msgpack', x'90')", (own, channel)
        )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "checkpoints.db")


def only(store: Store) -> Talk:
    assert sniff_format(store.path) == LANGGRAPH
    (talk,) = read(store.path, LANGGRAPH).talks
    return talk


def test_the_list_of_every_checkpoint_is_one_conversation(store: Store) -> None:
    """Each checkpoint repeats all messages: they are read once, with what only the graph needs left out by name."""
    store.put("0", None, None, __start__={"messages": []})
    for size in range(1, 5):
        store.put(str(size), str(size - 1), TALK[:size], **{"branch:to:step": None}, plan=["x"])
        store.write(str(size - 1))
    talk = only(store)
    assert talk.lines() == LINES
    assert [len(turn) for turn in talk.turns[0]] == [3, 1]
    assert (talk.source_id, talk.defects) == ("t", {})
    assert talk.skipped == {"channel/plan": 4, "write": 4}
    assert talk.events[0].occurred_at == 1_767_323_045_000


def test_growth_and_forks_whenever_they_are_seen(tmp_path: Path) -> None:
    """A thread that was resumed from an earlier checkpoint forks; the older line stays the Session."""
    steps: list[tuple[str, str | None, list[Any]]] = [
        ("1", None, TALK[:1]),
        ("2", "1", TALK[:2]),
        ("3", "2", TALK[:3]),
        ("4", "3", TALK),
        ("5", "1", [TALK[0], ai("b1", "No need.")]),
        ("6", "5", [TALK[0], ai("b1", "No need."), human("h2", "fine")]),
        ("7", "4", [*TALK, human("h3", "thanks")]),
    ]
    found: list[dict[str, list[str]]] = []
    for name, cuts in (("whole", [7]), ("grown", range(1, 8)), ("late", [5, 7])):
        folder = tmp_path / name
        folder.mkdir()
        store, done = Store(folder / "c.db"), 0
        with library(folder) as books:
            for cut in cuts:
                for step in steps[done:cut]:
                    store.put(*step)
                done = cut
                run = books.run(store.path)
                assert books.run(store.path).totals.events == 0
            main, branch = run.sessions
            assert branch.parent == main.id
            found.append(books.all())
    assert found[0] == found[1] == found[2]
    assert found[0]["t"] == [*LINES, "user thanks"]
    (branch_lines,) = (lines for own, lines in found[0].items() if own != "t")
    assert branch_lines[0].endswith("list")
    assert branch_lines[1:] == ["assistant No need.", "user fine"]


def test_what_the_graph_removed_or_replaced_stays(store: Store) -> None:
    """Trimming and summaries shorten the state, and never the history."""
    store.put("1", None, TALK)
    store.put("2", "1", [human("s", "Summary"), TALK[3]])
    store.put("3", "2", [human("s", "Summary"), ai("a2", "One file."), human("h2", "ok")])
    talk = only(store)
    assert talk.lines() == [*LINES, "user Summary", "assistant One file.", "user ok"]
    assert talk.skipped == {"message_no_longer_in_state": 4}


def test_threads_and_namespaces_are_conversations(store: Store, tmp_path: Path) -> None:
    """A subgraph's namespace hangs on its thread; threads come in the order in which they began."""
    store.put("2", None, TALK[:1])
    store.put("1", None, TALK[:2], thread="early")
    store.put("3", None, TALK[:1], namespace="sub:1")
    with library(tmp_path) as books:
        run = books.run(store.path)
        assert [session.source_id for session in run.sessions] == ["early", "t", "t/sub:1"]
        assert run.sessions[2].parent == run.sessions[1].id


def test_calls_without_ids_broken_calls_and_missing_answers(store: Store) -> None:
    """What did not parse was not run; what nobody answered has an unknown effect."""
    broken = {"name": "rm", "args": "{torn", "id": "c8", "error": "bad JSON", "type": "invalid_tool_call"}
    store.put(
        "1",
        None,
        [
            human(None, "go"),
            ai(None, "", call(None), invalid_tool_calls=[broken]),
            tool(None, "mine?", None, status="error"),
            tool(None, "whose?", None, status="error"),
            ai(None, "", call("c2"), call("c3")),
            tool(None, "two", "c2"),
            human(None, "stop"),
        ],
    )
    talk = only(store)
    assert talk.lines() == [
        "user go",
        'assistant ls[call@1.0]{} + rm[c8]{"input": "{torn"}',
        "tool [c8 not_executed failed] bad JSON",
        "tool [call@1.0 failed] mine?",
        "tool [result@3 failed] whose?",
        "assistant ls[c2]{} + ls[c3]{}",
        "tool [c2] two",
        "tool:missing_result [c3 unknown_effect failed] [no result of this call was recorded]",
        "user stop",
    ]
    assert talk.defects == {
        "missing_call_id": 3,
        "invalid_tool_call": 1,
        "unparsed_arguments": 1,
        "orphan_result": 1,
        "unanswered_call": 1,
    }


def test_messages_of_every_class(store: Store) -> None:
    """By class or type, in chunks, as plain roles, in OpenAI's own shape of old, and what nobody knows."""
    raw = {"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}
    store.put(
        "1",
        None,
        [
            built("SystemMessage", content="be kind", type="system", id="s"),
            {"role": "user", "content": "plain"},
            built("AIMessageChunk", content="", id="a", additional_kwargs={"tool_calls": [raw]}),
            built("FunctionMessage", content="old", name="f", id="f"),
            built("ChatMessage", content="chat", role="assistant", type="chat", id="x"),
            built("RemoveMessage", content="", type="remove", id="r"),
            built("OracleMessage", content="?", id="o"),
            ai("b", [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "so"}]),
            ai("e", [{"type": "tool_use", "id": "z"}]),
        ],
    )
    talk = only(store)
    assert talk.lines() == [
        "context:instructions be kind",
        "user plain",
        'assistant f[c1]{"a": 1}',
        "tool [c1] old",
        "assistant chat",
        "assistant (hm) + so",
    ]
    assert talk.defects == {"unknown:message/OracleMessage": 1, "missing_call_id": 1}
    assert talk.skipped == {"remove_message": 1, "encrypted_content": 1, "content/tool_use": 1, "empty_message": 2}


def test_messages_in_another_channel(store: Store) -> None:
    store.put("1", None, None, chat=TALK[:2], notes=[1], empty=[])
    talk = only(store)
    assert talk.lines() == LINES[:2]
    assert talk.skipped == {"channel/notes": 1, "channel/empty": 1}


def test_json_checkpoints_of_old(store: Store) -> None:
    """The serializer of before MessagePack marks objects with `lc`."""

    def marked(name: str, version: int, **fields: Any) -> Row:
        return {"lc": version, "type": "constructor", "id": ["langchain", "schema", name], "kwargs": fields}

    messages = [marked("HumanMessage", 1, content="hi", id="h"), marked("AIMessage", 2, content="yes", id="a")]
    state = {"ts": "2026-01-02T03:04:05+00:00", "channel_values": {"messages": messages, "n": 2**70}}
    store.raw("1", None, "json", json.dumps(state).encode())
    assert only(store).lines() == ["user hi", "assistant yes"]


def test_trees_that_are_broken(store: Store) -> None:
    """A parent that is gone, a circle, checkpoints that cannot be read: counted, and the rest is there."""
    store.put("1", "gone", TALK[:1])
    store.raw("2", "1", "msgpack", b"\xc1torn")
    store.raw("3", "2", "pickle", b"\x80\x04.")
    store.put("4", "3", TALK)
    store.put("8", "9", [human("x", "never")])
    store.put("9", "8", [human("x", "never")])
    talk = only(store)
    assert talk.lines() == LINES
    assert talk.defects == {"missing_parent": 1, "undecodable_checkpoint": 2, "checkpoint_cycle": 2}


def test_pending_writes_are_counted(store: Store) -> None:
    """What a step wrote before it was checkpointed has no place in the history yet."""
    store.put("1", None, TALK[:1])
    store.put("2", "1", TALK[:2])
    for own in ("1", "2"):
        store.write(own)
    assert only(store).skipped == {"pending_write": 1, "write": 1}


def test_sizes_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emelex_core.imports.langgraph.reader.CELL_BYTES_MAX", 2_000)
    monkeypatch.setattr("emelex_core.imports.langgraph.reader._LEAVES_MAX", 2)
    store.put("1", None, TALK[:1])
    store.put("2", "1", [TALK[0], human("big", "x" * 4_000)])
    store.put("3", "1", [TALK[0], ai("a", "one")])
    store.put("4", "1", [TALK[0], ai("b", "two")])
    talk = only(store)
    assert [talk.lines(0), talk.lines(1)] == [["user list"], ["user list", "assistant one"]]
    assert talk.defects == {"oversized_record": 1, "branch_not_imported": 1}


def test_no_class_is_ever_imported(store: Store) -> None:
    """Extensions name modules and classes; they stay words."""
    evil = ext(5, "antigravity", "HumanMessage", {"content": "fly", "type": "human", "id": "h"}, "model_validate_json")
    calls = [ext(code, "os", "system", "exit 3", "run") for code in range(8)]
    store.put("1", None, [evil], x=calls, y=[ext(1, "builtins", "eval", ["1/0"])])
    assert only(store).lines() == ["user fly"]
    assert "antigravity" not in sys.modules


def _decoded(value: Any, *, code: int | None = None) -> tuple[Any, Counter[str]]:
    defects: Counter[str] = Counter()
    data = msgspec.msgpack.encode({"v": value} if code is None else msgspec.msgpack.Ext(code, b""))
    return decode("msgpack", data, defects)["v"], defects


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ext(0, "uuid", "UUID", "00"), Built("UUID", {}, "00")),
        (ext(1, "re", "compile", ["a", 0]), Built("compile", {}, ["a", 0])),
        (ext(2, "m", "Tuple", {"a": 1}), Built("Tuple", {"a": 1})),
        (ext(3, "datetime", "datetime", "2026", "fromisoformat"), Built("datetime", {}, "2026")),
        (ext(4, "m", "Old", {"a": ext(0, "m", "In", 1)}), Built("Old", {"a": Built("In", {}, 1)})),
        (ext(5, "m", "New", [1]), Built("New", {}, [1])),
        (ext(5, "m"), Built("?", {})),
        (ext(6, "float64", [1], "C", b""), Built("?", {})),
        (ext(99, 1, 2, 3), Built("", {}, 3)),
        (b"bytes", "[5 bytes]"),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (float("nan"), "nan"),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_values_are_decoded_as_data(value: Any, expected: Any) -> None:
    assert _decoded(value)[0] == expected


def test_nesting_is_bounded() -> None:
    """Extensions inside extensions, and lists inside lists, by thousands (K10)."""
    value: Any = 1
    for _ in range(limits.IMPORT_NESTING_MAX * 2):
        value = ext(0, "m", "In", value)
    decoded, _ = _decoded(value)
    assert "nested too deep" in str(decoded)
    value = 1
    for _ in range(limits.IMPORT_NESTING_MAX * 2):
        value = [value]
    assert _decoded(value)[1] == {"deep_value": 1}
    with pytest.raises(Undecodable):
        decode("msgpack", b"\x91" * 100_000 + b"\xc0", Counter())


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", b"\xa2\xff\xfe", b"\x01", b"\xc7\x05\x05\x93\xa1a\xa1"])
def test_bytes_that_are_no_value(data: bytes) -> None:
    with pytest.raises(Undecodable):
        decode("msgpack", data, Counter())
