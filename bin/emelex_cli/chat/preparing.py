"""What a chat runs with: the model of a new Session or the one that a Session was begun with, loaded, and its tools.

Whatever can refuse a Session is asked before a model is loaded: calls of unknown effect, the model that it is bound to.
Everything here blocks and belongs on a thread.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from emelex_cli.call import Call
from emelex_cli.chat.greeting import has_tools
from emelex_core.agent import attended
from emelex_core.agent.models import EngineModel
from emelex_core.agent.recalled import Recollect, RemindedModel
from emelex_core.agent.tools import standard_tools
from emelex_core.agent.tools.rooted import Root
from emelex_core.errors import SessionModelMismatch
from emelex_core.journal import recovery, snapshots
from emelex_core.models.load import load_engine
from emelex_core.models.manager import ModelManager
from emelex_core.models.resolve import resolve_model

if TYPE_CHECKING:
    from emelex_core.agent.attended import Choices
    from emelex_core.agent.calls import ToolDeclaration
    from emelex_core.agent.durable_setup import AgentSetup
    from emelex_core.agent.ports import AgentModel, Approve
    from emelex_core.journal.snapshots import SessionSnapshot
    from emelex_core.sessions.records import Session
    from emelex_core.store import MemoryStore

ENDPOINT: Final = "endpoint:"


def prepare(
    call: Call,
    store: MemoryStore,
    stack: ExitStack,
    *,
    session: Session | None,
    reference: str | None,
    choices: Choices,
    approve: Approve,
    recollect: Recollect,
) -> AgentSetup:
    """Put together what a Session runs with; `stack` closes it. `reference` None leaves the model open.

    Raises: UncertainToolInvocations, SessionModelMismatch, ModelUnusable, NotFound, UsageError, Corrupt, Storage.
    """
    snapshot = None if session is None else _begun_with(store, session)
    config = call.config
    manager = ModelManager(call.home, endpoints=config.models.endpoint)
    wanted = reference or (None if snapshot is None else snapshot.model[0]) or config.models.default
    installed = manager.get(wanted)
    if session is not None and session.model_snapshot_id is not None:
        try:
            store.validate_model(session, installed)
        except SessionModelMismatch as error:
            if not installed.reference.startswith(ENDPOINT):
                raise
            raise SessionModelMismatch(
                f"{installed.reference} is not what the chat was begun with: its address or its model changed",
                hint="put them back in config.toml, or begin a new chat",
            ) from error
    root = Root(call.directory)
    stack.callback(root.close)
    tools = standard_tools(root)
    model = RemindedModel(_loaded(call, store, stack, installed.reference), recollect)
    if snapshot is None:
        choices = replace(choices, tools=has_tools(installed.reference, choices.tools))
        return attended.fresh(model, tools, choices, approve=approve, installed=(installed, manager))
    return attended.resumed(snapshot, model, tools, choices, approve=approve, installed=(installed, manager))


def offered(call: Call) -> tuple[ToolDeclaration, ...]:
    """What a model is told of the tools of this directory. Raises: Refused, Storage, Invalid for the directory."""
    with closing(Root(call.directory)) as root:
        return tuple(tool.declaration for tool in standard_tools(root))


def _begun_with(store: MemoryStore, session: Session) -> SessionSnapshot | None:
    turn = recovery.interrupted(store.database, session.id)
    if turn is not None and turn.uncertain:
        raise recovery.uncertainty(turn)
    return snapshots.load(store.database, session.id)


def _loaded(call: Call, store: MemoryStore, stack: ExitStack, reference: str) -> AgentModel:
    config = call.config
    resolved = resolve_model(reference, models_dir=call.home.models, endpoints=config.models.endpoint)
    engine = load_engine(resolved, threads=config.worker.threads)
    return stack.enter_context(EngineModel(engine, read_asset=store.read_asset))
