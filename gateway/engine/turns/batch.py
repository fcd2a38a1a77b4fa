"""Batches: the stored events that one turn takes together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from channels import Event, Message, MessageEdited
from gateway.pending.reading import name_of, reads_as_answer
from gateway.pending.selecting import read_selection
from gateway.pending.words import words_of
from gateway.pending.words.plan import MOST_ITEMS
from gateway.providers.base import ModelMessage
from gateway.store.types import Waiting
from gateway.stored.events import ActionSettled, AskAgain, FollowUp, event_of, is_note


@dataclass(slots=True, kw_only=True)
class Batch:
    """The events of one turn: messages of one person, and notes."""

    taken: list[Waiting] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    notes: list[ModelMessage] = field(default_factory=list)
    edits: dict[int, MessageEdited] = field(default_factory=dict)
    """The place of a note -> the edit of a message that it tells."""
    outcomes: set[int] = field(default_factory=set)
    """The sequence numbers of the taken events that are outcomes of actions."""
    from_people: list[Waiting] = field(default_factory=list)
    """The taken events that a person caused."""
    folded: bool = False
    """The notes include folded ones, whose record is deleted when the turn ends."""
    resumes: bool = False
    """An outcome asks the model to continue, although no message came."""
    edited: bool = False
    """A message was edited, and its old or its new text reads as an answer. The message keeps its old text."""
    unreadable: bool = False
    """The batch is one event that this release cannot read."""
    follow_up: FollowUp | None = None
    """The deepest of the follow-ups that it takes, which are all of one person."""
    again: str | None = None
    """The action that is to be asked anew. The batch then has no messages."""
    forged: bool = False
    """The batch is one event without a valid seal."""
    began: datetime | None = None
    """The time at which its first message came."""
    opened: Waiting | None = None
    """The event of the first message."""
    written: Waiting | None = None
    """The event of the last message."""
    collects: bool = False
    """True while the turn may wait for more messages: no other event waits, and none of these wants an answer now."""

    @property
    def began_by(self) -> Waiting:
        """The event that began the turn: its first message, else its first event. Each attempt has the same."""
        return self.opened or self.taken[0]

    @property
    def is_fold(self) -> bool:
        """True if there are only notes, so that no answer is wanted."""
        return not (self.messages or self.resumes or self.again)

    @property
    def at(self) -> datetime:
        """The time at which its last message came. Without messages: its last event."""
        return (self.written or self.taken[-1]).stamp

    def window(self, collect_seconds: float) -> timedelta:
        """Return how long the turn waits for more messages after the last one."""
        is_album = any(message.album is not None for message in self.messages)
        return timedelta(seconds=max(collect_seconds, _ALBUM_SECONDS if is_album else 0.0))

    def acted_beside(self, written: Waiting | None) -> list[datetime]:
        """Return the times of the events that people caused, without this one message."""
        return [waiting.stamp for waiting in self.from_people if waiting is not written]


class _NotGenuine(ValueError):
    """The event has no valid seal."""


def choose(
    events: Sequence[Waiting],
    *,
    language: str,
    genuine: Callable[[Waiting], bool] = lambda waiting: True,
    one: bool = False,
    only: Sequence[int] = (),
    begun: bool = False,
    several: bool = False,
    is_said: Callable[[str], bool] = lambda text: False,
) -> Batch:
    """Return the first of these events, in order, that one turn takes together.

    Messages are joined if they are of the same person. A message that reads as yes or no, or is a command, is never
    joined. With `several` questions open, neither is one that names items of a plan, as "1, 3" and "all" do. With
    `one`, the batch has at most one message, since one of several may make turns fail. `only`: the sequence numbers of
    a turn that another worker began. The batch takes no other events. `begun`: an earlier attempt may have shown a
    text, so that a yes or no may be meant for it. The turn that shows it ends before that is judged. The edit of a
    taken message is applied wherever it waits. An edit to a text that `is_said` already is ignored.
    """
    batch = Batch()
    events = [waiting for waiting in events if not only or waiting.seq in only]
    left = list(events)
    for waiting in events:
        if batch.again is not None or waiting.pointed:
            break
        try:
            event = _read(waiting, genuine)
        except ValueError as error:
            if batch.taken:
                break
            forged = isinstance(error, _NotGenuine)
            return Batch(taken=[waiting], forged=forged, unreadable=not forged)
        if not _add(batch, waiting, event, language=language, one=one, begun=begun, several=several, is_said=is_said):
            break
        left.remove(waiting)
    _take_edits(batch, left, genuine, language)
    batch.collects = batch.collects and not batch.resumes and len(batch.taken) == len(events)
    return batch


def is_plain(message: Message, language: str, *, several: bool = False) -> bool:
    """Return True if a message may be joined with others and wait for them: it is no command, no yes and no no.

    With `several` questions open, it also names no items of a plan.
    """
    name = name_of(message.person)
    if message.command is not None or reads_as_answer(message.text, language, name):
        return False
    return not several or read_selection(message.text, MOST_ITEMS, words_of(language), name) is None


def _read(waiting: Waiting, genuine: Callable[[Waiting], bool]) -> Event | ActionSettled | AskAgain | FollowUp:
    """Read an event. Raises _NotGenuine, and ValueError for a body that no turn can take."""
    if not genuine(waiting):
        raise _NotGenuine("an event without a valid seal")
    event = event_of(waiting.body)
    if isinstance(event, Event | ActionSettled | AskAgain | FollowUp):
        return event
    raise ValueError("an event of the decision lane")


def _add(
    batch: Batch,
    waiting: Waiting,
    event: Event | ActionSettled | AskAgain | FollowUp,
    *,
    language: str,
    one: bool,
    begun: bool,
    several: bool,
    is_said: Callable[[str], bool],
) -> bool:
    """Add an event to the batch. Returns False when it belongs to a later turn."""
    match event:
        case AskAgain():
            if batch.messages or batch.resumes:
                return False
            batch.again = event.action_id
        case ActionSettled():
            batch.notes.append(_outcome_note(event))
            batch.outcomes.add(waiting.seq)
            batch.resumes = batch.resumes or event.resume
        case FollowUp():
            if not _follows(batch, event):
                return False
            batch.notes.append(ModelMessage(role="event", content=f"You planned to go on now: {event.text}"))
            batch.resumes = True
            if batch.follow_up is None or batch.follow_up.depth < event.depth:
                batch.follow_up = event
        case Message():
            if begun and batch.resumes and not is_plain(event, language, several=several):
                return False
            if not _joins(batch, event, language, one, several):
                return False
            batch.messages.append(event)
            batch.began, batch.written = batch.began or waiting.stamp, waiting
            batch.opened = batch.opened or waiting
            batch.collects = waiting.collects and (batch.collects or len(batch.messages) == 1)
        case MessageEdited() if not _edit(batch, event, language) and not is_said(event.text):
            batch.edits[len(batch.notes)] = event
            batch.notes.append(
                ModelMessage(role="event", content=f"The person edited an earlier message: {event.text}")
            )
    _take(batch, waiting, event)
    return True


def _take(batch: Batch, waiting: Waiting, event: Event | ActionSettled | AskAgain | FollowUp) -> None:
    batch.taken.append(waiting)
    if isinstance(event, Event) and event.person is not None:
        batch.from_people.append(waiting)


def _take_edits(batch: Batch, left: Sequence[Waiting], genuine: Callable[[Waiting], bool], language: str) -> None:
    """Take the edits of the batch's messages among the events that are left. An unreadable one is left to its turn."""
    for waiting in left:
        if is_note(waiting.body):
            with contextlib.suppress(ValueError):
                event = _read(waiting, genuine)
                if isinstance(event, MessageEdited) and _edit(batch, event, language):
                    _take(batch, waiting, event)


