"""Defects to plant one at a time. The machine must find each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from channels import ButtonPress, Message, Person
from gateway.engine.decisions import judging
from gateway.engine.decisions.judging import Judge, Judgement
from gateway.engine.execution.effects import Effects
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.intake import inbox
from gateway.engine.messages import is_typed
from gateway.engine.tool_locks import HeldLock
from gateway.engine.turns import bare_replies, questions
from gateway.engine.turns.bare_replies import BareReplyHandler
from gateway.engine.turns.questions import Questions
from gateway.pending import (
    ballots,
    deciding,
    loading,
    plans,
    prompting,
    propose,
    selecting,
    settling,
    standing,
    transitions,
)
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.changes import Changes
from gateway.pending.index import Index
from gateway.pending.loading import Counters
from gateway.pending.prompt import statement
from gateway.pending.reading import decides
from gateway.pending.seal import Keyring
from gateway.pending.selecting import Selection
from gateway.pending.tokens import token_partition, token_sha256
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming, Key, QueuedPart
from gateway.tools.locks import Lock
from gateway.tools.pending_action import PendingAction
from gateway.tools.tool import Tool
from gateway.wording import say

__all__ = ["OF_ACTIONS", "OF_ALLOWING", "OF_APPROVING", "OF_CHANGING", "OF_PLANNING", "OF_TAKING_BACK"]


def seal_off(patch: pytest.MonkeyPatch) -> None:
    """A changed record passes as genuine."""
    patch.setattr(Keyring, "key_of", lambda self, purpose, context, text, mac: 0)


def window_ignored(patch: pytest.MonkeyPatch) -> None:
    """A late yes counts."""
    patch.setattr(transitions, "expired", lambda action, at: False)
    patch.setattr(settling, "expire", lambda actions, action_id, at: None)
    patch.setattr(deciding, "expire", lambda actions, action_id, at: None)


def launch_twice(patch: pytest.MonkeyPatch) -> None:
    """A launch of a dead worker is repeated, for any tool."""

    async def no_end(self: Effects, action: PendingAction) -> None:
        return None

    patch.setattr(Effects, "after_a_death", no_end)


def late_end_dropped(patch: pytest.MonkeyPatch) -> None:
    """The result of a call that outlasted its timeout is dropped."""

    async def thrown_away(self: ActionExecutor, action: PendingAction, coming: Any) -> None:
        await coming

    patch.setattr(ActionExecutor, "_settle_late", thrown_away)


def lock_freed_early(patch: pytest.MonkeyPatch) -> None:
    """A lock is free at its holder's timeout, in the process and in the store."""
    for kind in (Lock, HeldLock):
        patch.setattr(kind, "leave_to", lambda self, call: None)


def twin_accepted(patch: pytest.MonkeyPatch) -> None:
    """A redelivered event is a new event."""
    numbers = itertools.count()
    for kind in (SqliteStore, RedisStore):
        real: Any = kind.accept

        async def accept(self: Any, events: Sequence[Incoming], real: Any = real) -> Any:
            return await real(self, [replace(event, event_ids=(f"new {next(numbers)}",)) for event in events])

        patch.setattr(kind, "accept", accept)


def token_of_another_chat(patch: pytest.MonkeyPatch) -> None:
    """A button counts in any chat."""

    async def pressed(self: Judge, conversation: str, press: ButtonPress, at: datetime) -> Judgement:
        key = Key(str(token_partition(press.token)), f"token/{token_sha256(press.token)}")
        found: Any = (await self._context.store.get([key]))[key].value
        actions = await self._context.actions(found["conversation"], found["action_id"])
        feedback = deciding.press(actions, found["action_id"], press.token, press.person, at)
        return Judgement(actions, True, feedback.text("en"), feedback.told)

    patch.setattr(Judge, "_pressed", pressed)


def event_of_another_person(patch: pytest.MonkeyPatch) -> None:
    """Any person may say yes."""
    patch.setattr(transitions, "may_approve", lambda action, person: True)
    patch.setattr(transitions, "may_refuse", lambda action, person: True)


