"""Deciding: the effect of a press, a code, a reply or a bare word on the actions of a conversation.

`language` is the language of the person who is answered. Sentences about an action are in the action's own language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from channels import Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import IndexEntry
from gateway.pending.prompt import brief, code_only, statement, what_became
from gateway.pending.prompting import ask_for_code
from gateway.pending.reading import Answer
from gateway.pending.settling import close, close_if_drifted, expire
from gateway.pending.tokens import token_sha256
from gateway.pending.words import Intent, safe_words
from gateway.tools.escape import plain
from gateway.tools.pending_action import PendingAction
from gateway.wording import say

__all__ = ["PressFeedback", "Reads", "code", "decide", "in_group", "press", "reply", "withdraw", "word"]

Reads: TypeAlias = Callable[[str | None, str], Answer]
"""Return how a message reads to a question of this verb, which was asked in this language."""

_LAUNCH_GRACE = timedelta(seconds=5)
"""A launch that is under way when the approval becomes too old comes first."""


@dataclass(frozen=True, slots=True)
class PressFeedback:
    """The answer to a decision.

    `text` goes back to the presser alone, at once. An answer to words is said in the chat, unless `told`: the chat has
    been told already.
    """

    text: str
    told: bool = False


def press(
    actions: ConversationActions, action_id: str, token: str, person: Person | None, at: datetime, language: str
) -> PressFeedback:
    """Take a press of a button, and return what the presser alone is told."""
    action = actions.get(action_id)
    known = action.tokens if action is not None else ()
    intent = next((token_of.intent for token_of in known if token_of.sha256 == token_sha256(token)), None)
    if action is None or intent is None:
        return PressFeedback(say("unknown_button", language))
    if intent == "again":
        return _ask_again(actions, action, person, at, language)
    if not _eligible(actions, action, intent, person, at):
        return PressFeedback(say("not_yours", language))
    actions.note_decided(person, at)
    return _decide(actions, action, intent, person, at, language)


def _ask_again(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime, language: str
) -> PressFeedback:
    """Have an action that has ended asked anew, by the person who asked for it."""
    if person is None or person.is_bot or str(person) != action.requester:
        actions.refused = True
        actions.put(action, "not_allowed", str(person) if person is not None else None, at)
        return PressFeedback(say("not_yours", language))
    actions.note_decided(person, at)
    actions.changes.again.append(action)
    return PressFeedback(say("one_moment", language), told=True)


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
    """Take a whole message of word and code. False when it is no answer to an action of this conversation.

    `remark` is what the person says beside a no.
    """
    entry = actions.index.by_code(written)
    return entry is not None and _answered(actions, [entry], reads, person, at, language, by_code=True, remark=remark)


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
    """Take a yes or no in reply to a prompt of ours. False when that message asked nothing.

    `in_thread`: not to the prompt itself, but somewhere beneath it, where something else may have been asked since:
    a yes is then no answer yet, but a word like any other.
    """
    entries = actions.index.by_prompt(message_id)
    if len(entries) > 1:
        return _which(actions, [entry for entry in entries if _may_refuse(entry, person)], language)
    if in_thread and any(entry in actions.index.open for entry in entries):
        action = actions.get(entries[0].action_id)
        if action is None or reads(action.verb, action.language) != "cancel":
            return False
    return bool(entries) and _answered(actions, entries, reads, person, at, language)


def word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    """Take a message that is nothing but an answer, in a one-to-one chat. False when it is an ordinary one here."""
    actions.check_all_are_known()
    mine = actions.open_for(str(person))
    if not mine:
        return _late_word(actions, reads, person, said, language)
    if len(mine) > 1:
        return _which(actions, [entry for entry in actions.index.open if _may_refuse(entry, person)], language)
    action, intent = mine[0], reads(mine[0].verb, mine[0].language)
    if intent != "unclear" and (said.decides(intent, action, person) or transitions.expired(action, said.at)):
        _say_feedback(actions, action, _decide(actions, action, intent, person, said.at, language))
    else:
        ask_for_code(actions, action)
    return True


def in_group(actions: ConversationActions, person: Person, language: str) -> bool:
    """Answer a message of a group that is nothing but an answer: it decides nothing there.

    Only a person who may decide is answered. False when nothing is open.
    """
    mine = actions.open_for(str(person))
    if len(mine) > 1:
        return _which(actions, [entry for entry in actions.index.open if _may_refuse(entry, person)], language)
    if mine:
        ask_for_code(actions, mine[0])
    return bool(actions.open)


def decide(
    actions: ConversationActions, action_id: str, intent: Intent, person: Person, at: datetime, language: str
) -> PressFeedback:
    """Take a decision that names its action outright and comes from a trusted caller, not from a chat.

    Raises PermissionError for the wrong person and KeyError for an action that is not here.
    """
    action = actions.by_id[action_id]
    if not _eligible(actions, action, intent, person, at):
        raise PermissionError(str(person))
    return _decide(actions, action, intent, person, at, language, by_code=True)


def withdraw(
    actions: ConversationActions,
    person: str | None,
    at: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
) -> list[PendingAction]:
    """Close what has not been launched: all of a requester (a stop, an opt-out), or one action by hand.

    `by` names whose hand that was; only then the person is told here: a stop has an answer of its own.
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


