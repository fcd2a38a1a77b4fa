"""Values as stores keep them: JSON as text, and moments as whole microseconds since 1970 (UTC)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from channels import Json
from gateway.store.types import Dead, Incoming, QueuedPart, Written

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=dict)


def encode(value: Json | Mapping[str, Json]) -> str:
    """Return JSON text in ASCII, which keeps a lone surrogate in a person's text. Raises ValueError for NaN and
    infinity."""
    return value.text if isinstance(value, Written) else _encoder.encode(value)


def decode(text: str) -> Any:
    """Return the value that `encode` was given."""
    return json.loads(text)


def decode_loosely(stored: bytes) -> Any:
    """Return the value, or the text itself if it is not JSON, so that one bad record does not end a scan."""
    try:
        return decode(stored.decode())
    except (ValueError, RecursionError):
        return stored.decode(errors="backslashreplace")


def decode_all(texts: Iterable[str]) -> list[Any]:
    """Return the values of many texts, in a fraction of the time that decoding each takes."""
    return cast("list[Any]", json.loads(f"[{','.join(texts)}]"))


def micros(when: datetime) -> int:
    """Return the microseconds since 1970. Raises TypeError for a datetime without a time zone."""
    return (when - _EPOCH) // _MICROSECOND


def moment(when: int) -> datetime:
    """Return the datetime, in UTC, of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=when)


def span(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * 1_000_000)


def incoming_to_text(incoming: Incoming) -> str:
    """Return the complete event as text, for a timer or a dead letter."""
    return encode(_incoming_to_json(incoming))


def incoming_from_text(text: str | bytes) -> Incoming:
    """Return the event that `incoming_to_text` was given. Raises ValueError for any other text."""
    return _read(lambda: _incoming_from_json(json.loads(text)))


def dead_to_text(dead: Dead) -> str:
    """Return the content of a dead letter: its event or its part."""
    part = dead.part
    return encode(
        {
            "incoming": None if dead.incoming is None else _incoming_to_json(dead.incoming),
            "part": None
            if part is None
            else {
                "part_id": part.part_id,
                "conversation": part.conversation,
                "body": dict(part.body),
                "pool": part.pool,
                "stamp": None if part.stamp is None else micros(part.stamp),
                "tries": part.tries,
            },
        }
    )


def dead_from_text(text: str) -> tuple[Incoming | None, QueuedPart | None]:
    """Return the event and the part that `dead_to_text` was given. Raises ValueError for any other text."""
    return _read(lambda: _dead_from_json(decode(text)))


def _dead_from_json(value: Any) -> tuple[Incoming | None, QueuedPart | None]:
    incoming, part = value["incoming"], value["part"]
    if part is not None:
        part["stamp"] = None if part["stamp"] is None else moment(part["stamp"])
    return (
        None if incoming is None else _incoming_from_json(incoming),
        None if part is None else QueuedPart(**part),
    )


def open_letter(seq: int, dead_id: str, conversation: str, reason: str, stamp: int, held: str) -> Dead:
    """Return a dead letter. Its content is left out if it cannot be read."""
    try:
        incoming, part = dead_from_text(held)
    except ValueError:
        incoming = part = None
        reason = f"{reason} (its content cannot be read)"
    return Dead(
        seq=seq,
        dead_id=dead_id,
        conversation=conversation,
        reason=reason,
        stamp=moment(stamp),
        incoming=incoming,
        part=part,
    )


def _incoming_to_json(incoming: Incoming) -> dict[str, Json]:
    return {
        "conversation": incoming.conversation,
        "event_ids": list(incoming.event_ids),
        "body": dict(incoming.body),
        "decides": incoming.decides,
        "wakes": incoming.wakes,
        "refusable": incoming.refusable,
        "keep_seconds": incoming.keep_seconds,
        "stamp": None if incoming.stamp is None else micros(incoming.stamp),
        "collects": incoming.collects,
        "about": incoming.about,
    }


def _incoming_from_json(value: dict[str, Any]) -> Incoming:
    stamp = cast("int | None", value["stamp"])
    ids = tuple(value["event_ids"])
    names = (value["conversation"], *ids)
    if not (isinstance(value["body"], dict) and all(isinstance(name, str) for name in names)):
        raise TypeError("not an event")
    return Incoming(**value | {"event_ids": ids, "stamp": None if stamp is None else moment(stamp)})


def _read(reading: Callable[[], T]) -> T:
    """Return the result of a function that reads a stored text. Raises ValueError if it cannot."""
    try:
        return reading()
    except (LookupError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError("the stored text cannot be read") from error
