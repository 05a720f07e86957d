"""One HTTP server behind an endpoint: requests that can be cancelled at any moment.

The module owns these invariants:

- Waiting never outlasts its bound or a cancellation: a request runs as a task on an event loop of its own thread, so
  the caller may be any thread, and cancelling closes the connection, which tells the server to stop.
- The key is read from the environment when it is used; it stands in no message, repr or log.
- The environment's proxies and netrc are not used, redirects are not followed: text goes where the configuration says.
- Only a connection that was never made is tried again, for a few seconds. A request that was sent is not repeated here:
  the queue counts and repeats attempts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
import orjson
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from emelex_core.codec import Json
from emelex_core.engine import reply
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import Cancelled, EngineFailure, ModelUnusable

CONNECT_SECONDS: Final = 5.0
CONNECT_RETRY_SECONDS: Final = 3.0
CLOSE_SECONDS: Final = 5.0

_OK: Final = 200
_KEY: Final = re.compile(r"[\x21-\x7e]{1,4096}\Z")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """One request: where it goes, what it says, and who hears the reply while it comes."""

    url: str
    body: bytes
    hear: Callable[[bytes], None] | None
    bytes_max: int


class Server:
    """A client of one configured server, for any number of threads; `close` ends its own thread and connections."""

    def __init__(self, config: EndpointConfig) -> None:
        self._config = config
        self._where = f"{config.reference} ({config.base_url})"
        self._base = config.base_url.rstrip("/")
        self._root = _root(self._base)
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = None
        self._closed = False
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        return f"<Server {self._where}>"

    def post(
        self,
        path: str,
        body: dict[str, Json],
        cancel: CancelToken,
        *,
        hear: Callable[[bytes], None] | None = None,
        bytes_max: int = reply.REPLY_BYTES_MAX,
        seconds: float | None = None,
    ) -> bytes:
        """Send a JSON object to a path below `base_url` and return the reply's bytes.

        It may take `seconds`, and at most the configuration's `timeout_seconds`. With `hear` a good reply's bytes go
        there as they come, on the thread of this server, and nothing is returned.

        Raises: Cancelled; EngineFailure when the server is down, slower than that, failing, or sends more
        than a reply can hold; ModelUnusable and PermanentFailure when it refuses.
        """
        target = _Target(url=self._base + path, body=orjson.dumps(body), hear=hear, bytes_max=bytes_max)
        bound = self._config.timeout_seconds
        return self._wait(self._bounded(target, bound if seconds is None else min(seconds, bound)), cancel)

    def post_root(
        self, path: str, body: dict[str, Json], *, seconds: float, cancel: CancelToken | None = None
    ) -> bytes:
        """Send a JSON object to a path of the server itself, beside its `/v1`. Raises: as `post`."""
        target = _Target(url=self._root + path, body=orjson.dumps(body), hear=None, bytes_max=reply.REPLY_BYTES_MAX)
        return self._wait(self._bounded(target, seconds), cancel or CancelToken())

    def close(self) -> None:
        """Close the connections and end the thread. A second call does nothing, and neither does one after a fork."""
        loop, thread, self._closed = self._loop, self._thread, True
        self._loop = self._thread = None
        if loop is None or thread is None or os.getpid() != self._process:
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._shut(), loop).result(CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_SECONDS)
        loop.close()

    def _wait(self, work: Coroutine[None, None, Result], cancel: CancelToken) -> Result:
        """Run a coroutine on the loop's thread and wait for it, for its end or for a cancellation."""
        try:
            loop = self._running_loop()
        except EngineFailure:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            with cancel.watched(lambda: _cancel(future)):
                return future.result()
        except concurrent.futures.CancelledError:
            raise Cancelled("the generation was cancelled") from None
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise EngineFailure(f"{self._where}: the engine is closed")
        if os.getpid() != self._process:
            raise EngineFailure(f"{self._where}: the engine cannot be used after a fork")
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="emelex-endpoint", daemon=True)
                self._thread.start()
            return self._loop

    async def _bounded(self, target: _Target, seconds: float) -> bytes:
        """Send and receive within a bound, and turn what httpx raises into the error tree."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((httpx.ConnectError, httpx.ConnectTimeout)),
            stop=stop_after_delay(min(CONNECT_RETRY_SECONDS, seconds)),
            wait=wait_exponential(multiplier=0.1, max=1.0),
            reraise=True,
        )
        try:
            async with asyncio.timeout(seconds):
                return await retrying(self._send, target, self._headers())
        except TimeoutError:
            raise EngineFailure(f"{self._where} gave no whole answer within {seconds:g} seconds") from None
        except httpx.HTTPError as error:
            # httpx's own words name a cause such as "connection refused", never a header.
            raise EngineFailure(f"{self._where}: {type(error).__name__}: {error}") from None

    async def _send(self, target: _Target, headers: dict[str, str]) -> bytes:
        if self._client is None:
            timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
            self._client = httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)
        data = bytearray()
        size = 0
        async with self._client.stream("POST", target.url, content=target.body, headers=headers) as response:
            hear = target.hear if response.status_code == _OK else None
            # Raw, so that a compressed bomb counts as the bytes that it is.
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > target.bytes_max:
                    raise EngineFailure(f"{self._where} sent more than {target.bytes_max} bytes")
                if hear is None:
                    data += piece
                else:
                    hear(piece)
        if response.status_code != _OK:
            key = headers.get("Authorization", "").removeprefix("Bearer ")
            raise reply.refusal(response.status_code, bytes(data), where=self._where, secret=key)
        return bytes(data)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        variable = self._config.api_key_env
        if variable is not None:
            key = os.environ.get(variable, "").strip()
            if not _KEY.match(key):
                raise ModelUnusable(
                    f"{self._config.reference}: the environment variable {variable} holds no usable key",
                    hint=f"set {variable} for the process that runs the work",
                )
            headers["Authorization"] = f"Bearer {key}"
        return headers

    async def _shut(self) -> None:
        """Let cancelled requests unwind, then close the connections."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()


def _cancel(future: concurrent.futures.Future[Result]) -> None:
    future.cancel()


def _root(base: str) -> str:
    """Return the server's address without the path's last part when that is the API's version, as in `/v1`."""
    parts = urlsplit(base)
    path = re.sub(r"/v\d+\Z", "", parts.path)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
