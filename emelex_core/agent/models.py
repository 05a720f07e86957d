"""`EngineModel`: a `ChatEngine` as the model of an agent.

The module owns these invariants:

- The engine runs on one thread of its own, whose work is done one after another; tokens are counted there, too. The
  event loop never waits for it, and hears text through `call_soon_threadsafe`.
- When the waiting task is dropped, the engine is stopped.
- The prompt fits the context: what does not is left out by whole turns, and said (`fitting`).
- An answer that goes in circles is stopped, and what it said before is the answer (`repeating`).
- A picture goes to an engine that sees, which counts it into the prompt; any other is told that one was there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final, Self

from emelex_core import limits
from emelex_core.agent.dialects import Dialect, Offer, dialect_of, plain_text
from emelex_core.agent.fitting import ROOM_HINT, Fitted, fit
from emelex_core.agent.listening import Listener
from emelex_core.agent.repeating import LoopWatch
from emelex_core.agent.rounds import ModelIdentity, ModelReply, ModelRequest, Usage
from emelex_core.engine.cancel import CancelToken
from emelex_core.engine.ports import ChatEngine, FinishReason, Image, Message, Request, Role
from emelex_core.errors import Cancelled, EmelexError, OutputRejected, PermanentFailure
from emelex_core.events import AssetRef, Event, EventKind, MediaPart, ToolCallPart, ToolResultPart

IMAGE_BYTES_MAX: Final = 20 * limits.MIB
"""All pictures of one request; older ones become placeholders first."""
IMAGES_MAX: Final = 16

REPEATED: Final = "the answer was stopped, because it repeated itself"

ReadAsset = Callable[[AssetRef], bytes]


class EngineModel:
    """An engine behind `AgentModel`. It owns the engine: `close` ends the thread, then the engine.

    `read_asset` gives the verified bytes of a picture; it is called on the engine's thread.
    """

    def __init__(self, engine: ChatEngine, *, read_asset: ReadAsset | None = None) -> None:
        self._engine = engine
        self._read_asset = read_asset
        self._dialect = dialect_of(engine.info)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="emelex-engine")

    @property
    def identity(self) -> ModelIdentity:
        """The engine's reference, and what pins its weights."""
        return ModelIdentity(reference=self._engine.info.reference, snapshot_id=self._engine.info.snapshot_id)

    async def respond(self, request: ModelRequest, *, tell: Callable[[str], None], cancel: CancelToken) -> ModelReply:
        """Run one round (`AgentModel.respond`)."""
        loop = asyncio.get_running_loop()
        token = CancelToken()

        def tell_loop(piece: str) -> None:
            # A loop that was closed meanwhile has nobody left to tell.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, piece)

        with cancel.watched(token.cancel):
            try:
                return await loop.run_in_executor(self._thread, self._round, request, tell_loop, token)
            except asyncio.CancelledError:
                token.cancel()
                raise

    async def require_room(self, request: ModelRequest) -> None:
        """Raise PermanentFailure when a round could not be asked for: its newest turn does not fit, shortened as it is.

        `RoomChecked.require_room`.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._prepared, request)

    def close(self) -> None:
        """End the thread and the engine. A second call does nothing."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _round(self, request: ModelRequest, tell: Callable[[str], None], cancel: CancelToken) -> ModelReply:
        """One round, on the engine's thread."""
        prepared, note = self._prepared(request)
        listener = self._dialect.hearing(tell)
        stop = CancelToken()
        watch = LoopWatch(listener.hear, stop.cancel)
        try:
            with cancel.watched(stop.cancel):
                generation = self._engine.generate(replace(prepared, tell=watch.hear), stop)
        except Cancelled:
            if watch.kept is None or cancel.cancelled:
                raise
            return self._in_circles(prepared, watch, listener, note)
        if watch.kept is not None:
            return self._in_circles(prepared, watch, listener, note)
        words, calls = self._dialect.read(generation)
        if not calls:
            listener.close(words)
        proposed = calls and generation.finish_reason is not FinishReason.LENGTH
        return ModelReply(
            text=words,
            reasoning=generation.reasoning,
            calls=calls,
            finish_reason=FinishReason.TOOL_CALLS if proposed else generation.finish_reason,
            usage=Usage(prompt_tokens=generation.prompt_tokens, output_tokens=generation.output_tokens),
            note=note,
        )

    def _prepared(self, request: ModelRequest) -> tuple[Request, str | None]:
        """The engine's request, and what the person is told of it. Raises: PermanentFailure when nothing fits."""
        offer = self._dialect.offer(request.tools, request.choice)
        output_tokens = min(request.output_tokens_max, max(self._engine.info.context_tokens // 2, 1))
        prompt = _Prompt(self._engine, self._dialect, offer, request, self._read_asset)
        fitted = prompt.fitted(output_tokens)
        prepared = Request(
            messages=prompt.messages(fitted.events),
            output_tokens_max=output_tokens,
            grammar=offer.grammar,
            sampling=request.sampling,
            tools=offer.tools,
        )
        return prepared, fitted.note

    def _in_circles(self, request: Request, watch: LoopWatch, listener: Listener, note: str | None) -> ModelReply:
        """The answer up to where it began to repeat itself. Raises: OutputRejected when that was within a call."""
        told = listener.told
        if not told.strip():
            raise OutputRejected("the model repeated itself within a call; nothing of it was run")
        kept = watch.kept or ""
        return ModelReply(
            text=kept if told.startswith(kept) else told,
            finish_reason=FinishReason.LENGTH,
            usage=Usage(
                prompt_tokens=self._engine.count_prompt(request.messages),
                output_tokens=self._engine.count_text(watch.text),
            ),
            note="; ".join(line for line in (note, REPEATED) if line),
        )


class _Prompt:
    """One round's prompt: events into messages, within the context."""

    def __init__(
        self,
        engine: ChatEngine,
        dialect: Dialect,
        offer: Offer,
        request: ModelRequest,
        read_asset: ReadAsset | None,
    ) -> None:
        self._engine = engine
        self._dialect = dialect
        self._request = request
        self._system = "\n\n".join(words for words in (request.system, offer.words) if words)
        # What a native dialect offers is put into the prompt by the server, where only it can count it. Counted as a
        # message it is bounded wherever a text is only estimated.
        offered = "".join(f"{tool.name}{tool.description}{tool.parameters}" for tool in offer.tools)
        self._beside = engine.count_prompt((Message(role=Role.USER, text=offered),)) if offered else 0
        self._names = {
            part.call_id: part.name
            for event in request.messages
            for part in event.parts
            if isinstance(part, ToolCallPart)
        }
        self._pictures = _pictures(request.messages, read_asset if engine.info.images else None)

    def fitted(self, output_tokens: int) -> Fitted:
        """The events that fit beside the answer. Raises: PermanentFailure when not even the newest turn does."""
        context = self._engine.info.context_tokens
        reserved = output_tokens + self._beside
        fixed = reserved + self._engine.count_text(self._system)
        if fixed >= context:
            raise PermanentFailure(
                f"tools and answer reserve {fixed} of {context} tokens; nothing is left for a conversation",
                hint=ROOM_HINT,
            )
        return fit(self._request.messages, measure=self._measure, weigh=self._weigh, tokens=context - reserved)

    def messages(self, events: Sequence[Event]) -> tuple[Message, ...]:
        """The messages of some events, behind the system message."""
        system = (Message(role=Role.SYSTEM, text=self._system),) if self._system else ()
        return (*system, *(message for event in events for message in self._message(event)))

    def _measure(self, events: tuple[Event, ...]) -> int:
        return self._engine.count_prompt(self.messages(events))

    def _weigh(self, event: Event) -> int:
        return sum(self._engine.count_text(message.text) for message in self._message(event))

    def _message(self, event: Event) -> list[Message]:
        if event.kind is EventKind.ASSISTANT:
            return [self._dialect.assistant(event)]
        results = [part for part in event.parts if isinstance(part, ToolResultPart)]
        if event.kind is EventKind.TOOL and results:
            return [self._dialect.result(part, self._names.get(part.call_id, "unknown")) for part in results]
        shown = [self._pictures[ref] for ref in event.media if ref in self._pictures]
        told = [_placeholder(ref) for ref in event.media if ref not in self._pictures]
        words = [text for text in (self._dialect.words(plain_text(event)), *told) if text]
        return [Message(role=Role.USER, text="\n".join(words), images=tuple(shown))]


def _pictures(events: Sequence[Event], read_asset: ReadAsset | None) -> dict[AssetRef, Image]:
    """The newest pictures within the bounds, with their bytes; one that cannot be read stays a placeholder."""
    found: dict[AssetRef, Image] = {}
    if read_asset is None:
        return found
    left = IMAGE_BYTES_MAX
    for event in reversed(events):
        for part in event.parts:
            if not isinstance(part, MediaPart) or part.ref.kind != "image" or part.ref in found:
                continue
            if part.ref.size > left or len(found) == IMAGES_MAX:
                continue
            with suppress(EmelexError):
                found[part.ref] = Image(media_type=part.ref.media_type, data=read_asset(part.ref))
                left -= part.ref.size
    return found


def _placeholder(ref: AssetRef) -> str:
    return f"[{ref.kind}, {ref.media_type}, {ref.size} bytes, not shown to you]"
