"""Deciding: the effect of a press, a code, a reply or a bare reply on the actions of a conversation.

A press and a call return their feedback, which the caller words. A reply is answered in the chat at once: `language` is
the language of its writer. Sentences about an action are in the action's own language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from channels import Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions, in_order
from gateway.pending.applying import apply, is_eligible, refuse
from gateway.pending.bare_reply import BareReply
from gateway.pending.feedback import PressFeedback
from gateway.pending.index import IndexEntry
from gateway.pending.plans import items_of
from gateway.pending.prompt import is_confirmed_here, outcome_key, statement
from gateway.pending.prompting import ask_for_code, ask_which, say_feedback, show_once_more
from gateway.pending.reading import Answer
from gateway.pending.selecting import LEAST_ITEMS, Selection
from gateway.pending.settling import close, close_if_drifted, expire
from gateway.pending.standing import give
from gateway.pending.tokens import token_sha256
from gateway.pending.words import Intent
from gateway.tools.confirm import NO_VERBS
from gateway.tools.pending_action import PendingAction
from gateway.wording import say

__all__ = ["Reads", "code", "decide", "in_group", "press", "reply", "select", "withdraw", "word"]

Reads: TypeAlias = Callable[[str | None, str], Answer]
"""Return the answer that a message gives to a question of this verb, asked in this language."""


def press(
    actions: ConversationActions, action_id: str, token: str, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply the press of a button, and return the feedback for the presser."""
    action = actions.get(action_id)
    known = action.tokens if action is not None else ()
    intent = next((token_of.intent for token_of in known if token_of.sha256 == token_sha256(token)), None)
    if action is None or intent is None:
        return PressFeedback(key="unknown_button")
    if intent == "again":
        return _ask_again(actions, action, person, at)
    if intent == "standing":
        return _press_standing(actions, action, person, at)
    if intent == "change":
        return _change(actions, action, person, at)
    if intent == "confirm_all" or intent == "cancel_all":
        return _press_all(actions, action, "confirm" if intent == "confirm_all" else "cancel", person, at)
    if not is_eligible(actions, action, intent, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return apply(actions, action, intent, person, at)


def _press_standing(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime
) -> PressFeedback:
    """Confirm an action and give the standing permission that its prompt offers."""
    if not is_eligible(actions, action, "confirm", person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    feedback = apply(actions, action, "confirm", person, at)
    if feedback.key == "pressed_ok":
        give(actions, action, at)
    return feedback


def _change(actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime) -> PressFeedback:
    """Ask the requester how an open action is to be changed. Their next message goes to the model with it."""
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
    actions: ConversationActions, action: PendingAction, intent: Intent, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply the press of a button for all items of a plan to the open ones that this person may answer."""
    items = [item for item in items_of(actions, action.plan or "") if item.open] or [action]
    may = transitions.may_refuse if intent == "cancel" else transitions.may_approve
    mine = [item for item in items if person is not None and may(item, str(person))]
    if not is_eligible(actions, (mine or items)[0], intent, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return _decide_items(actions, mine, intent, person, at)


def _decide_items(
    actions: ConversationActions, items: Sequence[PendingAction], intent: Intent, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply one answer of an eligible person to several items, and return the feedback on the last one.

    All that are refused are told in one message.
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
    """Apply a message that names items of the plan that was shown last. Returns False if it is an ordinary message.

    Open items that it does not name are shown again.
    """
    actions.check_all_are_known()
    shown = said.last.shows if said.last is not None else frozenset()
    items = in_order([actions.by_id[each] for each in shown if each in actions.by_id])
    selection = selects(len(items)) if len(items) >= LEAST_ITEMS else None
    if selection is None or not any(item.open for item in items):
        return False
    doubtful = selection.refused and any(item.verb in NO_VERBS for item in items)
    if doubtful or not said.decides_plan(items, person):
        return _which(actions, actions.index.open, person, language)
    actions.note_decided(person, said.at)
    chosen: tuple[tuple[Intent, frozenset[int]], ...] = (
        ("cancel", frozenset(selection.refused)),
        ("confirm", frozenset(selection.confirmed)),
    )
    for intent, numbers in chosen:
        named = [item for number, item in enumerate(items, start=1) if number in numbers]
        if named:
            feedback = _decide_items(actions, named, intent, person, said.at)
            say_feedback(actions, named[-1], feedback, language)
    left = [found for item in items if (found := actions.by_id[item.pending_action_id]).open and not found.votes]
    if left:
        show_once_more(actions, left)
    return True


def _ask_again(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime
) -> PressFeedback:
    """Have an ended action asked anew. Only its requester may do that."""
    if not _is_requester(actions, action, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
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
    """Apply a message of a word and a code. Returns False if it answers no action of this conversation.

    `remark` holds the person's words beside a no.
    """
    entry = actions.index.by_code(written)
    if entry is None:
        return False
    approved = len(actions.changes.approved)
    answered = _answered(actions, [entry], reads, person, at, language, by_code=True, remark=remark)
    if written == entry.standing_code and len(actions.changes.approved) > approved:
        give(actions, actions.by_id[entry.action_id], at)
    return answered


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
    """Apply a yes or no in reply to a prompt. Returns False if that message asked about no action.

    `in_thread`: it stands in the thread beneath the prompt, where another question may have been asked since. Only a no
    counts there; a yes may still count as a bare reply.
    """
    entries = actions.index.by_prompt(message_id)
    if len(entries) > 1:
        return _which(actions, entries, person, language)
    if in_thread and any(entry in actions.index.open for entry in entries):
        action = actions.get(entries[0].action_id)
        if action is None or reads(action.verb, action.language) != "cancel":
            return False
    return bool(entries) and _answered(actions, entries, reads, person, at, language)


def word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    """Apply a bare reply, in a one-to-one chat. Returns False if it is an ordinary message here."""
    actions.check_all_are_known()
    mine = actions.open_for(str(person))
    if not mine:
        return _late_word(actions, reads, person, said, language)
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    action, intent = mine[0], reads(mine[0].verb, mine[0].language)
    if intent != "unclear" and (said.decides(intent, action, person) or transitions.expired(action, said.at)):
        say_feedback(actions, action, apply(actions, action, intent, person, said.at), language)
    else:
        ask_for_code(actions, action)
    return True


def in_group(actions: ConversationActions, person: Person, language: str) -> bool:
    """Answer a bare reply in a group, where it decides no action. Only a person who may answer gets a reply.

    Returns False if no action is open.
    """
    mine = actions.open_for(str(person))
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    if mine:
        ask_for_code(actions, mine[0])
    return bool(actions.open)


def decide(actions: ConversationActions, action_id: str, intent: Intent, person: Person, at: datetime) -> PressFeedback:
    """Apply the decision of a trusted caller, which names its action, and return the feedback.

    Raises PermissionError for a person that may not decide it, and KeyError for an action that is not here.
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
    """Close actions before their launch, and return them: all of a requester (a stop, an opt-out), or one by hand.

    `by` is the name of the operator. Only with it the person is told here, because a stop has an answer of its own.
    """
    withdrawn = [
        action
        for action in actions.by_id.values()
        if transitions.may_close(action)
        and (action.requester == person if action_id is None else action.pending_action_id == action_id)
    ]
    for action in withdrawn:
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
    by_code: bool = False,
    remark: str = "",
) -> bool:
    action = actions.get(entries[0].action_id)
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    if is_eligible(actions, action, intent, person, at):
        actions.note_decided(person, at)
        feedback = apply(actions, action, intent, person, at, by_code=by_code, remark=remark)
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


def _which(actions: ConversationActions, entries: Sequence[IndexEntry], person: Person | None, language: str) -> bool:
    """Ask which action a reply means, among the ones that this person may answer."""
    named = [actions.get(entry.action_id) for entry in entries if _may_refuse(entry, person)]
    ask_which(actions, [action for action in named if action is not None], language)
    return True


def _may_refuse(entry: IndexEntry, person: Person | None) -> bool:
    return person is not None and (str(person) == entry.requester or str(person) in entry.approvers)