def index_trusted(patch: pytest.MonkeyPatch) -> None:
    """The index of a conversation is trusted without a seal check."""
    real: Any = Keyring.key_of

    def key_of(self: Keyring, purpose: str, context: str, text: str, mac: str) -> Any:
        return 0 if context.startswith("open/") else real(self, purpose, context, text, mac)

    patch.setattr(Keyring, "key_of", key_of)


def head_counter_off(patch: pytest.MonkeyPatch) -> None:
    """An old record of the gateway counts as the newest."""
    real: Any = loading._judged

    def judged(*args: Any) -> Any:
        action, verdict = real(*args)
        return action, "held" if action is not None else verdict

    patch.setattr(loading, "_judged", judged)
    patch.setattr(Counters, "is_old", lambda self, conversation, counter: False)


def order_check_off(patch: pytest.MonkeyPatch) -> None:
    """A bare word counts as written after the question, against the platform's order."""

    async def written(self: BareReplyHandler, *args: Any) -> str:
        return "after"

    patch.setattr(BareReplyHandler, "_written", written)


def preview_not_compared(patch: pytest.MonkeyPatch) -> None:
    """The preview is not compared before the launch."""
    patch.setattr(Tool, "compares", lambda self, action: False)


def showings_unlimited(patch: pytest.MonkeyPatch) -> None:
    """A question is shown again without a limit."""
    patch.setattr(prompting, "_RESHOWN_AT_MOST", 1000)


def command_read_as_text(patch: pytest.MonkeyPatch) -> None:
    """A message with a command is read as if without the command."""

    def bare(event: Any) -> Any:
        is_command = isinstance(event, Message) and event.command != "stop"
        return replace(event, command=None) if is_command else event

    patch.setattr(judging, "is_typed", lambda message: is_typed(bare(message)))
    patch.setattr(inbox, "decides", lambda event, lang: decides(bare(event), lang))


# ── approvers in their own chats, plans, changed questions and standing permissions ──


def vote_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """The second yes of a person counts as another person's yes."""
    real: Any = transitions.approve

    def approve(action: PendingAction, *args: Any) -> PendingAction:
        others = tuple(replace(vote, person=f"{vote.person}?") for vote in action.votes)
        approved: PendingAction = real(replace(action, votes=others), *args)
        return approved

    patch.setattr(transitions, "approve", approve)


def removed_approver_counts(patch: pytest.MonkeyPatch) -> None:
    """The approvers of the question count, even after removal."""
    patch.setattr(propose, "asks_more", lambda rule, action: False)


def ballot_left_open(patch: pytest.MonkeyPatch) -> None:
    """The end of an action is not handed over to the ballots."""
    patch.setattr(settling, "end_ballots", lambda actions, action, at: None)


def handed_over_twice(patch: pytest.MonkeyPatch) -> None:
    """A handed-over event arrives twice, as two events."""
    real: Any = Changes.hand_over

    def hand_over(self: Changes, conversation: str, event: Any, at: datetime) -> None:
        for event_id in (event.event_id, f"{event.event_id}/again"):
            real(self, conversation, replace(event, event_id=event_id), at)

    patch.setattr(Changes, "hand_over", hand_over)


