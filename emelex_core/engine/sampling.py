"""How the next token is picked: greedily or by a seeded draw, and within a grammar.

The module owns these invariants:

- The same prompt, sampling and seed pick the same tokens (with a fixed number of threads).
- With a grammar only tokens that it allows are ever accepted. The free pick is tested alone first, and only when the
  grammar refuses it is the whole vocabulary filtered: 1.1 to 1.2 times the time instead of 3 (measured.md). A refused
  draw that is drawn again from what is allowed follows the same distribution as filtering first.
- A grammar that does not compile is refused before anything runs, and one that allows no token ends in an error: both
  would end the process inside the native library.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from typing import Any, Final

from emelex_core.engine import native
from emelex_core.engine.ports import Sampling
from emelex_core.engine.vocabulary import Vocabulary
from emelex_core.errors import EngineFailure, PermanentFailure

TEMPERATURE_MIN: Final = 0.01
"""Below this picking is greedy: the division would leave the range of 32-bit numbers, and the draw with it."""

_GRAMMAR_ROOT: Final = b"root"
_SEED_SPAN: Final = 0xFFFF_FFFF
"""The largest 32-bit number asks llama.cpp for a random seed, so seeds stay below it."""

_CELLS_PER_CANDIDATE: Final = 3
"""A llama_token_data is three 32-bit cells: token, logit and probability."""


class Picker:
    """Picks the tokens of one generation out of a context's newest logits."""

    def __init__(self, candidates: Candidates, context: native.Owned, sampling: Sampling, grammar: str | None) -> None:
        self._library: Any = native.bindings()
        self._candidates = candidates
        self._vocabulary = candidates.vocabulary
        self._context = context
        self._grammar = None if grammar is None else self._compile(grammar)
        self._free_pick = self._chain(sampling)
        # A second chain with the seed's neighbour: the draw that was refused must not be repeated.
        self._allowed_pick = self._chain(Sampling(temperature=sampling.temperature, seed=sampling.seed + 1))
        self._greedy = self._chain(Sampling())

    def pick(self) -> int:
        """Return the next token, already accepted by the grammar.

        Raises: EngineFailure when the grammar allows no token at all.
        """
        token = int(self._library.llama_sampler_sample(self._free_pick.take(), self._context.take(), -1))
        if self._grammar is None:
            return token
        if not self._allows(token):
            token = self._pick_allowed()
        if not self._vocabulary.ends_message(token):
            self._library.llama_sampler_accept(self._grammar.take(), token)
        return token

    def close(self) -> None:
        """Free the native samplers. A second call does nothing."""
        for sampler in (self._grammar, self._free_pick, self._allowed_pick, self._greedy):
            if sampler is not None:
                sampler.close()

    def _allows(self, token: int) -> bool:
        """Ask the grammar about one token."""
        single = self._library.llama_token_data(token, 1.0, 0.0)
        found = self._library.llama_token_data_array(ctypes.pointer(single), 1, -1, False)
        self._apply(self._grammar, found)
        return math.isfinite(single.logit)

    def _pick_allowed(self) -> int:
        """Filter the whole vocabulary by the grammar and pick from what is left."""
        found = self._candidates.fill(self._library.llama_get_logits_ith(self._context.take(), -1))
        self._apply(self._grammar, found)
        self._apply(self._greedy, found)
        if not math.isfinite(found.data[found.selected].logit):
            raise EngineFailure("the grammar allows no token of the model's vocabulary here")
        best = int(found.data[found.selected].id)
        self._apply(self._allowed_pick, found)
        drawn = found.data[found.selected]
        # A draw that rounding pushed past the last allowed token must not reach the grammar.
        return int(drawn.id) if math.isfinite(drawn.logit) else best

    def _apply(self, sampler: native.Owned | None, found: Any) -> None:
        if sampler is not None:
            self._library.llama_sampler_apply(sampler.take(), ctypes.byref(found))

    def _compile(self, grammar: str) -> native.Owned:
        """Compile GBNF. An empty text would compile to no constraint at all, so it is refused as well."""
        handle = None
        if grammar.strip() and "\0" not in grammar:
            source = grammar.encode()
            handle = self._library.llama_sampler_init_grammar(self._vocabulary.handle, source, _GRAMMAR_ROOT)
        if not handle:
            raise PermanentFailure("the grammar does not compile", hint="it needs valid GBNF with a rule named root")
        return native.Owned(handle, self._library.llama_sampler_free, "the grammar")

    def _chain(self, sampling: Sampling) -> native.Owned:
        library = self._library
        chain = library.llama_sampler_chain_init(library.llama_sampler_chain_default_params())
        if sampling.temperature >= TEMPERATURE_MIN:
            library.llama_sampler_chain_add(chain, library.llama_sampler_init_temp(sampling.temperature))
            library.llama_sampler_chain_add(chain, library.llama_sampler_init_dist(sampling.seed % _SEED_SPAN))
        else:
            library.llama_sampler_chain_add(chain, library.llama_sampler_init_greedy())
        return native.Owned(chain, library.llama_sampler_free, "picker")


class Candidates:
    """All tokens with their logits, laid out as llama.cpp wants them, in one array that is made once an engine.

    Logits move as 32-bit cells without being read as numbers, which is as fast as a copy and needs no numpy.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._library: Any = native.bindings()
        self._size = vocabulary.size
        self._tokens = array("i", range(self._size))
        self._cells = array("i", bytes(4 * _CELLS_PER_CANDIDATE * self._size))
        self._address, _ = self._cells.buffer_info()

    def fill(self, logits: Any) -> Any:
        """Return a candidate array of fresh logits; it is valid until the next call."""
        fresh = array("i")
        fresh.frombytes(ctypes.string_at(logits, 4 * self._size))
        self._cells[0::_CELLS_PER_CANDIDATE] = self._tokens
        self._cells[1::_CELLS_PER_CANDIDATE] = fresh
        data = ctypes.cast(self._address, self._library.llama_token_data_p)
        return self._library.llama_token_data_array(data, self._size, -1, False)
