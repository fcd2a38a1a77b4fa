"""The tool `current_time`."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gateway.tools import Tool, ToolContext, ToolFailed


def current_time(default_zone: str = "UTC") -> Tool:
    """Return a tool for the date and the time, by the clock of the bot.

    `default_zone` is a name of the IANA database like ``Europe/Berlin``. Raises ValueError for another name.
    """
    default = _zone(default_zone)

    def current_time(ctx: ToolContext, zone: str | None = None) -> str:
        """Tell the current date, weekday and time.

        Args:
            zone: A time zone of the IANA database like Europe/Berlin. Leave it out for the usual one.
        """
        try:
            chosen = default if zone is None else _zone(zone)
        except ValueError as error:
            raise ToolFailed(str(error)) from None
        return f"{ctx.clock().astimezone(chosen):%A, %Y-%m-%d %H:%M:%S %z} ({chosen.key})"

    return Tool(current_time, read_only=True)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name[:60]!r}: give a name such as Europe/Berlin") from None