def no_of_an_approver_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A no from another chat does not reach the action."""
    real: Any = ballots.report

    def report(actions: ConversationActions, ballot: PendingAction, what: str, *args: Any, **more: Any) -> None:
        if what != "cancel":
            real(actions, ballot, what, *args, **more)

    patch.setattr(deciding, "report", report)


def requester_approves(patch: pytest.MonkeyPatch) -> None:
    """The requester is always an approver."""
    real: Any = transitions.may_approve
    patch.setattr(transitions, "may_approve", lambda action, person: person == action.requester or real(action, person))


def other_item_selected(patch: pytest.MonkeyPatch) -> None:
    """An unnamed item runs."""
    real: Any = selecting.read_selection

    def read(*given: Any) -> Selection | None:
        found: Selection | None = real(*given)
        return Selection(found.confirmed | {2}, found.refused - {2}) if found is not None and found.confirmed else found

    patch.setattr(bare_replies, "read_selection", read)


def items_at_once(patch: pytest.MonkeyPatch) -> None:
    """The items of a plan do not wait for each other."""
    patch.setattr(plans, "is_next", lambda actions, action: True)


def button_takes_the_whole_plan(patch: pytest.MonkeyPatch) -> None:
    """The button for all of a message also decides items shown in other messages of the plan."""
    real: Any = deciding._press_all

    def press(actions: ConversationActions, ids: Sequence[str], *more: Any) -> Any:
        plan = actions.by_id[ids[0]].plan
        return real(actions, [*ids, *(item.pending_action_id for item in plans.items_of(actions, plan or ""))], *more)

    patch.setattr(deciding, "_press_all", press)


def numbers_without_receipts(patch: pytest.MonkeyPatch) -> None:
    """The numbers of a list count although some messages of the list have not arrived."""

    async def none_queued(self: BareReplyHandler, conversation: str, at: datetime) -> list[QueuedPart]:
        return []

    def decides_list(self: BareReply, items: Sequence[PendingAction], person: Person, doubts: Any) -> bool:
        intent = self.intent or "confirm"
        there = [item for item in items if item.open and item.shown_at is not None]
        return all(self._decides(intent, item, person, each) for item in there for each in self.shown[-1:])

    patch.setattr(BareReplyHandler, "_queued_before", none_queued)
    patch.setattr(BareReply, "decides_list", decides_list)


def held_end_dropped(patch: pytest.MonkeyPatch) -> None:
    """The held ends of a plan are lost when the last item ends in silence."""
    real: Any = plans.release

    def release(actions: ConversationActions, action: PendingAction, text: str, *, late: bool = False) -> Any:
        told = real(actions, action, text, late=late)
        return told if text or late else ("", (), ())

    patch.setattr(settling, "release", release)


def no_in_a_list_confirms(patch: pytest.MonkeyPatch) -> None:
    """A number in answer to the list about cancelling confirms."""
    real: Any = deciding._meant
    patch.setattr(deciding, "_meant", lambda selection, items, intent: real(selection, items, intent and "confirm"))


def replaced_still_runs(patch: pytest.MonkeyPatch) -> None:
    """A replaced question stays open."""
    patch.setattr(questions, "close_replaced", lambda actions, action: False)


def words_decide_while_changing(patch: pytest.MonkeyPatch) -> None:
    """A bare word decides a question during a change by the same person."""
    real: Any = deciding.word

    def word(actions: ConversationActions, *more: Any) -> Any:
        actions.changed_by = lambda person: None  # type: ignore[method-assign]
        return real(actions, *more)

    patch.setattr(deciding, "word", word)


def taken_back_still_runs(patch: pytest.MonkeyPatch) -> None:
    """A question taken back stays open, although the person reads of the withdrawal."""

    def take_back(
        actions: ConversationActions, action_ids: Sequence[str], person: str, new: Any
    ) -> list[PendingAction]:
        for action in [actions.by_id[action_id] for action_id in action_ids]:
            actions.say(say("taken_back", action.language, preview=statement(action.preview)))
        return []

    patch.setattr(questions, "take_back", take_back)


def brake_off(patch: pytest.MonkeyPatch) -> None:
    """Approvers are asked the like right after a refusal."""
    patch.setattr(Index, "approvers_refused", lambda self, kind, requester, now: None)


def uses_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A permission is never used up."""

    def kept(value: Any, **fields: Any) -> Any:
        return replace(value, **{name: new for name, new in fields.items() if name != "used"})

    patch.setattr(standing, "replace", kept)


def permission_of_another(patch: pytest.MonkeyPatch) -> None:
    """A permission is good for all people of the conversation."""
    real, covered = standing.permissions_of, standing.covers
    patch.setattr(standing, "permissions_of", lambda actions, person=None: real(actions))
    patch.setattr(
        standing,
        "covers",
        lambda giver, action, tool: covered(replace(giver, requester=action.requester), action, tool),
    )


def permission_for_everything(patch: pytest.MonkeyPatch) -> None:
    """The fixed arguments are not compared."""
    patch.setattr(standing, "canonical_json", lambda value: "")


def permission_without_bound(patch: pytest.MonkeyPatch) -> None:
    """A bounded argument may be any number."""
    patch.setattr(standing, "_are_bounded", lambda values, args, offer: True)


