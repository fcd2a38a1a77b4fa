"""Launching and ending actions. Each end is recorded and reported once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from channels import Media, Reply
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.ballots import end_ballots, report
from gateway.pending.missed import tell_later
from gateway.pending.plans import hold, items_of, launch_next, release
from gateway.pending.prompt import decided_by, deciders, is_you, remark, statement, what_became
from gateway.pending.prompting import again_button, edit_prompt, show_once_more
from gateway.pending.standing import give
from gateway.tools.pending_action import Detail, PendingAction, Reason, why_closed
from gateway.wording import say


def expire(actions: ConversationActions, action_id: str, at: datetime) -> None:
    """Close an open action at its deadline, as expired or drifted."""
    # The timer comes with the stamp of the deadline itself and comes once, so that moment must count here. An answer of
    # the same stamp is still in time (`transitions.expired`): the first of the two in the lane decides.
    action = actions.get(action_id)
    if action is None or not action.open or action.expires_at is None or at < action.expires_at:
        return
    if not close_if_drifted(actions, action, at):
        close(actions, action, "expired", at, tell="expired")


def close_undelivered(actions: ConversationActions, action_id: str, at: datetime, *, later: bool = False) -> None:
    """Close an open, never shown action as undelivered or drifted.

    `later`: no place takes a message about the action. The requester reads about the end with their next message.
    """
    action = actions.get(action_id)
    if action is None or not action.open or action.shown_at is not None or close_if_drifted(actions, action, at):
        return
    is_asked_instead = action.ballot_of is not None and not action.is_vote  # the action tells the end
    close(actions, action, "undelivered", at, tell=None if later or is_asked_instead else "undelivered")
    if later:
        text = say("not_shown", action.language, preview=statement(action.preview))
        tell_later(actions, actions.by_id[action_id], text, at)


def not_arrived(actions: ConversationActions, message_id: str, action_ids: Iterable[str], at: datetime) -> bool:
    """Record a delivery failure: a message of these questions was accepted by the platform and did not arrive.

    An open action without another showing is closed as undelivered. Return False if no action was open and free of
    drift.
    """
    found = False
    in_message = (entry.action_id for entry in actions.index.by_prompt(message_id))
    for action_id in dict.fromkeys((*action_ids, *in_message)):
        action = actions.get(action_id)
        if action is None or not action.open or close_if_drifted(actions, action, at):
            continue
        found = True
        others = tuple(prompt_id for prompt_id in action.prompts if prompt_id != message_id)
        # A file in front of the prompt belongs to one showing. With several showings it is not known to which.
        other_showings = others if message_id in action.prompts else others[1:]
        if other_showings:
            actions.change(replace(action, prompts=others), at)
        else:
            close(actions, replace(action, prompts=others), "undelivered", at, tell="undelivered")
    return found


def launch(actions: ConversationActions, action_id: str, fence: int, at: datetime) -> PendingAction | None:
    """Return the action as running under this fence; None if launch is not allowed.

    A stale approval and a drift are recorded and reported. The first launch gives the standing permission chosen by the
    requester with the yes.
    """
    action = actions.get(action_id)
    if action is None or expire_approval(actions, action, at) or close_if_drifted(actions, action, at):
        return None
    try:
        launched = transitions.launch(action, fence, at)
    except transitions.WrongState:
        return None
    actions.put(launched, "launched", None, at)
    actions.changes.no_longer_due(action, "unlaunched")
    give(actions, launched, at)
    return actions.by_id[action_id]


def expire_approval(actions: ConversationActions, action: PendingAction | None, at: datetime) -> bool:
    """Close an approved action if the approval is too old for a launch. Return False otherwise."""
    if action is None or not transitions.is_stale(action, at):
        return False
    close(actions, action, "expired", at, tell="not_started")
    return True


def close_drifted(actions: ConversationActions, action_id: str, at: datetime, detail: Detail) -> None:
    """Close an action before its launch, because its preview has changed or could not be made."""
    action = actions.get(action_id)
    if action is not None and transitions.may_close(action):
        _close_drifted(actions, action, at, detail)


def close_vetoed(actions: ConversationActions, action_id: str, at: datetime, reason: str) -> None:
    """Close an action vetoed by an interceptor before its launch.

    `reason` is sent in front of the gateway's own sentence.
    """
    action = actions.get(action_id)
    if action is None or not transitions.may_close(action):
        return
    closed = transitions.close(replace(action, outcome=reason or None), "drifted", at, detail="changed")
    own = say("nothing_done", action.language, preview=statement(action.preview))
    _settled(actions, closed, "drifted", None, at, text="\n\n".join(filter(None, [reason, own])))


def finish(
    actions: ConversationActions,
    action_id: str,
    fence: int,
    state: Literal["done", "failed", "unknown"],
    outcome: str | None,
    at: datetime,
    *,
    text: str | None = None,
    media: Sequence[Media] = (),
) -> bool:
    """Record and report the outcome of the effect. `text` replaces the gateway's own sentence.

    Return False if an outcome under this fence no longer counts.
    """
    action = actions.get(action_id)
    if action is None:
        return False
    try:
        ended = transitions.finish(action, fence, state, outcome, at)
    except transitions.WrongState:
        return False
    key = "unknown_repeated" if state == "unknown" and ended.attempts > 1 else state
    own = say(key, action.language, preview=statement(action.preview), count=str(ended.attempts))
    told = _done_by_permission(ended, text) if state == "done" and ended.permission else text or own
    _settled(actions, ended, "finished", None, at, text=told, media=media)
    return True


def _done_by_permission(action: PendingAction, text: str | None) -> str:
    """Return the text about a done call under a standing permission. `text` is the tool's own text."""
    done = say("permitted_done", action.language, preview=statement(action.preview))
    return "\n\n".join(filter(None, [done, text]))


