"""ChatGPT's data export: trees, branches, content types and files, from samples written here (formats.md, 4)."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emelex_core.errors import Invalid
from emelex_core.events import MediaPart
from emelex_core.imports.chatgpt import files as chatgpt_files
from emelex_core.imports.conversations.readers import open_conversations
from emelex_core.imports.records import CHATGPT, TranscriptFile
from emelex_core.imports.sniff import sniff_format
from foreign import PNG, MemorySink, Talk, library, put, read

Row = dict[str, Any]
FILE_ID = "file-AbCdEf123456"


def text(*parts: Any) -> Row:
    return {"content_type": "text", "parts": list(parts)}


def message(role: str, content: Any, **fields: Any) -> Row:
    author = {"role": role, "name": fields.pop("name", None), "metadata": {}}
    content = text(content) if isinstance(content, str) else content
    return {"author": author, "content": content, "create_time": 1_700_000_000.25, "recipient": "all", **fields}


def tree(*nodes: tuple[str, str | None, Row | None]) -> Row:
    """Nodes of (id, parent, message), with the children that the parents name."""
    children = {own: [key for key, parent, _ in nodes if parent == own] for own, _, _ in nodes}
    return {own: {"id": own, "message": said, "parent": up, "children": children[own]} for own, up, said in nodes}


def conversation(mapping: Row, current: str | None, own: str = "conv-1", title: str | None = "Parcels") -> Row:
    return {"title": title, "create_time": 1.0, "mapping": mapping, "current_node": current, "conversation_id": own}


def simple(own: str = "conv-1", words: str = "hello", reply: str = "hi") -> Row:
    mapping = tree(
        ("root", None, None),
        ("s", "root", message("system", "", weight=0)),
        ("u", "s", message("user", words)),
        ("a", "u", message("assistant", reply)),
    )
    return conversation(mapping, "a", own)


def only(folder: Path, value: Any) -> Talk:
    reading = read(put(folder, "conversations.json", value), CHATGPT)
    assert reading.defects == {}
    (talk,) = reading.talks
    return talk


def chain(*messages: Row) -> Row:
    """A conversation that is one path."""
    names = [f"n{number}" for number in range(len(messages))]
    nodes = [(own, names[at - 1] if at else None, messages[at]) for at, own in enumerate(names)]
    return conversation(tree(*nodes), names[-1])


def packed(folder: Path, members: Mapping[str, Any], name: str = "export.zip") -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as export:
        for member, value in members.items():
            export.writestr(member, value if isinstance(value, bytes) else json.dumps(value))
    return path


@pytest.mark.parametrize("shape", ["list", "object", "wrapped", "indented", "zip", "shards", "nested zip"])
def test_every_shape_of_an_export(tmp_path: Path, shape: str) -> None:
    """A list, one conversation, an object around the list, shards, and each of them in a ZIP."""
    one, two = simple(), simple("conv-2", "bye", "later")
    both = True
    match shape:
        case "list":
            path = put(tmp_path, "any.name", [one, two])
        case "indented":
            path = put(tmp_path, "any.name", json.dumps([one, two], indent=1).encode())
        case "object":
            path, both = put(tmp_path, "any.name", one), False
        case "wrapped":
            path = put(tmp_path, "any.name", {"account": {"id": [1]}, "conversations": [one, two], "more": {}})
        case "zip":
            path = packed(tmp_path, {"user.json": {}, "conversations.json": [one, two], "chat.html": b"<html>"})
        case "shards":
            path = packed(tmp_path, {"conversations-001.json": [two], "conversations-000.json": [one]})
        case _:
            path = packed(tmp_path, {"export/conversations.json": [one, two], "export/shared_conversations.json": []})
    assert sniff_format(path) == CHATGPT
    reading = read(path, CHATGPT)
    assert [talk.lines() for talk in reading.talks] == [
        ["user hello", "assistant hi"],
        ["user bye", "assistant later"],
    ][: 2 if both else 1]
    assert (reading.talks[0].source_id, reading.talks[0].title) == ("conv-1", "Parcels")
    assert reading.talks[0].events[0].occurred_at == 1_700_000_000_250
    assert reading.talks[0].skipped == {"node_without_message": 1, "hidden": 1}
    assert reading.defects == reading.talks[0].defects == {}


FORKED = tree(
    ("root", None, None),
    ("u1", "root", message("user", "which?")),
    ("a1", "u1", message("assistant", "old answer")),
    ("u2", "a1", message("user", "old follow-up")),
    ("b1", "u1", message("assistant", "new answer")),
    ("v1", "b1", message("user", "why?")),
    ("c1", "v1", message("assistant", "because")),
    ("w1", "b1", message("user", "really?")),
)


def test_the_visible_path_is_the_current_node_and_not_the_first_child(tmp_path: Path) -> None:
    """A user lost weeks to the first child; the other leaves are branches of the visible path."""
    with library(tmp_path) as books:
        run = books.run(put(tmp_path, "c.json", [conversation(FORKED, "c1")]))
        main, first, second = run.sessions
        assert books.lines(main.id) == ["user which?", "assistant new answer", "user why?", "assistant because"]
        assert books.lines(first.id)[1:] == ["assistant old answer", "user old follow-up"]
        assert books.lines(second.id)[1:] == ["user really?"]
        assert books.lines(first.id)[0].endswith("which?")
        assert books.lines(second.id)[0].endswith("new answer")
        assert (first.parent, second.parent) == (main.id, main.id)
        assert (main.title, first.title) == ("Parcels", "Parcels (branch)")
        again = books.run(tmp_path / "c.json")
        assert (again.totals.already, again.totals.new_sessions) == (3, 0)


def test_a_switched_branch_keeps_what_is_stored(tmp_path: Path) -> None:
    """The visible path changes, and grows: each message stays in its Session, and new ones go where they belong."""
    with library(tmp_path) as books:
        books.run(put(tmp_path, "c.json", [conversation(FORKED, "c1")]))
        before = books.all()
        assert books.run(put(tmp_path, "c.json", [conversation(FORKED, "u2")])).totals.already == 3
        assert books.all() == before
        grown = {**FORKED, "x": {"id": "x", "parent": "u2", "children": [], "message": message("assistant", "late")}}
        run = books.run(put(tmp_path, "c.json", [conversation(grown, "x")]))
        assert [session.events for session in run.sessions if not session.already] == [1]
        assert sorted(map(len, books.all().values())) == [2, 4, 4]


def test_an_edit_in_place_is_a_branch(tmp_path: Path) -> None:
    with library(tmp_path) as books:
        main = books.run(put(tmp_path, "c.json", [simple()])).sessions[0]
        first, branch = books.run(put(tmp_path, "c.json", [simple(reply="hi there")])).sessions
        assert (first.already, first.defects, branch.parent) == (True, {"no_longer_in_source": 1}, main.id)
        assert books.lines(branch.id)[1:] == ["assistant hi there"]


@pytest.mark.parametrize(
    ("current", "defects", "expected"),
    [
        (None, {"no_current_node": 1}, "latest"),
        ("gone", {"no_current_node": 1}, "latest"),
        ("old", {}, "old"),
    ],
)
def test_a_missing_current_node_means_the_latest_leaf(
    tmp_path: Path, current: str | None, defects: Row, expected: str
) -> None:
    mapping = tree(
        ("u", None, message("user", "q")),
        ("latest", "u", message("assistant", "latest", create_time=20.0)),
        ("old", "u", message("assistant", "old", create_time=None)),
    )
    talk = only(tmp_path, [conversation(mapping, current)])
    assert talk.lines()[-1] == f"assistant {expected}"
    assert talk.defects == defects


def test_trees_that_are_broken(tmp_path: Path) -> None:
    """A parent that is not there, links only on one side, a circle, a node that is none: read as far as it goes."""
    mapping = tree(("u", None, message("user", "q")), ("a", "u", message("assistant", "x")))
    mapping["a"]["parent"] = None
    mapping["lost"] = {"parent": "nowhere", "children": [], "message": message("user", "lost")}
    mapping["none"] = 7
    talk = only(tmp_path, [conversation(mapping, "a")])
    assert [talk.lines(0), talk.lines(1)] == [["user q", "assistant x"], ["user lost"]]
    assert talk.defects == {"missing_parent": 1, "malformed:node": 1}
    circle = {"p": {"parent": "q", "message": message("user", "p")}, "q": {"parent": "p", "message": None}}
    assert only(tmp_path, [conversation(circle, "p")]).defects == {"node_cycle": 1}
    assert only(tmp_path, [conversation(circle, None)]).lines() == ["user p"]


def test_calls_are_told_by_recipient_and_answered_by_name(tmp_path: Path) -> None:
    """They have no ids. Code stands under `input`; JSON is taken apart."""
    talk = only(
        tmp_path,
        [
            chain(
                message("user", "plot"),
                message("assistant", {"content_type": "code", "language": "python", "text": "1+1"}, recipient="python"),
                message("tool", {"content_type": "execution_output", "text": "2"}, name="python", weight=0),
                message("assistant", '{"q":"x"}', recipient="browser.search"),
                message("tool", {"content_type": "tether_browsing_display", "result": "hits"}, name="browser"),
                message("tool", {"content_type": "tether_quote", "url": "u", "text": "t"}, name="browser"),
                message("assistant", {"content_type": "code", "text": "print()"}),
                message("assistant", "{broken", recipient="api"),
                message("user", "well?"),
                message("tool", {"content_type": "system_error", "name": "E", "text": "bad"}, name="nobody"),
            )
        ],
    )
    assert talk.lines() == [
        "user plot",
        'assistant python[n1]{"input": "1+1"}',
        "tool [n1] 2",
        'assistant browser.search[n3]{"q": "x"}',
        "tool [n3] hits",
        "tool [n3] u\nt",
        "assistant print()",
        'assistant api[n7]{"input": "{broken"}',
        "tool:missing_result [n7 unknown_effect failed] [no result of this call was recorded]",
        "user well?",
        "tool [n7 failed] E\nbad",
    ]
    assert talk.defects == {"repeated_result": 1, "unparsed_arguments": 1, "unanswered_call": 1, "orphan_result": 1}


def test_content_of_every_type(tmp_path: Path) -> None:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Sum", "content": "detail"}]}
    profile = {"content_type": "user_editable_context", "user_profile": "I ship.", "user_instructions": "Be brief."}
    hidden = {"is_visually_hidden_from_conversation": True}
    talk = only(
        tmp_path,
        [
            chain(
                message("system", profile, weight=0, metadata=hidden),
                message("system", "be kind"),
                message("user", "secret", metadata=hidden),
                message(
                    "user", text("a", {"text": "b"}, {"content_type": "audio_transcription", "text": "c"}, "", None)
                ),
                message("assistant", thoughts),
                message("assistant", {"content_type": "reasoning_recap", "content": "Thought for 3s"}),
                message("assistant", {"content_type": "model_editable_context", "model_set_context": ""}),
                message("assistant", {"content_type": "super_widget", "text": "kept"}),
                message("assistant", {"content_type": "ultra_widget", "rows": 1}),
                message("oracle", "?"),
                message("system", {"content_type": "system_error", "name": "Err", "text": "down"}),
            )
        ],
    )
    assert talk.lines() == [
        "context:user_instructions I ship.\n\nBe brief.",
        "context:instructions be kind",
        "user a + b + c",
        "assistant (Sum\n\ndetail)",
        "assistant kept",
        'assistant {"content_type":"ultra_widget","rows":1}',
        "error:system_error Err\ndown",
    ]
    assert talk.defects == {
        "unknown:content/super_widget": 1,
        "unknown:content/ultra_widget": 1,
        "unknown:role/oracle": 1,
    }
    assert talk.skipped == {"hidden": 1, "reasoning_recap": 1, "empty_message": 1}


def _pointing(prefix: str) -> Row:
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": f"{prefix}{FILE_ID}", "size_bytes": 1}
    attachments = [{"id": FILE_ID, "name": "a.png"}, {"id": "file-Zz99999999", "name": "notes.csv"}, {"name": "b.txt"}]
    content = {"content_type": "multimodal_text", "parts": ["see", pointer]}
    return chain(message("user", content, metadata={"attachments": attachments}))


@pytest.mark.parametrize("prefix", ["file-service://", "sediment://"])
@pytest.mark.parametrize("place", ["{}-a.png", "dalle-generations/{}.webp", "user-x/{}-1234.dat"])
@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_pointers_to_files_in_the_export(tmp_path: Path, prefix: str, place: str, kind: str) -> None:
    """The bytes decide what a file is; one that is not there, or no media, is a name."""
    name = place.format(FILE_ID)
    members = {"conversations.json": [_pointing(prefix)], name: PNG, "file-Zz99999999-notes.csv": b"a,b"}
    if kind == "zip":
        path = packed(tmp_path, members)
    else:
        for member, value in members.items():
            put(tmp_path, member, value)
        path = tmp_path / "conversations.json"
    reading = read(path, CHATGPT)
    (talk,) = reading.talks
    assert [type(part) for part in talk.events[0].parts].count(MediaPart) == 1
    assert list(reading.media.values()) == [PNG]
    assert "[media not imported: notes.csv: the bytes are no image]" in talk.lines()[0]
    assert "[file: b.txt]" in talk.lines()[0]
    assert talk.defects == {"refused_media": 1, "missing_file": 1}


def test_a_conversation_alone_names_its_files(tmp_path: Path) -> None:
    assert only(tmp_path, [_pointing("sediment://")]).defects == {"missing_file": 3}


def test_links_beside_an_export_are_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path, "elsewhere/secret", PNG)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / f"{FILE_ID}.png").symlink_to(secret)
    reading = read(put(tmp_path, "export/conversations.json", [_pointing("sediment://")]), CHATGPT)
    assert reading.media == {}


def test_one_broken_conversation_costs_itself(tmp_path: Path) -> None:
    good = json.dumps(simple()).encode()
    odd = [b'{"mapping": {"a": tru}}', b'{"title": "no tree"}', b'{"mapping":{"u":"\\ud83d"}}', b"[1]", b"7"]
    reading = read(put(tmp_path, "c.json", b"[" + b",".join([*odd, good]) + b"]"), CHATGPT)
    assert [talk.lines() for talk in reading.talks if talk.turns] == [["user hello", "assistant hi"]]
    assert reading.defects == {"not_json": 1, "not_a_conversation": 1, "lone_surrogate": 1, "not_object": 1}


def test_hostile_values_in_a_conversation(tmp_path: Path) -> None:
    """Deep nesting, numbers that are none, lone surrogates: labelled and counted (K10)."""
    deep = b"[" * 5_000 + b"]" * 5_000
    data = (
        b'[{"conversation_id":"c","current_node":"u","mapping":{"u":{"parent":null,"message":{"author":{"role":"user"},'
        b'"create_time":1e999,"weight":NaN,"metadata":{"x":' + deep + b'},"content":{"content_type":"text","parts":'
        b'["ok \\ud83d"]}}}}}]'
    )
    reading = read(put(tmp_path, "c.json", data), CHATGPT)
    (talk,) = reading.talks
    assert talk.lines() == ["user ok \ufffd"]
    assert talk.events[0].occurred_at is None
    assert reading.defects == {"deep_value": 1, "non_finite_number": 2, "lone_surrogate": 1}


@pytest.mark.parametrize("cut", [10, 200, -3, -1])
def test_a_cut_export_is_refused_before_anything_is_stored(tmp_path: Path, cut: int) -> None:
    """One error that names the file and where it stops; the state is as before."""
    path = put(tmp_path, "c.json", json.dumps([simple(), simple("conv-2")]).encode()[:cut])
    with library(tmp_path) as books:
        try:
            problem: Exception = books.run(path).problems[0]
        except Invalid as error:
            problem = error
        assert "is cut" in str(problem)
        assert str(path) in str(problem)
        assert books.all() == {}


def test_what_follows_the_list_is_counted(tmp_path: Path) -> None:
    reading = read(put(tmp_path, "c.json", json.dumps([simple()]).encode() + b"[]"), CHATGPT)
    assert reading.defects == {"trailing_data": 1}


def test_zips_that_are_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bombs, cut ones, encrypted ones, damaged ones, too many members: one message each, and nothing unpacked."""
    monkeypatch.setattr(chatgpt_files, "_RATIO_FREE_BYTES", 1 << 20)
    bomb = packed(tmp_path, {"conversations.json": b"[" + b" " * (8 << 20) + b"]"}, "bomb.zip")
    with pytest.raises(Invalid, match="unpacks to more than"):
        read(bomb, CHATGPT)
    whole = packed(tmp_path, {"conversations.json": [simple()]}).read_bytes()
    with pytest.raises(Invalid, match="cut"):
        read(put(tmp_path, "cut.zip", whole[:-30]), CHATGPT)
    damaged = bytearray(whole)
    damaged[60] ^= 0xFF
    with pytest.raises(Invalid, match=r"damaged|cut"):
        read(put(tmp_path, "damaged.zip", bytes(damaged)), CHATGPT)
    marked = bytearray(whole)
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        marked[whole.index(signature) + place] |= 1
    with pytest.raises(Invalid, match="encrypted"):
        read(put(tmp_path, "locked.zip", bytes(marked)), CHATGPT)
    monkeypatch.setattr(chatgpt_files, "_ENTRIES_MAX", 1)
    with pytest.raises(Invalid, match="members"):
        read(packed(tmp_path, {"conversations.json": [], "a": b""}, "many.zip"), CHATGPT)
    assert sniff_format(packed(tmp_path, {"photo.png": PNG}, "p.zip")) is None


