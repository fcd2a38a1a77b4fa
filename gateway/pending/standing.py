"""Standing permissions: a person allows a tool for a while, and calls like the confirmed call are not asked.

The permission is part of the sealed record of the action that gave it: the call of this action defines the fixed
arguments, and `grant` holds the time, the uses and the end. The index of the conversation contains the id of this
record and the seal of its last write. A person chooses a permission by a button or a code; the launch of the action
gives the permission.
Each use is an ordinary action, reported to the person and audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from channels import Json
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.audit import OPERATOR
from gateway.pending.permission import described, end_of_permission, fixed_arguments
from gateway.pending.plans import launch_in_order
from gateway.pending.prompt import statement
from gateway.tools import Tool, ToolError
from gateway.tools.confirm import Standing, asked_with, changed, exact, is_number
from gateway.tools.pending_action import Grant, PendingAction, StandingOffer, Use, canonical_json
from gateway.wording import say


def permissions_of(actions: ConversationActions, person: str | None = None) -> list[PendingAction]:
    """Return the actions with a valid standing permission: of this person, or of everybody."""
    found = [actions.get(each.action_id) for each in actions.index.permissions if person in (None, each.person)]
    return [action for action in found if action is not None and _holds(action, actions.now)]


def give(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Record and announce the permission chosen by the requester of a launched action.

    The time of a permission begins with the decision. An action gives its permission once.
    """
    offer = action.standing
    if not action.allows or offer is None or action.grant is not None:
        return
    until = (action.decided_at or at) + timedelta(seconds=offer.seconds)
    if until <= at:
        return
    given = replace(action, grant=Grant(given=at, until=until))
    actions.put(given, "permission_given", action.requester, at)
    actions.index = actions.index.permitted_by(given)
    actions.say(described(given, at, action.language, actions.letters))


def use(actions: ConversationActions, action: PendingAction, tool: Tool | None, *, heard: datetime | None) -> bool:
    """Open a new action decided by a permission for the call. Return False without a permission for the call.

    `heard` is the time of the person's last message, answered by the model with this call; None without a message.
    Since this message, an equal call is covered only once. A call that changes or supersedes an open question is always
    asked.
    """
    at = actions.now
    _drop_ended(actions, at)
    giver = _giver(actions, action, tool) if tool is not None else None
    if giver is None or giver.grant is None or giver.standing is None:
        return False
    if any(_repeats(each, action, heard) for each in permissions_of(actions, action.requester)):
        return False
    actions.put(replace(action, plan=None), "asked", action.requester, at)
    asked = replace(actions.by_id[action.pending_action_id], permission=giver.pending_action_id)
    decided = transitions.approve(asked, action.requester, action.requester_name, at)
    actions.put(decided, "permitted", action.requester, at)
    used = (*giver.grant.used, Use(action_id=action.pending_action_id, args_digest=action.args_digest, at=at))
    actions.put(replace(giver, grant=replace(giver.grant, used=used)), "permission_used", action.requester, at)
    left = giver.standing.uses - len(used)
    if left <= 0:
        _end(actions, giver.pending_action_id, "used_up", at)
    launch_in_order(actions, decided, at)
    time = end_of_permission(giver.grant, at, action.language)
    values = {"preview": statement(action.preview), "count": left, "time": time}
    text = say("permitted", action.language, actions.letters, **values)
    actions.say(text, tells=(action.pending_action_id,))
    return True


def is_covered(actions: ConversationActions, action: PendingAction, tool: Tool) -> bool:
    """Return True if a permission of the requester covers a new action. The action is not asked then."""
    return _giver(actions, action, tool) is not None


def _giver(actions: ConversationActions, action: PendingAction, tool: Tool) -> PendingAction | None:
    """Return the action with a permission for a new action, or None. A child of a change is always asked."""
    if action.replaces is not None or action.supersedes is not None:
        return None
    held = permissions_of(actions, action.requester)
    return next((each for each in held if covers(each, action, tool)), None)


