"""Voting across chats: open a ballot in an approver's chat, count its vote for the action, and report the end.

Events arrive by hand-over, in any order and each once. A person's answer is judged in the chat of the answer, by the
rules for this chat. Only the action changes its own state, and reads the approvers again at each vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from channels import Address, Json, Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions, codes_of
from gateway.pending.ballots import (
    ENDS,
    answer_ballot,
    ask_ballots,
    ask_instead,
    ballot_of_person,
    end_ballots,
    has_several_voters,
    marked,
    remind_ballots,
    report,
)
from gateway.pending.deciding import take_vote
from gateway.pending.prompt import deciders, ending
from gateway.pending.prompting import edit_prompt, filed_if_long, first_shown, show_once_more, show_prompt
from gateway.pending.settling import close, close_undelivered
from gateway.pending.tokens import make_code
from gateway.stored.events import BallotAsked, BallotNews, BallotUpdate
from gateway.tools.approver_places import are_enough
from gateway.tools.escape import QUICK, named
from gateway.tools.layout import NO_LAYOUT
from gateway.tools.pending_action import Ballot, PendingAction, json_text
from gateway.wording import say

# ── in the chat of an approver ──


def take_question(actions: ConversationActions, event: BallotAsked, at: datetime) -> None:
    """Ask an approver in their own chat, in the language of this chat.

    Raises ValueError for a record that is not a ballot of this conversation.
    """
    if actions.get(event.action_id) is not None:
        return
    asked = PendingAction.from_json(event.record)
    if asked.ballot_of is None or asked.conversation != actions.conversation:
        raise ValueError("the record of a ballot is not of this conversation")
    if asked.is_vote and not _may_reach(actions, asked, at):
        report(actions, asked, "held_back", at)
        return
    ballot = _in_language(asked, actions.index.last_asked_language() or asked.language)
    ballot = replace(ballot, code=make_code(codes_of(actions.open)))
    actions.put(ballot, "ballot_asked", ballot.requester, at)
    ballot = actions.by_id[event.action_id]
    shown = filed_if_long(actions, ballot)
    if shown is None or (shown.filed and asked.ballot_of.only_to):  # a file cannot be shown to one person of a group
        close(actions, ballot, "undelivered", at)
        return
    if shown != ballot:
        actions.change(shown, at)
    ballot = shown
    actions.due_delivery(ballot)
    show_prompt(actions, [ballot])


def _in_language(ballot: PendingAction, language: str) -> PendingAction:
    """Return the ballot in this language, with the question written anew from the template of the language.

    A question of over 3,000 characters stays in the language of the requester: to escape its values takes long.
    """
    layout = ballot.layout or NO_LAYOUT
    if layout.template(language) is None:
        return replace(ballot, language=language)
    if len(json_text(dict(ballot.args))) > QUICK:
        return ballot
    return replace(ballot, language=language, preview=layout.sentence(ballot.args, language))


def _may_reach(actions: ConversationActions, ballot: PendingAction, at: datetime) -> bool:
    """Return True unless this approver refused a call of this tool and requester, in any chat, within the last hour.

    After a refusal a question comes only by the requester's press to ask again, three times an hour.
    """
    if actions.index.approvers_refused(ballot.kind, ballot.requester, at) is None:
        return True
    index = actions.index.asked_again(ballot.kind, ballot.requester, at) if ballot.again else None
    actions.index = index or actions.index
    return index is not None


def take_update(actions: ConversationActions, event: BallotUpdate, at: datetime) -> None:
    """Show a ballot again, answer a vote, or report the end of the action. The end is reported once."""
    ballot = actions.get(event.action_id)
    if ballot is None or ballot.ballot_of is None:
        return
    match event.what:
        case "remind" if ballot.open:
            intro = say("still_waiting", ballot.language, actions.letters)
            show_once_more(actions, [ballot], intro=intro)
        case "answer":
            _answer(actions, ballot, event.record)
        case "ended":
            _end(actions, ballot, event.record, at)


def lose_place(
    actions: ConversationActions, ballot: PendingAction, at: datetime, address: Address, *, only_to: str = ""
) -> None:
    """Close a ballot refused by its place. Its action is to be asked at this address."""
    actions.put(transitions.close(ballot, "undelivered", at), "ballot_ended", None, at)
    actions.changes.no_longer_due(ballot, "undelivered")
    report(actions, ballot, "lost", at, address=address, only_to=only_to)


def lose_ballots(actions: ConversationActions, at: datetime) -> None:
    """Close the open ballots of a person after an opt-out."""
    for action in actions.open:
        if action.ballot_of is not None:
            close(actions, action, "undelivered", at)


def _answer(actions: ConversationActions, ballot: PendingAction, record: Mapping[str, Json]) -> None:
    values = record.get("values")
    words = {name: str(value) for name, value in values.items()} if isinstance(values, dict) else {}
    text = say(str(record.get("key")), ballot.language, actions.letters, **words)
    several_read = ballot.address is not None and ballot.address.group
    if has_several_voters(ballot) and several_read and words.get("voter"):
        text = f"{named(words['voter'])}: {text}"
    actions.say(f"{text}\n\n{ending(ballot, None)}", tells=(ballot.pending_action_id,))


def _end(actions: ConversationActions, ballot: PendingAction, record: Mapping[str, Json], at: datetime) -> None:
    """Copy the end of the action into the ballot. A ballot without any showing or vote ends without a message."""
    kept = {name: value for name, value in ballot.to_json().items() if name not in ENDS}
    ended = PendingAction.from_json({**kept, **{name: record[name] for name in ENDS if name in record}})
    if (ended.state, ended.reason) == (ballot.state, ballot.reason):
        return
    actions.put(replace(ended, finished_at=at), "ballot_ended", None, at)
    actions.changes.no_longer_due(ballot, "undelivered")
    if ballot.shown_at is None and ballot.vote is None:
        return
    if ballot.is_vote:  # else the action tells its end itself
        actions.say(ending(actions.by_id[ballot.pending_action_id], at), tells=(ballot.pending_action_id,))
    for message_id in ballot.prompts:
        edit_prompt(actions, message_id, at)


# ── in the conversation of the action ──


def take_news(actions: ConversationActions, event: BallotNews, at: datetime) -> None:
    """Apply the news of a ballot: shown, lost, held back, or a vote."""
    action = actions.get(event.action_id)
    ballot = ballot_of_person(action, event.person) if action is not None else None
    if action is None or ballot is None:
        return
    if event.what == "held_back":
        _held_back(actions, action, at)
    elif event.what == "lost":
        _lost(actions, action, ballot, event, at)
    elif event.what == "shown":
        _shown(actions, action, ballot, event.person, at)
    else:
        voter = replace(Person.parse(event.voter), name=event.name)
        approver = event.person if not ballot.instead else transitions.approver_of(action, voter) or ""
        feedback = take_vote(
            actions,
            action,
            event.what,
            voter,
            at,
            approver=approver,
            digest=event.digest,
            remark=event.remark or "",
        )
        if not feedback.told:
            answer_ballot(actions, action, ballot, feedback.key, {**feedback.values, "voter": event.name or ""}, at)


def remind_approvers(actions: ConversationActions, action_id: str, at: datetime) -> None:
    """Ask the silent approvers of an open action once more, each in the chat of the first question."""
    action = actions.get(action_id)
    if action is None or not action.open:
        return
    remind_ballots(actions, action, at)
    voted = {vote.person for vote in action.votes}
    if not {*action.approvers} <= voted | action.elsewhere:
        show_once_more(actions, [action], intro=say("still_waiting", action.language, actions.letters))


def ask_standins(actions: ConversationActions, action_id: str, at: datetime) -> None:
    """Ask the stand-ins of an open action, unless already asked."""
    action = actions.get(action_id)
    if action is None or not action.open:
        return
    named = frozenset(ballot.person for ballot in action.ballots if ballot.state == "named")
    if named:
        asked = marked(action, named, "asked")
        actions.put(asked, "standins_asked", None, at)
        ask_ballots(actions, asked, at, only=named)


def _shown(actions: ConversationActions, action: PendingAction, ballot: Ballot, person: str, at: datetime) -> None:
    if action.settled:  # the question came after the end
        end_ballots(actions, action, at, only=person)
        return
    first = action.open and action.shown_at is None
    shown = marked(action, frozenset({person}), "shown")
    if ballot.instead:
        shown = replace(shown, shown_in=person)
    if first:
        first_shown(actions, transitions.show(shown, at, None), at)
    else:
        actions.change(shown, at)


def _held_back(actions: ConversationActions, action: PendingAction, at: datetime) -> None:
    """Refuse an action because of an approver's recent no, given in another chat of the requester."""
    if action.open:
        actions.index = actions.index.refused_by_approver(action.kind, action.requester, at)
        close(actions, action, "refused", at, tell="cancelled")