def settle(
    actions: ConversationActions, action_id: str, state: Literal["done", "failed"], by: str, at: datetime
) -> bool:
    """Record the outcome of an unknown action, found by an operator or a probe. Return False in any other state."""
    action = actions.get(action_id)
    if action is None or action.state != "unknown":
        return False
    own = say(state, action.language, preview=statement(action.preview))
    text = _done_by_permission(action, None) if state == "done" and action.permission else own
    ended = transitions.settle(action, state, f"{transitions.SETTLED_BY}{by}", at)
    _settled(actions, ended, "settled", by, at, text=text)
    return True


def close_if_drifted(actions: ConversationActions, action: PendingAction, at: datetime) -> bool:
    """Close an action if its tool or policy has changed since the showing.

    Return False without a change, or after the launch of the action.
    """
    detail = actions.drift(action) if transitions.may_close(action) else None
    if detail is None:
        return False
    _close_drifted(actions, action, at, detail)
    return True


def close_replaced(actions: ConversationActions, action: PendingAction) -> bool:
    """Close as changed the open actions replaced by a new action.

    The replaced actions are the same call with another preview, and the call being changed by the person. Return True
    if the latter was open.
    """
    changed = False
    for action_id in filter(None, (action.supersedes, action.replaces)):
        before = actions.get(action_id)
        if before is not None and before.open:
            close(actions, before, "changed", actions.now)
            changed = changed or action_id == action.replaces
    if changed:
        actions.index = actions.index.changed_by(action.requester, None)
    return changed


def take_back(
    actions: ConversationActions, action_ids: Iterable[str], person: str, new: Sequence[PendingAction]
) -> list[PendingAction]:
    """Withdraw a person's open questions at the request of the model, and notify the person.

    A question decided meanwhile stays, and the person is notified of its state. Return the `new` questions of each tool
    with exactly one withdrawn question: these questions change the withdrawn one.
    """
    known = [action for action_id in action_ids if (action := actions.get(action_id)) is not None]
    mine = [action for action in known if action.requester == person and action.ballot_of is None]
    taken = [action for action in mine if action.open]
    kinds = [action.kind for action in taken]
    changed = [action for action in new if kinds.count(action.kind) == 1]
    for action in taken:
        silent = any(each.kind == action.kind for each in changed)
        close(actions, action, "withdrawn", actions.now, tell=None if silent else "taken_back")
    for action in mine:
        if action not in taken and action.reason != "changed":
            text = f"{what_became(action, actions.now)}\n\n{statement(action.preview)}"
            actions.say(text, tells=(action.pending_action_id,))
    return changed


