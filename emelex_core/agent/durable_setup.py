"""What a durable agent runs with, and the snapshot that it makes: a Session is resumed with the same, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from emelex_core import limits
from emelex_core.agent.approvals import ASKS_DEFAULT, deny
from emelex_core.agent.calls import Approve, Effect, Tool
from emelex_core.agent.rounds import AgentModel, ModelIdentity
from emelex_core.agent.session import OUTPUT_TOKENS_MAX, AgentSession
from emelex_core.codec import Json
from emelex_core.engine.ports import Sampling
from emelex_core.errors import Invalid, MissingModelIdentity, SessionModelMismatch
from emelex_core.events import Event
from emelex_core.journal.snapshots import SessionSnapshot
from emelex_core.sessions.records import Session

if TYPE_CHECKING:
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel


@runtime_checkable
class SettledTool(Protocol):
    """A tool that says what binds it beside its declaration: timeouts, bounds, hosts. JSON; part of the authority."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings, the same for the tool's whole life."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """A model, its tools and everything that shapes an answer.

    `approve` is asked before calls whose effect is in `asks`. `installed` is the model on disk with its manager, where
    the model is one: an unbound Session is then bound to it. `extra` is more configuration of the caller's own, as
    JSON; it is part of the snapshot.
    """

    model: AgentModel
    system: str
    tools: Sequence[Tool] = ()
    approve: Approve = deny
    asks: frozenset[Effect] = ASKS_DEFAULT
    rounds_max: int = limits.AGENT_ROUNDS
    output_tokens_max: int = OUTPUT_TOKENS_MAX
    sampling: Sampling = field(default_factory=Sampling)
    installed: tuple[InstalledModel, ModelManager] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def agent(self, history: Sequence[Event]) -> AgentSession:
        """The harness over a history. Raises: Invalid."""
        return AgentSession(
            self.model,
            self.tools,
            system=self.system,
            history=history,
            approve=self.approve,
            asks=self.asks,
            rounds_max=self.rounds_max,
            output_tokens_max=self.output_tokens_max,
            sampling=self.sampling,
        )

    def identity(self) -> ModelIdentity:
        """What answers. Raises: MissingModelIdentity; Invalid when it is not the installed model."""
        identity = self.model.identity
        if identity is None:
            raise MissingModelIdentity(
                "this model has no identity that a Session could be resumed with",
                hint="use an installed model or a configured endpoint",
            )
        if self.installed is not None:
            installed = self.installed[0]
            if (installed.reference, installed.snapshot_id) != (identity.reference, identity.snapshot_id):
                raise Invalid(f"the model that runs is {identity.snapshot_id}, not {installed.snapshot_id}")
        return identity

    def snapshot(self, root: str) -> SessionSnapshot:
        """The snapshot of this setup in a workspace. Raises: MissingModelIdentity, Invalid."""
        identity = self.identity()
        config = {
            **self.extra,
            "model": {"reference": identity.reference, "snapshot_id": identity.snapshot_id},
            "system": self.system,
            "asks": sorted(self.asks),
            "rounds_max": self.rounds_max,
            "output_tokens_max": self.output_tokens_max,
            "sampling": {"temperature": self.sampling.temperature, "seed": self.sampling.seed},
        }
        tools = {tool.declaration.name: _bound(tool) for tool in self.tools}
        return SessionSnapshot.of(config=config, root=root, tools=tools)

    def require_model(self, session: Session, found: SessionSnapshot | None) -> None:
        """Raise SessionModelMismatch unless this is the model that a Session is bound to, or was begun with."""
        identity = self.identity()
        recorded = (session.model_reference, session.model_snapshot_id)
        if session.model_snapshot_id is None:
            if found is None:
                return
            recorded = found.model
        if recorded != (identity.reference, identity.snapshot_id):
            raise SessionModelMismatch(
                f"Session {session.id} goes on with {recorded[1]}, not with {identity.snapshot_id}",
                hint=f"resume it with --model {recorded[0]}, or start a new Session",
            )


def _bound(tool: Tool) -> dict[str, Json]:
    """All that binds a tool: what the model is told, what it may do, and its own settings."""
    declaration = tool.declaration
    settings = dict(tool.settings) if isinstance(tool, SettledTool) else {}
    return {
        **settings,
        "description": declaration.description,
        "parameters": declaration.parameters,
        "effect": tool.effect.value,
    }
