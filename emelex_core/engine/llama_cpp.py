"""The engine on llama.cpp, and its tokenizer alone.

The module owns these invariants:

- A result depends on the request alone, never on what ran before. The key-value cache of an earlier prompt is reused
  for the longest common prefix, but only what was computed as prompt: a batch of one token takes another path through
  the arithmetic and differs in its logits, so generated tokens are never reused and no prompt batch has size one.
- Nothing reaches llama.cpp that ends the process: batches stay within the context's size, text is strict UTF-8, prompt
  and bound fit the context before inference, and a grammar compiles first.
- Cancellation aborts prompt evaluation and decoding alike, and leaves the engine usable.
- Text is joined as bytes and decoded once, so a character that is split over tokens comes out whole.

Settings are measured.md's: batches of 256 tokens, flash attention off, one thread by default.
"""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from emelex_core.engine import native
from emelex_core.engine.checks import check_fits, check_plain, check_request
from emelex_core.engine.ports import (
    CancelToken,
    EngineInfo,
    FinishReason,
    Generation,
    Message,
    Request,
    ToolDialect,
)
from emelex_core.engine.reasoning import split_reasoning
from emelex_core.engine.sampling import Candidates, Picker
from emelex_core.engine.streaming import TextStream
from emelex_core.engine.vocabulary import Vocabulary
from emelex_core.errors import Cancelled, EngineFailure, Invalid, ModelUnusable

BATCH_TOKENS: Final = 256
CONTEXT_TOKENS_DEFAULT: Final = 4_096
"""Used where the model was trained for more: the cache of 4,096 tokens costs the built-in model 94 MB."""
CLOSE_SECONDS: Final = 5.0

_DECODED: Final = 0
_ABORTED: Final = 2


