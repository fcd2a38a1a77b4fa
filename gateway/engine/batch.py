"""Which of the events that wait make one turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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

    @property
    def last(self) -> Waiting:
        return self.taken[-1]


def choose(events: Sequence[Waiting], *, language: str, one: bool = False, only: Sequence[int] = ()) -> Batch:
    """The first turn's worth of these events, in order.

    Messages are joined only if they are of the same person, and never across one that reads as yes or no or is a
    command; `one` takes a single message (an event of it may be what makes turns fail), `only` these and no others (a
    turn that another worker began).
    """
    batch = Batch()
    for waiting in events:
        if waiting.pointed or (only and waiting.seq not in only):
            if only:
                continue
            break
        if waiting.body.get("kind") == "settled":
            batch.notes.append(_settled(waiting))
            batch.resumes = batch.resumes or waiting.body.get("resume") is True
        else:
            event = event_from_json(cast("dict[str, object]", dict(waiting.body)))
            if isinstance(event, Message) and not _joins(batch, event, language, one):
                break
            _take(batch, event, language)
        batch.taken.append(waiting)
    return batch


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


def _take(batch: Batch, event: Event, language: str) -> None:
    match event:
        case Message():
            batch.messages.append(event)
        case MessageEdited():
            for number, message in enumerate(batch.messages):
                unread = message.message_id is not None and message.message_id == event.message_id
                if unread and not any(reads_as_answer(text, language) for text in (message.text, event.text)):
                    batch.messages[number] = replace(message, text=event.text)
                    return
            batch.notes.append(
                ModelMessage(role="event", content=f"The person edited an earlier message: {event.text}")
            )


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
