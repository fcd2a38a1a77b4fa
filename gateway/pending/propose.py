"""Proposing: the checks of a tool call before its question is shown to a person."""

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

__all__ = ["QUOTA", "ProposalRefused", "asks_more", "propose_action"]

QUOTA = 5
"""The most open actions of one person in one conversation."""

_A_MOMENT = timedelta(microseconds=1)
"""The difference in time that keeps the questions of one turn in the order of its calls."""
_TTL_SECONDS = {"sms": 1800.0, "whatsapp": 1800.0}
_TTL_DEFAULT_SECONDS = 900.0
_TTL_APPROVERS_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """A call that is not asked. `why` goes to the model as the tool's error."""

    why: str


def propose_action(
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
) -> PendingAction | ProposalRefused:
    """Return a new action for a tool call, or the open action that is equal to it.

    `proposed` are the earlier new actions of the same turn. A new action `supersedes` the open one of the same call and
    requester that was shown with another preview. Nothing is written here: the commit of the turn writes the new action
    and closes the superseded one as ``changed``.
    """
    try:
        preview = frozen(preview)
    except ValueError as error:
        return ProposalRefused(f"Not asked: its preview cannot be kept as it is: {error}")
    requester = str(person)
    mine = _waiting(actions, proposed, requester)
    twins = [action for action in mine if _is_call(action, tool, args)]
    for twin in twins:
        if _is_equal(twin, tool, preview):
            return twin
    approvers, need = _approvers(tool, requester)
    if actions.index.refused_since(turn_started, same_ask(tool.name, args, requester)):
        return ProposalRefused(
            "Exactly this was asked and not confirmed since the person last wrote. It was not done; "
            "do not ask again before they write."
        )
    if not twins and len(mine) >= QUOTA:
        return ProposalRefused(
            f"Not asked: {QUOTA} actions of this person already wait for an answer here. Those come first."
        )
    if (why := _lacks_approvers(approvers, need, address)) is not None:
        return ProposalRefused(why)
    action = _new_action(
        tool,
        args,
        preview,
        code=make_code({action.code for action in (*actions.open, *proposed)}),
        supersedes=twins[-1].pending_action_id if twins else None,
        person=person,
        conversation=actions.conversation,
        address=address,
        language=language,
        answer_window_seconds=answer_window_seconds,
        at=max([actions.now, *(before.requested_at + _A_MOMENT for before in proposed)]),
    )
    if not actions.shows_files and code_only(action):
        return ProposalRefused(
            "Not asked: this is too long to be shown here, and files cannot be sent. Ask for less at once."
        )
    return replace(action, digest=compute_digest(action))


def _lacks_approvers(approvers: tuple[str, ...] | None, need: int, address: Address) -> str | None:
    """Return the error for an approver rule that cannot be met in this conversation, else None."""
    if approvers is not None and len(approvers) < need:
        return "Not asked: too few people other than the one who asked may approve this."
    if approvers is not None and not address.group:
        return "Not asked: this needs the approval of other people, who are not in this conversation."
    return None


def _new_action(
    tool: Tool,
    args: dict[str, Json],
    preview: Preview,
    *,
    code: str,
    supersedes: str | None,
    person: Person,
    conversation: str,
    address: Address,
    language: str,
    answer_window_seconds: float,
    at: datetime,
) -> PendingAction:
    """Return the record of a new question, without its digest."""
    approvers, need = _approvers(tool, str(person))
    return PendingAction(
        pending_action_id=make_action_id(),
        kind=tool.name,
        tool_version=tool.version_hash,
        template=tool.template_hash,
        args=deepcopy(args),
        precondition=preview.precondition,
        preview=preview.text,
        table=tuple(preview.table or ()),
        code=code,
        supersedes=supersedes,
        requester=str(person),
        requester_name=person.name,
        conversation=conversation,
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
        requested_at=at,
    )


def _verb(tool: Tool, language: str) -> str | None:
    """Return the verb of the question: the author's, else the class of the first word of the template."""
    rule = tool.confirm
    if rule is None or rule.verb is not None:
        return rule.verb if rule is not None else None
    return verb_of(rule.ask, language) if isinstance(rule.ask, str) else None


def asks_more(tool: Tool, action: PendingAction) -> bool:
    """Return True if the tool now needs other approvers than the action was asked under, or more of them."""
    approvers, need = _approvers(tool, action.requester)
    if approvers is None:
        return False
    return need > action.need or not set(action.approvers or [action.requester]) <= set(approvers)


def _waiting(actions: ConversationActions, proposed: Sequence[PendingAction], requester: str) -> list[PendingAction]:
    """Return the open and the newly proposed actions of this person, without the superseded ones."""
    superseded = {action.supersedes for action in proposed}
    found = {action.pending_action_id: action for action in (*actions.open, *proposed) if action.requester == requester}
    return [action for action_id, action in found.items() if action_id not in superseded]


def _is_call(action: PendingAction, tool: Tool, args: Mapping[str, Json]) -> bool:
    return action.kind == tool.name and canonical_json(dict(action.args)) == canonical_json(dict(args))


def _is_equal(twin: PendingAction, tool: Tool, preview: Preview) -> bool:
    """Return True if an open action of the same call asks the same question as would be asked now."""
    if tool.volatile or not tool.matches(twin) or asks_more(tool, twin):
        return False
    return not differing(asked_with(twin), preview)


def _ttl_seconds(tool: Tool, address: Address, *, others: bool) -> float:
    """Return the time to live: the tool's, else that of approvers if `others` decide, else the channel's."""
    if tool.confirm is not None and tool.confirm.ttl_seconds is not None:
        return tool.confirm.ttl_seconds
    return _TTL_APPROVERS_SECONDS if others else _TTL_SECONDS.get(address.channel, _TTL_DEFAULT_SECONDS)


def _approvers(tool: Tool, requester: str) -> tuple[tuple[str, ...] | None, int]:
    """Return the people that may approve a call, and the number of votes it needs; None: the requester decides."""
    rule = tool.confirm.approvers if tool.confirm is not None else None
    if rule is None:
        return None, 1
    people = dict.fromkeys(person for person in rule.people if rule.requester or person != requester)
    if rule.requester:
        people[requester] = None
    return tuple(people), rule.need
