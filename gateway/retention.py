"""How long stored words and records of people are kept."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Self

__all__ = ["Retention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days for which each kind of stored data is kept, in the form of `ASKFIRST_RETENTION`."""

    transcript: int = 365
    """Messages of a conversation as the model reads them again."""
    visible: int = 365
    """Lines of a conversation as the person saw them."""
    audit: int = 1095
    """Lines of the audit. Those of an action stay at least as long as its record."""
    security: int = 90
    """Lines of the security log."""
    dead_letters: int = 90

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``transcript=30,audit=3650``: whole days by kind.

        Kinds that are not named keep their default. Raises ValueError, which says how to mend the text.
        """
        found: dict[str, int] = {}
        kinds = [each.name for each in fields(cls)]
        for entry in filter(None, (part.strip() for part in text.split(","))):
            kind, _, days = entry.partition("=")
            if kind not in kinds or kind in found or not re.fullmatch(r"[1-9]\d{0,4}", days):
                raise ValueError(
                    f"write some of {', '.join(kinds)}, each once and with whole days from 1 to 99999, for example "
                    f"{cls()}; {entry[:40]!r} is not so"
                )
            found[kind] = int(days)
        return cls(**found)

    @property
    def transcript_seconds(self) -> float:
        """The time for which the records beside a transcript are kept: memories, facts and people."""
        return self.transcript * 86_400.0

    def __str__(self) -> str:
        return ",".join(f"{kind}={days}" for kind, days in asdict(self).items())
