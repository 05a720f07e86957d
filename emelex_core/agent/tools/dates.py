"""datetime: what time it is, which no model knows."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Annotated, ClassVar

import msgspec

from emelex_core.agent.calls import Effect, ToolContext, ToolOutcome
from emelex_core.agent.tools.typed import TypedTool
from emelex_core.clock import Clock, system_clock
from emelex_core.errors import ToolError


class DateTimeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What datetime is called with."""

    zone: (
        Annotated[str, msgspec.Meta(max_length=64, description="an IANA time zone such as Europe/Berlin; UTC without")]
        | None
    ) = None


class DateTime(TypedTool[DateTimeArguments]):
    """The current date and time."""

    name: ClassVar[str] = "datetime"
    description: ClassVar[str] = "Tell the current date and time, with the day of the week."
    effect = Effect.READS
    shape = DateTimeArguments

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock

    def work(self, arguments: DateTimeArguments, context: ToolContext) -> ToolOutcome:
        """Read the clock and write the instant in the zone."""
        zone = UTC if arguments.zone is None else _zone(arguments.zone)
        moment = datetime.fromtimestamp(self._clock() // 1000, zone)
        return ToolOutcome(text=f"{moment.isoformat()} ({_DAYS[moment.weekday()]}, {moment.tzname()})")


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"there is no time zone called {name!r}") from None