def _follows(batch: Batch, event: FollowUp) -> bool:
    """Return False for a follow-up of another person than that of the batch."""
    if batch.again is not None or any(str(message.person) != event.person for message in batch.messages):
        return False
    return batch.follow_up is None or batch.follow_up.person == event.person


def _joins(batch: Batch, message: Message, language: str, one: bool, several: bool) -> bool:
    if batch.follow_up is not None and batch.follow_up.person != str(message.person):
        return False
    if not batch.messages:
        return True
    before = batch.messages[-1]
    same = str(message.person) == str(before.person)
    return not one and same and all(is_plain(each, language, several=several) for each in (before, message))


def _edit(batch: Batch, edit: MessageEdited, language: str) -> bool:
    """Give a message of the batch its new text. False when it has none of this id, or a text reads as an answer."""
    for number, message in enumerate(batch.messages):
        if message.message_id is not None and message.message_id == edit.message_id:
            name = name_of(message.person)
            if any(reads_as_answer(text, language, name) for text in (message.text, edit.text)):
                batch.edited = True
                return False
            batch.messages[number] = replace(message, text=edit.text)
            return True
    return False


_ALBUM_SECONDS: Final = 1.0
"""The wait after a file of an album for the next one, which comes as a message of its own."""

_ENDED: Final[Mapping[str, str]] = {
    "done": "confirmed by the person and done",
    "failed": "confirmed by the person, but it failed",
    "unknown": "confirmed by the person; it may or may not have happened",
    "refused": "refused by the person: it was NOT done",
    "expired": "not answered in time: it was NOT done",
    "not_started": "confirmed by the person, but it could not be started in time: it was NOT done",
    "withdrawn": "withdrawn: it was NOT done",
    "undelivered": "never shown to the person: it was NOT done",
    "drifted": "no longer as it was shown: it was NOT done",
    "tampered": "its record was changed by somebody without the key: nothing more is done about it",
    "other_release": "this tool has changed since it was asked: it was NOT done",
    "not_checked": "it could not be checked whether it is still as it was shown: it was NOT done",
    "changed": "asked anew, since what it would do had changed: it was NOT done",
}
"""The end of an action for the model, by its reason or else its state."""


def _outcome_note(event: ActionSettled) -> ModelMessage:
    """Return the note that tells the model how an action ended."""
    why = event.reason or event.state
    if why == "expired" and event.by is not None:  # a person had decided: the approval became too old to launch
        why = "not_started"
    how = _ENDED.get(why, event.state)
    outcome = f" Result: {event.outcome}" if event.outcome else ""
    remark = f" They said: {event.remark}" if event.remark else ""
    return ModelMessage(role="event", content=f"{event.tool} ({event.preview}): {how}.{outcome}{remark}")
