"""Batches: the stored events taken together by a turn."""

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
    """The index of a note -> the message edit described by the note."""
    outcomes: set[int] = field(default_factory=set)
    """The sequence numbers of the taken outcomes of actions."""
    from_people: list[Waiting] = field(default_factory=list)
    """The taken events caused by a person."""
    folded: bool = False
    """The notes include folded notes. The end of the turn deletes or replaces the record of folded notes."""
    resumes: bool = False
    """An outcome or a follow-up makes the model continue, even without a message."""
    edited: bool = False
    """A message was edited, and the old or the new text reads as an answer. The message keeps the old text."""
    unreadable: bool = False
    """The batch is a single event, unreadable for this release."""
    follow_up: FollowUp | None = None
    """The follow-up with the greatest depth. All follow-ups of a batch belong to the same person."""
    again: str | None = None
    """The action to ask anew. The batch then has no messages."""
    forged: bool = False
    """The batch is a single event without a valid seal."""
    began: datetime | None = None
    """The arrival time of the first message."""
    opened: Waiting | None = None
    """The event of the first message."""
    written: Waiting | None = None
    """The event of the last message."""
    collects: bool = False
    """True while the turn may wait for more messages: no other event waits, and no taken event wants an answer now."""

    @property
    def began_by(self) -> Waiting:
        """The event at the begin of the turn: the first message, else the first event. The same for each attempt."""
        return self.opened or self.taken[0]

    @property
    def is_fold(self) -> bool:
        """True for a batch of notes alone. No answer is wanted then."""
        return not (self.messages or self.resumes or self.again)

    @property
    def at(self) -> datetime:
        """The arrival time of the last message. Without messages: of the last event."""
        return (self.written or self.taken[-1]).stamp

    def window(self, collect_seconds: float) -> timedelta:
        """Return the wait of the turn for more messages after the last message."""
        is_album = any(message.album is not None for message in self.messages)
        return timedelta(seconds=max(collect_seconds, _ALBUM_SECONDS if is_album else 0.0))

    def acted_beside(self, written: Waiting | None) -> list[datetime]:
        """Return the times of the events caused by people, except for this message."""
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
    """Return the batch of a turn: the first of these events, in order.

    Only messages of the same person are joined. A command, or a message read as yes or no, is never joined. With
    `several` open questions, neither is a message that names items of a plan, like "1, 3" or "all". With `one`, the
    batch has at most a single message, since a message among several may make turns fail. `only`: the sequence numbers
    of a turn begun by another worker. The batch takes no other events. `begun`: an earlier attempt may have shown a
    text, and a yes or no may be meant for it. The turn with the text then ends before the yes or no is judged. The edit
    of a taken message is applied from any place in the mailbox. An edit to a text that `is_said` already is ignored.
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
    """Return True if a message may be joined with others and wait for others: no command, no yes and no no.

    With `several` open questions, the message also names no items of a plan.
    """
    name = name_of(message.person)
    if message.command is not None or reads_as_answer(message.text, language, name):
        return False
    return not several or read_selection(message.text, MOST_ITEMS, words_of(language), name) is None


def _read(waiting: Waiting, genuine: Callable[[Waiting], bool]) -> Event | ActionSettled | AskAgain | FollowUp:
    """Read an event. Raises _NotGenuine, and ValueError for a body not meant for turns."""
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
    """Add an event to the batch. Returns False for an event of a later turn."""
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
    """Take the edits of the batch's messages from the remaining events. An unreadable event is left to a later turn."""
    for waiting in left:
        if is_note(waiting.body):
            with contextlib.suppress(ValueError):
                event = _read(waiting, genuine)
                if isinstance(event, MessageEdited) and _edit(batch, event, language):
                    _take(batch, waiting, event)


def _follows(batch: Batch, event: FollowUp) -> bool:
    """Return False for a follow-up of another person than the person of the batch."""
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
    """Give a message of the batch the new text. False without a message of this id, or if a text reads as an answer."""
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
"""The wait after a file of an album for the next file. Each file comes as a separate message."""

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
    "tampered": "the seal check of its record failed: nothing more is done about it",
    "other_release": "this tool has changed since it was asked: it was NOT done",
    "not_checked": "it could not be checked whether it is still as it was shown: it was NOT done",
    "changed": "asked anew, since what it would do had changed: it was NOT done",
}
"""The end of an action for the model, by the reason or else the state."""


def _outcome_note(event: ActionSettled) -> ModelMessage:
    """Return the note for the model about the end of an action."""
    why = event.reason or event.state
    if why == "expired" and event.by is not None:  # a person had decided: the approval became too old to launch
        why = "not_started"
    how = _ENDED.get(why, event.state)
    outcome = f" Result: {event.outcome}" if event.outcome else ""
    remark = f" They said: {event.remark}" if event.remark else ""
    return ModelMessage(role="event", content=f"{event.tool} ({event.preview}): {how}.{outcome}{remark}")
