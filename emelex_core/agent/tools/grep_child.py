"""The search that grep runs in a process of its own. Run as `python -m … DESCRIPTOR`, with the request on stdin.

It reads what it was given open, follows no link, and leaves out files that are likely to hold secrets, or have several
names, unless the file itself was asked for. It writes the answer as UTF-8 and ends with 0, or a reason and ends with 1.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from emelex_core.agent.tools.globs import Glob
from emelex_core.agent.tools.rooted import open_regular
from emelex_core.agent.tools.secrets import is_secret
from emelex_core.agent.tools.walk import Walk
from emelex_core.agent.wording import visible
from emelex_core.engine.cancel import CancelToken

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
LINE_CHARACTERS_MAX: Final = 400

_PROBE_BYTES: Final = 8_192


class _Request(msgspec.Struct, frozen=True):
    pattern: str
    files: str | None
    regex: bool
    ignore_case: bool
    shown: str
    matches_max: int


class Search:
    """One search through one file or below one directory."""

    def __init__(self, request: _Request) -> None:
        words = request.pattern if request.regex else re.escape(request.pattern)
        self._pattern = re.compile(words, re.IGNORECASE if request.ignore_case else 0)
        self._request = request
        self._glob = None if request.files is None else Glob(request.files)
        self._skipped: dict[str, int] = {}

    def lines(self, start: int) -> Iterator[str]:
        """Yield the answer's lines, and at the end what was left out."""
        left = self._request.matches_max
        walk = Walk(CancelToken())
        for line in self._found(start, walk):
            if not left:
                yield f"[more than {self._request.matches_max} lines fit; the rest is not shown]"
                break
            left -= 1
            yield line
        if left == self._request.matches_max:
            yield "[no line fits]"
        notes = [*walk.notes, *(f"{count} files left out: {why}" for why, count in sorted(self._skipped.items()))]
        if notes:
            yield f"[{'; '.join(notes)}]"

    def _found(self, start: int, walk: Walk) -> Iterator[str]:
        if stat.S_ISREG(os.fstat(start).st_mode):
            yield from self._in_file(start, self._request.shown)
            return
        prefix = f"{self._request.shown}/" if self._request.shown else ""
        for found in walk.entries(start):
            if not stat.S_ISREG(found.mode) or (self._glob is not None and not self._glob.matches(found.path)):
                continue
            if is_secret(found.path):
                self._skip("they are likely to hold secrets")
                continue
            if found.names > 1:
                self._skip("they have other names, which may be those of secrets")
                continue
            try:
                descriptor = open_regular(found.parent, found.path[-1])
            except OSError:
                self._skip("they could not be read")
                continue
            try:
                yield from self._in_file(descriptor, prefix + "/".join(found.path))
            finally:
                os.close(descriptor)

    def _in_file(self, descriptor: int, path: str) -> Iterator[str]:
        if os.fstat(descriptor).st_size > FILE_BYTES_MAX:
            return self._skip(f"they are larger than {FILE_BYTES_MAX} bytes")
        try:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read(FILE_BYTES_MAX)
        except OSError:
            return self._skip("they could not be read")
        if b"\0" in data[:_PROBE_BYTES]:
            return self._skip("they are no text")
        shown = visible(os.fsencode(path).decode("utf-8", "replace"))
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            if self._pattern.search(line):
                cut = line if len(line) <= LINE_CHARACTERS_MAX else f"{line[:LINE_CHARACTERS_MAX]}… [cut]"
                yield f"{shown}:{number}: {cut.rstrip(chr(13))}"

    def _skip(self, why: str) -> None:
        self._skipped[why] = self._skipped.get(why, 0) + 1


def main() -> int:
    """Answer the request on stdin about the open descriptor that the first argument names."""
    try:
        search = Search(msgspec.json.decode(sys.stdin.buffer.read(), type=_Request))
    except re.error as error:
        sys.stdout.write(f"the pattern is no regular expression: {error}")
        return 1
    for line in search.lines(int(sys.argv[1])):
        sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
