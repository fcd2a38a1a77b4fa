"""Asking: what a tool call must pass before a person is shown it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from channels import Address, Json, Person
from gateway.pending.desk import Desk
from gateway.pending.reading import ReplyParser
from gateway.pending.seal import compute_digest
from gateway.pending.tokens import make_action_id, make_code
from gateway.tools import Preview, Tool
from gateway.tools.action import PendingAction, canonical_json, compute_args_digest

__all__ = ["QUOTA", "Refused", "asks_more", "propose"]

QUOTA = 5
"""Open actions of one person in one conversation."""

_A_MOMENT = timedelta(microseconds=1)
"""What is asked in one turn was asked in the order of its calls."""
_TTL_SECONDS = {"sms": 1800.0, "whatsapp": 1800.0}
_TTL_DEFAULT_SECONDS = 900.0
_TTL_APPROVERS_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The call is not asked; `why` goes to the model as the tool's error."""

    why: str


def propose(
    desk: Desk,
    tool: Tool,
    args: dict[str, Json],
    preview: Preview,
    *,
    person: Person,
    address: Address,
    language: str,
    turn_started: datetime,
    answer_window_seconds: float,
    proposed: Sequence[PendingAction] = (),
) -> PendingAction | Refused:
    """A new action, or the open one that is equal to it; `proposed` are those of the same turn before it.

    Nothing is written: the turn's commit puts it on the desk.
    """
    requester = str(person)
    mine = [action for action in (*desk.open, *proposed) if action.requester == requester]
    wanted = (tool.name, canonical_json(args), canonical_json(preview.precondition))
    for action in mine:
        if (action.kind, canonical_json(dict(action.args)), canonical_json(action.precondition)) == wanted:
            return action
    if desk.refused_since(turn_started, tool.name, args, requester):
        return Refused("The person has just said no to exactly this. It was not done; do not ask again.")
    if len(mine) >= QUOTA:
        return Refused(f"Not asked: {QUOTA} actions of this person already wait for an answer here. Those come first.")
    approvers, need = _approvers(tool, requester)
    if approvers is not None and len(approvers) < need:
        return Refused("Not asked: too few people other than the one who asked may approve this.")
    if approvers is not None and not address.group:
        return Refused("Not asked: this needs the approval of other people, who are not in this conversation.")
    rule = tool.confirm
    ttl_seconds = rule.ttl_seconds if rule is not None and rule.ttl_seconds is not None else None
    if ttl_seconds is None:
        default = _TTL_SECONDS.get(address.channel, _TTL_DEFAULT_SECONDS)
        ttl_seconds = default if approvers is None else _TTL_APPROVERS_SECONDS
    action = PendingAction(
        pending_action_id=make_action_id(),
        kind=tool.name,
        tool_version=tool.version_hash,
        args=deepcopy(args),
        precondition=deepcopy(preview.precondition),
        preview=preview.text,
        table=tuple((str(name), str(value)) for name, value in preview.table or ()),
        code=make_code({action.code for action in (*desk.open, *proposed)}),
        requester=requester,
        requester_name=person.name,
        conversation=desk.conversation,
        address=address,
        language=language,
        approvers=approvers or (),
        need=need,
        args_digest=compute_args_digest(args),
        parser_version=ReplyParser.version,
        after=rule.after if rule is not None else "receipt",
        ttl_seconds=ttl_seconds,
        answer_window_seconds=answer_window_seconds,
        requested_at=max([desk.now, *(before.requested_at + _A_MOMENT for before in proposed)]),
    )
    try:
        return replace(action, digest=compute_digest(action))
    except ValueError as error:
        return Refused(f"Not asked: its preview cannot be kept as it is: {error}")


def asks_more(tool: Tool, action: PendingAction) -> bool:
    """Whether the tool by now wants more than the action was asked under: other people's yes, or more of them."""
    approvers, need = _approvers(tool, action.requester)
    if approvers is None:
        return False
    return need > action.need or not set(action.approvers or [action.requester]) <= set(approvers)


def _approvers(tool: Tool, requester: str) -> tuple[tuple[str, ...] | None, int]:
    rule = tool.confirm.approvers if tool.confirm is not None else None
    if rule is None:
        return None, 1
    people = dict.fromkeys(person for person in rule.people if rule.requester or person != requester)
    if rule.requester:
        people[requester] = None
    return tuple(people), rule.need
