"""One door to the readers of all formats."""

from __future__ import annotations

from emelex_core.errors import Invalid
from emelex_core.imports.claude.reader import ClaudeCodeReader
from emelex_core.imports.codex.reader import CodexReader
from emelex_core.imports.records import CLAUDE_CODE, CODEX, MediaSink, TranscriptFile, TranscriptReader


def open_transcript(file: TranscriptFile, media: MediaSink, *, start_offset: int = 0) -> TranscriptReader:
    """Return the reader of a transcript. Nothing is read before the iteration starts.

    `start_offset` is an `end_offset` or `position` of an earlier reading, in unpacked bytes; the caller has proven the
    prefix with `jsonl.prefix_sha256`. Lines before it are read for what later lines refer to, and yield nothing.

    Raises: Invalid for a format without a reader. Iterating raises NotFound or Invalid when the file cannot be opened,
    and Storage when reading it fails.
    """
    if file.format == CLAUDE_CODE:
        return ClaudeCodeReader(file, media, start_offset=start_offset)
    if file.format == CODEX:
        return CodexReader(file, media, start_offset=start_offset)
    raise Invalid(f"{file.path}: no reader for the format {file.format!r}")
