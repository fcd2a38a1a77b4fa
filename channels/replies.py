"""What goes out: replies, the parts a channel makes of them, and the receipts the platform gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from typing_extensions import TypeAliasType

__all__ = ["Button", "Json", "Media", "OpenMedia", "Part", "Receipt", "Reply", "Settled"]

Json = TypeAliasType("Json", "bool | int | float | str | list[Json] | dict[str, Json] | None")
"""Any JSON value. An alias with a name of its own, which pydantic needs to follow it into itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message; pressing it sends its token back."""

    label: str
    token: str
    style: Literal["confirm", "cancel", "plain"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A kept file, named by the SHA-256 of its bytes."""

    sha256: str
    mime_type: str
    filename: str
    size: int
    """Bytes."""
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMedia(Media):
    """A kept file at the moment it is sent."""

    path: Path
    """Where its bytes are."""
    link: str | None = None
    """A signed link under the public URL, fresh from now; None without a public URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How it stands with one question of an edited message."""

    state: Literal["open", "running", "done", "not_done", "expired", "failed", "unknown"]
    at: datetime | None = None
    written: str = ""
    """How `at` stands in the text; a channel may write it for its person's zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the bot says, before any platform's form."""

    text: str = ""
    """Markdown: CommonMark with tables and strike-through."""
    buttons: tuple[Button, ...] = ()
    media: tuple[Media, ...] = ()
    edits: str | None = None
    """The id of the message to replace."""
    exact: bool = False
    """Every letter of it counts: none is written as a cheaper one, or taken by the platform for a mark of its own."""
    settled: tuple[Settled, ...] = ()
    """How it stands with each question of the message, in their order; empty while all of them are asked."""

    def __post_init__(self) -> None:
        # Authors write lists, and what is stored is checked to be tuples.
        object.__setattr__(self, "buttons", tuple(self.buttons))
        object.__setattr__(self, "media", tuple(self.media))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """ONE call of the platform, in a form that can be stored."""

    call: str
    arguments: Mapping[str, Json]
    media: Media | None = None
    """Named by hash; the channel opens or links it when it sends."""
    buttons: tuple[Button, ...] = ()
    """The buttons this part shows: its receipt is their showing."""
    droppable: bool = False
    """Typing notices and edits that stream: not worth a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The platform took a part."""

    message_id: str | None
    sent_at: datetime | None = None
    """The platform's own time of the message, where its answer tells it; the clock is that of `Event.sent_at`."""
