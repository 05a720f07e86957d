"""From what a model proposes to what may run. A proposal is untrusted in every field.

The module owns these invariants:

- A call gets a new id of ours; the model's own ids are never seen.
- Arguments pass the codec (finite numbers, unique keys, depth, strict UTF-8) and the tool's schema, in this order.
- What can be answered is answered: an unknown or disabled tool and wrong arguments become a refusal that the model
  reads, and too many calls become refusals of all. What breaks the protocol itself (a name that is no name, text that
  is no text) ends the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from emelex_core import codec, ids, limits
from emelex_core.agent.calls import Arguments, ProposedCall, Tool, ToolCall
from emelex_core.agent.schemas import ArgumentCheck, argument_check, is_object
from emelex_core.agent.wording import shortened, visible
from emelex_core.errors import Invalid, OutputRejected

_REFUSAL_BYTES_MAX: Final = 1 * limits.KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A call of a batch. `refusal` says why it will not run; without one `tool` is what runs it."""

    call: ToolCall
    tool: Tool | None
    refusal: str | None


class ToolBox:
    """The registered tools, their compiled schemas, and which of them are enabled now (behaviours 89 to 92)."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._checks: dict[str, ArgumentCheck] = {}
        for tool in tools:
            declaration = tool.declaration
            name = codec.check_line(declaration.name, what="a tool's name", bytes_max=limits.TOOL_NAME_BYTES_MAX)
            if name in self._tools:
                raise Invalid(f"two tools are called {name}")
            self._checks[name] = argument_check(declaration.parameters, what=f"the parameters of {name}")
            self._tools[name] = tool
        self._enabled = frozenset(self._tools)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every registered tool by name, in the order of registration."""
        return self._tools

    @property
    def enabled(self) -> frozenset[str]:
        """The names of those that may be called."""
        return self._enabled

    def enable(self, names: Sequence[str]) -> None:
        """Allow exactly these. Raises: Invalid naming a tool that is not registered; the old subset then stays."""
        unknown = sorted(set(names) - set(self._tools))
        if unknown:
            raise Invalid(f"no tool is called {', '.join(visible(name) for name in unknown)}")
        self._enabled = frozenset(names)

    def plan(self, proposals: Sequence[ProposedCall]) -> tuple[Planned, ...]:
        """Turn one round's proposals into a batch. Raises: OutputRejected when they break the protocol.

        Of too many none runs: as many as a batch holds are refused, and the refusals tell how many there were.
        """
        planned = tuple(self._planned(proposal) for proposal in proposals[: limits.AGENT_CALLS_PER_ROUND_MAX])
        if len(proposals) <= limits.AGENT_CALLS_PER_ROUND_MAX:
            return planned
        words = (
            f"The call was not run, and no other of this round: {len(proposals)} calls were proposed at once, "
            f"and at most {limits.AGENT_CALLS_PER_ROUND_MAX} are accepted."
        )
        return tuple(Planned(call=item.call, tool=None, refusal=words) for item in planned)

    def _planned(self, proposal: ProposedCall) -> Planned:
        try:
            name = codec.check_line(
                proposal.name, what="the name of a proposed tool", bytes_max=limits.TOOL_NAME_BYTES_MAX
            )
            arguments, fault = _arguments(proposal.arguments)
        except Invalid as error:
            raise OutputRejected(error.message) from None
        tool = self._tools.get(name)
        refusal = self._refusal(name, tool, arguments, fault)
        call = ToolCall(call_id=ids.ordered_id(), name=name, arguments=arguments)
        return Planned(call=call, tool=tool if refusal is None else None, refusal=refusal)

    def _refusal(self, name: str, tool: Tool | None, arguments: Arguments, fault: str | None) -> str | None:
        if tool is None:
            words = f"There is no tool called {visible(name)}. The tools are: {', '.join(sorted(self._enabled))}."
        elif name not in self._enabled:
            words = f"The tool {name} is disabled and was not run."
        else:
            fault = fault or self._checks[name](arguments)
            words = f"The call was not run: {fault}" if fault else ""
        return shortened(words, _REFUSAL_BYTES_MAX) if words else None


def _arguments(proposed: Arguments | str) -> tuple[Arguments, str | None]:
    """Return an object to store, and what is wrong with it; text that is no object stands under `input`."""
    what = "the arguments"
    if not isinstance(proposed, str):
        codec.check_json(proposed, what=what, bytes_max=limits.TURN_ARGUMENT_BYTES_MAX)
        return proposed, None
    codec.check_text(proposed, what=what, bytes_max=limits.TURN_ARGUMENT_BYTES_MAX)
    if not proposed.strip():
        return {}, None
    try:
        value = codec.parse_strict(proposed, what=what, bytes_max=limits.TURN_ARGUMENT_BYTES_MAX)
    except Invalid as error:
        return {"input": proposed}, error.message
    if is_object(value):
        return value, None
    return {"input": proposed}, f"{what} are not a JSON object"
