"""Rows of a Claude Code transcript that are no messages: which are noise, and what the others say.

About 98 % of the lines of a long transcript can be such rows. Kinds come and go with every release, so three answers
exist: known noise (counted as skipped), text that stood before the model or a note about the Session (kept), and
everything else (counted as unknown).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from emelex_core.events import EventKind
from emelex_core.imports.files.lenient import JsonObject, as_list, as_object, as_word

NOISE: Final = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "custom-title",
        "file-history-snapshot",
        "frame-link",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "relocated",
        "result",
        "speculation-accept",
        "started",
        "summary",
        "tag",
        "worktree-state",
    }
)
"""Row types outside the conversation."""

_SYSTEM_NOISE: Final = frozenset(
    {
        "api_metrics",
        "bridge_status",
        "file_snapshot",
        "informational",
        "memory_saved",
        "microcompact_boundary",
        "permission_retry",
        "scheduled_task_fire",
        "session_start",
        "stop_hook_summary",
        "thinking",
        "turn_duration",
    }
)
_SYSTEM_NOTES: Final = frozenset({"api_refusal", "model_refusal_fallback", "agents_killed"})
_SYSTEM_ERRORS: Final = frozenset({"api_error", "error"})
_SYSTEM_CONTEXT: Final[dict[str, str]] = {"local_command": "local_command", "away_summary": "away_summary"}

_ATTACHMENT_CONTEXT: Final[dict[str, str]] = {
    "hook_additional_context": "hook",
    "hook_blocking_error": "hook",
    "hook_system_message": "hook",
    "nested_memory": "user_instructions",
    "edited_text_file": "file",
    "file": "file",
    "queued_command": "queued_command",
}
_HOOKS_BEFORE_MODEL: Final = frozenset({"SessionStart", "UserPromptSubmit"})
"""Hooks whose output is put before the model; that of others only shows in the terminal."""
_ATTACHMENT_NOISE: Final = frozenset(
    {
        "agent_listing_delta",
        "agent_mention",
        "auto_mode",
        "auto_mode_exit",
        "batching_reminder_sent",
        "budget_usd",
        "command_permissions",
        "compact_file_reference",
        "critical_system_reminder",
        "date_change",
        "deferred_tools_delta",
        "diagnostics",
        "directory",
        "dynamic_skill",
        "hook_cancelled",
        "hook_error_during_execution",
        "hook_non_blocking_error",
        "hook_permission_decision",
        "hook_stopped_continuation",
        "hook_success",
        "invoked_skills",
        "mcp_instructions_delta",
        "mcp_resource",
        "opened_file_in_ide",
        "output_style",
        "plan_file_reference",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "read_truncation_notice",
        "relevant_memories",
        "selected_lines_in_ide",
        "silent_turn_reminder",
        "skill_listing",
        "structured_output",
        "task_reminder",
        "task_status",
        "team_context",
        "teammate_mailbox",
        "todo_reminder",
        "token_usage",
        "total_tokens_reminder",
        "ultra_effort_enter",
        "ultra_effort_exit",
        "ultramemory",
        "verify_plan_reminder",
    }
)


class Silent(Enum):
    """Why a row has nothing to say."""

    NOISE = "noise"
    UNKNOWN = "unknown"


def system_row(row: JsonObject) -> tuple[EventKind, str, str] | Silent:
    """Return kind, label and text of a system row that says something, else whether it is known."""
    subtype = as_word(row.get("subtype"))
    if subtype == "compact_boundary":
        return EventKind.AUDIT, "compact_boundary", _boundary_text(row)
    if subtype in _SYSTEM_ERRORS:
        return EventKind.ERROR, "api_error", _error_text(row)
    if subtype in _SYSTEM_NOTES:
        return EventKind.AUDIT, subtype, _plain(row.get("content")) or subtype
    label = _SYSTEM_CONTEXT.get(subtype)
    if label is not None:
        text = _plain(row.get("content"))
        return (EventKind.CONTEXT, label, text) if text else Silent.NOISE
    return Silent.NOISE if subtype in _SYSTEM_NOISE else Silent.UNKNOWN


def attachment_row(attachment: JsonObject) -> tuple[str, str] | Silent:
    """Return label and text of an attachment that stood before the model, else whether it is known."""
    kind = as_word(attachment.get("type"))
    if kind == "hook_success" and as_word(attachment.get("hookEvent")) in _HOOKS_BEFORE_MODEL:
        text = _plain(attachment.get("content"))
        return ("hook", text) if text else Silent.NOISE
    label = _ATTACHMENT_CONTEXT.get(kind)
    if label is not None:
        text = _attachment_text(attachment)
        return (label, text) if text else Silent.NOISE
    return Silent.NOISE if kind in _ATTACHMENT_NOISE else Silent.UNKNOWN


def _boundary_text(row: JsonObject) -> str:
    data = as_object(row.get("compactMetadata")) or {}
    trigger, tokens = data.get("trigger"), data.get("preTokens")
    facts = [str(trigger)] if isinstance(trigger, str) else []
    facts += [f"{tokens} tokens before"] if isinstance(tokens, int) else []
    return f"The agent compacted the conversation ({', '.join(facts)})." if facts else "The agent compacted it."


def _error_text(row: JsonObject) -> str:
    error = as_object(row.get("error"))
    text = None
    if error is None:
        text = _plain(row.get("error"))
    else:
        inner = as_object(error.get("error")) or {}
        texts = (error.get("formatted"), error.get("message"), inner.get("message"))
        text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
        if text is None and isinstance(error.get("status"), int):
            text = f"status {error['status']}"
    return text or _plain(row.get("content")) or "The model's server answered with an error."


def _attachment_text(attachment: JsonObject) -> str | None:
    for key in ("content", "snippet", "blockingError", "prompt", "text"):
        text = _plain(attachment.get(key))
        if text:
            name = attachment.get("filename") or attachment.get("path")
            return f"{name}\n{text}" if isinstance(name, str) else text
    return None


def _plain(value: Any, depth: int = 0) -> str | None:
    """Find the text in the shapes that rows use: a text, a list of texts or blocks, an object that holds either."""
    if isinstance(value, str):
        return value if value.strip() else None
    if depth > 3:
        return None
    if (items := as_list(value)) is not None:
        texts = [text for item in items if (text := _plain(item, depth + 1))]
        return "\n".join(texts) or None
    if (fields := as_object(value)) is not None:
        keys = ("text", "content", "file", "blockingError", "message")
        return next((text for key in keys if (text := _plain(fields.get(key), depth + 1))), None)
    return None
