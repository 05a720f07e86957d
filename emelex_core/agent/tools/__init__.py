"""The agent's own tools: files below one directory, a shell, the date, and, where asked for, the web."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emelex_core.agent.calls import Tool
    from emelex_core.agent.tools.rooted import Root
    from emelex_core.clock import Clock


def standard_tools(root: Root, *, web: bool = False, clock: Clock | None = None) -> tuple[Tool, ...]:
    """Return the tools for one directory, in the order in which a model is told of them.

    They work as long as `root` is open. `web` adds web_fetch, which asks for approval at each call.
    """
    from emelex_core.agent.tools.dates import DateTime
    from emelex_core.agent.tools.finding import FindFiles, Grep
    from emelex_core.agent.tools.reading import ListDirectory, ReadFile
    from emelex_core.agent.tools.shell import Shell
    from emelex_core.agent.tools.writing import EditFile, WriteFile
    from emelex_core.clock import system_clock

    tools: list[Tool] = [
        ReadFile(root),
        ListDirectory(root),
        FindFiles(root),
        Grep(root),
        WriteFile(root),
        EditFile(root),
        Shell(root),
        DateTime(system_clock if clock is None else clock),
    ]
    if web:
        from emelex_core.agent.tools.web import WebFetch

        tools.append(WebFetch())
    return tuple(tools)
