"""A new action on its way through the checkpoint of a turn, before anybody has answered it."""

from __future__ import annotations

from channels import AskfirstError
from gateway.tools.pending_action import PendingAction

__all__ = ["NotAsked", "as_asked", "taken_over"]

_ASKED = (
    "pending_action_id",
    "kind",
    "tool_version",
    "args",
    "precondition",
    "preview",
    "table",
    "code",
    "requester",
    "requester_name",
    "conversation",
    "address",
    "language",
    "approvers",
    "need",
    "args_digest",
    "digest",
    "template",
    "supersedes",
    "verb",
    "parser_version",
    "after",
    "ttl_seconds",
    "answer_window_seconds",
    "requested_at",
)
"""The fields that an ask fills in. Every other field tells what became of the action."""


class NotAsked(AskfirstError):
    """A checkpoint was changed: it holds something else than a new action of its turn."""


def as_asked(action: PendingAction) -> PendingAction:
    """Return the action without votes, showings, decision and outcome."""
    return PendingAction(**{name: getattr(action, name) for name in _ASKED})


def taken_over(action: PendingAction, *, conversation: str, requester: str) -> PendingAction:
    """Return an action that `as_asked` gave.

    Raises NotAsked for one that is more than asked, or not asked by this person in this conversation.
    """
    if action != as_asked(action):
        raise NotAsked(f"action {action.pending_action_id} is more than asked already: it is not asked")
    if (action.conversation, action.requester) != (conversation, requester):
        raise NotAsked(f"action {action.pending_action_id} is of another person or conversation: it is not asked")
    return action