def _lost(actions: ConversationActions, action: PendingAction, ballot: Ballot, event: BallotNews, at: datetime) -> None:
    """Note an unreachable approver. The stand-ins are asked; without enough people the action ends.

    A question asked in another place, and refused there too, is asked in the next place.
    """
    person = event.person
    if ballot.instead:
        _lost_place(actions, marked(action, frozenset({person}), "lost"), event, at)
        return
    lost = marked(action, frozenset({person}), "lost")
    actions.put(lost, "approver_lost", person, at)
    actions.changes.unreached.append(person)
    if not action.open:
        return
    gone = {ballot.person for ballot in lost.ballots if ballot.state == "lost"}
    able = {*lost.approvers, *lost.standins} - gone | {vote.person for vote in lost.votes}
    values = {"people": deciders(lost.approvers_name, lost.language)}
    if not are_enough(able, lost.need):
        text = say("approvers_unreached", lost.language, actions.letters, **values)
        close(actions, actions.by_id[lost.pending_action_id], "undelivered", at)
        actions.say(f"{text}\n\n{ending(actions.by_id[lost.pending_action_id], at)}", tells=(lost.pending_action_id,))
    else:
        actions.say(say("approvers_unreached", lost.language, actions.letters, **values))
        ask_standins(actions, lost.pending_action_id, at)


def _lost_place(actions: ConversationActions, action: PendingAction, event: BallotNews, at: datetime) -> None:
    actions.put(action, "place_lost", None, at)
    action = actions.by_id[action.pending_action_id]
    if not action.open or action.shown_at is not None:
        return
    if event.address is None or not ask_instead(actions, action, event.address, at, only_to=event.only_to):
        close_undelivered(actions, action.pending_action_id, at, later=True)
