"""How much memory a model will need, and whether that is free (psutil and the control group)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from emelex_core import limits
from emelex_core.errors import ModelUnusable
from emelex_core.models.gguf import GgufHeader

_LOGIT_BYTES: Final = 4
_PROCESS_BYTES: Final = 64 * limits.MIB
"""Python, the library and its working memory; with the built-in model the whole came to 340 MB (measured.md)."""
_CGROUP: Final = Path("/sys/fs/cgroup")


def need_bytes(header: GgufHeader, *, weights_bytes: int, context_tokens: int | None) -> int:
    """Estimate the memory of a loaded model: weights, key-value cache, logits of a batch, and the process itself."""
    from emelex_core.engine.llama_cpp import BATCH_TOKENS, CONTEXT_TOKENS_DEFAULT

    context = min(context_tokens or CONTEXT_TOKENS_DEFAULT, header.context_tokens or CONTEXT_TOKENS_DEFAULT)
    cache = context * (header.cache_bytes_per_token or 0)
    logits = BATCH_TOKENS * (header.vocabulary or 0) * _LOGIT_BYTES
    return weights_bytes + cache + logits + _PROCESS_BYTES


def available_bytes() -> int:
    """Memory that could be had now without swapping, within this process's control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    bound, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    return free if bound is None or used is None else max(0, min(free, bound - used))


def require(what: str, header: GgufHeader, *, weights_bytes: int, context_tokens: int | None) -> None:
    """Raise ModelUnusable, with both figures, when a model needs more memory than is available."""
    need = need_bytes(header, weights_bytes=weights_bytes, context_tokens=context_tokens)
    free = available_bytes()
    if need > free:
        raise ModelUnusable(
            f"{what}: it needs about {need // limits.MIB} MiB of memory, and {free // limits.MIB} MiB are available",
            hint="choose a smaller model, or end what uses the memory",
        )


def _number(path: Path) -> int | None:
    """A control group's figure (cgroup v2); None where there is none or it says `max`."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() else None
