"""Deciding: the effect of a press, a code, a reply or a bare reply on the actions of a conversation.

A press and a call return their feedback; the caller words the text. A reply is answered in the chat at once: `language`
is the language of the writer. Sentences about an action are in the action's own language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from channels import Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.ballots import has_several_voters, report
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import IndexEntry, Showing
from gateway.pending.plans import launch_in_order, show_later
from gateway.pending.prompt import is_confirmed_here, is_shown_in_brief, outcome_key, statement
from gateway.pending.prompting import PressFeedback, ask_for_code, ask_which, say_feedback, show_once_more
from gateway.pending.reading import Answer
from gateway.pending.selecting import LEAST_ITEMS, Selection
from gateway.pending.settling import close, close_if_drifted, expire
from gateway.pending.tokens import token_sha256
from gateway.pending.words import Intent
from gateway.tools.confirm import NO_VERBS
from gateway.tools.pending_action import PendingAction
from gateway.wording import say

Reads: TypeAlias = Callable[[str | None, str], Answer]
"""Return the answer of a message to a question of this verb and this language."""


def press(
    actions: ConversationActions, action_id: str, token: str, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply the press of a button, and return the feedback for the presser."""
    action = actions.get(action_id)
    pressed = action.button(token_sha256(token)) if action is not None else None
    if action is None or pressed is None:
        return PressFeedback(key="unknown_button")
    intent = pressed.intent
    if action.open and action.shown_in:  # asked anew in another place since
        return PressFeedback(key="not_here", language=action.language)
    if intent == "again":
        return _ask_again(actions, action, person, at)
    if intent == "standing":
        return _press_standing(actions, action, person, at)
    if intent == "change":
        return _change(actions, action, person, at)
    if intent == "confirm_all" or intent == "cancel_all":
        decides: Intent = "confirm" if intent == "confirm_all" else "cancel"
        return _press_all(actions, [action.pending_action_id, *pressed.items], decides, person, at)
    if not is_eligible(actions, action, intent, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return apply(actions, action, intent, person, at)


def _press_standing(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime
) -> PressFeedback:
    """Confirm an action together with the standing permission offered in its prompt."""
    if not is_eligible(actions, action, "confirm", person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return apply(actions, action, "confirm", person, at, allows=True)


def _change(actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime) -> PressFeedback:
    """Ask the requester how to change an open action. The next message goes to the model with the action."""
    if person is None or not _is_requester(actions, action, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    if not action.open or close_if_drifted(actions, action, at) or transitions.expired(action, at):
        expire(actions, action.pending_action_id, at)
        ended = actions.by_id[action.pending_action_id]
        return PressFeedback(key=outcome_key(ended, at), language=ended.language)
    actions.index = actions.index.changed_by(str(person), action.pending_action_id)
    actions.say(say("change_how", action.language, actions.letters, preview=statement(action.preview)))
    return PressFeedback(key="change_how", values={"preview": action.preview}, language=action.language, told=True)


def _is_requester(actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime) -> bool:
    """Return True for the requester of this action; otherwise add the refusal to the audit."""
    if person is not None and not person.is_bot and str(person) == action.requester:
        return True
    refuse(actions, action, person, at)
    return False


def _press_all(
    actions: ConversationActions, ids: Sequence[str], intent: Intent, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply a press for all questions of a message to the open questions within this person's rights."""
    shown = [found for action_id in dict.fromkeys(ids) if (found := actions.get(action_id)) is not None]
    items = [item for item in shown if item.open] or shown[:1]
    mine = [item for item in items if person is not None and _may_answer(item, intent, person)]
    if not is_eligible(actions, (mine or items)[0], intent, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return _decide_items(actions, mine, intent, person, at)


def _decide_items(
    actions: ConversationActions, items: Sequence[PendingAction], intent: Intent, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply the same answer of an eligible person to several items, and return the feedback on the last item.

    All refused items are reported in a single message.
    """
    feedback = PressFeedback(key="pressed_no", told=True)
    for item in items:
        if actions.by_id[item.pending_action_id].open:
            feedback = apply(actions, actions.by_id[item.pending_action_id], intent, person, at, together=True)
    refused = [item for item in items if actions.by_id[item.pending_action_id].reason == "refused"]
    if refused and intent == "cancel":
        lines = [f"🚫 {say('cancelled', item.language, preview=statement(item.preview))}" for item in refused]
        actions.say("\n".join(lines), tells=tuple(item.pending_action_id for item in refused))
    return feedback


def select(
    actions: ConversationActions,
    selects: Callable[[int], Selection | None],
    person: Person,
    said: BareReply,
    language: str,
) -> bool:
    """Apply a selection of questions from the list shown last. Return False for an ordinary message.

    Open questions outside the selection are shown again after the outcome.
    """
    items = [found for action_id in said.listed if (found := actions.get(action_id)) is not None]
    selection = selects(len(said.listed)) if len(said.listed) >= LEAST_ITEMS else None
    if selection is None or not any(item.open for item in items):
        return False
    if actions.changed_by(str(person)) in items:  # the number may be what they want instead
        return False
    meant = _meant(selection, items, said.intent)
    doubts = {entry.action_id: entry.doubted for entry in actions.index.open if entry.doubted is not None}
    if meant is None or len(items) < len(said.listed) or not said.decides_list(items, person, doubts):
        refused = selection.confirmed if said.intent == "cancel" else selection.refused
        actions.index = actions.index.doubted([said.listed[number - 1] for number in refused], actions.now)
        return _which(actions, actions.index.open, person, language)
    actions.note_decided(person, said.at)
    for intent, numbers in meant:
        named = [item for number, item in enumerate(items, start=1) if number in numbers]
        if named:
            feedback = _decide_items(actions, named, intent, person, said.at)
            say_feedback(actions, named[-1], feedback, language)
    left = [found for item in items if (found := actions.by_id[item.pending_action_id]).open and not found.votes]
    if left and said.intent is None:
        confirmed = [item for number, item in enumerate(items, start=1) if number in selection.confirmed]
        _show_left(actions, left, confirmed)
    return True


def _meant(
    selection: Selection, items: Sequence[PendingAction], intent: Intent | None
) -> Sequence[tuple[Intent, frozenset[int]]] | None:
    """Return the refused and the confirmed numbers of a selection; None in doubt.

    `intent`: the intent of a list about an ambiguous yes or no. The questions stand in short in this list.
    """
    if intent == "cancel":
        return None if selection.refused else [("cancel", selection.confirmed)]
    if selection.refused and any(item.verb in NO_VERBS for item in items):
        return None
    if intent == "confirm" and selection.confirmed and selection.everything and not all(map(is_shown_in_brief, items)):
        return None
    return [("cancel", selection.refused), ("confirm", selection.confirmed)]


def _show_left(actions: ConversationActions, left: Sequence[PendingAction], confirmed: Sequence[PendingAction]) -> None:
    """Show open questions again: after the outcome of the confirmed items of a single running plan, else at once."""
    running = [actions.by_id[item.pending_action_id] for item in confirmed]
    plans = {item.plan for item in running if item.state in ("approved", "running")}
    plan = plans.pop() if len(plans) == 1 else None
    if plan is None:
        show_once_more(actions, left)
    else:
        show_later(actions, plan, left)


def _ask_again(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime
) -> PressFeedback:
    """Have an ended action asked again, at the request of its requester only."""
    if not _is_requester(actions, action, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    lately = actions.index.approvers_refused(action.kind, action.requester, at)
    if transitions.was_refused(action) or lately is not None:
        index = actions.index.asked_again(action.kind, action.requester, at)
        if index is None:
            return PressFeedback(key="asked_often", language=action.language)
        actions.index = index
    actions.changes.again.append(action)
    return PressFeedback(key="one_moment", told=True)


def code(
    actions: ConversationActions,
    written: str,
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    remark: str = "",
) -> bool:
    """Apply a message of a word and a code. Return False for a code of no action here, or for a word that is no answer.

    `remark` holds the person's words beside a no.
    """
    entry = actions.index.by_code(written)
    if entry is None:
        return False
    return _answered(actions, [entry], reads, person, at, language, code=written, remark=remark)


def reply(
    actions: ConversationActions,
    message_id: str,
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    in_thread: bool = False,
) -> bool:
    """Apply a yes or no in reply to a prompt. Return False without an action in this message, or without a yes or no.

    `in_thread`: the reply stands in the thread beneath the prompt, possibly after another question. Only a no counts
    there; a yes may still count as a bare reply.
    """
    entries = actions.index.by_prompt(message_id)
    if len(entries) > 1:
        return _which(actions, entries, person, language)
    if in_thread and any(entry in actions.index.open for entry in entries):
        action = actions.get(entries[0].action_id)
        if action is None or reads(action.verb, action.language) != "cancel":
            return False
    changing = actions.changed_by(str(person)) if person is not None else None
    if changing is not None and [entry.action_id for entry in entries] == [changing.pending_action_id]:
        if reads(changing.verb, changing.language) != "unclear":
            ask_for_code(actions, changing)
            return True
        return False
    return bool(entries) and _answered(actions, entries, reads, person, at, language)


def word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    """Apply a bare reply in a private chat. Return False for an ordinary message.

    A no not accepted as a decision leaves the question to its button and its code, until the question is shown again.
    """
    mine = actions.open_for(str(person))
    if not mine:
        return _late_word(actions, reads, person, said, language)
    intents: set[Intent] = {read for action in mine if (read := reads(action.verb, action.language)) != "unclear"}
    intent = intents.pop() if len(intents) == 1 else None
    action, changing = mine[0], actions.changed_by(str(person)) is not None
    if len(mine) == 1 and intent is not None and not changing:
        entry = actions.index.get(action.pending_action_id)
        doubted = entry.doubted if entry is not None else None
        if said.decides(intent, action, person, doubted=doubted) or transitions.expired(action, said.at):
            say_feedback(actions, action, apply(actions, action, intent, person, said.at), language)
            return True
    if intent == "cancel":
        actions.index = actions.index.doubted([each.pending_action_id for each in mine], actions.now)
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language, intent=None if changing else intent)
    ask_for_code(actions, action)
    return True


def in_group(actions: ConversationActions, person: Person, language: str) -> bool:
    """Answer a bare reply in a group, without any decision. Only a person with the right to answer gets a reply.

    Return False if no action is open.
    """
    mine = _open_for(actions, person)
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    if mine:
        ask_for_code(actions, mine[0])
    return bool(actions.open)


def almost(actions: ConversationActions, person: Person, shown: Sequence[Showing], language: str) -> bool:
    """Answer a near answer, "ok" or a number, of an approver or the requester.

    `shown` are the bot's last messages. Return False if none of these messages consists only of a question to this
    person. Return False also while the person changes a question: the text is about another matter.
    """
    mine = _open_for(actions, person) if actions.changed_by(str(person)) is None else []
    ids = {action_id for showing in shown if showing.alone for action_id in (*showing.shows, *showing.listed)}
    if ids.isdisjoint(action.pending_action_id for action in mine):
        return False
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    ask_for_code(actions, mine[0], "almost")
    return True


def decide(actions: ConversationActions, action_id: str, intent: Intent, person: Person, at: datetime) -> PressFeedback:
    """Apply the decision of a trusted caller to the named action, and return the feedback.

    Raises PermissionError for a person without the right to decide, and KeyError for an action not loaded here.
    """
    action = actions.by_id[action_id]
    if not is_eligible(actions, action, intent, person, at):
        raise PermissionError(str(person))
    return apply(actions, action, intent, person, at, by_code=True)


def withdraw(
    actions: ConversationActions,
    person: str | None,
    at: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
) -> list[PendingAction]:
    """Close and return actions before their launch: all of a requester (stop, opt-out), or a single action by hand.

    `by` is the name of the operator. Only with an operator the person is notified here: a stop has an answer of its
    own.
    """
    withdrawn = [
        action
        for action in actions.by_id.values()
        if transitions.may_close(action)
        and (action.requester == person if action_id is None else action.pending_action_id == action_id)
    ]
    for action in withdrawn:
        if action.ballot_of is not None and not action.is_vote:  # the question itself, asked here instead
            report(actions, action, "cancel", at, voter=action.requester)
        close(actions, action, "withdrawn", at, by=by, tell="cancelled" if by else None)
    return withdrawn


def _answered(
    actions: ConversationActions,
    entries: Sequence[IndexEntry],
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    code: str = "",
    remark: str = "",
) -> bool:
    """Apply a reply to the first of these actions. Return False if the reply is no answer. `code`: the written code."""
    action = actions.get(entries[0].action_id)
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    if is_eligible(actions, action, intent, person, at):
        actions.note_decided(person, at)
        allows = action.standing is not None and action.standing.code == code
        feedback = apply(actions, action, intent, person, at, by_code=bool(code), remark=remark, allows=allows)
        say_feedback(actions, action, feedback, language)
    elif person is not None and str(person) == action.requester and not is_confirmed_here(action):
        ask_for_code(actions, action)  # tells whose approval it waits for
    return True


def _late_word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    entry = said.meant_of([entry for entry in actions.index.settled if _may_refuse(entry, person)])
    action = actions.get(entry.action_id) if entry is not None else None
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    say_feedback(actions, action, apply(actions, action, intent, person, said.at), language)
    return True


def _which(
    actions: ConversationActions,
    entries: Sequence[IndexEntry],
    person: Person | None,
    language: str,
    *,
    intent: Intent | None = None,
) -> bool:
    """Ask which action a reply means, among the actions within this person's rights.

    `intent`: the meaning of a number in answer to this list.
    """
    named = [found for entry in entries if (found := actions.get(entry.action_id)) is not None]
    mine = [action for action in named if person is not None and _may_answer(action, "cancel", person)]
    ask_which(actions, mine, language, intent=intent)
    return True


def _open_for(actions: ConversationActions, person: Person) -> list[PendingAction]:
    """Return the open actions that this person may answer in this conversation."""
    return [action for action in actions.open if _may_answer(action, "cancel", person)]


def _may_answer(action: PendingAction, intent: Intent, person: Person) -> bool:
    """Return True if this person may give this answer in the conversation of the action."""
    may_refuse = intent == "cancel" and str(person) == action.requester
    return may_refuse or transitions.approver_of(action, person) is not None


def _may_refuse(entry: IndexEntry, person: Person | None) -> bool:
    return person is not None and (str(person) == entry.requester or str(person) in entry.approvers)


def take_vote(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person,
    at: datetime,
    *,
    approver: str,
    digest: str,
    remark: str,
) -> PressFeedback:
    """Apply a vote given in the approver's own chat at this time, and return the feedback for the approver.

    `approver` is the asked person, or the place where `person` has voted. `digest` is the digest of the shown question.
    """
    if action.settled:
        return PressFeedback(key=outcome_key(action, at), language=action.language)
    if digest != action.digest or not _may_vote(action, intent, person, approver):
        refuse(actions, action, person, at)
        return PressFeedback(key="not_yours")
    return apply(actions, action, intent, person, at, by_code=True, remark=remark, approver=approver)


def _may_vote(action: PendingAction, intent: Intent, person: Person, approver: str) -> bool:
    """Return True if the list of the action still has this approver, and the person may vote as the approver."""
    if intent == "cancel" and str(person) == action.requester:
        return True
    is_barred = person.is_bot or (approver != str(person) and transitions.only_asks(action, str(person)))
    return not is_barred and transitions.may_approve(action, approver)


def is_eligible(
    actions: ConversationActions, action: PendingAction, intent: Intent, person: Person | None, at: datetime
) -> bool:
    """Return True if this person may give this answer; otherwise add the refusal to the audit."""
    if person is not None and not person.is_bot and _may_answer(action, intent, person):
        return True
    refuse(actions, action, person, at)
    return False


def refuse(actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime) -> None:
    """Add the refusal of this person to the audit."""
    actions.refused = True
    actions.put(action, "not_allowed", str(person) if person is not None else None, at)


def apply(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    *,
    by_code: bool = False,
    remark: str = "",
    together: bool = False,
    allows: bool = False,
    approver: str | None = None,
) -> PressFeedback:
    """Apply the decision of an eligible person to this action. `by_code`: the person has given the action's code.

    `together`: the caller reports the refusals of several actions in a single message. `allows`: a yes also gives the
    offered standing permission, at the launch. `approver`: the place of a vote given there; None: as in this chat.
    """
    if action.ballot_of is not None:
        return _pass_on(actions, action, intent, person, at, by_code=by_code, remark=remark)
    if person is not None and actions.changed_by(str(person)) == action:  # they answer it as it is
        actions.index = actions.index.changed_by(str(person), None)
    if action.settled or (action.state != "pending" and intent == "confirm") or action.state == "running":
        return PressFeedback(key=outcome_key(action, at), language=action.language)
    if close_if_drifted(actions, action, at) or (action.open and transitions.expired(action, at)):
        expire(actions, action.pending_action_id, at)
        ended = actions.by_id[action.pending_action_id]
        return PressFeedback(key=outcome_key(ended, at), language=ended.language, told=True)
    decider, name = (str(person), person.name) if person is not None else ("", None)
    if intent == "cancel":
        action = replace(action, remark=remark or None)
        tell = None if together else "cancelled_because" if remark else "cancelled"
        if action.approvers and decider != action.requester:
            actions.index = actions.index.refused_by_approver(action.kind, action.requester, at)
        close(actions, action, "refused", at, by=decider, name=name, tell=tell)
        return PressFeedback(key="pressed_no", told=True)
    if not by_code and action.open and action.filed:
        ask_for_code(actions, action)
        return PressFeedback(key="say_code", values={"code": action.code}, told=True)
    if approver is None and person is not None:
        approver = transitions.approver_of(action, person)
    decided = replace(transitions.approve(action, decider, name, at, approver=approver), allows=allows)
    actions.put(decided, "decided" if decided.state == "approved" else "voted", decider, at)
    if decided.state != "approved":
        return PressFeedback(key="pressed_vote", values={"count": len(decided.votes), "need": decided.need})
    launch_in_order(actions, decided, at)
    return PressFeedback(key="pressed_ok", told=True)


def _pass_on(
    actions: ConversationActions,
    ballot: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    *,
    by_code: bool,
    remark: str,
) -> PressFeedback:
    """Hand the vote of an eligible person over to the action of this ballot. The final answer comes from the action."""
    stays_open = has_several_voters(ballot)
    if ballot.settled or (ballot.vote == intent and not stays_open):
        return PressFeedback(key=outcome_key(ballot, at), language=ballot.language)
    if intent == "confirm" and not by_code and ballot.filed:
        ask_for_code(actions, ballot)
        return PressFeedback(key="say_code", values={"code": ballot.code}, told=True)
    voter, name = (str(person), person.name) if person is not None else ("", None)
    voted = replace(
        ballot,
        state="approved",
        vote=intent,
        decided_at=at,
        decided_by=voter,
        decided_name=name,
        remark=remark or None,
    )
    actions.put(ballot if stays_open else voted, "ballot_voted", voter, at)
    if intent == "cancel" and voter != ballot.requester:
        actions.index = actions.index.refused_by_approver(ballot.kind, ballot.requester, at)
    actions.changes.no_longer_due(voted, "undelivered")
    report(actions, voted, intent, at, name=name, voter=voter)
    return PressFeedback(key="vote_passed_on", told=True)
