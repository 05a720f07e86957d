"""Kinds of lines in Codex rollouts: which are noise, which repeat an item, and how old shapes map to today's.

The module owns one invariant: whatever a line's shape, `unwrap` gives a kind and an object.
"""

from __future__ import annotations

import re
from typing import Any, Final

from emelex_core.imports.codex.echo import ASSISTANT, REASONING, USER
from emelex_core.imports.codex.items import CALLS, OUTPUTS
from emelex_core.imports.files.lenient import JsonObject, as_object, as_word, bounded_id

_ORDERED_UUID: Final = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
RECORD_NOISE: Final = frozenset(
    {"turn_context", "world_state", "state", "inter_agent_communication", "inter_agent_communication_metadata"}
)
ITEM_NOISE: Final = frozenset({"ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "other"})
EVENT_NOISE: Final = frozenset(
    {
        "agent_message_delta",
        "agent_reasoning_delta",
        "agent_reasoning_raw_content",
        "agent_reasoning_raw_content_delta",
        "agent_reasoning_section_break",
        "apply_patch_approval_request",
        "background_event",
        "collab_agent_interaction_begin",
        "collab_agent_interaction_end",
        "collab_agent_spawn_begin",
        "collab_agent_spawn_end",
        "collab_close_begin",
        "collab_close_end",
        "collab_resume_begin",
        "collab_resume_end",
        "collab_waiting_begin",
        "collab_waiting_end",
        "context_compacted",
        "deprecation_notice",
        "dynamic_tool_call_request",
        "dynamic_tool_call_response",
        "elicitation_request",
        "entered_review_mode",
        "exec_approval_request",
        "exec_command_begin",
        "exec_command_end",
        "exec_command_output_delta",
        "exited_review_mode",
        "guardian_assessment",
        "hook_completed",
        "hook_started",
        "image_generation_begin",
        "image_generation_end",
        "item_completed",
        "item_started",
        "mcp_startup_complete",
        "mcp_startup_update",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "model_reroute",
        "patch_apply_begin",
        "patch_apply_end",
        "plan_delta",
        "plan_update",
        "request_permissions",
        "request_user_input",
        "session_configured",
        "shutdown_complete",
        "sub_agent_activity",
        "task_complete",
        "task_started",
        "terminal_interaction",
        "thread_goal_updated",
        "thread_name_updated",
        "thread_rolled_back",
        "thread_settings_applied",
        "token_count",
        "turn_complete",
        "turn_diff",
        "turn_started",
        "undo_completed",
        "undo_started",
        "view_image_tool_call",
        "warning",
        "web_search_begin",
        "web_search_end",
    }
)
EVENT_ERRORS: Final = frozenset({"error", "stream_error"})
ECHO_ROLES: Final = {
    "user_message": USER,
    "agent_message": ASSISTANT,
    "agent_reasoning": REASONING,
    "UserMessage": USER,
    "AgentMessage": ASSISTANT,
    "Reasoning": REASONING,
}
_BARE_ITEMS: Final = frozenset({"message", "reasoning", *CALLS, *OUTPUTS})


def unwrap(value: JsonObject) -> tuple[Any, JsonObject]:
    """Return a line's kind and payload, with the bare lines of mid-2025 in the shape of today's."""
    payload = as_object(value.get("payload"))
    if payload is not None:
        return value.get("type"), payload
    if "record_type" in value:
        return "state", {}
    kind = value.get("type")
    if kind is None and "id" in value and "timestamp" in value:
        return "session_meta", value
    return ("response_item", value) if as_word(kind) in _BARE_ITEMS else (kind, {})


def parent_thread(meta: JsonObject) -> str | None:
    """Return the thread that spawned this one, or that it was forked from."""
    subagent = as_object((as_object(meta.get("source")) or {}).get("subagent")) or {}
    spawn = as_object(subagent.get("thread_spawn")) or {}
    return (
        bounded_id(spawn.get("parent_thread_id"))
        or bounded_id(meta.get("parent_thread_id"))
        or bounded_id(meta.get("forked_from_id"))
    )


def turn_instant(kind: Any, payload: JsonObject) -> int | None:
    """Return when a record says that a turn began, in milliseconds, where its id carries that."""
    if kind == "turn_context" or (kind == "event_msg" and payload.get("type") in ("task_started", "turn_started")):
        return ordered_instant(payload.get("turn_id"))
    return None


def ordered_instant(value: Any) -> int | None:
    """Return the milliseconds that a UUIDv7 carries; None for anything else."""
    match = _ORDERED_UUID.fullmatch(value) if isinstance(value, str) else None
    return int(match.group(1) + match.group(2), 16) if match else None
