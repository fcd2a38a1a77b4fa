"""Proposing: the checks of a tool call before its question is shown to a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from channels import Address, AskfirstError, Json, Person
from gateway.pending.actions import ConversationActions, codes_of
from gateway.pending.index import same_ask
from gateway.pending.prompting import filed_if_long
from gateway.pending.reading import ReplyParser
from gateway.pending.seal import compute_digest
from gateway.pending.standing import is_covered
from gateway.pending.tokens import make_action_id, make_code, make_salt
from gateway.pending.words import verb_of
from gateway.tools import Preview, Tool
from gateway.tools.approver_places import are_enough, is_place, place_of
from gateway.tools.confirm import Approvers, asked_with, differing, frozen
from gateway.tools.pending_action import Ballot, PendingAction, StandingOffer, canonical_json, compute_args_digest

QUOTA = 5
"""The most open actions of a person in a conversation."""

_REFUSED_ALREADY = (
    "Exactly this was asked and not confirmed since the person last wrote. It was not done; "
    "do not ask again before they write."
)
_REFUSED_BY_APPROVER = (
    "Not asked: an approver has refused a call of this tool within the last hour. Try again after this hour. Only the "
    "person who asked can have the refused call asked again, with the button under the refusal where there are buttons."
)
_TOO_LONG = "Not asked: this is too long to be shown here, and files cannot be sent. Ask for less at once."
_A_MOMENT = timedelta(microseconds=1)
"""The time difference between the questions of a turn, to keep the order of its calls."""
_TTL_SECONDS = {"sms": 1800.0, "whatsapp": 1800.0}
_TTL_DEFAULT_SECONDS = 900.0
_TTL_APPROVERS_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """A refused call: no question is shown. `why` goes to the model as the tool's error."""

    why: str
    unreached: bool = False
    """True if too few approvers can be reached. The person is notified then."""


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
    plan: str | None = None,
    changing: PendingAction | None = None,
    proposed: Sequence[PendingAction] = (),
    ballots: Mapping[str, Ballot] = MappingProxyType({}),
    again: bool = False,
    approvers: Approvers | None = None,
) -> PendingAction | ProposalRefused:
    """Return a new action for a tool call, or the equal open action.

    `ballots` has a ballot for each person of `asked_elsewhere` within reach. `plan` is the id of the plan of the calls.
    `changing` is replaced by a new action of its tool. `proposed` are the earlier new actions of the turn. `again`: the
    person has pressed to ask again. `approvers`: the rule with the people named by a function.
    """
    try:
        preview = frozen(preview)
    except ValueError as error:
        return ProposalRefused(f"Not asked: its preview cannot be kept as it is: {error}")
    rule = approvers or tool.approvers
    mine = _waiting(actions, proposed, requester := str(person))
    twins = [action for action in mine if _is_call(action, tool, args)]
    if equal := next((twin for twin in twins if _is_equal(twin, tool, rule, preview)), None):
        return equal
    replaces = changing.pending_action_id if changing is not None and changing.kind == tool.name else None
    if (why := _refused_before(actions, tool, args, requester, turn_started, again=again)) is not None:
        return ProposalRefused(why)
    sent = _ballots(rule, requester, address, ballots, conversation=actions.conversation)
    if (lacking := _lacks_approvers(rule, requester, sent)) is not None:
        return lacking
    action = _new_action(
        actions,
        tool,
        rule,
        args,
        preview,
        supersedes=twins[-1].pending_action_id if twins else None,
        person=person,
        address=address,
        language=language,
        answer_window_seconds=answer_window_seconds,
        ballots=sent,
        plan=plan,
        replaces=replaces,
        proposed=proposed,
        again=again,
    )
    if not twins and (why := _over_quota(mine, plan, replaces)) and not is_covered(actions, action, tool):
        return ProposalRefused(why)
    shown = filed_if_long(actions, action)
    return replace(shown, digest=compute_digest(shown)) if shown is not None else ProposalRefused(_TOO_LONG)


def _refused_before(
    actions: ConversationActions,
    tool: Tool,
    args: Mapping[str, Json],
    requester: str,
    turn_started: datetime,
    *,
    again: bool,
) -> str | None:
    """Return the error for a recently refused call, else None."""
    by_others = tool.approvers is not None and not again
    if by_others and actions.index.approvers_refused(tool.name, requester, actions.now) is not None:
        return _REFUSED_BY_APPROVER
    if actions.index.refused_since(turn_started, same_ask(tool.name, args, requester)):
        return _REFUSED_ALREADY
    return None


