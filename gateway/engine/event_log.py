"""The way of a message in the log: one line a station, each with the id of the event that it is about.

`event` is the platform's id (of an action's outcome: the action's), `conversation` says whose. The lines of one event
are those that name it: a turn names all of its events, and what was stored in one moment shares a line too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from channels import Event, Json
from gateway.observe import Feed
from gateway.store.base import QueuedPart, Transaction, Waiting
from gateway.tools.pending_action import PendingAction

__all__ = [
    "accepted",
    "audited",
    "begun",
    "committed",
    "delivered",
    "ended",
    "event_of",
    "happened",
    "lost",
    "put_aside",
    "tried_again",
]

log = logging.getLogger("askfirst.events")


def event_of(waiting: Waiting) -> str:
    """The first id of an event; one of the gateway's own is called by its kind and action."""
    ids = waiting.body.get("event_ids")
    if isinstance(ids, list | tuple) and ids:
        return str(ids[0])
    return f"{waiting.body.get('kind')}/{waiting.body.get('action_id')}"


def accepted(event: Event, conversation: str, *, new: bool) -> None:
    event_id = event.event_ids[0] if event.event_ids else type(event).__name__
    if new:
        _moment.add(event_id, conversation)
    else:
        log.info("seen before", extra=_of(event_id, conversation))


_MOST_IN_A_LINE = 50
"""Some who collect logs cut a line after 16 KiB."""


class _Moment:
    """What was stored in one round of the event loop: a line for each took as long as to read the message."""

    def __init__(self) -> None:
        self._events: list[str] = []
        self._conversations: list[str] = []
        self._scheduled: asyncio.AbstractEventLoop | None = None

    def add(self, event_id: str, conversation: str) -> None:
        self._events.append(event_id)
        self._conversations.append(conversation)
        loop = asyncio.get_running_loop()
        if len(self._events) >= _MOST_IN_A_LINE:
            self.tell()
        elif self._scheduled is not loop:
            self._scheduled = loop
            loop.call_soon(self.tell)

    def tell(self) -> None:
        events, self._events = self._events, []
        conversations, self._conversations = self._conversations, []
        self._scheduled = None
        if events:
            log.info("accepted", extra=_of(", ".join(events), ", ".join(conversations)))


_moment = _Moment()


def begun(conversation: str, events: Iterable[Waiting], tries: int) -> None:
    """A turn begins, or is tried again."""
    _moment.tell()
    log.info("turn begun", extra={**_of(_all(events), conversation), **({"tries": tries} if tries else {})})


def committed(conversation: str, events: Iterable[Waiting], transaction: Transaction, how: str) -> None:
    """What the events came to is stored, with the parts that are to be sent for them and the actions they changed."""
    _moment.tell()
    said: dict[str, object] = {"how": how, "parts": [part.part_id for part in transaction.parts]}
    if changed := dict.fromkeys(line["action"] for line in _audit(transaction)):
        said["actions"] = list(changed)
    log.info("committed", extra={**_of(_all(events), conversation), **said})


def delivered(queued: QueuedPart, call: str) -> None:
    log.info("delivered", extra=_of_part(queued, call))


def tried_again(queued: QueuedPart, call: str, why: str, wait_seconds: float) -> None:
    """A part was not taken, or perhaps not."""
    log.warning("not delivered yet: %s", why, extra={**_of_part(queued, call), "again_in_seconds": wait_seconds})


def put_aside(queued: QueuedPart, why: str, *, shut: bool = False) -> None:
    """A part is a dead letter. `shut`: its person wants to hear nothing, or has left, which is nobody's fault."""
    log.log(logging.INFO if shut else logging.ERROR, "not delivered: %s", why, extra=_of_part(queued, None))


def lost(waiting: Waiting, queued: QueuedPart | None, why: str) -> None:
    """A platform reports that something did not arrive; `queued` is what it was, now a dead letter."""
    if queued is not None:
        put_aside(queued, why)
    else:
        log.warning("not delivered: %s", why, extra=_of(event_of(waiting), waiting.conversation))


_HAPPENED: Mapping[str, tuple[int, str, tuple[str, ...]]] = {
    "model.finished": (logging.INFO, "model answered", ("model", "milliseconds", "total_tokens")),
    "model.failed": (logging.WARNING, "model failed", ("attempt", "retry_in_seconds")),
    "tool.finished": (logging.INFO, "tool ran", ("tool", "milliseconds")),
    "tool.failed": (logging.WARNING, "tool failed", ("tool", "what")),
    "tool.asked": (logging.INFO, "tool asks", ("tool", "action")),
}
"""What of a turn's feed is a line in the log, and which of its fields: none that holds a person's or an exception's
text, and not the code that confirms."""


def happened(feed: Feed, cause: str, name: str, /, **fields: Any) -> None:
    """Tell the live feed what happens in the turn of this event, and the log what an operator looks for there."""
    feed.publish(name, **fields)
    if (said := _HAPPENED.get(name)) is not None:
        level, text, shown = said
        about = {key: fields[key] for key in shown if fields.get(key) is not None}
        log.log(level, text, extra={**_of(cause, str(fields.get("conversation"))), **about})


def audited(transaction: Transaction) -> None:
    """Tell what was committed of actions: asked, decided, launched and ended, as their audit has it."""
    for line in _audit(transaction):
        person = {"person": line["person"]} if line.get("person") else {}
        about = {"event": f"action/{line['action']}", "action": line["action"], **person}
        log.info("action %s", line.get("what"), extra=about)


def ended(action: PendingAction, state: str, milliseconds: int) -> None:
    """An effect has come to an end, as far as its process knows."""
    about = {"action": action.pending_action_id, "tool": action.kind, "state": state, "milliseconds": milliseconds}
    log.info("effect ended", extra={**_of(f"action/{action.pending_action_id}", action.conversation), **about})


def _audit(transaction: Transaction) -> list[dict[str, Json]]:
    return [line for name, line in transaction.appends if name == "audit" and isinstance(line, dict)]


def _all(events: Iterable[Waiting]) -> str:
    return ", ".join(map(event_of, events))


def _of(event: str, conversation: str) -> dict[str, object]:
    return {"event": event, "conversation": conversation}


def _of_part(queued: QueuedPart, call: str | None) -> dict[str, object]:
    about = {**_of(str(queued.body.get("cause")), queued.conversation), "part": queued.part_id}
    return about if call is None else {**about, "call": call}