def permission_told_as_done(patch: pytest.MonkeyPatch) -> None:
    """A permitted call is reported as done before the call is done."""

    def told(key: str, language: str | None, *letters: Any, **values: object) -> str:
        return say("permitted_done" if key == "permitted" else key, language, *letters, **values)

    patch.setattr(standing, "say", told)


def permission_of_another_preview(patch: pytest.MonkeyPatch) -> None:
    """The precondition of a preview is not compared with the allowed one."""
    patch.setattr(standing, "changed", lambda asked, now: False)


def permission_of_a_drifted_yes(patch: pytest.MonkeyPatch) -> None:
    """A yes to a drifted preview still gives the permission."""
    real: Any = settling._close_drifted

    def close_drifted(actions: ConversationActions, action: PendingAction, at: datetime, detail: Any) -> None:
        real(actions, action, at, detail)
        standing.give(actions, actions.by_id[action.pending_action_id], at)

    patch.setattr(settling, "_close_drifted", close_drifted)


def permission_for_what_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A permission covers a call that a person has pressed to ask again."""

    def is_permitted(self: Questions, actions: ConversationActions, ending: Any, action: PendingAction) -> bool:
        return standing.use(actions, action, self.context.bot.tool_for(action), heard=actions.now)

    patch.setattr(Questions, "_is_permitted", is_permitted)


def permission_for_a_child(patch: pytest.MonkeyPatch) -> None:
    """A permission covers a replacement of a question."""

    def giver(actions: ConversationActions, action: PendingAction, tool: Tool) -> PendingAction | None:
        held = standing.permissions_of(actions, action.requester)
        return next((each for each in held if standing.covers(each, action, tool)), None)

    patch.setattr(standing, "_giver", giver)


def permission_for_a_repetition(patch: pytest.MonkeyPatch) -> None:
    """A permission covers the same call again and again."""
    patch.setattr(standing, "_repeats", lambda giver, action, heard: False)


def permission_not_revoked(patch: pytest.MonkeyPatch) -> None:
    """/stop reports the permissions as ended, and keeps them."""
    patch.setattr(standing, "revoke", lambda actions, person, at, **how: [])


def permission_without_end(patch: pytest.MonkeyPatch) -> None:
    """A permission ends only by its uses."""

    def holds(giver: PendingAction, now: datetime) -> bool:
        grant, offer = giver.grant, giver.standing
        return grant is not None and offer is not None and len(grant.used) < offer.uses

    patch.setattr(standing, "_holds", holds)
    patch.setattr(standing, "_drop_ended", lambda actions, at: None)


Plant = Callable[[pytest.MonkeyPatch], None]

OF_ACTIONS: tuple[Plant, ...] = (
    command_read_as_text,
    event_of_another_person,
    head_counter_off,
    index_trusted,
    late_end_dropped,
    launch_twice,
    lock_freed_early,
    order_check_off,
    preview_not_compared,
    seal_off,
    showings_unlimited,
    token_of_another_chat,
    twin_accepted,
    window_ignored,
)
OF_APPROVING: tuple[Plant, ...] = (
    ballot_left_open,
    brake_off,
    handed_over_twice,
    no_of_an_approver_forgotten,
    removed_approver_counts,
    requester_approves,
    vote_counted_twice,
)
OF_PLANNING: tuple[Plant, ...] = (
    button_takes_the_whole_plan,
    held_end_dropped,
    items_at_once,
    no_in_a_list_confirms,
    numbers_without_receipts,
    other_item_selected,
)
OF_CHANGING: tuple[Plant, ...] = (replaced_still_runs, words_decide_while_changing)
OF_TAKING_BACK: tuple[Plant, ...] = (taken_back_still_runs,)
OF_ALLOWING: tuple[Plant, ...] = (
    permission_for_a_child,
    permission_for_a_repetition,
    permission_for_everything,
    permission_for_what_is_asked_again,
    permission_not_revoked,
    permission_of_a_drifted_yes,
    permission_of_another,
    permission_of_another_preview,
    permission_told_as_done,
    permission_without_bound,
    permission_without_end,
    uses_not_counted,
)
