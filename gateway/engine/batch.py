"""What one turn is of: which of the events that wait are taken together, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from channels import Event, Message, MessageEdited
from channels.events import event_from_json
from gateway.pending.reading import reads_as_answer
from gateway.providers.base import ModelMessage
from gateway.store.base import Waiting

__all__ = ["Batch", "choose"]


@dataclass(slots=True, kw_only=True)
class Batch:
    """The events of one turn: messages of one person, and what only has to be noted."""

    taken: list[Waiting] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    notes: list[ModelMessage] = field(default_factory=list)
    resumes: bool = False
    """An outcome asked for the model to go on, though nobody wrote anything."""
    edited: bool = False
    """A message was edited that reads as an answer, before or after it: it is taken as it was first written."""
    unreadable: bool = False
    """It is one event that this release cannot read."""
    written: Waiting | None = None
    """The event of the last message."""

    @property
    def at(self) -> datetime:
        """When its last message came, or, of a batch without any, its last event."""
        return (self.written or self.taken[-1]).stamp

    def heard_beside(self, written: Waiting | None) -> list[datetime]:
        """When somebody did something here, apart from this one message."""
        return [waiting.stamp for waiting in self.taken if waiting is not written and waiting.body.get("person")]


def choose(events: Sequence[Waiting], *, language: str, one: bool = False, only: Sequence[int] = ()) -> Batch:
    """The first turn's worth of these events, in order.

    Messages are joined only if they are of the same person, and never across one that reads as yes or no or is a
    command; `one` takes a single message (an event of it may be what makes turns fail), `only` these and no others (a
    turn that another worker began). The edit of a message that is taken counts wherever it waits.
    """
    batch = Batch()
    events = [waiting for waiting in events if not only or waiting.seq in only]
    left = list(events)
    for waiting in events:
        if waiting.pointed:
            break
        try:
            event = _event(waiting)
        except ValueError:
            return batch if batch.taken else Batch(taken=[waiting], unreadable=True)
        if isinstance(event, Message) and not _joins(batch, event, language, one):
            break
        left.remove(waiting)
        batch.taken.append(waiting)
        match event:
            case None:
                batch.notes.append(_settled(waiting))
                batch.resumes = batch.resumes or waiting.body.get("resume") is True
            case Message():
                batch.messages.append(event)
                batch.written = waiting
            case MessageEdited() if not _edit(batch, event, language):
                batch.notes.append(
                    ModelMessage(role="event", content=f"The person edited an earlier message: {event.text}")
                )
    for waiting in left:
        if waiting.body.get("kind") == MessageEdited.__name__:
            edit = cast("MessageEdited", _event(waiting))
            if _edit(batch, edit, language):
                batch.taken.append(waiting)
    return batch


def _event(waiting: Waiting) -> Event | None:
    """The platform's event; None for the outcome of an action."""
    if waiting.body.get("kind") == "settled":
        return None
    return event_from_json(cast("dict[str, object]", dict(waiting.body)))


def _joins(batch: Batch, message: Message, language: str, one: bool) -> bool:
    if not batch.messages:
        return True
    before = batch.messages[-1]
    alone = [before.command, message.command, one]
    return (
        not any(alone)
        and str(message.person) == str(before.person)
        and not reads_as_answer(before.text, language)
        and not reads_as_answer(message.text, language)
    )


def _edit(batch: Batch, edit: MessageEdited, language: str) -> bool:
    """Give an unread message its new text. False when it is another's, or when either text reads as an answer."""
    for number, message in enumerate(batch.messages):
        if message.message_id is not None and message.message_id == edit.message_id:
            if any(reads_as_answer(text, language) for text in (message.text, edit.text)):
                batch.edited = True
                return False
            batch.messages[number] = replace(message, text=edit.text)
            return True
    return False


def _settled(waiting: Waiting) -> ModelMessage:
    """What became of an action, as the model is told it."""
    body = waiting.body
    ended = {
        "done": "confirmed by the person and done",
        "failed": "confirmed by the person, but it failed",
        "unknown": "confirmed by the person; it may or may not have happened",
        "refused": "refused by the person: it was NOT done",
        "expired": "not answered in time: it was NOT done",
        "withdrawn": "withdrawn: it was NOT done",
        "undelivered": "never shown to the person: it was NOT done",
        "drifted": "no longer as it was shown: it was NOT done",
    }
    how = ended.get(str(body.get("reason") or body.get("state")), str(body.get("state")))
    outcome = f" Result: {body['outcome']}" if body.get("outcome") else ""
    return ModelMessage(role="event", content=f"{body.get('tool')} ({body.get('preview')}): {how}.{outcome}")
