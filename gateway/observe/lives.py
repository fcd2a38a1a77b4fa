"""The lives of messages. A life groups all events caused by one message, from its arrival to the receipt of the reply.

The id of a life is the run id of the message. The steps after a question (the decision, the effect, the message about
the outcome) have runs of their own, and belong to the life of the message before the question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from gateway.observe import events
from gateway.observe.runs import action_event_id, run_id_of
from gateway.tools.pending_action import PendingAction

MOST_LIVES = 2_000
"""The number of runs and of actions kept in memory."""
_DECIDED = "decided"
"""The first word of `events.EventSettled.how` for an answer to a question."""


class Life(NamedTuple):
    """The life of the message behind an event."""

    run: str = ""
    """The run id of the message. Empty: the event belongs to no message."""
    conversation: str = ""
    joins: Sequence[str] = ()
    """The runs joined to this life by this event."""


class Lives:
    """The lives of the newest messages. Reads all events, in order."""

    def __init__(self) -> None:
        self._joined: OrderedDict[str, str] = OrderedDict()
        """Id of an action, or of a run inside another life -> the run of the life."""
        self._places: OrderedDict[str, str] = OrderedDict()
        """Id of a run -> the conversation."""

    def of(self, event: events.ObservedEvent) -> Life:
        """Return the life of an event."""
        match event:
            case events.MessageReceived():
                run, place, joins = run_id_of(event.conversation, event.event_id), event.conversation, []
            case events.DuplicateDropped():
                return Life(conversation=event.conversation)
            case events.TurnStart():
                others = {run_id_of(event.conversation, each) for each in event.event_ids}
                run, place, joins = event.run_id, event.conversation, sorted(others - {event.run_id})
            case events.EventSettled():
                run, place = self._settled(event), event.conversation
                joins = [event.run_id] if run != event.run_id else []
            case events.DoubtRaised() if event.action_id:
                run, place, joins = self._of_action(event.action_id, event.conversation), event.conversation, []
            case _ if isinstance(action := getattr(event, "action", None), PendingAction):
                run, place, joins = self._acted(event, action), action.conversation, []
            case events.RunEvent():
                run = self._joined.get(event.run_id, event.run_id)
                return Life(run, getattr(event, "conversation", None) or self._places.get(run, ""))
            case _:
                return Life(conversation=str(getattr(event, "conversation", "") or ""))
        if run:
            _keep(self._places, run, place)
        for each in joins:
            _keep(self._joined, each, run)
        return Life(run, place, joins)

    def _acted(self, event: events.ObservedEvent, action: PendingAction) -> str:
        action_id = action.pending_action_id
        if not isinstance(event, events.PendingStashed):
            return self._of_action(action_id, action.conversation)
        for each in (action_id, run_id_of(action.conversation, action_event_id(action_id))):
            _keep(self._joined, each, event.run_id)
        return event.run_id

    def _of_action(self, action_id: str, conversation: str) -> str:
        """Return the life of an action's question. A question older than this process has a life of its own."""
        return self._joined.get(action_id) or run_id_of(conversation, action_event_id(action_id))

    def _settled(self, event: events.EventSettled) -> str:
        """Return the life of settled events. An answer or a deadline belongs to the life of the question."""
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