def revoke(
    actions: ConversationActions,
    person: str | None,
    at: datetime,
    *,
    why: Literal["revoked", "stopped"],
    action_id: str | None = None,
) -> list[PendingAction]:
    """End the permissions of a person, and return the actions with these permissions.

    `action_id`: only the permission of this action ends. Without `person`, an operator ends the permissions.
    """
    _drop_ended(actions, at)
    named = [each for each in actions.index.permissions if person in (None, each.person)]
    gone = [actions.by_id[each.action_id] for each in named if action_id in (None, each.action_id)]
    for each in gone:
        _end(actions, each.pending_action_id, why, at, by=person or OPERATOR)
    return gone


def covers(giver: PendingAction, action: PendingAction, tool: Tool | None) -> bool:
    """Return True if the permission of `giver` covers the call of `action`.

    The current rule of the tool is checked too: a permission wider than the rule covers no call.
    """
    rule = tool.confirm.standing if tool is not None and tool.confirm is not None else None
    offer = giver.standing
    if tool is None or rule is None or offer is None or action.approvers or giver.requester != action.requester:
        return False
    if giver.kind != action.kind or not (tool.matches(giver) and tool.matches(action)) or not _is_within(offer, rule):
        return False
    if (offer.compared or tool.compares(giver)) and changed(asked_with(giver), asked_with(action)):
        return False
    try:
        same = canonical_json(fixed_arguments(giver, offer)) == canonical_json(fixed_arguments(action, offer))
        return same and _are_bounded(tool.values(action.args) if offer.most else {}, action.args, offer)
    except (ValueError, ToolError):
        return False


def _are_bounded(values: Mapping[str, Any], args: Mapping[str, Json], offer: StandingOffer) -> bool:
    """Return True if each bounded argument is present and is a number from 0 to its bound."""
    return all(
        name in args and is_number(value := values.get(name)) and 0 <= exact(value) <= Decimal(bound)
        for name, bound in offer.most
    )


def _is_within(offer: StandingOffer, rule: Standing) -> bool:
    """Return True if an offer is not wider than the rule."""
    if offer.seconds > rule.max_seconds or offer.uses > rule.max_uses:
        return False
    bounds = rule.bounds
    free = all(name in rule.free for name in offer.free)
    return free and all(
        name in rule.free or (name in bounds and Decimal(bound) <= bounds[name]) for name, bound in offer.most
    )


def _repeats(giver: PendingAction, action: PendingAction, heard: datetime | None) -> bool:
    """Return True if the same call was confirmed or permitted after the person's last message.

    Otherwise a model could use up a permission by repeating a call.
    """
    if giver.grant is None or giver.kind != action.kind:
        return False
    since = [each.args_digest for each in giver.grant.used if heard is None or each.at >= heard]
    if heard is None or giver.grant.given >= heard:
        since.append(giver.args_digest)
    return action.args_digest in since


def _holds(giver: PendingAction, now: datetime) -> bool:
    grant, offer = giver.grant, giver.standing
    if grant is None or offer is None or grant.ended is not None:
        return False
    return len(grant.used) < offer.uses and grant.given <= now <= grant.until


def _drop_ended(actions: ConversationActions, at: datetime) -> None:
    """Remove from the index the ended permissions, and the permissions of missing or changed actions."""
    for each in actions.index.permissions:
        giver = actions.get(each.action_id)
        if giver is not None and giver.grant is not None and giver.grant.ended is None and at > giver.grant.until:
            _end(actions, each.action_id, "expired", at)
        elif giver is None or giver.grant is None or giver.grant.ended is not None:
            actions.index = actions.index.without_permission(each.action_id)


def _end(
    actions: ConversationActions,
    action_id: str,
    why: Literal["revoked", "stopped", "used_up", "expired"],
    at: datetime,
    *,
    by: str | None = None,
) -> None:
    """Write the end of a permission into the record of the action that gave it."""
    giver = actions.by_id[action_id]
    if giver.grant is not None:
        actions.put(replace(giver, grant=replace(giver.grant, ended=why)), "permission_ended", by, at)
    actions.index = actions.index.without_permission(action_id)