def _eligible(
    actions: ConversationActions, action: PendingAction, intent: Intent, person: Person | None, at: datetime
) -> bool:
    may = transitions.may_refuse if intent == "cancel" else transitions.may_approve
    if person is not None and not person.is_bot and may(action, str(person)):
        return True
    actions.refused = True
    actions.put(action, "not_allowed", str(person) if person is not None else None, at)
    return False


def _decide(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    by_code: bool = False,
    remark: str = "",
) -> PressFeedback:
    """Take a decision by somebody eligible, of exactly this action; `by_code`: it proves that its code was read."""
    if action.settled or (action.state != "pending" and intent == "confirm") or action.state == "running":
        return PressFeedback(what_became(action, at))
    if close_if_drifted(actions, action, at) or (action.open and transitions.expired(action, at)):
        expire(actions, action.pending_action_id, at)
        return PressFeedback(what_became(actions.by_id[action.pending_action_id], at), told=True)
    who, name = (str(person), person.name) if person is not None else ("", None)
    if intent == "cancel":
        action = replace(action, remark=remark or None)
        close(actions, action, "refused", at, by=who, name=name, tell="cancelled_because" if remark else "cancelled")
        return PressFeedback(say("pressed_no", language), told=True)
    if not by_code and action.open and code_only(action):
        ask_for_code(actions, action)
        return PressFeedback(say("say_code", language, code=action.code), told=True)
    decided = transitions.approve(action, who, name, at)
    actions.put(decided, "decided" if decided.state == "approved" else "voted", who, at)
    if decided.state != "approved":
        return PressFeedback(say("pressed_vote", language, count=len(decided.votes), need=decided.need))
    actions.changes.no_longer_due(action, "expiry", "undelivered")
    actions.changes.due("unlaunched", action, at + transitions.APPROVED_FOR + _LAUNCH_GRACE)
    actions.changes.approved.append(action.pending_action_id)
    return PressFeedback(say("pressed_ok", language), told=True)


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
    if _eligible(actions, action, intent, person, at):
        actions.note_decided(person, at)
        feedback = _decide(actions, action, intent, person, at, language, by_code=by_code, remark=remark)
        _say_feedback(actions, action, feedback)
    return True


def _say_feedback(actions: ConversationActions, action: PendingAction, feedback: PressFeedback) -> None:
    """Answer words in the chat; an approval speaks for itself once it has run."""
    if not feedback.told:
        text = f"{plain(feedback.text)}\n\n{statement(action.preview)}"
        actions.say(text, tells=(action.pending_action_id,))


def _late_word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    entry = said.meant_of([entry for entry in actions.index.settled if _may_refuse(entry, person)])
    action = actions.get(entry.action_id) if entry is not None else None
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    _say_feedback(actions, action, _decide(actions, action, intent, person, said.at, language))
    return True


def _which(actions: ConversationActions, entries: Sequence[IndexEntry], language: str) -> bool:
    """Ask which of those that this person may answer they mean."""
    found = [action for entry in entries if (action := actions.get(entry.action_id)) is not None]
    waiting = [action for action in found if action.open]
    actions.near = " ".join(action.pending_action_id for action in waiting)
    if waiting:
        yes_word, _ = map(actions.letters, safe_words(language))
        lines = [f"{number}. {brief(action.preview)} ({action.code})" for number, action in enumerate(waiting, 1)]
        question = say("several_open", language, actions.letters, yes_word=yes_word, code=waiting[0].code)
        actions.say("\n".join([question, "", *lines]))
    elif found:
        actions.say(what_became(found[0], actions.now))
    return True


def _may_refuse(entry: IndexEntry, person: Person | None) -> bool:
    return person is not None and (str(person) == entry.requester or str(person) in entry.approvers)