class LlamaTokenizer:
    """A model's tokenizer without its weights: exact counts for planning. One thread uses it at a time."""

    exact_tokens = True

    def __init__(self, path: Path) -> None:
        self._weights = native.load_weights(path, vocabulary_only=True)
        self._vocabulary = Vocabulary(self._weights)

    def count_text(self, text: str) -> int:
        """Tokens of plain text, without template or special tokens."""
        return self._vocabulary.count(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt as the engine would send it."""
        return len(self._vocabulary.prompt(messages))

    def close(self) -> None:
        """Free the tokenizer. A second call does nothing."""
        self._weights.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class LlamaEngine:
    """A GGUF model in this process (`ChatEngine`).

    `context_tokens` None means what the model was trained for, at most `CONTEXT_TOKENS_DEFAULT`.

    Raises: ModelUnusable when the file cannot be loaded, speaks no ChatML or has a smaller context than asked for;
    EngineFailure when memory does not suffice.
    """

    def __init__(
        self, path: Path, *, reference: str, snapshot_id: str, threads: int = 1, context_tokens: int | None = None
    ) -> None:
        if threads < 1:
            raise Invalid(f"{threads} threads; at least one is needed")
        self._library: Any = native.bindings()
        self._busy = threading.Lock()
        self._prompt: list[int] = []
        self._weights = native.load_weights(path, vocabulary_only=False)
        try:
            self._vocabulary = Vocabulary(self._weights)
            size = self._context_size(context_tokens)
            self._context = native.open_context(
                self._weights, context_tokens=size, batch_tokens=BATCH_TOKENS, threads=threads
            )
        except BaseException:
            self._weights.close()
            raise
        self._abort = native.AbortFlag(self._context)
        self._candidates = Candidates(self._vocabulary)
        self._info = EngineInfo(
            reference=reference,
            snapshot_id=snapshot_id,
            engine=f"llama.cpp {native.version()}, {path.name}, threads {threads}",
            context_tokens=size,
            exact_tokens=True,
            dialect=ToolDialect.TAGS if native.takes_tool_tags(self._weights) else ToolDialect.JSON,
        )

    @property
    def info(self) -> EngineInfo:
        """What this engine runs."""
        return self._info

    def count_text(self, text: str) -> int:
        """Tokens of plain text, without template or special tokens."""
        return self._vocabulary.count(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt as `generate` would send it."""
        return len(self._vocabulary.prompt(messages))

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Run one generation (`ChatEngine.generate`).

        The end token counts as an output token. A `length` finish drops the bytes of a character that is not complete.

        Raises: Cancelled; Invalid for a request without messages or bound; PermanentFailure when prompt and bound
        exceed the context, or the grammar does not compile; EngineFailure when the library fails or another thread is
        inside.
        """
        started = time.monotonic()
        with self._alone():
            prompt = self._accept(request)
            picker = Picker(self._candidates, self._context, request.sampling, request.grammar)
            with closing(picker), self._abortable(cancel):
                self._evaluate(prompt)
                stream = _stream(request)
                written, reason, count = self._write(picker, request, stream)
                # Under a grammar as well: one that lets words pass lets thoughts pass, too.
                reasoning, text = split_reasoning(written)
                if stream is not None:
                    stream.close(text)
        return Generation(
            text=text,
            reasoning=reasoning,
            finish_reason=reason,
            prompt_tokens=len(prompt),
            output_tokens=count,
            seconds=time.monotonic() - started,
        )

    def close(self) -> None:
        """Free the model. A second call does nothing; a generation in another thread is cancelled and waited for."""
        self._abort.lift()
        # A fork in the middle of a generation leaves the lock held for ever; its child frees nothing anyway.
        if self._busy.acquire(timeout=CLOSE_SECONDS):
            self._context.close()
            self._weights.close()
            self._busy.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _context_size(self, asked: int | None) -> int:
        trained = int(self._library.llama_model_n_ctx_train(self._weights.take()))
        if asked is None:
            return min(trained, CONTEXT_TOKENS_DEFAULT)
        if not 1 <= asked <= trained:
            raise ModelUnusable(f"a context of {asked} tokens was asked for; the model was trained for 1 to {trained}")
        return asked

    def _accept(self, request: Request) -> list[int]:
        """Check a request and return its prompt's tokens."""
        check_request(request)
        check_plain(request)
        prompt = self._vocabulary.prompt(request.messages)
        check_fits(
            prompt_tokens=len(prompt),
            output_tokens_max=request.output_tokens_max,
            context_tokens=self._info.context_tokens,
        )
        return prompt

    def _evaluate(self, prompt: list[int]) -> None:
        """Fill the cache with the prompt, keeping what an earlier one left."""
        kept = _common_prefix(self._prompt, prompt[:-2])
        # Until the last batch is in, the cache holds neither the old prompt nor the new one.
        self._prompt = []
        memory = self._library.llama_get_memory(self._context.take())
        if not self._library.llama_memory_seq_rm(memory, 0, kept, -1):
            self._library.llama_memory_clear(memory, False)
            kept = 0
        for start, end in _batches(kept, len(prompt)):
            self._decode(prompt[start:end])
        self._prompt = prompt

    def _write(self, picker: Picker, request: Request, stream: TextStream | None) -> tuple[str, FinishReason, int]:
        """Decode token after token; return the text, how it ended, and how many tokens were picked."""
        stops = tuple(stop.encode() for stop in request.stop)
        written = bytearray()
        count = 0
        while True:
            token = picker.pick()
            count += 1
            if self._vocabulary.ends_message(token):
                return _text(written, whole=True), FinishReason.STOP, count
            fresh = self._vocabulary.bytes_of(token)
            written += fresh
            cut = _first_stop(written, stops, len(fresh))
            if cut is not None:
                return _text(written[:cut], whole=True), FinishReason.STOP, count
            if stream is not None:
                stream.add(fresh)
            if count == request.output_tokens_max:
                return _text(written, whole=False), FinishReason.LENGTH, count
            self._decode([token])

    def _decode(self, tokens: list[int]) -> None:
        """Evaluate one batch behind what the cache holds."""
        batch = (self._library.llama_token * len(tokens))(*tokens)
        code = self._library.llama_decode(self._context.take(), self._library.llama_batch_get_one(batch, len(tokens)))
        if code == _ABORTED or self._abort.raised:
            self._prompt = []
            raise Cancelled("the generation was cancelled")
        if code != _DECODED:
            self._prompt = []
            raise EngineFailure(f"llama.cpp failed to evaluate {len(tokens)} tokens (code {code})")

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Keep a second thread out: it would hang inside the library."""
        if not self._busy.acquire(blocking=False):
            raise EngineFailure("the engine is in use by another thread")
        try:
            self._context.take()
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _abortable(self, cancel: CancelToken) -> Generator[None]:
        """Tie the abort flag to the caller's token while one generation runs."""
        self._abort.lower()
        with cancel.watched(self._abort.lift):
            if self._abort.raised:
                raise Cancelled("the generation was cancelled before it began")
            yield


def _stream(request: Request) -> TextStream | None:
    """The way to whoever listens, if anybody does."""
    if request.tell is None:
        return None
    stops = tuple(stop.encode() for stop in request.stop)
    return TextStream(request.tell, stops=stops)


def _common_prefix(old: list[int], new: list[int]) -> int:
    """Return how many leading tokens two prompts share."""
    for index, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            return index
    return min(len(old), len(new))


def _batches(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut `end - start` (at least two) tokens into batches, none over the limit and none of a single token."""
    while start < end:
        size = min(BATCH_TOKENS, end - start)
        if end - start == BATCH_TOKENS + 1:
            size -= 1
        yield start, start + size
        start += size


def _first_stop(written: bytearray, stops: tuple[bytes, ...], fresh: int) -> int | None:
    """Return where the earliest stop text begins, looking only where the newest bytes could have completed one."""
    found = [written.find(stop, max(0, len(written) - fresh - len(stop) + 1)) for stop in stops]
    return min((place for place in found if place >= 0), default=None)


def _text(written: bytes | bytearray, *, whole: bool) -> str:
    """Decode what a model wrote. Bytes that are no UTF-8 become U+FFFD; a cut character at the end is dropped."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(bytes(written), final=whole)