def _over_quota(mine: Sequence[PendingAction], plan: str | None, replaces: str | None) -> str | None:
    """Return the error for too many open questions of a person. The actions of a plan count once."""
    others = {action.plan or action.pending_action_id for action in mine} - {plan, replaces}
    if len(others) < QUOTA:
        return None
    return f"Not asked: {QUOTA} questions to this person already wait for an answer here. Those come first."


def _offer(tool: Tool, taken: set[str], plan: str | None) -> StandingOffer | None:
    """Return the permission offered in the prompt of a single action, with a code of its own."""
    rule = tool.confirm.standing if tool.confirm is not None else None
    if rule is None or plan is not None:
        return None
    return StandingOffer(
        code=make_code(taken),
        seconds=rule.max_seconds,
        uses=rule.max_uses,
        free=tuple(rule.free),
        most=tuple((name, f"{bound:f}") for name, bound in rule.bounds.items()),
        compared=tool.compares_previews,
    )


def _after(now: datetime, proposed: Sequence[PendingAction]) -> datetime:
    """Return now, or the time after the last action proposed in the same turn."""
    return max([now, *(before.requested_at + _A_MOMENT for before in proposed)])


def asked_elsewhere(rule: Approvers | None, requester: str, address: Address) -> list[str]:
    """Return the approvers and stand-ins to ask in their own chats, not in this conversation."""
    approvers, _ = _approvers(rule, requester)
    elsewhere = [person for person in approvers or () if not _is_here(person, requester, address)]
    return [*elsewhere, *_standins(rule, requester)]


def _lacks_approvers(rule: Approvers | None, requester: str, ballots: Sequence[Ballot]) -> ProposalRefused | None:
    """Return the refusal for an unmet approver rule, else None."""
    approvers, need = _approvers(rule, requester)
    if approvers is None:
        return None
    if not are_enough(approvers, need):
        return ProposalRefused("Not asked: too few people other than the one who asked may approve this.")
    lost = {ballot.person for ballot in ballots if ballot.state == "lost"}
    if are_enough({*approvers, *_standins(rule, requester)} - lost, need):
        return None
    why = "Not asked, and nothing was done: too many of the people who have to approve this cannot be reached now."
    return ProposalRefused(why, unreached=True)


def _ballots(
    rule: Approvers | None, requester: str, address: Address, found: Mapping[str, Ballot], *, conversation: str
) -> tuple[Ballot, ...]:
    """Return the ballots of a new action. A stand-in is only named, unless too few approvers can be reached.

    A person needs no ballot if this conversation is their own chat.
    """
    approvers, need = _approvers(rule, requester)
    elsewhere, standins = asked_elsewhere(rule, requester, address), _standins(rule, requester)
    ballots = [found.get(person, Ballot(person=person, state="lost")) for person in elsewhere]
    ballots = [ballot for ballot in ballots if ballot.conversation != conversation]
    lost = {ballot.person for ballot in ballots if ballot.state == "lost"}
    if not are_enough({*(approvers or ())} - lost, need):
        return tuple(ballots)
    return tuple(
        replace(ballot, state="named") if ballot.person in standins and ballot.state != "lost" else ballot
        for ballot in ballots
    )


def _is_here(person: str, requester: str, address: Address) -> bool:
    """Return True for an approver who can answer in the chat of the requester.

    These are the requester, in a group the people of its platform, and the group itself.
    """
    if place_of(person) is not None:
        return is_place(person, address)
    known = Person.parse(person)
    in_group = address.group and (known.channel, known.account) == (address.channel, address.account)
    return in_group or person == requester


def _standins(rule: Approvers | None, requester: str) -> tuple[str, ...]:
    return tuple(person for person in rule.standin if person != requester) if rule is not None else ()


def _new_action(
    actions: ConversationActions,
    tool: Tool,
    rule: Approvers | None,
    args: dict[str, Json],
    preview: Preview,
    *,
    supersedes: str | None,
    person: Person,
    address: Address,
    language: str,
    answer_window_seconds: float,
    ballots: tuple[Ballot, ...],
    plan: str | None,
    replaces: str | None,
    proposed: Sequence[PendingAction],
    again: bool,
) -> PendingAction:
    """Return the record of a new question, without its digest."""
    taken = codes_of([*actions.open, *proposed])
    code = make_code(taken)
    approvers, need = _approvers(rule, str(person))
    return PendingAction(
        pending_action_id=make_action_id(),
        salt=make_salt(),
        kind=tool.name,
        tool_version=tool.version_hash,
        layout=tool.layout,
        args=deepcopy(args),
        precondition=preview.precondition,
        preview=preview.text,
        table=tuple(preview.table or ()),
        code=code,
        supersedes=supersedes,
        requester=str(person),
        requester_name=person.name,
        requester_handle=person.handle,
        conversation=actions.conversation,
        address=address,
        language=language,
        approvers=approvers or (),
        approvers_name=rule.name_in(language) if rule is not None else None,
        need=need,
        args_digest=compute_args_digest(args),
        verb=_verb(tool, language),
        parser_version=ReplyParser.version,
        after=tool.confirm.after if tool.confirm is not None else "receipt",
        ttl_seconds=_ttl_seconds(tool, address, others=approvers is not None),
        answer_window_seconds=answer_window_seconds,
        requested_at=_after(actions.now, proposed),
        standins=_standins(rule, str(person)),
        remind_seconds=rule.remind_seconds if rule is not None else None,
        ballots=ballots,
        plan=plan,
        place=1 + sum(before.plan == plan for before in proposed) if plan is not None else 0,
        replaces=replaces,
        again=again,
        standing=_offer(tool, taken | {code}, plan),
        on_item_failure=tool.confirm.on_item_failure if tool.confirm is not None else "continue",
    )


