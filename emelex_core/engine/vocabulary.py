"""A model's vocabulary: text to tokens, tokens to bytes, and the control tokens of its chat template.

The module owns these invariants:

- Text is tokenised with special parsing off, so that `<|im_end|>` in a message is nine characters of text and never the
  control token (behaviour 185). A model whose delimiters are not control tokens is refused at load, because its
  tokenizer would find them in text all the same.
- A token is bytes, not characters: one character may need several tokens, so whoever decodes joins bytes first.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from emelex_core import codec
from emelex_core.engine import native
from emelex_core.engine.ports import Message
from emelex_core.errors import EngineFailure, ModelUnusable

MESSAGE_START: Final = "<|im_start|>"
MESSAGE_END: Final = "<|im_end|>"

_PIECE_BYTES: Final = 256
"""Room for one token's bytes; longer ones, which only odd vocabularies have, are asked for again."""


class Vocabulary:
    """The vocabulary of loaded weights. It lives as long as they do."""

    def __init__(self, weights: native.Owned) -> None:
        self._library: Any = native.bindings()
        self._weights = weights
        self._handle: native.Handle = self._library.llama_model_get_vocab(weights.take())
        self.size = int(self._library.llama_vocab_n_tokens(self._handle))
        self._piece = ctypes.create_string_buffer(_PIECE_BYTES)
        self._start = self._control(MESSAGE_START)
        self._end = self._control(MESSAGE_END)

    @property
    def handle(self) -> native.Handle:
        """The native vocabulary, for as long as the weights are open."""
        self._weights.take()
        return self._handle

    def count(self, text: str) -> int:
        """Return how many tokens the text is, without template or control tokens."""
        return self._tokenize(text)[1]

    def tokens(self, text: str) -> list[int]:
        """Return the text's tokens. None of them is a control token, whatever the text says."""
        buffer, count = self._tokenize(text)
        return list(buffer[:count])

    def prompt(self, messages: tuple[Message, ...]) -> list[int]:
        """Return a ChatML prompt that asks for the assistant's next message.

        Control tokens are put in by id; only the words between them are tokenised.
        """
        line_break = self.tokens("\n")
        prompt: list[int] = []
        for message in messages:
            words = self.tokens(f"{message.role.value}\n{message.text}")
            prompt += [self._start, *words, self._end, *line_break]
        return [*prompt, self._start, *self.tokens("assistant\n")]

    def is_control(self, token: int) -> bool:
        """Whether the token is one that only a template may place."""
        return bool(self._library.llama_vocab_is_control(self.handle, token))

    def ends_message(self, token: int) -> bool:
        """Whether the model says with this token that it is done."""
        return bool(self._library.llama_vocab_is_eog(self.handle, token))

    def bytes_of(self, token: int) -> bytes:
        """Return what the token adds to the text; nothing for a control token."""
        size = self._library.llama_token_to_piece(self.handle, token, self._piece, len(self._piece), 0, False)
        if size < 0:
            self._piece = ctypes.create_string_buffer(-size)
            size = self._library.llama_token_to_piece(self.handle, token, self._piece, len(self._piece), 0, False)
        return self._piece.raw[:size]

    def _tokenize(self, text: str) -> tuple[Any, int]:
        """Tokenise strictly valid UTF-8; anything else would end in a C++ exception, which ends the process."""
        data = codec.check_text(text, what="text for the model")
        room = len(data) + 1
        buffer = (self._library.llama_token * room)()
        count = int(self._library.llama_tokenize(self.handle, data, len(data), buffer, room, False, False))
        if count < 0:
            raise EngineFailure(f"{len(data)} bytes of text cannot be tokenised")
        return buffer, count

    def _control(self, name: str) -> int:
        """Return the id of a delimiter of the template.

        Raises: ModelUnusable when the vocabulary lacks it, or would find it in plain text.
        """
        data = name.encode()
        buffer = (self._library.llama_token * (len(data) + 1))()
        count = self._library.llama_tokenize(self._handle, data, len(data), buffer, len(buffer), False, True)
        if count != 1 or not self._library.llama_vocab_is_control(self._handle, buffer[0]):
            raise ModelUnusable(
                f"the model has no control token {name}: only models that speak ChatML are supported",
                hint="serve other models with llama.cpp's server and configure them as an endpoint",
            )
        return int(buffer[0])
