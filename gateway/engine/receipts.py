"""What was shown in a conversation, and when: the messages of ours that arrived last.

Delivery writes it, under the lease of the outbox; a bare word is judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from channels import Json
from gateway.engine.shared import Shared
from gateway.store.base import Key, QueuedPart

__all__ = ["KEPT_SECONDS", "added", "key", "last_shown"]

KEPT_SECONDS = 86400.0
_MOST = 10


def key(shared: Shared, conversation: str) -> Key:
    return shared.key(conversation, "receipts")


def added(lines: Sequence[Json], at: datetime, shows: Sequence[str], *, queued: datetime) -> list[Json]:
    """With a message more, that asked for these actions; none when it was no prompt."""
    line: Json = {"at": at.isoformat(), "queued": queued.isoformat(), "shows": cast("list[Json]", list(shows))}
    return [*lines, line][-_MOST:]


def last_shown(lines: Json, at: datetime, *, outbox: Sequence[QueuedPart] = ()) -> frozenset[str]:
    """The actions that the last message the bot sent before `at` asked for; empty when it was no prompt.

    Empty too while another one was on its way: it may have been on the screen before its receipt was here. `outbox` is
    what is on its way still.
    """
    known = [_Line.of(line) for line in cast("list[Mapping[str, Json]]", lines or [])]
    if any(line.queued <= at < line.at for line in known) or any(_may_be_seen(part, at) for part in outbox):
        return frozenset()
    before = [line for line in known if line.at <= at]
    return before[-1].shows if before else frozenset()


class _Line(NamedTuple):
    at: datetime
    queued: datetime
    shows: frozenset[str]

    @classmethod
    def of(cls, line: Mapping[str, Json]) -> _Line:
        """An older release did not write down when it was queued."""
        at = str(line["at"])
        queued = str(line.get("queued", at))
        shows = frozenset(cast("list[str]", line["shows"]))
        return cls(datetime.fromisoformat(at), datetime.fromisoformat(queued), shows)


def _may_be_seen(part: QueuedPart, at: datetime) -> bool:
    return part.body["edits"] is None and part.stamp is not None and part.stamp <= at
