"""Standing permissions: a person allows a tool for a while, and calls that match exactly are not asked.

A permission is part of the sealed index of its conversation. It is given by a button or a code, is never wider than its
tool declares, and each use is an ordinary action that is told and audited.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.index import StandingPermission
from gateway.pending.plans import launch_in_order
from gateway.pending.prompt import described, statement
from gateway.pending.tokens import make_action_id
from gateway.tools import Tool
from gateway.tools.pending_action import PendingAction, canonical_json
from gateway.wording import say


def permissions_of(actions: ConversationActions, person: str) -> list[StandingPermission]:
    """Return the permissions of this person that still hold."""
    return [each for each in actions.index.permissions if each.person == person and _holds(each, actions.now)]


def give(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Write the permission that an action offered, and tell it."""
    offer = action.standing
    if offer is None:
        return
    permission = StandingPermission(
        permission_id=make_action_id(),
        person=action.requester,
        kind=action.kind,
        tool_version=action.tool_version,
        same={name: action.args[name] for name in offer.same},
        given=at,
        until=at + timedelta(seconds=offer.seconds),
        uses=offer.uses,
    )
    actions.put(actions.by_id[action.pending_action_id], "permission_given", action.requester, at)
    actions.index = replace(actions.index, permissions=(*actions.index.permissions, permission))
    actions.say(described(permission, at, action.language, actions.letters))


def use(actions: ConversationActions, action: PendingAction, tool: Tool | None) -> bool:
    """Open a new action and decide it by a permission that matches it exactly. Returns False if there is none.

    The rule of the tool is read again: a permission that is wider than the rule is none.
    """
    permission = next(
        (each for each in permissions_of(actions, action.requester) if _matches(each, action, tool)), None
    )
    if permission is None:
        return False
    at = actions.now
    actions.put(action, "asked", action.requester, at)
    asked = replace(actions.by_id[action.pending_action_id], permission=permission.permission_id)
    decided = transitions.approve(asked, action.requester, action.requester_name, at)
    actions.put(decided, "permitted", action.requester, at)
    left = replace(permission, uses=permission.uses - 1)
    others = [each for each in actions.index.permissions if each.permission_id != permission.permission_id]
    kept = [each for each in (*others, left) if _holds(each, at)]
    actions.index = replace(actions.index, permissions=tuple(kept))
    launch_in_order(actions, decided, at)
    values = {"preview": statement(action.preview), "count": left.uses}
    text = say("permitted", action.language, actions.letters, **values)
    actions.say(text, tells=(action.pending_action_id,))
    return True


def revoke(
    actions: ConversationActions, person: str | None, *, permission_id: str | None = None
) -> list[StandingPermission]:
    """Take back the permissions of a person, or the one of this id, and return them."""
    gone = [
        each
        for each in actions.index.permissions
        if (each.person == person if permission_id is None else each.permission_id == permission_id)
    ]
    if gone:
        kept = tuple(each for each in actions.index.permissions if each not in gone)
        actions.index = replace(actions.index, permissions=kept)
    return gone


def _holds(permission: StandingPermission, now: datetime) -> bool:
    return permission.uses > 0 and permission.given <= now <= permission.until


def _matches(permission: StandingPermission, action: PendingAction, tool: Tool | None) -> bool:
    rule = tool.confirm.standing if tool is not None and tool.confirm is not None else None
    if tool is None or rule is None or not tool.matches(action) or action.approvers:
        return False
    if (action.kind, action.tool_version) != (permission.kind, permission.tool_version):
        return False
    if (permission.until - permission.given).total_seconds() > rule.max_seconds or permission.uses > rule.max_uses:
        return False
    if set(permission.same) != set(rule.same) or not set(permission.same) <= set(action.args):
        return False
    return canonical_json({name: action.args[name] for name in rule.same}) == canonical_json(dict(permission.same))
