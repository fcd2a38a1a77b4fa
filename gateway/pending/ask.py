"""Asking: the checks of a tool call before a person is shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from channels import Address, Json, Person
from gateway.pending.actions import ConversationActions
from gateway.pending.index import same_ask
from gateway.pending.prompt import code_only
from gateway.pending.reading import ReplyParser
from gateway.pending.seal import compute_digest
from gateway.pending.tokens import make_action_id, make_code
from gateway.pending.words import verb_of
from gateway.tools import Preview, Tool
from gateway.tools.pending_action import PendingAction, canonical_json, compute_args_digest
from gateway.tools.previews import asked_with, differing, frozen

__all__ = ["QUOTA", "Refused", "asks_more", "propose"]

QUOTA = 5
"""Open actions of one person in one conversation."""

_A_MOMENT = timedelta(microseconds=1)
"""Keeps the questions of one turn in the order of its calls."""
_TTL_SECONDS = {"sms": 1800.0, "whatsapp": 1800.0}
_TTL_DEFAULT_SECONDS = 900.0
_TTL_APPROVERS_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The call is not asked; `why` goes to the model as the tool's error."""

    why: str


def propose(
    actions: ConversationActions,
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
    """Return a new action, or the open one that is equal to it; `proposed` are those of the same turn before it.

    A new action `supersedes` the open one of the same call and requester that was shown with another preview. Nothing
    is written: the turn's commit writes the new action down and closes the superseded one as ``changed``.
    """
    try:
        preview = frozen(preview)
    except ValueError as error:
        return Refused(f"Not asked: its preview cannot be kept as it is: {error}")
    requester = str(person)
    mine = _waiting(actions, proposed, requester)
    twins = [action for action in mine if _is_call(action, tool, args)]
    for twin in twins:
        if _is_equal(twin, tool, preview):
            return twin
    if actions.index.refused_since(turn_started, same_ask(tool.name, args, requester)):
        return Refused(
            "Exactly this was asked and not confirmed since the person last wrote. It was not done; "
            "do not ask again before they write."
        )
    if not twins and len(mine) >= QUOTA:
        return Refused(f"Not asked: {QUOTA} actions of this person already wait for an answer here. Those come first.")
    approvers, need = _approvers(tool, requester)
    if approvers is not None and len(approvers) < need:
        return Refused("Not asked: too few people other than the one who asked may approve this.")
    if approvers is not None and not address.group:
        return Refused("Not asked: this needs the approval of other people, who are not in this conversation.")
    action = PendingAction(
        pending_action_id=make_action_id(),
        kind=tool.name,
        tool_version=tool.version_hash,
        template=tool.template_hash,
        args=deepcopy(args),
        precondition=preview.precondition,
        preview=preview.text,
        table=tuple(preview.table or ()),
        code=make_code({action.code for action in (*actions.open, *proposed)}),
        supersedes=twins[-1].pending_action_id if twins else None,
        requester=requester,
        requester_name=person.name,
        conversation=actions.conversation,
        address=address,
        language=language,
        approvers=approvers or (),
        need=need,
        args_digest=compute_args_digest(args),
        verb=_verb(tool, language),
        parser_version=ReplyParser.version,
        after=tool.confirm.after if tool.confirm is not None else "receipt",
        ttl_seconds=_ttl_seconds(tool, address, others=approvers is not None),
        answer_window_seconds=answer_window_seconds,
        requested_at=max([actions.now, *(before.requested_at + _A_MOMENT for before in proposed)]),
    )
    if not actions.shows_files and code_only(action):
        return Refused("Not asked: this is too long to be shown here, and files cannot be sent. Ask for less at once.")
    return replace(action, digest=compute_digest(action))


def _verb(tool: Tool, language: str) -> str | None:
    """Return the verb of the question: the author's, else that of the first word of the template."""
    rule = tool.confirm
    if rule is None or rule.verb is not None:
        return rule.verb if rule is not None else None
    return verb_of(rule.ask, language) if isinstance(rule.ask, str) else None


def asks_more(tool: Tool, action: PendingAction) -> bool:
    """Whether the tool by now wants more than the action was asked under: other people's yes, or more of them."""
    approvers, need = _approvers(tool, action.requester)
    if approvers is None:
        return False
    return need > action.need or not set(action.approvers or [action.requester]) <= set(approvers)


def _waiting(actions: ConversationActions, proposed: Sequence[PendingAction], requester: str) -> list[PendingAction]:
    """Return what this person has open or has just asked for, without what is superseded by then."""
    superseded = {action.supersedes for action in proposed}
    found = {action.pending_action_id: action for action in (*actions.open, *proposed) if action.requester == requester}
    return [action for action_id, action in found.items() if action_id not in superseded]


def _is_call(action: PendingAction, tool: Tool, args: Mapping[str, Json]) -> bool:
    return action.kind == tool.name and canonical_json(dict(action.args)) == canonical_json(dict(args))


def _is_equal(twin: PendingAction, tool: Tool, preview: Preview) -> bool:
    """Whether an open action of the same call asks what would be asked now, so that one question is enough."""
    if tool.volatile or not tool.matches(twin) or asks_more(tool, twin):
        return False
    return not differing(asked_with(twin), preview)


def _ttl_seconds(tool: Tool, address: Address, *, others: bool) -> float:
    """Return the tool's own, else that of approvers where `others` decide, else the channel's."""
    if tool.confirm is not None and tool.confirm.ttl_seconds is not None:
        return tool.confirm.ttl_seconds
    return _TTL_APPROVERS_SECONDS if others else _TTL_SECONDS.get(address.channel, _TTL_DEFAULT_SECONDS)


def _approvers(tool: Tool, requester: str) -> tuple[tuple[str, ...] | None, int]:
    rule = tool.confirm.approvers if tool.confirm is not None else None
    if rule is None:
        return None, 1
    people = dict.fromkeys(person for person in rule.people if rule.requester or person != requester)
    if rule.requester:
        people[requester] = None
    return tuple(people), rule.need
