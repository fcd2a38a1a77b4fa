"""Plans: several actions of one reply of the model, shown as one numbered message.

Each item is an action of its own. The confirmed ones run in their order, one at a time, and their outcomes are told
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gateway.pending.actions import ConversationActions, in_order
from gateway.tools.pending_action import PendingAction

_MARKS = {"done": "✅", "failed": "❌", "unknown": "❔"}
_NOT_DONE = "🚫"


def items_of(actions: ConversationActions, plan: str) -> list[PendingAction]:
    """Return the items of a plan that are loaded, in the order of their questions."""
    return in_order([action for action in actions.by_id.values() if action.plan == plan])


def is_next(actions: ConversationActions, action: PendingAction) -> bool:
    """Return True if a confirmed action may run now: no item of its plan runs, and no earlier one is confirmed."""
    for item in items_of(actions, action.plan) if action.plan is not None else ():
        if item.pending_action_id == action.pending_action_id:
            continue
        earlier = (item.requested_at, item.pending_action_id) < (action.requested_at, action.pending_action_id)
        if item.state == "running" or (item.state == "approved" and earlier):
            return False
    return True


def launch_in_order(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Have an action that was confirmed just now executed, at once or after the earlier items of its plan."""
    actions.due_launch(action, at)
    if is_next(actions, action):
        actions.changes.approved.append(action.pending_action_id)


def launch_next(actions: ConversationActions, plan: str) -> None:
    """Have the next confirmed item of a plan executed."""
    for item in items_of(actions, plan):
        if item.state == "approved" and is_next(actions, item):
            actions.changes.approved.append(item.pending_action_id)
            return


def together(actions: ConversationActions, action: PendingAction, text: str, at: datetime) -> tuple[str, Sequence[str]]:
    """Return the text that tells the outcomes of a plan, and the ids of the items that it tells.

    The text is empty while other items are still to run: this one is told with the last of them.
    """
    items = items_of(actions, action.plan or "")
    mine = action.pending_action_id
    if any(item.state in ("approved", "running") and item.pending_action_id != mine for item in items):
        actions.change(replace(actions.by_id[mine], told=text), at)
        return "", ()
    texts = {item.pending_action_id: item.told for item in items if item.told} | {mine: text}
    if len(texts) == 1:
        return text, (mine,)
    lines = []
    for number, item in enumerate(items, start=1):
        told = texts.get(item.pending_action_id)
        if told:
            lines.append(f"{number}\\. {_MARKS.get(item.state, _NOT_DONE)} {told}")
            if item.told:
                actions.change(replace(item, told=None), at)
    return "\n".join(lines), tuple(texts)
