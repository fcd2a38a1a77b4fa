"""A new action in the checkpoint of its turn, before it is answered."""

from __future__ import annotations

from channels import AskfirstError
from gateway.tools.pending_action import PendingAction

__all__ = ["NotAsked", "as_asked", "taken_over"]

_ASKED = (
    "pending_action_id",
    "salt",
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
    "standins",
    "remind_seconds",
    "ballots",
    "plan",
    "on_item_failure",
    "replaces",
    "standing",
)
"""The fields that `propose_action` fills in. The other fields hold the later life of the action."""


class NotAsked(AskfirstError):
    """A checkpoint was changed: its action is not a new action of its turn."""


def as_asked(action: PendingAction) -> PendingAction:
    """Return the action without votes, showings, decision and outcome."""
    return PendingAction(**{name: getattr(action, name) for name in _ASKED})


def taken_over(action: PendingAction, *, conversation: str, requester: str) -> PendingAction:
    """Return the action of a checkpoint, as `as_asked` made it.

    Raises NotAsked for an action with votes or an outcome, or of another person or conversation.
    """
    if action != as_asked(action):
        raise NotAsked(f"action {action.pending_action_id} is more than asked already: it is not asked")
    if (action.conversation, action.requester) != (conversation, requester):
        raise NotAsked(f"action {action.pending_action_id} is of another person or conversation: it is not asked")
    return action
