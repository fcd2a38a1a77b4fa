"""The stored form of values: JSON as text, and moments as whole microseconds since 1970 (UTC)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from channels import Json
from gateway.store.types import MAILBOXES, Dead, Incoming, QueuedPart, Written

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DEEPEST = 250
"""The deepest readable nesting. Any readable value can also be written, from any depth of the stack."""
_LONGEST_SECONDS = 1e9
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=dict)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number without end")
    return number


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def encode(value: Json | Mapping[str, Json]) -> str:
    """Return JSON text in ASCII, with lone surrogates kept. Raises ValueError for NaN and infinity."""
    return value.text if isinstance(value, Written) else _encoder.encode(value)


def decode(stored: str | bytes) -> Any:
    """Return the value of a text from `encode`. Raises ValueError for invalid JSON, infinity and deep nesting."""
    try:
        text = stored if isinstance(stored, str) else stored.decode()
        value = _decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if _may_be_deep(text) and _is_deep(value):
        raise ValueError("nested too deep")
    return value


def decode_loosely(stored: str | bytes) -> Any:
    """Return the value, or the text itself if unreadable, so a planted record makes no other record fail.

    No reader accepts a text as a record.
    """
    try:
        return decode(stored)
    except ValueError:
        return stored if isinstance(stored, str) else stored.decode(errors="backslashreplace")


def decode_body(stored: str | bytes) -> Mapping[str, Json]:
    """Return the body of an event or a part. Anything but a JSON object comes as `unreadable`, and so has no seal."""
    value = decode_loosely(stored)
    return value if isinstance(value, dict) else {"unreadable": value}


def decode_all(stored: Sequence[str] | Sequence[bytes]) -> list[Any]:
    """Return the values of many texts, in a fraction of the time for decoding each.

    An unreadable text comes as text.
    """
    try:
        texts = [text if isinstance(text, str) else text.decode() for text in stored]
        if not any(map(_may_be_deep, texts)):
            values = cast("list[Any]", _decoder.decode(f"[{','.join(texts)}]"))
            if len(values) == len(texts):
                return values
    except (ValueError, RecursionError):
        pass
    return [decode_loosely(each) for each in stored]


def lines_of(stored: bytes) -> list[str]:
    """Return the lines of a log, each still JSON text. Invalid bytes are kept, for the reader to refuse."""
    return stored.decode(errors="surrogateescape").split("\n")


def _may_be_deep(text: str) -> bool:
    return text.count("[") + text.count("{") > _DEEPEST


def _is_deep(value: Any) -> bool:
    level, depth = [value], 0
    while level and depth <= _DEEPEST:
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level, depth = [each for some in inner for each in some], depth + 1
    return bool(level)


def micros(when: datetime) -> int:
    """Return the microseconds since 1970. Raises TypeError for a datetime without a time zone."""
    return (when - _EPOCH) // _MICROSECOND


def moment(when: int) -> datetime:
    """Return the datetime, in UTC, of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=when)


def stamp_of(stored: Any) -> datetime:
    """Return the stamp of a stored event or part. An invalid stamp becomes 1970, too old to decide or to be sent."""
    try:
        return moment(int(stored))
    except (OverflowError, TypeError, ValueError):
        return _EPOCH


def span(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * 1_000_000)


def incoming_to_text(incoming: Incoming) -> str:
    """Return the complete event as text, for a timer or a dead letter."""
    return encode(_incoming_to_json(incoming))


def incoming_from_text(text: str | bytes) -> Incoming:
    """Return the event of a text from `incoming_to_text`. Raises ValueError for any other text."""
    return _read(lambda: _incoming_from_json(decode(text)))


def conversation_of(text: str | bytes) -> str | None:
    """Return the conversation of a text from `incoming_to_text`; None for any other text."""
    try:
        return incoming_from_text(text).conversation
    except ValueError:
        return None


def dead_to_text(dead: Dead) -> str:
    """Return the content of a dead letter: the event or the part."""
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


def dead_from_text(text: str | bytes) -> tuple[Incoming | None, QueuedPart | None]:
    """Return the event and the part of a text from `dead_to_text`. Raises ValueError for any other text."""
    return _read(lambda: _dead_from_json(decode(text)))


def _dead_from_json(value: Any) -> tuple[Incoming | None, QueuedPart | None]:
    incoming, part = value["incoming"], value["part"]
    return (
        None if incoming is None else _incoming_from_json(incoming),
        None if part is None else _part_from_json(part),
    )


def _part_from_json(value: dict[str, Any]) -> QueuedPart:
    stamp = value["stamp"]
    part = QueuedPart(**value | {"stamp": None if stamp is None else moment(stamp)})
    if not (isinstance(part.body, dict) and _are(str, (part.part_id, part.conversation, part.pool))):
        raise TypeError("not a part")
    return part


def open_letter(seq: int, dead_id: str, conversation: str, reason: str, stamp: int, held: str | bytes) -> Dead:
    """Return a dead letter, without unreadable content."""
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
        "kind": incoming.kind,
        "about": incoming.about,
    }


def _incoming_from_json(value: dict[str, Any]) -> Incoming:
    stamp, ids = value["stamp"], tuple(value["event_ids"])
    marks = [value[name] for name in ("decides", "wakes", "refusable", "collects")]
    event = Incoming(**value | {"event_ids": ids, "stamp": None if stamp is None else moment(stamp)})
    names = (event.conversation, *ids, event.about or "")
    if not (isinstance(event.body, dict) and _are(str, names) and _are(bool, marks) and event.kind in MAILBOXES):
        raise TypeError("not an event")
    if not 0 < event.keep_seconds <= _LONGEST_SECONDS:
        raise TypeError("not a time to keep ids")
    return event


def _are(kind: type[object], values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _read(reading: Callable[[], T]) -> T:
    """Return the result of a reader of stored text. Raises ValueError if the text is unreadable."""
    try:
        return reading()
    except (LookupError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError("the stored text cannot be read") from error
