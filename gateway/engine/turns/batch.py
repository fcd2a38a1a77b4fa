"""What one turn is of: which of the events that wait are taken together, and as what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from channels import Event, Message, MessageEdited
from channels.events import event_from_json
from gateway.pending.reading import reads_as_answer
from gateway.providers.base import ModelMessage
from gateway.store.base import Waiting
from gateway.store.form import FORM, NewerForm, check_form, is_newer

__all__ = ["Batch", "choose", "is_plain"]


@dataclass(slots=True, kw_only=True)
class Batch:
    """The events of one turn: messages of one person, and what only has to be noted."""

    taken: list[Waiting] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    notes: list[ModelMessage] = field(default_factory=list)
    folded: bool = False
    """The notes hold those that were folded before: the record of them goes with the end of the turn."""
    resumes: bool = False
    """An outcome asked for the model to go on, though nobody wrote anything."""
    edited: bool = False
    """A message was edited that reads as an answer, before or after it: it is taken as it was first written."""
    unreadable: bool = False
    """It is one event that this release cannot read."""
    again: str | None = None
    """The action that is to be asked anew; nobody has written anything then."""
    forged: bool = False
    """It is one event that this gateway did not accept as it is."""
    began: datetime | None = None
    """When its first message came."""
    written: Waiting | None = None
    """The event of the last message."""
    collects: bool = False
    """More may be written that would be joined: nothing else waits, and nothing in it asks to be answered at once."""

    @property
    def is_fold(self) -> bool:
        """Nobody wrote, and nothing asks for an answer: there are only notes."""
        return not (self.messages or self.resumes or self.again)

    @property
    def at(self) -> datetime:
        """When its last message came, or, of a batch without any, its last event."""
        return (self.written or self.taken[-1]).stamp

    def heard_beside(self, written: Waiting | None) -> list[datetime]:
        """When somebody did something here, apart from this one message."""
        return [waiting.stamp for waiting in self.taken if waiting is not written and waiting.body.get("person")]


def choose(
    events: Sequence[Waiting],
    *,
    language: str,
    genuine: Callable[[Waiting], bool] = lambda waiting: True,
    one: bool = False,
    only: Sequence[int] = (),
    is_said: Callable[[str], bool] = lambda text: False,
) -> Batch:
    """The first turn's worth of these events, in order.

    Messages are joined only if they are of the same person, and never across one that reads as yes or no or is a
    command; `one` takes a single message (an event of it may be what makes turns fail), `only` these and no others (a
    turn that another worker began). The edit of a message that is taken counts wherever it waits; one that comes to
    what `is_said` already is no news.

    Raises NewerForm when the first of them is for a newer release; later ones wait behind what is taken.
    """
    batch = Batch()
    events = [waiting for waiting in events if not only or waiting.seq in only]
    left = list(events)
    for waiting in events:
        if waiting.pointed and (waiting.needs <= FORM or batch.taken):
            break
        if not is_newer(waiting.body) and not genuine(waiting):
            if not batch.taken:
                return Batch(taken=[waiting], forged=True)
            break
        try:
            event = _event(waiting)
        except NewerForm:
            if not batch.taken:
                raise
            break
        except ValueError:
            if not batch.taken:
                return Batch(taken=[waiting], unreadable=True)
            break
        if waiting.body.get("kind") == "again":
            if not batch.messages and not batch.resumes:
                batch.taken.append(waiting)
                batch.again = str(waiting.body["action_id"])
            break
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
                batch.began, batch.written = batch.began or waiting.stamp, waiting
                batch.collects = waiting.collects and (batch.collects or len(batch.messages) == 1)
            case MessageEdited() if not _edit(batch, event, language) and not is_said(event.text):
                batch.notes.append(
                    ModelMessage(role="event", content=f"The person edited an earlier message: {event.text}")
                )
    for waiting in left:
        if waiting.body.get("kind") == MessageEdited.__name__ and genuine(waiting):
            with contextlib.suppress(NewerForm, ValueError):  # its own turn says so
                if _edit(batch, cast("MessageEdited", _event(waiting)), language):
                    batch.taken.append(waiting)
    if batch.again is not None:
        return batch
    batch.collects = batch.collects and not batch.resumes and len(batch.taken) == len(events)
    return batch


def is_plain(message: Message, language: str) -> bool:
    """Whether it may be joined with others and wait for them: no command, and nothing that reads as yes or no."""
    return message.command is None and not reads_as_answer(message.text, language)


def _event(waiting: Waiting) -> Event | None:
    """The platform's event; None for the outcome of an action. Raises NewerForm, and ValueError when it is broken."""
    if waiting.needs > FORM:
        raise NewerForm(waiting.needs)
    check_form(waiting.body)
    if waiting.body.get("kind") in ("settled", "again"):
        return None
    return event_from_json(cast("dict[str, object]", dict(waiting.body)))


def _joins(batch: Batch, message: Message, language: str, one: bool) -> bool:
    if not batch.messages:
        return True
    before = batch.messages[-1]
    same = str(message.person) == str(before.person)
    return not one and same and is_plain(before, language) and is_plain(message, language)


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
        "tampered": "its record was changed by somebody without the key: nothing more is done about it",
        "other_release": "this tool has changed since it was asked: it was NOT done",
        "not_checked": "it could not be checked whether it is still as it was shown: it was NOT done",
        "changed": "asked anew, since what it would do had changed: it was NOT done",
    }
    how = ended.get(str(body.get("reason") or body.get("state")), str(body.get("state")))
    outcome = f" Result: {body['outcome']}" if body.get("outcome") else ""
    remark = f" They said: {body['remark']}" if body.get("remark") else ""
    return ModelMessage(role="event", content=f"{body.get('tool')} ({body.get('preview')}): {how}.{outcome}{remark}")
