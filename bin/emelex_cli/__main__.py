"""`python -P -m emelex_cli`. The signals come first, as in `app.py`, which must be read from disk before it can act."""

import os

_signal = __import__("_signal")


def _end(number: int, frame: object) -> None:
    del frame
    os._exit(128 + number)


for _number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(_number, _end)

from emelex_cli.app import main  # noqa: E402 - below the signals

raise SystemExit(main())
