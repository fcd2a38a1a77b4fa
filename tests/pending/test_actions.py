"""The actions on a real store: shown, decided, launched, ended, and announced to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gateway.pending import deciding, prompting, settling
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import Showing
from gateway.pending.seal import Keyring
from gateway.store.errors import Conflict
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from gateway.tools.pending_action import PendingAction
from tests.pending.records import ANA, BOB, EVA, GROUP, Table, make_tool, said


def reads(intent: Any) -> deciding.Reads:
    """Words with this intent for a question of any verb."""
    return lambda verb, asked: intent


# ── windows ──


async def test_windows_begin_with_the_receipt_and_end_by_a_timer(private: Table) -> None:
    action = await private.ask()
    assert (action.shown_at, action.expires_at) == (None, None)
    private.later(300)
    at = await private.deliver(action)
    shown = await private.read(action.pending_action_id)
    assert (shown.shown_at, shown.expires_at) == (at, at + timedelta(seconds=900))
    private.later(901)
    await private.store.run_timers()
    (expiry,) = await private.store.pending_decisions(private.conversation)
    assert (expiry.body["kind"], expiry.stamp) == ("expiry", shown.expires_at)
    actions = await private.actions()
    settling.expire(actions, action.pending_action_id, expiry.stamp)
    assert said(actions) == [
        "This has expired and nothing was done. Ask again if you still want it: Delete invoice INV\\-42"
    ]
    await private.write(actions)
    assert (await private.read(action.pending_action_id)).reason == "expired"


async def test_expiry_before_the_deadline_changes_no_action(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    settling.expire(actions, action.pending_action_id, actions.now)
    assert actions.open and not actions.says


@pytest.mark.parametrize(("first", "ends"), [("answer", "approved"), ("timer", "closed")])
async def test_at_the_deadline_itself_the_first_event_decides(private: Table, first: str, ends: str) -> None:
    action = await private.asked()
    assert action.expires_at is not None
    actions = await private.actions()
    for event in ("answer", "timer") if first == "answer" else ("timer", "answer"):
        if event == "timer":
            settling.expire(actions, action.pending_action_id, action.expires_at)
        else:
            deciding.decide(actions, action.pending_action_id, "confirm", ANA, action.expires_at)
    assert actions.by_id[action.pending_action_id].state == ends


async def test_a_prompt_that_never_arrived_ends_the_action(private: Table) -> None:
    action = await private.ask()
    private.later(601)
    await private.store.run_timers()
    (event,) = await private.store.pending_decisions(private.conversation)
    assert event.body["kind"] == "undelivered"
    actions = await private.actions()
    settling.close_undelivered(actions, action.pending_action_id, event.stamp)
    await private.write(actions)
    assert (await private.read(action.pending_action_id)).reason == "undelivered"
    actions = await private.actions()
    shows = frozenset({action.pending_action_id})
    showing = Showing(at=actions.now, queued=actions.now, shows=shows, message_id="late")
    prompting.note_arrived(actions, showing)
    (edit,) = actions.says
    assert (edit.reply.edits, edit.reply.buttons) == ("late", ())
    assert "did not arrive in time" in edit.reply.text


async def test_delivered_question_cannot_become_undelivered(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    settling.close_undelivered(actions, action.pending_action_id, actions.now + timedelta(hours=1))
    assert [each.state for each in actions.open] == ["pending"]


@pytest.mark.parametrize("how", ["token", "code"])
async def test_a_yes_before_the_receipt_proves_that_it_was_shown(private: Table, how: str) -> None:
    actions = await private.actions()
    asked = private.proposed(actions)
    actions.ask(asked)
    prompting.show_prompt(actions, [asked])
    token = actions.says[0].reply.buttons[0].token
    await private.write(actions)
    actions = await private.actions()
    if how == "token":
        assert deciding.press(actions, asked.pending_action_id, token, ANA, actions.now).text("en") == "Confirmed."
    else:
        assert deciding.code(actions, asked.code, reads("confirm"), ANA, actions.now, "en")
    await private.write(actions)
    assert (await private.read(asked.pending_action_id)).state == "approved"


async def test_shown_again_twice_at_most_with_old_buttons_still_good(private: Table) -> None:
    action = await private.asked()
    for shown in ([True], [True], [False], []):
        actions = await private.actions()
        prompting.show_again(actions, str(ANA))
        assert [bool(said.reply.buttons) for said in actions.says] == shown
        await private.write(actions)
    private.later(3600)
    actions = await private.actions()
    prompting.show_again(actions, str(ANA))
    assert said(actions) == [f"Still open: Delete invoice INV\\-42 (OK {action.code})"]
    await private.write(actions)
    await private.ask("INV-43")
    for line in (["Still open: 2 questions, /pending shows them"], []):
        actions = await private.actions()
        prompting.remind_now_and_then(actions, str(ANA), actions.open)
        assert said(actions) == line, "the number has changed"
        await private.write(actions)
    again = await private.read(action.pending_action_id)
    assert len(again.tokens) == 9
    assert (again.shown_at, again.expires_at) == (action.shown_at, action.expires_at)
    assert {token.sha256 for token in action.tokens} <= {token.sha256 for token in again.tokens}


async def test_showing_no_actions_queues_no_message(private: Table) -> None:
    actions = await private.actions()
    prompting.show_prompt(actions, [])
    assert actions.says == []


# ── bare words: each condition alone stops it ──


@pytest.mark.ledger("PEND-16")
async def test_a_bare_yes_right_after_the_only_prompt_counts(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    assert deciding.word(actions, reads("confirm"), ANA, private.word(actions.now, action), "en")
    written = await private.write(actions)
    assert written.actions == [action.pending_action_id]


def showing(at: datetime, *shown: PendingAction, **more: Any) -> Showing:
    shows = frozenset(action.pending_action_id for action in shown)
    return Showing(**{"at": at, "queued": at, "shows": shows, "alone": True, "message_id": "m", **more})


SPOILED: dict[str, Callable[[BareReply, PendingAction], BareReply]] = {
    "not typed": lambda word, action: replace(word, fresh=False),
    "nothing was said": lambda word, action: replace(word, shown=()),
    "something else was said": lambda word, action: replace(word, shown=(showing(word.at),)),
    "shown under other words": lambda word, action: replace(word, shown=(showing(word.at, action, alone=False),)),
    "another prompt too": lambda word, action: replace(
        word, shown=(showing(word.at, action, replace(action, pending_action_id="another")),)
    ),
    "written before the prompt": lambda word, action: replace(word, written="before"),
    "nobody knows when it was written": lambda word, action: replace(word, written="unknown"),
    "she wrote since": lambda word, action: replace(word, acted=word.at),
    "stamped before it was shown": lambda word, action: replace(word, at=word.at - timedelta(microseconds=1)),
    "after the answer window": lambda word, action: replace(word, at=word.at + timedelta(seconds=60, microseconds=1)),
    "beneath another message": lambda word, action: replace(word, beneath="another"),
}


@pytest.mark.ledger("PEND-16")
@pytest.mark.parametrize("why", SPOILED)
async def test_bare_yes_failing_a_condition_shows_the_prompt_again(private: Table, why: str) -> None:
    action = await private.asked()
    actions = await private.actions()
    word = SPOILED[why](private.word(action.shown_at, action), action)
    assert deciding.word(actions, reads("confirm"), ANA, word, "en")
    assert f"To be safe I need the code {action.code}" in actions.says[0].reply.text
    assert len(actions.says[0].reply.buttons) == 3
    written = await private.write(actions)
    assert written.actions == []


NO_SPOILED = ("not typed", "nothing was said", "something else was said", "shown under other words")


@pytest.mark.parametrize("why", [*NO_SPOILED, "another prompt too", "written before the prompt"])
async def test_a_bare_no_to_something_else_is_asked_about(private: Table, why: str) -> None:
    action = await private.asked()
    actions = await private.actions()
    assert deciding.word(
        actions, reads("cancel"), ANA, SPOILED[why](private.word(action.shown_at, action), action), "en"
    )
    assert f"To be safe I need the code {action.code}" in actions.says[0].reply.text
    assert len(actions.open) == 1


@pytest.mark.parametrize("why", ["nobody knows when it was written", "she wrote since", "after the answer window"])
async def test_a_bare_no_right_beneath_the_question_refuses(private: Table, why: str) -> None:
    action = await private.asked()
    actions = await private.actions()
    assert deciding.word(
        actions, reads("cancel"), ANA, SPOILED[why](private.word(action.shown_at, action), action), "en"
    )
    await private.write(actions)
    assert (await private.read(action.pending_action_id)).reason == "refused"


async def test_the_end_of_the_answer_window_is_still_within_it(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    word = private.word(action.shown_at, action)
    deciding.word(actions, reads("confirm"), ANA, replace(word, at=word.at + timedelta(seconds=60)), "en")
    assert (await private.write(actions)).actions == [action.pending_action_id]


async def test_question_shown_again_has_its_own_answer_window(private: Table) -> None:
    action = await private.asked()
    assert action.shown_at is not None
    again = action.shown_at + timedelta(seconds=300)
    word = replace(private.word(again, action), shown=(showing(again, action),), acted=again - timedelta(seconds=1))
    actions = await private.actions()
    deciding.word(actions, reads("confirm"), ANA, word, "en")
    assert (await private.write(actions)).actions == [action.pending_action_id]


@pytest.mark.parametrize("intent", ["confirm", "cancel"])
async def test_with_several_open_a_bare_word_asks_which(private: Table, intent: Any) -> None:
    one, two = await private.asked("INV-1"), await private.asked("INV-2")
    actions = await private.actions()
    assert deciding.word(actions, reads(intent), ANA, private.word(actions.now, two), "en")
    (text,) = said(actions)
    assert f"1. Delete invoice INV\\-1? ({one.code})" in text and f"({two.code})" in text
    assert (f"**OK {one.code}**" in text) == (intent == "confirm")
    assert len(actions.open) == 2


@pytest.mark.ledger("PEND-43")
async def test_a_late_yes_is_told_that_it_expired(private: Table) -> None:
    action = await private.asked()
    assert action.expires_at is not None
    actions = await private.actions()
    assert deciding.word(
        actions, reads("confirm"), ANA, private.word(action.expires_at + timedelta(seconds=1), action), "en"
    )
    assert len(said(actions)) == 1 and "has expired" in said(actions)[0]
    await private.write(actions)
    actions = await private.actions()
    assert deciding.word(actions, reads("confirm"), ANA, private.word(action.expires_at + timedelta(seconds=2)), "en")
    assert "has expired" in said(actions)[0]


@pytest.mark.ledger("PEND-39")
async def test_yes_without_an_open_or_lately_settled_one_is_ordinary(private: Table) -> None:
    actions = await private.actions()
    assert not deciding.word(actions, reads("confirm"), ANA, private.word(actions.now), "en")
    await private.asked()
    actions = await private.actions()
    deciding.withdraw(actions, str(ANA), actions.now)
    await private.write(actions)
    actions = await private.actions()
    late = private.word(actions.now + timedelta(minutes=10, seconds=1))
    assert not deciding.word(actions, reads("confirm"), ANA, late, "en")
    assert not deciding.word(actions, reads("confirm"), BOB, private.word(actions.now), "en")


# ── votes ──


async def test_a_vote_is_counted_and_said(group: Table) -> None:
    action = await group.asked(tool=make_tool([BOB, EVA], need=2))
    actions = await group.actions()
    assert deciding.code(actions, action.code, reads("confirm"), BOB, actions.now, "en")
    assert said(actions) == ["Your yes is counted: 1 of 2\\.\n\nDelete invoice INV\\-42"]
    assert (await group.write(actions)).actions == []
    actions = await group.actions()
    assert deciding.code(actions, action.code, reads("confirm"), EVA, actions.now, "en")
    assert (await group.write(actions)).actions == [action.pending_action_id]


async def test_reply_of_another_person_gets_no_list(group: Table) -> None:
    one, two = await group.ask("INV-1"), await group.ask("INV-2")
    await group.deliver(one, two, message_id="both")
    actions = await group.actions()
    assert deciding.reply(actions, "both", reads("confirm"), BOB, actions.now, "en")
    assert actions.says == []
    assert deciding.reply(actions, "both", reads("confirm"), ANA, actions.now, "en")
    assert len(said(actions)) == 1


# ── launch and end ──


async def approved(private: Table) -> str:
    action = await private.asked()
    actions = await private.actions()
    deciding.decide(actions, action.pending_action_id, "confirm", ANA, actions.now)
    await private.write(actions)
    return action.pending_action_id


async def test_two_launches_of_one_action_meet_a_conflict(private: Table) -> None:
    action_id = await approved(private)
    first, second = await private.actions(), await private.actions()
    assert settling.launch(first, action_id, 5, first.now) and settling.launch(second, action_id, 6, second.now)
    await private.write(first)
    with pytest.raises(Conflict):
        await private.write(second)
    again = await private.actions()
    assert settling.launch(again, action_id, 5, again.now) is None


async def test_an_end_is_told_edits_the_prompt_and_reaches_the_mailbox(private: Table) -> None:
    action_id = await approved(private)
    actions = await private.actions()
    settling.launch(actions, action_id, 5, actions.now)
    await private.write(actions)
    actions = await private.actions()
    assert not settling.finish(actions, action_id, 4, "done", "x", actions.now)
    assert settling.finish(actions, action_id, 5, "done", "x", actions.now)
    told, edit = actions.says
    assert (told.reply.text, told.reply.edits, edit.reply.edits) == ("Done: Delete invoice INV\\-42", None, "m INV-42")
    written = await private.write(actions)
    (settled,) = written.accept
    assert (settled.body["kind"], settled.body["state"], settled.wakes) == ("settled", "done", False)
    actions = await private.actions()
    assert not settling.finish(actions, action_id, 5, "failed", None, actions.now)


async def test_unknown_is_settled_by_a_late_end_or_by_hand(private: Table) -> None:
    action_id = await approved(private)
    actions = await private.actions()
    settling.launch(actions, action_id, 5, actions.now)
    assert not settling.settle(actions, action_id, "done", "op", actions.now)
    settling.finish(actions, action_id, 5, "unknown", "the worker died", actions.now)
    assert "may or may not have happened" in said(actions)[0]
    await private.write(actions)
    actions = await private.actions()
    assert settling.settle(actions, action_id, "failed", "op", actions.now)
    await private.write(actions)
    ended = await private.read(action_id)
    assert (ended.state, ended.outcome) == ("failed", "settled by op")


@pytest.mark.parametrize("when", ["press", "launch", "expiry"])
async def test_drifted_action_is_not_run_and_is_told_once(private: Table, when: str) -> None:
    action_id = await approved(private) if when == "launch" else (await private.asked()).pending_action_id
    private.drifts = True
    actions = await private.actions()
    match when:
        case "press":
            deciding.decide(actions, action_id, "confirm", ANA, actions.now)
        case "launch":
            assert settling.launch(actions, action_id, 5, actions.now) is None
        case _:
            settling.expire(actions, action_id, actions.now + timedelta(hours=1))
    assert len(said(actions)) == 1 and "no longer as it was shown" in said(actions)[0]
    assert (await private.write(actions)).actions == []
    actions = await private.actions()
    assert settling.launch(actions, action_id, 6, actions.now) is None
    assert actions.says == []


# ── records changed from outside ──


@pytest.mark.parametrize("state", ["pending", "approved"])
async def test_a_forged_record_ends_told_and_holds_again(private: Table, state: str) -> None:
    action = await private.asked()
    await private.tamper(action.pending_action_id, args={"invoice_id": "INV-666"}, state=state)
    actions = await private.actions()
    assert "changed from outside the chat" in said(actions)[0]
    await private.write(actions)
    ended = await private.read(action.pending_action_id)
    assert (ended.state, ended.reason, ended.detail, ended.args) == ("closed", "drifted", "tampered", {})
    assert (await private.actions()).says == []


async def test_forged_running_record_is_told_as_unknown(private: Table) -> None:
    action_id = await approved(private)
    actions = await private.actions()
    settling.launch(actions, action_id, 5, actions.now)
    await private.write(actions)
    await private.tamper(action_id, outcome="ha")
    actions = await private.actions()
    assert "may or may not have happened" in said(actions)[0]
    await private.write(actions)
    assert (await private.read(action_id)).state == "unknown"
    actions = await private.actions()
    assert settling.finish(actions, action_id, 5, "done", "gone", actions.now)


@pytest.mark.parametrize("broken", [{"fence": "x"}, {"requested_at": 1e99}, {"state": "won"}, {"preview": None}])
async def test_unreadable_record_ends_told_and_blocks_no_other_action(private: Table, broken: dict[str, Any]) -> None:
    action, other = await private.asked("INV-1"), await private.asked("INV-2")
    await private.tamper(action.pending_action_id, **broken)
    actions = await private.actions()
    assert [each.pending_action_id for each in actions.open] == [other.pending_action_id]
    assert said(actions)[0].endswith(action.code)
    await private.write(actions)
    assert (await private.read(action.pending_action_id)).reason == "drifted"


async def test_a_record_of_another_conversation_is_not_here(private: Table) -> None:
    action = await private.asked()
    elsewhere = replace(private, address=GROUP)
    actions = await elsewhere.actions(action.pending_action_id)
    assert actions.get(action.pending_action_id) is None
    assert (
        deciding.press(actions, action.pending_action_id, "any", ANA, actions.now)
        .text("en")
        .startswith("I no longer know this button")
    )


async def test_action_sealed_with_a_lost_key_is_not_launched(private: Table) -> None:
    action_id = await approved(private)
    actions = await private.actions(keyring=Keyring([b"quite another key of ours"]))
    assert settling.launch(actions, action_id, 5, actions.now) is None


# ── retention ──


async def test_the_index_of_open_actions_never_lapses_before_them(private: Table) -> None:
    action = await private.asked()
    private.later(31 * 86400)
    assert [each.pending_action_id for each in (await private.actions()).open] == [action.pending_action_id]


async def test_settled_action_is_kept_thirty_days(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    deciding.withdraw(actions, str(ANA), actions.now)
    await private.write(actions)
    key = Key("00", f"action/{action.pending_action_id}")
    private.later(30 * 86400 - 60)
    assert (await private.store.get([key]))[key].value is not None
    private.later(120)
    assert (await private.store.get([key]))[key].value is None


async def test_audit_lines_form_a_chain_that_ends_in_the_record(private: Table) -> None:
    action_id = await approved(private)
    lines = await private.audit(action_id)
    assert [line["what"] for line in lines] == ["asked", "shown", "decided"]
    heads = ["", *(line["head"] for line in lines)]
    assert [line["before"] for line in lines] == heads[:-1]
    assert (await private.read(action_id)).audit == heads[-1]


async def test_unchanged_actions_leave_the_transaction_empty(private: Table) -> None:
    await private.asked()
    transaction = Transaction(partition="00")
    await (await private.actions()).write(transaction)
    assert transaction == Transaction(partition="00")


async def test_an_ok_is_answered_only_under_its_question(private: Table) -> None:
    action = await private.asked()
    (last,) = private.word(action.shown_at, action).shown
    actions = await private.actions()
    assert not deciding.almost(actions, BOB, [last], "en")
    assert not deciding.almost(actions, ANA, [], "en")
    assert not deciding.almost(actions, ANA, [replace(last, alone=False)], "en")
    assert not deciding.almost(actions, ANA, [replace(last, shows=frozenset({"another"}))], "en")
    assert said(actions) == []
    assert deciding.almost(actions, ANA, [last], "en")
    assert said(actions)[0].startswith(f"Almost: add the code, **OK {action.code}**.")


async def test_an_ok_is_not_answered_during_a_change(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    actions.index = actions.index.changed_by(str(ANA), action.pending_action_id)
    assert not deciding.almost(actions, ANA, private.word(action.shown_at, action).shown, "en")
