"""What all tools share: typed arguments, the schema made of them, and work on a thread.

The module owns these invariants:

- A tool's JSON Schema and the type that its code reads are one definition, so that they cannot disagree.
- Work that may block runs on a thread of its own, never on the event loop; when the waiting task is dropped, the work
  is told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from emelex_core.agent.approvals import preview_of
from emelex_core.agent.calls import Arguments, Effect, ToolContext, ToolDeclaration, ToolOutcome
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import ToolError

Typed = TypeVar("Typed", bound=msgspec.Struct)
Result = TypeVar("Result")


class TypedTool(Generic[Typed]):
    """A tool whose arguments are a msgspec struct. Descendants say `name`, `description`, `effect` and `shape`."""

    name: ClassVar[str]
    description: ClassVar[str]
    effect: Effect
    shape: type[Typed]

    @property
    def declaration(self) -> ToolDeclaration:
        """What the model is told."""
        return ToolDeclaration(name=self.name, description=self.description, parameters=schema_of(self.shape))

    def caution(self, arguments: Arguments) -> str | None:
        """Why the call needs approval although its effect alone would not."""
        return self.careful(self.read(arguments))

    def preview(self, arguments: Arguments) -> str:
        """What would happen, for the person who approves."""
        return preview_of(arguments)

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        """Do it on a thread (`Tool.run`)."""
        typed = self.read(arguments)
        if self.careful(typed) is not None and not context.approved:
            raise ToolError("this needs approval, and nobody approved it")
        return await on_thread(lambda token: self.work(typed, _with_token(context, token)), context.cancel)

    def read(self, arguments: Arguments) -> Typed:
        """Return the typed arguments. Raises: ToolError for what does not fit, though the schema lets little pass."""
        try:
            return msgspec.convert(arguments, self.shape)
        except msgspec.ValidationError as error:
            raise ToolError(f"the arguments do not fit: {error}") from None

    def careful(self, arguments: Typed) -> str | None:
        """`caution` on typed arguments."""
        return None

    def work(self, arguments: Typed, context: ToolContext) -> ToolOutcome:
        """Do it, on a thread."""
        raise NotImplementedError


def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct, as one closed object."""
    _, components = msgspec.json.schema_components([shape])
    found = dict(components[shape.__name__])
    del found["title"]
    return found


async def on_thread(work: Callable[[CancelToken], Result], cancel: CancelToken) -> Result:
    """Run blocking work on a thread. Its token is cancelled with `cancel`, and when the waiting task is dropped."""
    token = CancelToken()
    with cancel.watched(token.cancel):
        try:
            return await asyncio.to_thread(work, token)
        except asyncio.CancelledError:
            token.cancel()
            raise


def _with_token(context: ToolContext, token: CancelToken) -> ToolContext:
    return ToolContext(cancel=token, approved=context.approved, output_bytes_max=context.output_bytes_max)