def _verb(tool: Tool, language: str) -> str | None:
    """Return the verb of the question: the author's, else the class of the first word of the template.

    None for a verb without words: then only plain answers count.
    """
    rule = tool.confirm
    if rule is None or rule.unread_verb is not None:
        return None
    if rule.verb is not None:
        return rule.verb
    template = tool.template_in(language)
    return verb_of(template, language) if template is not None else None


def asks_more(rule: Approvers | None, action: PendingAction) -> bool:
    """Return True if the tool's rule now requires other approvers or more votes than at the ask.

    Without a list in the rule, the list of the ask counts.
    """
    if rule is not None and rule.listed is None:
        return rule.need > action.need or not action.approvers
    approvers, need = _approvers(rule, action.requester)
    if approvers is None:
        return False
    may_vote = {*approvers, *_standins(rule, action.requester)}
    return need > action.need or not {*(action.approvers or [action.requester]), *action.standins} <= may_vote


def _waiting(actions: ConversationActions, proposed: Sequence[PendingAction], requester: str) -> list[PendingAction]:
    """Return the open and the newly proposed actions of this person, without the superseded ones."""
    superseded = {action.supersedes for action in proposed}
    found = {action.pending_action_id: action for action in (*actions.open, *proposed) if action.requester == requester}
    return [action for action_id, action in found.items() if action_id not in superseded]


def _is_call(action: PendingAction, tool: Tool, args: Mapping[str, Json]) -> bool:
    return action.kind == tool.name and canonical_json(dict(action.args)) == canonical_json(dict(args))


def _is_equal(twin: PendingAction, tool: Tool, rule: Approvers | None, preview: Preview) -> bool:
    """Return True if an open action of the same call asks the same question as a new action would."""
    if tool.volatile or not tool.matches(twin) or asks_more(rule, twin):
        return False
    return not differing(asked_with(twin), preview)


def _ttl_seconds(tool: Tool, address: Address, *, others: bool) -> float:
    """Return the time to live: the tool's, else the default for approvers if `others` decide, else the channel's."""
    if tool.confirm is not None and tool.confirm.ttl_seconds is not None:
        return tool.confirm.ttl_seconds
    return _TTL_APPROVERS_SECONDS if others else _TTL_SECONDS.get(address.channel, _TTL_DEFAULT_SECONDS)


def _approvers(rule: Approvers | None, requester: str) -> tuple[tuple[str, ...] | None, int]:
    """Return the people that may approve a call, and the required number of votes; None: the requester decides."""
    if rule is None:
        return None, 1
    people = dict.fromkeys(person for person in rule.listed or () if rule.requester or person != requester)
    if rule.requester:
        people[requester] = None
    return tuple(people), rule.need


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
    "requester_handle",
    "conversation",
    "address",
    "language",
    "approvers",
    "approvers_name",
    "need",
    "args_digest",
    "digest",
    "layout",
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
    "place",
    "filed",
    "on_item_failure",
    "replaces",
    "standing",
    "again",
)
"""The fields that `propose_action` fills in. The other fields hold the later life of the action."""


class NotAsked(AskfirstError):
    """A checkpoint was changed: its action is not a new action of its turn."""


def as_asked(action: PendingAction) -> PendingAction:
    """Return the action without votes, showings, decision and outcome."""
    return PendingAction(**{name: getattr(action, name) for name in _ASKED})


def taken_over(action: PendingAction, *, conversation: str, requester: str) -> PendingAction:
    """Return the action of a checkpoint, made by `as_asked`.

    Raises NotAsked for an action with votes or an outcome, or of another person or conversation.
    """
    if action != as_asked(action):
        raise NotAsked(f"action {action.pending_action_id} is more than asked already: it is not asked")
    if (action.conversation, action.requester) != (conversation, requester):
        raise NotAsked(f"action {action.pending_action_id} is of another person or conversation: it is not asked")
    return action