def _export(path: Path, conversations: int) -> Path:
    """An export with this many conversations of about 40 kB."""
    words = "all work and no play " * 100
    with path.open("wb") as stream:
        stream.write(b"[")
        for number in range(conversations):
            messages = [message("assistant" if at % 2 else "user", f"{number} {at} {words}") for at in range(18)]
            value = {**chain(*messages), "conversation_id": f"c{number}"}
            stream.write((b"," if number else b"") + json.dumps(value).encode())
        stream.write(b"]")
    return path


def _peak_bytes(path: Path) -> int:
    file = TranscriptFile(path=path, format=CHATGPT, packed=False)
    tracemalloc.start()
    try:
        for talk in open_conversations(file, MemorySink()):
            for _ in talk.paths:
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_flat_in_the_exports_size(tmp_path: Path) -> None:
    """An export is read conversation by conversation (K12)."""
    small, large = _export(tmp_path / "small.json", 80), _export(tmp_path / "large.json", 800)
    assert _peak_bytes(large) < 1.3 * _peak_bytes(small)
    for path in (small, large):
        with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as export:
            export.write(path, "conversations.json")
    assert _peak_bytes(large.with_suffix(".zip")) < 1.3 * _peak_bytes(small.with_suffix(".zip"))


def test_a_conversation_that_is_too_large_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emelex_core.imports.files.json_array.limits.IMPORT_LINE_BYTES_MAX", 4 << 20)
    large = chain(message("user", "x" * (6 << 20)))
    reading = read(put(tmp_path, "c.json", [simple("a"), large, simple("b")]), CHATGPT)
    assert [talk.source_id for talk in reading.talks] == ["a", "b"]
    assert reading.defects == {"oversized_conversation": 1}


def test_a_member_that_is_no_stream(tmp_path: Path) -> None:
    """A ZIP in which the list of members names what is not there."""
    buffer = io.BytesIO(packed(tmp_path, {"conversations.json": [simple()]}).read_bytes())
    data = bytearray(buffer.getvalue())
    data[data.index(b"PK\x01\x02") + 42] ^= 0x7F
    with pytest.raises(Invalid):
        read(put(tmp_path, "odd.zip", bytes(data)), CHATGPT)
