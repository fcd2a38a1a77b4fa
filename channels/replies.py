"""Outgoing values: replies, their rendered parts, and the receipts of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from typing_extensions import TypeAliasType

Json = TypeAliasType("Json", "bool | int | float | str | list[Json] | dict[str, Json] | None")
"""Any JSON value. A named alias, because pydantic needs a name for a recursive type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message. A press returns the token."""

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
    """In bytes."""
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMedia(Media):
    """A kept file, opened for sending."""

    path: Path
    """The file on disk."""
    link: str | None = None
    """A signed link under the public URL, valid from the time of sending. None without a public URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The state of one question in an edited message."""

    state: Literal["open", "running", "done", "not_done", "expired", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the bot, independent of any platform."""

    text: str = ""
    """Markdown: CommonMark with tables and strike-through."""
    buttons: tuple[Button, ...] = ()
    media: tuple[Media, ...] = ()
    edits: str | None = None
    """The id of the message to replace."""
    exact: bool = False
    """True when every character must be shown as written: none is replaced by a cheaper one or read as markup."""
    settled: tuple[Settled, ...] = ()
    """The state of each question of the message, in order. Empty while all questions are open."""
    small: int = 0
    """The number of characters at the end of the text with less weight. A channel may show these small, and below the
    buttons."""

    def __post_init__(self) -> None:
        # Authors write lists, while the stored form is validated as tuples.
        object.__setattr__(self, "buttons", tuple(self.buttons))
        object.__setattr__(self, "media", tuple(self.media))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One call of the platform, in a storable form."""

    call: str
    arguments: Mapping[str, Json]
    media: Media | None = None
    """The file of this part, named by hash. The channel opens or links the file at sending."""
    buttons: tuple[Button, ...] = ()
    """The buttons of this part. A button counts as shown once the part has a receipt."""
    droppable: bool = False
    """True for typing notices and streaming edits: sent without retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The platform's acknowledgement of an accepted part."""

    message_id: str | None
    sent_at: datetime | None = None
    """The platform's time of the message, if present in the platform's answer. `Event.sent_at` is of the same clock."""
