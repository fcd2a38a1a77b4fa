"""The lives of messages: each event belongs to the message that began it, from its arrival to the receipt of its reply.

A life has the id of the run that its message began. What follows a question (the decision, the effect, the words about
its outcome) has runs of its own, and belongs to the life of the message that led to the question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from gateway.observe.events import (
    DoubtRaised,
    DuplicateDropped,
    EventSettled,
    MessageReceived,
    ObservedEvent,
    PendingStashed,
    RunEvent,
    TurnStart,
)
from gateway.observe.runs import action_event_id, run_id_of
from gateway.tools.pending_action import PendingAction

__all__ = ["MOST_LIVES", "Life", "Lives"]

MOST_LIVES = 2_000
"""The runs and actions that are remembered."""
_DECIDED = "decided"
"""The first word of `EventSettled.how` for an answer to a question."""


class Life(NamedTuple):
    """The life of a message that an event belongs to."""

    run: str = ""
    """The id of the run that the message began. Empty: the event belongs to no message."""
    conversation: str = ""
    joins: Sequence[str] = ()
    """The runs that turn out to belong to this life with this event."""


class Lives:
    """The lives of the newest messages. It reads all events, in order."""

    def __init__(self) -> None:
        self._joined: OrderedDict[str, str] = OrderedDict()
        """Id of an action, or of a run that belongs to another's life -> the run of that life."""
        self._places: OrderedDict[str, str] = OrderedDict()
        """Id of a run -> its conversation."""

    def of(self, event: ObservedEvent) -> Life:
        """Return the life that an event belongs to."""
        match event:
            case MessageReceived():
                run, place, joins = run_id_of(event.conversation, event.event_id), event.conversation, []
            case DuplicateDropped():
                return Life(conversation=event.conversation)
            case TurnStart():
                others = {run_id_of(event.conversation, each) for each in event.event_ids}
                run, place, joins = event.run_id, event.conversation, sorted(others - {event.run_id})
            case EventSettled():
                run, place = self._settled(event), event.conversation
                joins = [event.run_id] if run != event.run_id else []
            case DoubtRaised() if event.action_id:
                run, place, joins = self._of_action(event.action_id, event.conversation), event.conversation, []
            case _ if isinstance(action := getattr(event, "action", None), PendingAction):
                run, place, joins = self._acted(event, action), action.conversation, []
            case RunEvent():
                run = self._joined.get(event.run_id, event.run_id)
                return Life(run, getattr(event, "conversation", None) or self._places.get(run, ""))
            case _:
                return Life(conversation=str(getattr(event, "conversation", "") or ""))
        if run:
            _keep(self._places, run, place)
        for each in joins:
            _keep(self._joined, each, run)
        return Life(run, place, joins)

    def _acted(self, event: ObservedEvent, action: PendingAction) -> str:
        action_id = action.pending_action_id
        if not isinstance(event, PendingStashed):
            return self._of_action(action_id, action.conversation)
        for each in (action_id, run_id_of(action.conversation, action_event_id(action_id))):
            _keep(self._joined, each, event.run_id)
        return event.run_id

    def _of_action(self, action_id: str, conversation: str) -> str:
        """Return the life of an action's question. One that was asked before this process has a life of its own."""
        return self._joined.get(action_id) or run_id_of(conversation, action_event_id(action_id))

    def _settled(self, event: EventSettled) -> str:
        """Return the life of settled events. An answer belongs to the life of its question, and so does a deadline."""
        run = self._joined.get(event.run_id, event.run_id)
        ids = [*event.actions, *(each.partition("/")[2] for each in event.event_ids)]
        lives = {self._joined[each] for each in ids if each in self._joined}
        if len(lives) == 1 and (event.how.startswith(_DECIDED) or run not in self._places):
            return lives.pop()
        return run if run in self._places or event.actions else ""


def _keep(known: OrderedDict[str, str], key: str, value: str) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_LIVES:
        known.popitem(last=False)
