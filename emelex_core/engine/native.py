"""The one door to llama.cpp: its low-level bindings, loaded late, silent, and refused after a fork.

The module owns these invariants:

- Nothing is imported before the first model is loaded: start-up does not know the model stack.
- The native log never reaches a terminal. While a model loads, its last error lines are kept for the error's message.
- No callback into Python outlives a call: the resting log callback and the abort callback are functions of libc, so
  they need no interpreter lock, and a library that logs at exit cannot meet a dead interpreter.
- A handle belongs to the process that made it. After a fork it is refused, because the child would hang in it
  (measured.md, "Traps"); it is not freed there either.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from emelex_core.errors import EngineFailure, ModelUnusable

Handle: TypeAlias = Any
"""An opaque pointer of the native library."""

_LOG_LEVEL_ERROR: Final = 4
_LOG_LINES_KEPT: Final = 3
_LOG_LINE_CHARACTERS_MAX: Final = 200

_log_lock = threading.Lock()


@cache
def bindings() -> Any:
    """Return the module of the low-level bindings, initialised and silent.

    Raises: ModelUnusable when the bindings are missing or cannot be loaded on this machine.
    """
    try:
        library: Any = importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelUnusable(
            f"the llama.cpp bindings cannot be loaded: {error}",
            hint="install llama-cpp-python again, built on this machine, or use an endpoint model",
        ) from error
    library.llama_log_set(_silent(library), None)
    library.llama_backend_init()
    atexit.register(_close_files, importlib.import_module("llama_cpp._utils"))
    return library


def version() -> str:
    """Return llama.cpp's own version."""
    return str(bindings().llama_version().decode("utf-8", "replace"))


class Owned:
    """A native handle with one owner. `take` gives it to calls; `close` frees it once, in the process that made it."""

    def __init__(self, handle: Handle, free: Callable[[Handle], None], what: str) -> None:
        self._handle: Handle | None = handle
        self._free = free
        self._what = what
        self._process = os.getpid()

    def take(self) -> Handle:
        """Return the handle.

        Raises: EngineFailure after `close`, or in a process that was forked from the owner.
        """
        if self._handle is None:
            raise EngineFailure(f"{self._what} is closed")
        if os.getpid() != self._process:
            raise EngineFailure(
                f"{self._what} was loaded by process {self._process} and cannot be used after a fork",
                hint="load models only in the process that runs them",
            )
        return self._handle

    def close(self) -> None:
        """Free the handle. A second call does nothing, and neither does one after a fork."""
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._process:
            self._free(handle)


def load_weights(path: Path, *, vocabulary_only: bool) -> Owned:
    """Load a GGUF file whose bytes were verified before.

    Raises: ModelUnusable when llama.cpp refuses the file, with its own reason.
    """
    library = bindings()
    params = library.llama_model_default_params()
    params.n_gpu_layers = 0
    params.vocab_only = vocabulary_only
    with _listening(library) as lines:
        handle = library.llama_model_load_from_file(os.fsencode(path), params)
    if not handle:
        raise ModelUnusable(f"{path}: llama.cpp cannot load it{_because(lines)}")
    return Owned(handle, library.llama_model_free, "the model")


def takes_tool_tags(weights: Owned) -> bool:
    """Whether the model's own chat template offers tools, and reads calls between `<tool_call>` tags."""
    template = bindings().llama_model_chat_template(weights.take(), None)
    return template is not None and b"<tool_call>" in template and b"tools" in template


def open_context(weights: Owned, *, context_tokens: int, batch_tokens: int, threads: int) -> Owned:
    """Open an inference context, the key-value cache included.

    Raises: EngineFailure when it cannot be had, which is nearly always for want of memory.
    """
    library = bindings()
    params = library.llama_context_default_params()
    params.n_ctx = context_tokens
    params.n_batch = params.n_ubatch = batch_tokens
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.no_perf = True
    with _listening(library) as lines:
        handle = library.llama_init_from_model(weights.take(), params)
    if not handle:
        raise EngineFailure(f"no context of {context_tokens} tokens can be opened{_because(lines)}")
    return Owned(handle, library.llama_free, "the model's context")


def quantize_q8_0(source: Path, target: Path, *, threads: int) -> bool:
    """Write a Q8_0 copy of a verified GGUF file over `target`; return whether llama.cpp says that it succeeded."""
    library = bindings()
    params = library.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = library.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    code = library.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params))
    return int(code) == 0


class AbortFlag:
    """One byte that stops a running evaluation. llama.cpp reads it through libc's strlen, without Python.

    strlen of the empty text is 0, which goes on, and of a text of one byte is 1, which aborts.
    """

    def __init__(self, context: Owned) -> None:
        library = bindings()
        self._bytes = ctypes.create_string_buffer(2)
        self._callback = ctypes.cast(ctypes.CDLL(None).strlen, library.ggml_abort_callback)
        library.llama_set_abort_callback(context.take(), self._callback, ctypes.cast(self._bytes, ctypes.c_void_p))

    @property
    def raised(self) -> bool:
        """Whether the evaluation is to stop."""
        return self._bytes[0] != b"\0"

    def lift(self) -> None:
        """Stop the running evaluation, and each later one until `lower`."""
        self._bytes[0] = b"\1"

    def lower(self) -> None:
        """Let evaluations run."""
        self._bytes[0] = b"\0"


@cache
def _silent(library: Any) -> Any:
    """A log callback that does nothing: libc's abs, which reads the level and leaves the text alone."""
    return ctypes.cast(ctypes.CDLL(None).abs, library.llama_log_callback)


@contextmanager
def _listening(library: Any) -> Generator[list[str]]:
    """Collect the error lines of the native log while a block runs. The log is global, hence the lock."""
    lines: list[str] = []

    def hear(level: int, text: bytes, _: object) -> None:
        if level == _LOG_LEVEL_ERROR and len(lines) < _LOG_LINES_KEPT:
            lines.append(text.decode("utf-8", "replace").strip()[:_LOG_LINE_CHARACTERS_MAX])

    callback = library.llama_log_callback(hear)
    with _log_lock:
        library.llama_log_set(callback, None)
        try:
            yield lines
        finally:
            library.llama_log_set(_silent(library), None)


def _close_files(utilities: Any) -> None:
    """Close what the bindings keep open for a class that is not used here, so that no warning appears at exit."""
    utilities.outnull_file.close()
    utilities.errnull_file.close()


def _because(lines: list[str]) -> str:
    return f": {'; '.join(lines)}" if lines else ""
