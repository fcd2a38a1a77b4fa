"""Ballots: the question of an action, shown to each approver in their own chat.

The action and each of its ballots are records of different conversations. Neither record changes the other: each hands
events over to the other conversation. This module makes the events; `voting` applies the events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from channels import Address, Json
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.stored import keys
from gateway.stored.events import BallotAsked, BallotNews, BallotUpdate
from gateway.tools.approver_places import place_of
from gateway.tools.pending_action import Ballot, BallotOf, PendingAction

ENDS = ("state", "reason", "detail", "decided_at", "decided_by", "decided_name", "remark")
"""The fields about the end of an action."""


def ballot_id(action: PendingAction, person: str) -> str:
    """Return the id of the ballot of this person: 128 bits in hex, like the id of an action.

    The audit shows the id. With the salt of the action in the hash, the id alone cannot confirm a guess of the person.
    """
    return hashlib.sha256(
        f"{action.salt or action.pending_action_id}/{person}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:32]


def ballot_of_person(action: PendingAction, person: str) -> Ballot | None:
    """Return the ballot of this person, or None."""
    return next((ballot for ballot in action.ballots if ballot.person == person), None)


def marked(action: PendingAction, people: frozenset[str], state: Literal["asked", "shown", "lost"]) -> PendingAction:
    """Return the action with another state of these people's ballots."""
    ballots = tuple(replace(each, state=state) if each.person in people else each for each in action.ballots)
    return replace(action, ballots=ballots)


# ── from the action to its ballots ──


def ask_ballots(
    actions: ConversationActions, action: PendingAction, at: datetime, *, only: frozenset[str] | None = None
) -> None:
    """Hand the question over to the chat of each approver with an ``asked`` ballot. `only`: to these people alone."""
    for ballot in action.ballots:
        if ballot.state == "asked" and (only is None or ballot.person in only):
            record = ballot_record(action, ballot, at)
            name = record.pending_action_id
            event = BallotAsked(event_id=f"ballot/{name}", action_id=name, record=record.to_json())
            actions.changes.hand_over(ballot.conversation, event, at)


def ask_instead(
    actions: ConversationActions, action: PendingAction, address: Address, at: datetime, *, only_to: str = ""
) -> bool:
    """Ask an open action in another place, because the place of the action refused the question.

    In the same group the same people decide. In private, or before a single person (`only_to`), only the requester
    could: return False if the requester may not approve the action.
    """
    is_private = not address.group or bool(only_to)
    if is_private and not transitions.may_approve(action, action.requester):
        return False
    name = f"{'only' if only_to else 'instead'}:{address}"
    if ballot_of_person(action, name) is None:
        there = keys.beside(action.conversation, address)
        ballot = Ballot(person=name, conversation=there, address=address, instead=True, only_to=only_to)
        asked = replace(action, ballots=(*action.ballots, ballot))
        actions.put(asked, "asked_elsewhere", None, at)
        ask_ballots(actions, asked, at, only=frozenset({name}))
    return True


def has_several_voters(ballot: PendingAction) -> bool:
    """Return True for a ballot that stays open after a vote: of a group, or instead of the action's own question."""
    return not ballot.is_vote or place_of(ballot.approvers[0]) is not None


def end_ballots(actions: ConversationActions, action: PendingAction, at: datetime, *, only: str | None = None) -> None:
    """Hand the end of the action over to its sent ballots. `only`: to the ballot of this person alone."""
    stored = action.to_json()
    fields = {name: stored[name] for name in ENDS if name in stored}
    for ballot in action.ballots:
        if ballot.state != "named" and ballot.conversation and only in (None, ballot.person):
            once = action.state if only is None else f"{action.state}/late"
            _update(actions, action, ballot, "ended", once, fields, at)


def remind_ballots(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Have the question shown again to each approver with a ``shown`` ballot and no vote."""
    voted = {vote.person for vote in action.votes}
    for ballot in action.ballots:
        if ballot.state == "shown" and ballot.person not in voted:
            _update(actions, action, ballot, "remind", "", {}, at)


def answer_ballot(
    actions: ConversationActions,
    action: PendingAction,
    ballot: Ballot,
    key: str,
    values: Mapping[str, str | int],
    at: datetime,
) -> None:
    """Answer a vote by the sentence of this key."""
    record: dict[str, Json] = {"key": key, "values": dict(values)}
    _update(actions, action, ballot, "answer", at.isoformat(), record, at)


def _update(
    actions: ConversationActions,
    action: PendingAction,
    ballot: Ballot,
    what: Literal["ended", "remind", "answer"],
    once: str,
    record: Mapping[str, Json],
    at: datetime,
) -> None:
    name = ballot_id(action, ballot.person)
    event = BallotUpdate(event_id=f"{what}/{name}/{once}", action_id=name, what=what, record=record)
    actions.changes.hand_over(ballot.conversation, event, at)


def ballot_record(action: PendingAction, ballot: Ballot, at: datetime) -> PendingAction:
    """Return the record of the question to this person in their own chat, without a code."""
    return PendingAction(
        pending_action_id=ballot_id(action, ballot.person),
        kind=action.kind,
        tool_version=action.tool_version,
        layout=action.layout,
        args=action.args,
        precondition=action.precondition,
        preview=action.preview,
        table=action.table,
        requester=action.requester,
        requester_name=action.requester_name,
        requester_handle=action.requester_handle,
        approvers_name=action.approvers_name,
        conversation=ballot.conversation,
        address=ballot.address,
        language=action.language,
        approvers=_approvers(action, ballot),
        args_digest=action.args_digest,
        digest=action.digest,
        verb=action.verb,
        parser_version=action.parser_version,
        ttl_seconds=action.ttl_seconds,
        answer_window_seconds=action.answer_window_seconds,
        requested_at=at,
        expires_at=action.expires_at,
        run_id=action.run_id,
        again=action.again,
        ballot_of=BallotOf(
            conversation=action.conversation,
            action_id=action.pending_action_id,
            people=action.approvers,
            need=action.need,
            instead=ballot.person if ballot.instead else "",
            only_to=ballot.only_to,
        ),
    )


def _approvers(action: PendingAction, ballot: Ballot) -> tuple[str, ...]:
    """Return the approvers in the record of a ballot; empty: the requester decides."""
    if not ballot.instead:
        return (ballot.person,)
    if not action.approvers or ballot.address is None or ballot.only_to or not ballot.address.group:
        return (action.requester,) if action.approvers else ()
    return tuple(each for each in action.approvers if each not in action.elsewhere)


# ── from a ballot to its action ──


def report(
    actions: ConversationActions,
    ballot: PendingAction,
    what: Literal["shown", "lost", "held_back", "confirm", "cancel"],
    at: datetime,
    *,
    name: str | None = None,
    voter: str = "",
    address: Address | None = None,
    only_to: str = "",
) -> None:
    """Hand the news of this ballot over to its action. `voter` is the person of a vote, `name` the person's name.

    `address`, `only_to`: the next place for a lost question.
    """
    if ballot.ballot_of is None:
        return
    once = f"{what}/{at.isoformat()}/{voter}" if what in ("confirm", "cancel") else what
    news = BallotNews(
        event_id=f"{once}/{ballot.pending_action_id}",
        action_id=ballot.ballot_of.action_id,
        person=ballot.ballot_of.instead or ballot.approvers[0],
        name=name,
        voter=voter,
        address=address,
        only_to=only_to,
        what=what,
        digest=ballot.digest,
        parser_version=ballot.parser_version,
        remark=ballot.remark,
    )
    actions.changes.hand_over(ballot.ballot_of.conversation, news, at)
