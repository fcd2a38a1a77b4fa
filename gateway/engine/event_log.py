"""The event log: one line for each step of an event, from its receipt to the delivery of its replies.

`event` is the platform's id of the event, or the id of the action whose outcome it is. `conversation` is its
conversation. A line may name several events: a turn names all of its events, and events that were stored at the same
moment share a line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from channels import Event, Json
from gateway.observe import Feed
from gateway.store.transaction import Transaction
from gateway.store.types import QueuedPart, Waiting
from gateway.stored import keys
from gateway.stored.outbox import OutboxItem
from gateway.tools.pending_action import PendingAction

__all__ = [
    "ACTION",
    "accepted",
    "audited",
    "begun",
    "committed",
    "dead_lettered",
    "delivered",
    "effect_ended",
    "event_id_of",
    "event_id_of_action",
    "happened",
    "lost",
    "tried_again",
]

log = logging.getLogger("askfirst.events")

ACTION: Final = "action/"
"""The prefix of the id under which an action's end is logged, and which its parts have as their cause."""


def event_id_of(waiting: Waiting) -> str:
    """Return the first id of an event. One of the gateway's own events is named by its kind and action."""
    ids = waiting.body.get("event_ids")
    if isinstance(ids, list | tuple) and ids:
        return str(ids[0])
    return f"{waiting.body.get('kind')}/{waiting.body.get('action_id')}"


def event_id_of_action(action_id: str) -> str:
    """Return the id under which the end of an action is logged."""
    return f"{ACTION}{action_id}"


def accepted(event: Event, conversation: str, *, new: bool) -> None:
    """Log that an event was stored, or that it was stored before."""
    event_id = event.event_ids[0] if event.event_ids else type(event).__name__
    if new:
        _batch.add(event_id, conversation)
    else:
        log.info("seen before", extra=_of(event_id, conversation))


_MOST_IN_A_LINE = 50
"""Some log collectors cut a line after 16 KiB."""


class _AcceptedBatch:
    """The events that were stored in one round of the event loop, for one line.

    A line for each event would take as long as reading the message.
    """

    def __init__(self) -> None:
        self._events: list[str] = []
        self._conversations: list[str] = []
        self._scheduled: asyncio.AbstractEventLoop | None = None

    def add(self, event_id: str, conversation: str) -> None:
        self._events.append(event_id)
        self._conversations.append(conversation)
        loop = asyncio.get_running_loop()
        if len(self._events) >= _MOST_IN_A_LINE:
            self.flush()
        elif self._scheduled is not loop:
            self._scheduled = loop
            loop.call_soon(self.flush)

    def flush(self) -> None:
        events, self._events = self._events, []
        conversations, self._conversations = self._conversations, []
        self._scheduled = None
        if events:
            log.info("accepted", extra=_of(", ".join(events), ", ".join(conversations)))


_batch = _AcceptedBatch()


def begun(conversation: str, events: Iterable[Waiting], tries: int) -> None:
    """Log that a turn began, or began again after `tries` failures."""
    _batch.flush()
    log.info("turn begun", extra={**_of(_all(events), conversation), **({"tries": tries} if tries else {})})


def committed(conversation: str, events: Iterable[Waiting], transaction: Transaction, how: str) -> None:
    """Log how events ended, with the parts that were queued for them and the actions that they changed."""
    _batch.flush()
    said: dict[str, object] = {"how": how, "parts": [part.part_id for part in transaction.parts]}
    if changed := dict.fromkeys(line["action"] for line in _audit(transaction)):
        said["actions"] = list(changed)
    log.info("committed", extra={**_of(_all(events), conversation), **said})


def delivered(queued: QueuedPart, call: str) -> None:
    """Log that the platform took a part."""
    log.info("delivered", extra=_of_part(queued, call))


def tried_again(queued: QueuedPart, call: str, why: str, wait_seconds: float) -> None:
    """Log that a part was not taken, or that it is not known."""
    log.warning("not delivered yet: %s", why, extra={**_of_part(queued, call), "again_in_seconds": wait_seconds})


def dead_lettered(queued: QueuedPart, why: str, *, suppressed: bool = False) -> None:
    """Log that a part is a dead letter. `suppressed`: its person has opted out or left, so it is no error."""
    log.log(logging.INFO if suppressed else logging.ERROR, "not delivered: %s", why, extra=_of_part(queued, None))


def lost(waiting: Waiting, queued: QueuedPart | None, why: str) -> None:
    """Log a platform's report that a message did not arrive. `queued`: its part, which is a dead letter now."""
    if queued is not None:
        dead_lettered(queued, why)
    else:
        log.warning("not delivered: %s", why, extra=_of(event_id_of(waiting), waiting.conversation))


_HAPPENED: Mapping[str, tuple[int, str, tuple[str, ...]]] = {
    "model.finished": (logging.INFO, "model answered", ("model", "milliseconds", "total_tokens")),
    "model.failed": (logging.WARNING, "model failed", ("attempt", "retry_in_seconds")),
    "tool.finished": (logging.INFO, "tool ran", ("tool", "milliseconds")),
    "tool.failed": (logging.WARNING, "tool failed", ("tool", "what")),
    "tool.asked": (logging.INFO, "tool asks", ("tool", "action")),
}
"""The events of the live feed that are lines of the log too, with their level, text and fields.

No field may hold the text of a person or an exception, or the code that confirms."""


def happened(feed: Feed, cause: str, name: str, /, **fields: Any) -> None:
    """Publish an event of a turn to the live feed, and log it if it is in `_HAPPENED`. `cause`: the id of its event."""
    feed.publish(name, **fields)
    if (said := _HAPPENED.get(name)) is not None:
        level, text, shown = said
        about = {key: fields[key] for key in shown if fields.get(key) is not None}
        log.log(level, text, extra={**_of(cause, str(fields.get("conversation"))), **about})


def audited(transaction: Transaction) -> None:
    """Log the audit lines of a transaction: actions asked, decided, launched and ended."""
    for line in _audit(transaction):
        person = {"person": line["person"]} if line.get("person") else {}
        about = {"event": event_id_of_action(str(line["action"])), "action": line["action"], **person}
        log.info("action %s", line.get("what"), extra=about)


def effect_ended(action: PendingAction, state: str, milliseconds: int) -> None:
    """Log that an effect has ended, as far as its process knows."""
    about = {"action": action.pending_action_id, "tool": action.kind, "state": state, "milliseconds": milliseconds}
    log.info("effect ended", extra={**_of(event_id_of_action(action.pending_action_id), action.conversation), **about})


def _audit(transaction: Transaction) -> list[dict[str, Json]]:
    return [line for name, line in transaction.appends if name == keys.AUDIT and isinstance(line, dict)]


def _all(events: Iterable[Waiting]) -> str:
    return ", ".join(map(event_id_of, events))


def _of(event: str, conversation: str) -> dict[str, object]:
    return {"event": event, "conversation": conversation}


def _of_part(queued: QueuedPart, call: str | None) -> dict[str, object]:
    cause = str(OutboxItem.from_json(queued.body).cause)
    about = {**_of(cause, queued.conversation), "part": queued.part_id}
    return about if call is None else {**about, "call": call}
