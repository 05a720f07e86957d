"""What a model is reminded of: before the person's words, in every round of a turn, and never stored (177; issue 5)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from agents import Gadget, ScriptedModel, proposes, says
from emelex_core import MemoryStore
from emelex_core.agent.recalled import LABEL, RemindedModel
from emelex_core.agent.session import AgentSession
from emelex_core.errors import Storage
from emelex_core.events import Event, EventKind
from emelex_core.knowledge.records import Knowledge


def known(tmp_path: Path, **entries: str) -> tuple[Knowledge, ...]:
    """Entries as a store gives them."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(tmp_path / "home", create=True) as store:
        return tuple(store.remember(workspace, key, content) for key, content in entries.items())


def test_the_reminder_stands_before_the_words_in_every_round(tmp_path: Path) -> None:
    """And the same one: what is recalled does not change under a turn."""
    entries = known(tmp_path, port='The port is "8080"\nand nothing else.')
    asked: list[str] = []

    async def recollect(words: str) -> tuple[Knowledge, ...]:
        asked.append(words)
        return entries

    model = ScriptedModel(proposes(("gadget", {})), says("8080"), says("still 8080"))
    session = AgentSession(RemindedModel(model, recollect), [Gadget()], system="", history=[Event.user("hi")])
    asyncio.run(session.run(Event.user("Which port?")))
    asyncio.run(session.run(Event.user("And now?")))
    assert asked == ["Which port?", "And now?"]
    for request, place in zip(model.asked, (1, 1, 5), strict=True):
        reminder = request.messages[place]
        assert (reminder.kind, reminder.label) == (EventKind.CONTEXT, LABEL)
        assert json.loads(reminder.text)["untrusted_workspace_knowledge"][0]["content"] == entries[0].content
        assert "\n" not in reminder.text
        assert request.messages[place + 1].kind is EventKind.USER
        assert sum(message.kind is EventKind.CONTEXT for message in request.messages) == 1
    assert all(event.kind is not EventKind.CONTEXT for event in session.history)


def test_nothing_known_and_a_failing_recall_cost_nothing() -> None:
    """The turn goes on as if there were no Knowledge."""

    async def nothing(words: str) -> tuple[Knowledge, ...]:
        return ()

    async def failing(words: str) -> tuple[Knowledge, ...]:
        raise Storage("busy")

    for recollect in (nothing, failing):
        model = ScriptedModel(says("Yes."))
        session = AgentSession(RemindedModel(model, recollect), system="")
        assert asyncio.run(session.run(Event.user("Well?"))).answer.text == "Yes."
        assert model.asked[0].messages == (Event.user("Well?"),)


def test_it_is_the_model_that_it_reminds() -> None:
    async def nothing(words: str) -> tuple[Knowledge, ...]:
        return ()

    model = ScriptedModel()
    assert RemindedModel(model, nothing).identity == model.identity
