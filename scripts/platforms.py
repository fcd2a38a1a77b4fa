"""Writes the table of docs/platforms.md with each platform's powers, from the channels' own `Capabilities`.

``python -m scripts.platforms`` rewrites the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from channels import CanAnswer, CanFetch, CanLookUp, CanPoll, Capabilities, Channel
from channels.catalogue import load

__all__ = ["PAGE", "written"]

PAGE: Final = Path(__file__).parent.parent / "docs" / "platforms.md"
_BEGIN: Final = "<!-- platforms: written by `make platforms` -->\n"
_END: Final = "<!-- /platforms -->"
_NAMES: Final = {"telegram": "Telegram", "slack": "Slack", "whatsapp": "WhatsApp", "sms": "SMS", "webchat": "web chat"}
_BARE: Final = {
    "ordered": "in the platform's own order",
    "reported": "once the question was reported delivered",
    "never": "no: the code",
}

_Row = Callable[[type[Channel], Capabilities], str]
_ROWS: Final[Mapping[str, _Row]] = {
    "characters of a message": lambda _, can: f"{can.max_text:,}",
    "buttons under a message": lambda _, can: str(can.buttons) if can.buttons else "none: words",
    "a bare yes": lambda _, can: _BARE[can.bare_yes],
    "a press answered to its presser alone": lambda kind, _: _yes(issubclass(kind, CanAnswer)),
    "largest picture it is sent": lambda _, can: _size(can.media.get("image", 0)),
    "largest document it is sent": lambda _, can: _size(can.media.get("document", 0)),
    "people's files are read": lambda kind, _: _yes(issubclass(kind, CanFetch)),
    "messages are changed when they settle": lambda _, can: _yes(can.edit),
    "answers grow while they are written": lambda _, can: _yes(can.stream),
    "the bot is shown as typing": lambda _, can: _yes(can.typing),
    "messages without a public address": lambda kind, _: _yes(issubclass(kind, CanPoll)),
    "a message in doubt is looked up": lambda kind, _: _yes(issubclass(kind, CanLookUp)),
    "a person can opt out and still write": lambda _, can: _yes(can.opt_out),
    "messages a second, to one place": lambda _, can: _rate(can),
}


def written(page: str) -> str:
    """Return the page with the current table of the channels."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{_table()}{_END}{after}"


def _table() -> str:
    kinds = {name: load(name) for name in _NAMES}
    lines = ["| what | " + " | ".join(_NAMES.values()) + " |", "| --- |" + " --- |" * len(kinds)]
    for label, cell in _ROWS.items():
        cells = [cell(kind, kind.capabilities) for kind in kinds.values()]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _yes(can: bool) -> str:
    return "yes" if can else "–"


def _size(size: int) -> str:
    if not size:
        return "–"
    return f"{size / 10**9:g} GB" if size >= 10**9 else f"{size // 10**6} MB"


def _rate(can: Capabilities) -> str:
    pace = can.pace
    each = f"{pace.place_per_second:g}" if pace.place_per_second is not None else "no known limit"
    return f"{each}; {pace.group_per_minute:g} a minute in a group" if pace.group_per_minute is not None else each


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), encoding="utf-8")
