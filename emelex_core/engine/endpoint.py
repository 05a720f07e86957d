"""The configuration of a server that speaks the OpenAI chat-completions protocol. Importing this imports no client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from emelex_core import codec, limits
from emelex_core.errors import UsageError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MODEL_BYTES_MAX: Final = 256
_URL_BYTES_MAX: Final = 160
"""Model and address together stay within a model reference's 512 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """One `[models.endpoint.NAME]` of the configuration.

    `base_url` ends before `/chat/completions`, usually in `/v1`. `context_tokens` is what one prompt and its answer may
    take together. `api_key_env` names the environment variable that holds the key; the key itself is never stored.
    `grammar` says that the server takes llama.cpp's `grammar` field; `tokenize` that it answers llama.cpp's
    `/tokenize` and `/apply-template`, which makes counts exact; None, that it is asked whether it counts (`counting`).
    `timeout_seconds` bounds one whole generation.
    `in_flight` is how many jobs a pool's worker may have waiting for the server at once; one that batches takes many.

    `tools` says that the server takes the protocol's own `tools`, and `images` that its model sees pictures;
    `image_tokens` is what one picture takes of the context, None a cautious guess.

    Raises: UsageError naming the field that cannot be right.
    """

    name: str
    base_url: str
    model: str
    context_tokens: int
    api_key_env: str | None = None
    grammar: bool = False
    tokenize: bool | None = None
    timeout_seconds: float = 600.0
    in_flight: int = 1
    tools: bool = False
    images: bool = False
    image_tokens: int | None = None

    def __post_init__(self) -> None:
        where = f"models.endpoint.{self.name[:64]}"
        if not _NAME.match(self.name):
            raise UsageError("models.endpoint: a name is letters, digits, dots, dashes and underscores, at most 64")
        codec.check_line(self.model, what=f"{where}.model", bytes_max=_MODEL_BYTES_MAX)
        if self.context_tokens < 1:
            raise UsageError(f"{where}.context_tokens: {self.context_tokens} is not a positive number")
        if not 0 < self.timeout_seconds <= 86_400:
            raise UsageError(f"{where}.timeout_seconds: {self.timeout_seconds} is not between 0 and a day")
        if not 1 <= self.in_flight <= limits.IN_FLIGHT_MAX:
            raise UsageError(f"{where}.in_flight: {self.in_flight} is not between 1 and {limits.IN_FLIGHT_MAX}")
        if self.image_tokens is not None and self.image_tokens < 1:
            raise UsageError(f"{where}.image_tokens: {self.image_tokens} is not a positive number")
        if self.api_key_env is not None and not _VARIABLE.match(self.api_key_env):
            # Not shown: whoever pastes the key itself here must not find it in a log.
            raise UsageError(f"{where}.api_key_env: it must be the name of an environment variable")
        _check_url(self.base_url, where)

    @property
    def reference(self) -> str:
        """How a person names it."""
        return f"endpoint:{self.name}"

    @property
    def snapshot_id(self) -> str:
        """Name, model and address: all that can be pinned of weights that a server holds."""
        return f"{self.reference}#{self.model}@{self.base_url}"


def _check_url(url: str, where: str) -> None:
    """Raise UsageError for an address that is not plain http(s); it never shows one that may hold a password."""
    codec.check_line(url, what=f"{where}.base_url", bytes_max=_URL_BYTES_MAX)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{where}.base_url: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{where}.base_url: it holds a user or password", hint="put the key into api_key_env")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise UsageError(f"{where}.base_url: {url!r} is not an http or https address without query")


assert len("endpoint:") + 64 + _MODEL_BYTES_MAX + _URL_BYTES_MAX + 2 <= limits.MODEL_REFERENCE_BYTES_MAX
