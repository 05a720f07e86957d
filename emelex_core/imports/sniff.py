"""Which agent wrote a file, told from its content.

The module owns one invariant: a name or a place is never taken for a format; the records decide.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Final

from emelex_core import limits
from emelex_core.errors import Invalid
from emelex_core.imports import shapes
from emelex_core.imports.claude import rows as claude_rows
from emelex_core.imports.codex.kinds import unwrap
from emelex_core.imports.files.jsonl import LineReader
from emelex_core.imports.files.lenient import JsonObject, as_object, as_word
from emelex_core.imports.records import CLAUDE_CODE, CODEX

_LINES_MAX: Final = 64
_BYTES_MAX: Final = 16 * limits.MIB
_LINE_BYTES_MAX: Final = 4 * limits.MIB
"""A longer line is one with an image, which others tell about, or a whole document, which is looked at as one."""
_CLAUDE_MESSAGES: Final = frozenset({"user", "assistant", "system", "attachment"})
_CLAUDE_KEYS: Final = frozenset({"sessionId", "leafUuid", "messageId", "snapshot", "uuid"})
_CODEX_KINDS: Final = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
)


def sniff_format(path: Path) -> str | None:
    """Return the format of the first record that tells it, or None. Raises: NotFound, Invalid, Storage on opening."""
    found = shapes.container_format(path)
    if found is not None:
        return found
    lines = LineReader(path, defects=Counter(), line_bytes_max=_LINE_BYTES_MAX)
    for number, line in enumerate(lines):
        found = record_format(line.value) or shapes.document_format(line.value)
        if found is not None:
            return found
        if number >= _LINES_MAX or line.end_offset > _BYTES_MAX:
            break
    with contextlib.suppress(Invalid):
        return shapes.json_format(path)
    return None


def record_format(value: JsonObject) -> str | None:
    """Return the format that a record belongs to, or None when it could be anybody's."""
    kind = as_word(value.get("type"))
    if kind in _CLAUDE_MESSAGES and "uuid" in value and "payload" not in value:
        return CLAUDE_CODE
    if kind in claude_rows.NOISE and not _CLAUDE_KEYS.isdisjoint(value):
        return CLAUDE_CODE
    if as_object(value.get("payload")) is not None:
        return CODEX if kind in _CODEX_KINDS or "timestamp" in value else None
    if value.get("record_type") == "state":
        return CODEX
    bare, payload = unwrap(value)
    if bare == "session_meta" and ("instructions" in payload or "git" in payload):
        return CODEX
    return CODEX if bare == "response_item" else None
