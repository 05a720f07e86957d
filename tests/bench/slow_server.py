"""A chat server on loopback that answers after a fixed delay, as many requests at once as come, and counts them.

    python -P slow_server.py SECONDS

It prints its port on one line and serves until its standard input closes; then it prints what it saw as JSON: `calls`,
the `peak` of requests in flight, and their `mean` from the first request to the last answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Final

ANSWER: Final = json.dumps(
    {
        "choices": [{"message": {"role": "assistant", "content": "The table stays."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5},
    }
).encode()
REPLY: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ANSWER),
    ANSWER,
)


class Slow:
    """What has been asked so far."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._in_flight = 0
        self._area = 0.0
        self._first = self._last = 0.0
        self.calls = 0
        self.peak = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests, one after the other."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:")
                await reader.readexactly(length)
                self._change(1)
                await asyncio.sleep(self._seconds)
                writer.write(REPLY)
                await writer.drain()
                self._change(-1)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def seen(self) -> dict[str, float]:
        """The counts."""
        span = self._last - self._first
        return {"calls": self.calls, "peak": self.peak, "mean": self._area / span if span else 0.0}

    def _change(self, by: int) -> None:
        now = time.monotonic()
        self._first = self._first or now
        self._area += self._in_flight * (now - (self._last or now))
        self._last = now
        self._in_flight += by
        self.calls += max(by, 0)
        self.peak = max(self.peak, self._in_flight)


async def main() -> None:
    """Serve until standard input closes."""
    slow = Slow(float(sys.argv[1]))
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0, backlog=1_024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.stdout.write(json.dumps(slow.seen()) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