def end_tampered(actions: ConversationActions, action: PendingAction, *, was_running: bool) -> None:
    """End an action with a record changed without the key. The action will not run.

    A running action ends as unknown, because the effect may have happened.
    """
    ended = replace(
        action,
        state="unknown" if was_running else "closed",
        reason=None if was_running else "drifted",
        detail=None if was_running else "tampered",
        finished_at=actions.now,
        conversation=actions.conversation,
        grant=replace(action.grant, ended="tampered") if action.grant is not None else None,
    )
    told = say("unknown" if was_running else "tampered", action.language, preview=statement(ended.preview))
    actions.changes.tampered.append(action.pending_action_id)
    _settled(actions, ended, "forged", None, actions.now, text=told)


def close(
    actions: ConversationActions,
    action: PendingAction,
    reason: Reason,
    at: datetime,
    *,
    detail: Detail | None = None,
    by: str | None = None,
    name: str | None = None,
    tell: str | None = None,
) -> None:
    """Close an action before its effect. `tell` is the key of the sentence to send; None: only the prompt is edited."""
    closed = transitions.close(action, reason, at, detail=detail, by=by, name=name)
    if tell in ("cancelled", "cancelled_because") and transitions.was_refused(closed):
        tell = tell.replace("cancelled", "not_approved")
    elif tell == "cancelled_because" and is_you(closed):
        tell = "cancelled_you_because"
    values = {"preview": statement(action.preview), "name": decided_by(closed), "remark": remark(closed)}
    values["people"] = deciders(closed.approvers_name, closed.language)
    _settled(actions, closed, reason, by, at, text=say(tell, action.language, **values) if tell else None)


def _close_drifted(actions: ConversationActions, action: PendingAction, at: datetime, detail: Detail) -> None:
    close(actions, action, "drifted", at, detail=detail, tell=why_closed("drifted", detail))


def _stop_plan(actions: ConversationActions, plan: str, at: datetime) -> None:
    """Close the confirmed, not yet launched items of a plan after a failed or unknown item."""
    for item in items_of(actions, plan):
        if item.state == "approved":
            close(actions, item, "withdrawn", at, tell="plan_stopped")
    approved = actions.changes.approved  # the end of each item has the next one executed, which is closed by now
    actions.changes.approved = [each for each in approved if actions.by_id[each].state == "approved"]


def _settled(
    actions: ConversationActions,
    action: PendingAction,
    what: str,
    person: str | None,
    at: datetime,
    *,
    text: str | None = None,
    media: Sequence[Media] = (),
) -> None:
    """Record the end of an action, report the end with `text` and `media`, and edit the prompts."""
    actions.put(action, what if action.ballot_of is None else "ballot_ended", person, at)
    actions.changes.no_longer_due(action, "expiry", "undelivered", "unlaunched", "remind", "standin")
    if action.ballot_of is None:
        actions.changes.settled.append(action)
        end_ballots(actions, action, at)
    else:
        report(actions, action, "lost", at)
    again = again_button(actions, actions.by_id[action.pending_action_id])
    mine: tuple[str, ...] = (action.pending_action_id,)
    told, tells = text or "", mine
    rest: tuple[str, ...] = ()
    if action.plan is not None:
        confirmed = action.decided_at is not None and action.reason != "refused"
        if told and confirmed and hold(actions, action, told, at):
            told = ""
        else:
            told, tells, rest = release(actions, action, told)
        if action.on_item_failure == "stop" and action.state in ("failed", "unknown"):
            _stop_plan(actions, action.plan, at)
        launch_next(actions, action.plan)
    if told:
        below, again = (again, ()) if tells == mine else ((), again)
        reply = Reply(text=told, buttons=below, exact=True)
        actions.says.append(OutgoingReply(reply=reply, tells=tells))
    actions.says += [OutgoingReply(reply=Reply(media=(item,)), tells=mine) for item in media]
    _show_rest(actions, rest)
    for message_id in action.prompts:
        edit_prompt(actions, message_id, at, buttons=again)


def tell_late(actions: ConversationActions, action_id: str) -> None:
    """Report the held ends of a plan after the longest wait, although other items still run."""
    action = actions.get(action_id)
    if action is None or not actions.index.progress(action.plan or "").ends:
        return
    told, tells, rest = release(actions, action, "", late=True)
    actions.says.append(OutgoingReply(reply=Reply(text=told, exact=True), tells=tells))
    _show_rest(actions, rest)


def _show_rest(actions: ConversationActions, ids: Iterable[str]) -> None:
    """Show the open items of a plan again, after the outcome of the others."""
    rest = [action for action_id in ids if (action := actions.get(action_id)) is not None and action.open]
    if rest:
        show_once_more(actions, rest)
