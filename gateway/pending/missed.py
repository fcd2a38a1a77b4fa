"""Missed news: the end of an action with no place to be told, kept for the next message of the requester."""

from __future__ import annotations

from datetime import datetime

from gateway.pending.actions import ConversationActions
from gateway.stored import keys
from gateway.stored.events import NewsMissed
from gateway.tools.pending_action import PendingAction


def tell_later(actions: ConversationActions, action: PendingAction, text: str, at: datetime) -> None:
    """Keep a text about this action for the requester's next message. Markdown in the text is read as such."""
    if action.address is not None and action.ballot_of is None:
        event_id = f"missed/{action.pending_action_id}/{action.state}"
        event = NewsMissed(event_id=event_id, address=action.address, text=text, at=at.isoformat())
        actions.changes.hand_over(keys.beside(actions.conversation, action.requester), event, at)
