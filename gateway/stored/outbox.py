"""The body of a queued part: the data for delivery beside the id and the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from channels import Address, Json, Part, Reply

_INTENTS: Final[Mapping[str, Literal["confirm", "cancel"]]] = {"confirm": "confirm", "cancel": "cancel"}
NOTHING: Final = Part(call="", arguments={})
"""The part of an item for only removing a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """The body of a queued part. `address` and `part` are decoded on each read; the other fields are plain values."""

    stored_address: Json
    stored_part: Json
    shows: tuple[str, ...] = ()
    """The ids of the actions with a prompt completed by this part."""
    asks: tuple[str, ...] = ()
    """The ids of the actions in a prompt of this part, complete or not."""
    tells: tuple[str, ...] = ()
    """The ids of the actions with an outcome reported in this part."""
    alone: bool = False
    """The part asks about one action only, so a bare reply after this part decides the action."""
    listed: tuple[str, ...] = ()
    """The ids of all actions of the numbered list this part ends or belongs to."""
    intent: Literal["confirm", "cancel"] | None = None
    """The meaning of a number in answer to this list: the list asks which action a yes or a no meant."""
    edits: str | None = None
    """The platform's id of the message to be edited by this part."""
    finishes: str | None = None
    """The platform's id of the message with the beginning of this text. The part replaces the message."""
    cause: str | None = None
    """The id of the answered event, for the log."""
    language: str = "en"
    """The language of a later message about this part, as a BCP 47 tag."""
    reader: str = ""
    """The person who may read the part in private, if a group refuses it. Empty in private chats."""
    only_to: str = ""
    """The platform's id of the only person to see the part in the group."""
    refused_at: Json = None
    """The address that refused the part before, as stored. For missed news: the group of the action."""
    news: str = ""
    """The Markdown to keep for the person's next message, if no place takes the part. Only in the reply's last part."""
    news_at: str = ""
    """The time of missed news, as stored. Empty for an outcome not missed before."""

    @classmethod
    def of(
        cls,
        address: Address,
        part: Part,
        *,
        shows: tuple[str, ...],
        asks: tuple[str, ...],
        tells: tuple[str, ...],
        alone: bool,
        listed: tuple[str, ...] = (),
        intent: Literal["confirm", "cancel"] | None = None,
        edits: str | None,
        finishes: str | None = None,
        cause: str,
        language: str,
        reader: str = "",
        only_to: str = "",
        refused_at: Address | None = None,
        news: str = "",
        news_at: str = "",
    ) -> OutboxItem:
        """Return the item of a rendered part."""
        return cls(
            stored_address=address_to_json(address),
            stored_part=part_to_json(part),
            shows=shows,
            asks=asks,
            tells=tells,
            alone=alone,
            listed=listed,
            intent=intent,
            edits=edits,
            finishes=finishes,
            cause=cause,
            language=language,
            reader=reader,
            only_to=only_to,
            refused_at=address_to_json(refused_at) if refused_at is not None else None,
            news=news,
            news_at=news_at,
        )

    @property
    def address(self) -> Address:
        """The address of the part. Raises ValueError for an unreadable address."""
        return address_from_json(self.stored_address)

    @property
    def part(self) -> Part:
        """The rendered part. Raises ValueError for an unreadable part."""
        return part_from_json(self.stored_part)

    @property
    def takes_away(self) -> bool:
        """True if the message in `finishes` is removed without a replacement."""
        return self.finishes is not None and self.part.call == NOTHING.call

    def to_json(self) -> dict[str, Json]:
        """Return the stored form."""
        finishes: dict[str, Json] = {} if self.finishes is None else {"finishes": self.finishes}
        listed: dict[str, Json] = {"listed": list(self.listed), "intent": self.intent} if self.listed else {}
        return {
            "address": self.stored_address,
            "part": self.stored_part,
            "shows": list(self.shows),
            "asks": list(self.asks),
            "tells": list(self.tells),
            "alone": self.alone,
            "edits": self.edits,
            "cause": self.cause,
            "language": self.language,
            **finishes,
            **listed,
            **({"reader": self.reader} if self.reader else {}),
            **({"only_to": self.only_to} if self.only_to else {}),
            **({"refused_at": self.refused_at} if self.refused_at is not None else {}),
            **({"news": self.news} if self.news else {}),
            **({"news_at": self.news_at} if self.news_at else {}),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> OutboxItem:
        """Read a stored form. Raises ValueError for any other value."""
        edits, finishes, cause = body.get("edits"), body.get("finishes"), body.get("cause")
        shows = _texts(body.get("shows"))
        return cls(
            stored_address=body.get("address"),
            stored_part=body.get("part"),
            shows=shows,
            asks=_texts(body.get("asks")) or shows,
            tells=_texts(body.get("tells")),
            alone=body.get("alone") is True,
            listed=_texts(body.get("listed")),
            intent=_INTENTS.get(str(body.get("intent"))),
            edits=edits if isinstance(edits, str) else None,
            finishes=finishes if isinstance(finishes, str) else None,
            cause=cause if isinstance(cause, str) else None,
            language=str(body.get("language", "en")),
            reader=str(body.get("reader", "")),
            only_to=str(body.get("only_to", "")),
            refused_at=body.get("refused_at"),
            news=str(body.get("news", "")),
            news_at=str(body.get("news_at", "")),
        )


def part_to_json(part: Part) -> Json:
    """Return the stored form of a part."""
    stored: Json = _adapter(Part).dump_python(part, mode="json")
    return stored


def part_from_json(stored: Json) -> Part:
    """Read a stored part. Raises ValueError for any other value."""
    part: Part = _adapter(Part).validate_python(stored)
    return part


def reply_to_json(reply: Reply) -> Json:
    """Return the stored form of a reply."""
    stored: Json = _adapter(Reply).dump_python(reply, mode="json")
    return stored


def reply_from_json(stored: Json) -> Reply:
    """Read a stored reply. Raises ValueError for any other value."""
    reply: Reply = _adapter(Reply).validate_python(stored)
    return reply


def address_to_json(address: Address) -> Json:
    """Return the stored form of an address."""
    stored: Json = _adapter(Address).dump_python(address, mode="json")
    return stored


def address_from_json(stored: Json) -> Address:
    """Read a stored address. Raises ValueError for any other value."""
    address: Address = _adapter(Address).validate_python(stored)
    return address


def _texts(stored: Json) -> tuple[str, ...]:
    return tuple(str(each) for each in stored) if isinstance(stored, list | tuple) else ()


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
