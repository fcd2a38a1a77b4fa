"""Shapes of payloads that no channel understood: a count for each, and never a person's words.

They show the operator that a platform has changed and an upgrade may be needed. A shape is the names of the fields and
the kinds of their values. A channel has at most `_MOST` shapes. Each is deleted 30 days after it was written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

from channels import Json
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.stored import keys

__all__ = ["Shapes", "shape_of"]

_MOST: Final = 100
_KEPT_SECONDS: Final = 30 * 86_400.0
_DEEPEST, _MOST_FIELDS = 6, 60
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class Shapes:
    """Counts shapes in this process. A shape is stored at its 1st, 10th, 100th ... payload."""

    def __init__(self, store: Store, bot: str) -> None:
        self._store, self._bot = store, bot
        self._seen: dict[str, Counter[str]] = {}

    async def note(self, channel: str, payload: bytes, at: datetime) -> None:
        """Count a payload of a channel. Raises StoreUnavailable."""
        shape = shape_of(payload)
        name = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]
        seen = self._seen.setdefault(channel, Counter())
        if name not in seen and len(seen) >= _MOST:
            return
        seen[name] += 1
        if not re.fullmatch("10*", str(seen[name])):
            return
        conversation = f"{self._bot}/{channel}"
        key = keys.key(self._store, conversation, keys.shape, name)
        value: Json = {"conversation": conversation, "shape": shape, "seen": seen[name], "at": at.isoformat()}
        await self._store.commit(Transaction(partition=key.partition, puts={key.name: Put(value, _KEPT_SECONDS)}))


def shape_of(payload: bytes) -> Json:
    """Return the shape of a payload: of JSON, of a form, or "bytes"."""
    try:
        return _shape(json.loads(payload), 0)
    except (ValueError, RecursionError):
        pass
    fields = parse_qsl(payload.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=None)
    if not any(_FIELD.fullmatch(name) for name, _ in fields):
        return "bytes"
    return {
        _name(name): shape_of(value.encode()) if name == "payload" else "text" for name, value in fields[:_MOST_FIELDS]
    }


def _shape(value: object, depth: int) -> Json:
    match value:
        case dict():
            if depth >= _DEEPEST:
                return "object"
            return {_name(str(name)): _shape(each, depth + 1) for name, each in list(value.items())[:_MOST_FIELDS]}
        case list():
            kinds = [_shape(each, depth + 1) for each in value[:_MOST_FIELDS]] if depth < _DEEPEST else []
            unique: dict[str, Json] = {json.dumps(kind, sort_keys=True): kind for kind in kinds}
            return list(unique.values())[:5]
        case bool():
            return "yes or no"
        case int() | float():
            return "number"
        case None:
            return "nothing"
    return "text"


def _name(name: str) -> str:
    return name if _FIELD.fullmatch(name) else "?"
