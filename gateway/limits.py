"""Limits on shared resources: per person, per place, and in all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

__all__ = ["ONE_PLACE", "Limits", "Share"]

ONE_PLACE: Final = "webchat"
"""The channel whose people are one place together: a new session, and so a new person, is free for a visitor."""


@dataclass(frozen=True, slots=True)
class Share:
    """Limits for one person, for one place (a chat, or a channel with its threads), and in all. None: no limit."""

    person: int | None = None
    place: int | None = None
    all: int | None = None

    def __str__(self) -> str:
        return "/".join("-" if value is None else str(value) for value in (self.person, self.place, self.all))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a bot, in the form of `ASKFIRST_LIMITS`. A bot without settings has limits on turns, strangers and
    streams only."""

    messages: Share = Share()
    """Messages and edits a minute. Messages over the limit are not read, and their writer is told so."""
    turns: Share = Share(None, 32, 64)
    """Concurrent turns of one process. The web chat is one place, with at most half of them beside other channels."""
    files: Share = Share()
    """Size of kept files in MiB, apart for files of tools, files that people send, and uploads that no message names.
    Among the files that people send, the web chat is one place."""
    strangers: Share = Share(1)
    """Replies a day to people who are not on the allow-list."""
    sessions: Share = Share()
    """New sessions of the web chat a minute."""
    streams: Share = Share(6, None, 300)
    """Open streams of one session of the web chat, and of all sessions of one process. A server has 400 connections
    (`ClientLimits`): the rest is for webhooks."""

    @classmethod
    def usual(cls) -> Self:
        """Return the default limits of the setting."""
        return cls(
            messages=Share(60, 600, None),
            turns=Share(8, 32, 64),
            files=Share(200, 1_024, 2_048),
            strangers=Share(1, 1, 200),
            sessions=Share(None, None, 60),
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``messages=60/600/-,turns=8/32/64``: person, place, all. ``-`` is no limit.

        Limits that are not named keep their default. Raises ValueError, which says how to mend the text.
        """
        found: dict[str, Share] = {}
        names = [each.name for each in fields(cls)]
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, _, values = entry.partition("=")
            numbers = values.split("/")
            right = len(numbers) == 3 and all(re.fullmatch(r"-|[1-9]\d{0,8}", number) for number in numbers)
            if name not in names or name in found or not right:
                raise ValueError(
                    f"write some of {', '.join(names)}, each once and with whole numbers by person, place and all, "
                    f"for example messages={cls.usual().messages} (- is no limit); {entry[:40]!r} is not so"
                )
            found[name] = Share(*(None if number == "-" else int(number) for number in numbers))
        if "turns" in found and found["turns"].all is None:
            raise ValueError("turns needs a number for all, for example turns=8/32/64: each takes memory")
        return cls(**({each: getattr(cls.usual(), each) for each in names} | found))

    def __str__(self) -> str:
        values: Mapping[str, Share] = {each.name: getattr(self, each.name) for each in fields(self)}
        return ",".join(f"{name}={share}" for name, share in values.items())
