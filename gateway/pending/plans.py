"""Plans: several actions of a single reply of the model, shown as a numbered message.

Each item is an action of its own. The confirmed items run in order, one at a time. Their ends are kept in the index of
the conversation, with the plan, and reported together once no confirmed item is left to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gateway.pending.actions import ConversationActions, in_order
from gateway.pending.index import PlanEnd, PlanProgress
from gateway.tools.pending_action import PendingAction

_MARKS = {"done": "✅", "failed": "❌", "unknown": "❔"}
_NOT_DONE = "🚫"
_HELD_AT_MOST = timedelta(seconds=30)
"""The longest wait before the ends of a plan are reported although other items still run."""


def items_of(actions: ConversationActions, plan: str) -> list[PendingAction]:
    """Return the loaded items of a plan, in the order of their questions."""
    return in_order([action for action in actions.by_id.values() if action.plan == plan])


def is_next(actions: ConversationActions, action: PendingAction) -> bool:
    """Return True if a confirmed action may run now: no item of the plan runs, and no earlier item is confirmed."""
    for item in items_of(actions, action.plan) if action.plan is not None else ():
        if item.pending_action_id == action.pending_action_id:
            continue
        earlier = (item.requested_at, item.pending_action_id) < (action.requested_at, action.pending_action_id)
        if item.state == "running" or (item.state == "approved" and earlier):
            return False
    return True


def launch_in_order(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Have a newly confirmed action executed, at once or after the earlier items of its plan."""
    actions.due_launch(action, at)
    if is_next(actions, action):
        actions.changes.approved.append(action.pending_action_id)


def launch_next(actions: ConversationActions, plan: str) -> None:
    """Have the next confirmed item of a plan executed."""
    for item in items_of(actions, plan):
        if item.state == "approved" and is_next(actions, item):
            actions.changes.approved.append(item.pending_action_id)
            return


def hold(actions: ConversationActions, action: PendingAction, text: str, at: datetime) -> bool:
    """Keep the end of a confirmed item until the plan reports all ends. Return False to report the end now.

    An end is kept while other confirmed items are still to run, for 30 seconds at most from the first end on.
    """
    progress = actions.index.progress(action.plan or "")
    if progress.late or not _others_run(actions, action):
        return False
    if not progress.ends:
        actions.changes.due("outcomes", action, at + _HELD_AT_MOST)
    end = PlanEnd(action_id=action.pending_action_id, place=action.place, state=action.state, text=text)
    actions.index = actions.index.progressed(replace(progress, ends=(*progress.ends, end)))
    return True


def release(
    actions: ConversationActions, action: PendingAction, text: str, *, late: bool = False
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the text of the held ends and of this end, the ids of these items, and the ids to show after the text.

    `text` is the text of this end; empty: another message reports this end. While other confirmed items are still to
    run, the held ends stay held and the result is `text` alone. `late`: report the held ends all the same.
    """
    mine = action.pending_action_id
    progress = actions.index.progress(action.plan or "")
    own = [PlanEnd(action_id=mine, place=action.place, state=action.state, text=text)] if text else []
    runs = _others_run(actions, action)
    if runs and not late:
        return text, (mine,) if text else (), ()
    ends = [*(end for end in progress.ends if end.action_id != mine or not own), *own]
    left = PlanProgress(plan=progress.plan, late=True) if runs else PlanProgress(plan=progress.plan)
    actions.index = actions.index.progressed(left)
    if progress.ends:
        actions.changes.cancelled.append(f"outcomes/{progress.ends[0].action_id}")
    if len(ends) < 2:
        told = "".join(end.text for end in ends)
    else:
        lines = [
            f"{end.place}\\. {_MARKS.get(end.state, _NOT_DONE)} {end.text}"
            for end in sorted(ends, key=lambda end: end.place)
        ]
        told = "\n".join(lines)
    return told, tuple(end.action_id for end in ends), progress.rest


def show_later(actions: ConversationActions, plan: str, rest: Sequence[PendingAction]) -> None:
    """Have these open items shown again after the outcome of the confirmed items."""
    progress = actions.index.progress(plan)
    ids = tuple(action.pending_action_id for action in rest)
    actions.index = actions.index.progressed(replace(progress, rest=ids))


def _others_run(actions: ConversationActions, action: PendingAction) -> bool:
    """Return True if another item of the plan is confirmed and has not ended."""
    return any(
        item.state in ("approved", "running") and item.pending_action_id != action.pending_action_id
        for item in items_of(actions, action.plan or "")
    )
