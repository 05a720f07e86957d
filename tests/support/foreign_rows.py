"""Transcripts of other agents, written by ourselves: three that hold what is hard about growing, and more at random."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

CLAUDE_ID = "7d1f2a30-4c55-4e0b-9a41-5e0c8f6b2d10"
CODEX_ID = "019b0c5a-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


def growing_claude_code() -> list[bytes]:
    """A Claude Code transcript: messages of several rows, parallel tools, a sidechain inside, words beside a result."""
    rows = _ClaudeRows()
    rows.add({"type": "file-history-snapshot", "messageId": "m"})
    rows.user("Please sort the parcels by weight.")
    rows.answer("msg_1", {"type": "thinking", "thinking": "By weight, then.", "signature": "s" * 8})
    rows.answer("msg_1", {"type": "text", "text": "I look at the list first."})
    rows.answer("msg_1", _call("toolu_1", "Read", path="parcels.csv"))
    rows.answer("msg_1", _call("toolu_2", "Task", prompt="count them"))
    rows.side("Count the parcels in parcels.csv.")
    rows.result("toolu_1", "a,3\nb,1\n")
    rows.side_answer("msg_s", {"type": "text", "text": "There are"})
    rows.side_answer("msg_s", {"type": "text", "text": "two parcels."})
    rows.result("toolu_2", "two")
    rows.answer("msg_2", {"type": "text", "text": "Two parcels;"})
    rows.answer("msg_2", {"type": "text", "text": "b comes first."})
    rows.add({"type": "system", "subtype": "compact_boundary", "uuid": "boundary", "parentUuid": None})
    rows.user("Write it down.", "And tell me the total.")
    rows.answer("msg_3", _call("toolu_3", "Write", path="sorted.csv"))
    rows.mixed("toolu_3", "written", "[Request interrupted by user]", "Stop: use the scale's file instead.")
    rows.answer("msg_4", {"type": "text", "text": "I use the scale's file."})
    rows.answer("msg_4", _call("toolu_4", "Read", path="scale.csv"))
    rows.result("toolu_4", "no such file", is_error=True)
    rows.result("toolu_9", "an answer that nobody waits for")
    rows.user("Then leave it.")
    rows.answer("msg_5", {"type": "text", "text": "Left as it was."})
    rows.add({"type": "custom-title", "customTitle": "Parcels by weight", "sessionId": CLAUDE_ID})
    rows.add({"type": "last-prompt", "sessionId": CLAUDE_ID})
    return rows.lines


def growing_codex() -> list[bytes]:
    """A Codex rollout: echoes before and behind their items, echoes without one, parallel calls, an abort."""
    rows = _CodexRows()
    rows.add("session_meta", {"id": CODEX_ID, "cwd": "/somewhere/else", "cli_version": "0.50.0"})
    rows.add("turn_context", {"cwd": "/somewhere/else"})
    rows.said("user", "<environment_context>it rains</environment_context>")
    rows.echo("user_message", "Please count the rivers in the atlas.")
    rows.said("user", "Please count the rivers in the atlas.")
    rows.echo("agent_reasoning", "The atlas has an index of rivers.")
    rows.add("response_item", _summary("The atlas has an index of rivers."))
    rows.call("c1", "grep -c river atlas.txt")
    rows.call("c2", "ls atlas")
    rows.echo("token_count", "")
    rows.output("c1", "41")
    rows.output("c2", "index.txt")
    rows.said("assistant", "There are forty-one rivers.")
    rows.echo("agent_message", "There are forty-one rivers.")
    rows.echo("agent_message", "One more thing that only an event holds.")
    rows.echo("user_message", "Words of a person that only an event holds.")
    rows.call("c3", "sort rivers.txt")
    rows.output("c3", "Aare")
    rows.add("compacted", {"message": "Forty-one rivers were counted.", "replacement_history": [{"type": "message"}]})
    rows.said("user", "Now the lakes, please, all of them.")
    rows.echo("user_message", "Now the lakes, please, all of them.")
    rows.echo("agent_reasoning", "Lakes are in another index of the atlas.")
    rows.call("c4", "grep -c lake atlas.txt")
    rows.add("event_msg", {"type": "turn_aborted", "reason": "interrupted"})
    rows.output("c4", "9")
    rows.said("assistant", "There are nine lakes in the atlas.")
    rows.echo("agent_message", "There are nine lakes in the atlas.")
    return rows.lines


def forked_codex() -> list[bytes]:
    """A forked rollout: what it copied of its parent is told from its own turns only once one of these is written."""
    rows = _CodexRows()
    rows.add("session_meta", {"id": CODEX_ID, "forked_from_id": "019b0c00-0000-7000-8000-000000000000"})
    rows.said("user", "A question of the parent, copied here.")
    rows.said("assistant", "An answer of the parent, copied here.")
    rows.add("turn_context", {"turn_id": "019b0c5a-2b2b-7c3d-8e4f-5a6b7c8d9e0f"})
    rows.said("user", "A question of the fork's own.")
    rows.said("assistant", "An answer of the fork's own.")
    return rows.lines


class _ClaudeRows:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._last: dict[bool, str | None] = {False: None, True: None}

    def add(self, row: dict[str, Any]) -> None:
        self.lines.append(json.dumps(row).encode())

    def user(self, *texts: str) -> None:
        self._row("user", [{"type": "text", "text": text} for text in texts])

    def side(self, text: str) -> None:
        self._row("user", text, side=True)

    def answer(self, message_id: str, block: dict[str, Any]) -> None:
        self._row("assistant", [block], message_id=message_id)

    def side_answer(self, message_id: str, block: dict[str, Any]) -> None:
        self._row("assistant", [block], message_id=message_id, side=True)

    def result(self, call_id: str, text: str, *, is_error: bool = False) -> None:
        self._row("user", [_result(call_id, text, is_error=is_error)])

    def mixed(self, call_id: str, text: str, *words: str) -> None:
        self._row("user", [_result(call_id, text), *({"type": "text", "text": word} for word in words)])

    def _row(self, kind: str, content: Any, *, message_id: str | None = None, side: bool = False) -> None:
        uuid = f"00000000-0000-4000-8000-{len(self.lines):012}"
        message = {"role": kind, "content": content} | ({"id": message_id} if message_id else {})
        self.add(
            {
                "type": kind,
                "uuid": uuid,
                "parentUuid": self._last[side],
                "sessionId": CLAUDE_ID,
                "isSidechain": side,
                "timestamp": f"2026-01-01T00:00:{len(self.lines):02}.000Z",
                "message": message,
            }
        )
        self._last[side] = uuid


class _CodexRows:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, kind: str, payload: dict[str, Any]) -> None:
        stamp = f"2026-01-01T00:00:{len(self.lines):02}.000Z"
        self.lines.append(json.dumps({"timestamp": stamp, "type": kind, "payload": payload}).encode())

    def said(self, role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        self.add("response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]})

    def echo(self, kind: str, text: str) -> None:
        self.add("event_msg", {"type": kind, "text" if "reasoning" in kind else "message": text})

    def call(self, call_id: str, command: str) -> None:
        arguments = json.dumps({"command": command})
        self.add(
            "response_item", {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": call_id}
        )

    def output(self, call_id: str, text: str) -> None:
        self.add("response_item", {"type": "function_call_output", "call_id": call_id, "output": text})


def _call(call_id: str, name: str, **arguments: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _result(call_id: str, text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}


def _summary(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": "x"}


CLAUDE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["prompt", "answer", "call", "result", "noise", "command", "torn", "queued", "again", "boundary"]
        ),
        st.sampled_from(["main", "side1", "side2"]),
        st.integers(0, 3),
    ),
    max_size=24,
)


def claude_lines(steps: list[tuple[str, str, int]]) -> list[bytes]:
    """The lines of a Claude Code transcript, a step a line."""
    lines: list[bytes] = []
    last: dict[str, str] = {}
    for number, (kind, branch, pick) in enumerate(steps):
        uuid = f"u{number}"
        row: dict[str, Any] = {"type": "user", "uuid": uuid, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
        row |= {"isSidechain": branch != "main", "parentUuid": last.get(branch)}
        match kind:
            case "prompt" | "command":
                words = f"<command-name>/{number}</command-name>" if kind == "command" else f"words {number}"
                row["message"] = {"content": words}
            case "answer" | "call":
                block = {"type": "tool_use", "id": f"{branch}-c{pick}", "name": "Bash", "input": {"n": number}}
                blocks = [{"type": "text", "text": f"answer {number}"}] + ([block] if kind == "call" else [])
                row |= {"type": "assistant", "message": {"id": f"m{pick}", "content": blocks}}
            case "result":
                result = {"type": "tool_result", "tool_use_id": f"{branch}-c{pick}", "content": f"out {number}"}
                row["message"] = {"content": [result]}
            case "queued":
                row |= {"type": "attachment", "attachment": {"type": "queued_command", "prompt": f"queued {number}"}}
            case "boundary":
                row |= {"type": "system", "subtype": "compact_boundary"}
            case "again" if lines:
                lines.append(lines[pick % len(lines)])
                continue
            case "torn":
                lines.append(b'{"type":"user","uuid":"torn')
                continue
            case _:
                row = {"type": "file-history-snapshot", "messageId": uuid}
        if "uuid" in row:
            last[branch] = uuid
        lines.append(json.dumps(row).encode())
    return lines


CODEX_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "prompt",
                "echo",
                "answer",
                "answer_echo",
                "call",
                "output",
                "context",
                "abort",
                "compacted",
                "again",
                "injected",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=24,
)


def codex_lines(steps: list[tuple[str, int]]) -> list[bytes]:
    """The lines of a Codex rollout, a step a line."""
    lines = [json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "t"}}).encode()]
    for number, (kind, pick) in enumerate(steps):
        form, payload = "response_item", dict[str, Any]()
        match kind:
            case "prompt" | "injected":
                words = f"prompt {pick} of some length" if kind == "prompt" else "<skill>x</skill>"
                payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
            case "answer":
                words = f"answer {pick} of some length"
                payload = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}
            case "call":
                payload = {
                    "type": "function_call",
                    "name": "x",
                    "arguments": f'{{"n":{number}}}',
                    "call_id": f"c{pick}",
                }
            case "output":
                payload = {"type": "function_call_output", "call_id": f"c{pick}", "output": f"out {number}"}
            case "echo" | "answer_echo":
                role = "user" if kind == "echo" else "agent"
                word = "prompt" if kind == "echo" else "answer"
                form, payload = "event_msg", {"type": f"{role}_message", "message": f"{word} {pick} of some length"}
            case "abort":
                form, payload = "event_msg", {"type": "turn_aborted", "reason": "interrupted"}
            case "compacted":
                form, payload = "compacted", {"message": f"so far {number}"}
            case "again":
                lines.append(lines[pick % len(lines)])
                continue
            case _:
                form = "turn_context"
        lines.append(json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": form, "payload": payload}).encode())
    return lines
