"""The desk on a real store: how actions are shown, decided, launched and ended, and what people are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.pending.seal import Keyring
from gateway.store.base import Conflict, Key, Transaction
from gateway.tools.action import PendingAction
from tests.pending.records import ANA, BOB, EVA, GROUP, KEYRING, Table, make_tool, said, table


@pytest.fixture
async def private() -> AsyncIterator[Table]:
    async with table() as found:
        yield found


@pytest.fixture
async def group() -> AsyncIterator[Table]:
    async with table(GROUP) as found:
        yield found


# ── windows ──


async def test_the_windows_begin_with_the_receipt_and_a_timer_keeps_the_deadline(private: Table) -> None:
    action = await private.ask()
    assert (action.shown_at, action.expires_at) == (None, None)
    private.later(300)
    at = await private.deliver(action)
    shown = await private.read(action.pending_action_id)
    assert (shown.shown_at, shown.expires_at) == (at, at + timedelta(seconds=900))
    private.later(901)
    await private.store.tick()
    (expiry,) = await private.store.pointed(private.conversation)
    assert (expiry.body["kind"], expiry.stamp) == ("expiry", shown.expires_at)
    desk = await private.desk()
    desk.expire(action.pending_action_id, expiry.stamp)
    assert said(desk) == [
        "This has expired and nothing was done. Ask again if you still want it: Delete invoice INV\\-42"
    ]
    await private.write(desk)
    assert (await private.read(action.pending_action_id)).reason == "expired"


async def test_an_expiry_before_its_time_does_nothing(private: Table) -> None:
    action = await private.asked()
    desk = await private.desk()
    desk.expire(action.pending_action_id, desk.now)
    assert desk.open and not desk.says


async def test_a_prompt_that_never_arrived_ends_the_action(private: Table) -> None:
    action = await private.ask()
    private.later(601)
    await private.store.tick()
    (event,) = await private.store.pointed(private.conversation)
    assert event.body["kind"] == "undelivered"
    desk = await private.desk()
    desk.undelivered(action.pending_action_id, event.stamp)
    await private.write(desk)
    assert (await private.read(action.pending_action_id)).reason == "undelivered"
    desk = await private.desk()
    desk.shown([action.pending_action_id], "late", desk.now)
    (edit,) = desk.says
    assert (edit.reply.edits, edit.reply.buttons) == ("late", ())
    assert "did not arrive in time" in edit.reply.text


async def test_one_that_arrived_is_not_undelivered(private: Table) -> None:
    action = await private.asked()
    desk = await private.desk()
    desk.undelivered(action.pending_action_id, desk.now + timedelta(hours=1))
    assert [each.state for each in desk.open] == ["pending"]


@pytest.mark.parametrize("how", ["token", "code"])
async def test_a_yes_before_the_receipt_proves_that_it_was_shown(private: Table, how: str) -> None:
    desk = await private.desk()
    asked = private.propose(desk)
    assert isinstance(asked, PendingAction)
    desk.ask(asked)
    desk.show_prompt([asked])
    token = desk.says[0].reply.buttons[0].token
    await private.write(desk)
    desk = await private.desk()
    if how == "token":
        assert desk.press(asked.pending_action_id, token, ANA, desk.now).text == "Confirmed."
    else:
        assert desk.code(asked.code, "confirm", ANA, desk.now)
    await private.write(desk)
    assert (await private.read(asked.pending_action_id)).state == "approved"


async def test_shown_again_twice_at_most_with_old_buttons_still_good(private: Table) -> None:
    action = await private.asked()
    for showings in (1, 1, 0):
        desk = await private.desk()
        desk.show_again(str(ANA))
        assert len(desk.says) == showings
        await private.write(desk)
    again = await private.read(action.pending_action_id)
    assert len(again.tokens) == 6
    assert (again.shown_at, again.expires_at) == (action.shown_at, action.expires_at)
    assert {token.sha256 for token in action.tokens} <= {token.sha256 for token in again.tokens}


async def test_nothing_to_show_says_nothing(private: Table) -> None:
    desk = await private.desk()
    desk.show_prompt([])
    assert desk.says == []


# ── bare words: each condition alone stops it ──


@pytest.mark.ledger("PEND-16")
async def test_a_bare_yes_right_after_the_only_prompt_counts(private: Table) -> None:
    action = await private.asked()
    desk = await private.desk()
    assert desk.word("confirm", ANA, private.word(desk.now, action))
    written = await private.write(desk)
    assert written.actions == [action.pending_action_id]


SPOILED: dict[str, dict[str, Any]] = {
    "not typed": {"fresh": False},
    "something else was said since": {"last_shown": frozenset()},
    "another prompt too": {"last_shown": frozenset({"another"})},
    "she wrote since": {"heard": timedelta(microseconds=1)},
    "before it was shown": {"at": timedelta(microseconds=-1)},
    "after the answer window": {"at": timedelta(seconds=60, microseconds=1)},
}


@pytest.mark.ledger("PEND-16")
@pytest.mark.parametrize("why", SPOILED)
async def test_a_bare_yes_that_fails_a_condition_shows_the_prompt_again(private: Table, why: str) -> None:
    action = await private.asked()
    assert action.shown_at is not None
    changes: dict[str, Any] = {
        name: action.shown_at + value if isinstance(value, timedelta) else value for name, value in SPOILED[why].items()
    }
    desk = await private.desk()
    assert desk.word("confirm", ANA, replace(private.word(desk.now, action), **changes))
    assert f"answer with the code {action.code}" in desk.says[0].reply.text
    assert len(desk.says[0].reply.buttons) == 2
    written = await private.write(desk)
    assert written.actions == []


async def test_the_end_of_the_answer_window_is_still_within_it(private: Table) -> None:
    action = await private.asked()
    assert action.answer_until is not None
    desk = await private.desk()
    desk.word("confirm", ANA, private.word(action.answer_until, action))
    assert (await private.write(desk)).actions == [action.pending_action_id]


async def test_a_bare_yes_after_a_press_of_the_same_person_is_about_something_else(private: Table) -> None:
    first, second = await private.asked("INV-1"), await private.asked("INV-2")
    desk = await private.desk()
    assert desk.code(first.code, "cancel", ANA, desk.now)
    await private.write(desk)
    desk = await private.desk()
    desk.word("confirm", ANA, private.word(desk.now, second))
    assert (await private.write(desk)).actions == []


async def test_a_no_needs_nothing_but_one_open_action(private: Table) -> None:
    action = await private.asked()
    desk = await private.desk()
    late = desk.now + timedelta(seconds=300)
    assert desk.word("cancel", ANA, private.word(late, heard=late))
    assert said(desk) == ["Cancelled: Delete invoice INV\\-42"]
    await private.write(desk)
    assert (await private.read(action.pending_action_id)).reason == "refused"


@pytest.mark.parametrize("intent", ["confirm", "cancel"])
async def test_with_several_open_a_bare_word_asks_which(private: Table, intent: Any) -> None:
    one, two = await private.asked("INV-1"), await private.asked("INV-2")
    desk = await private.desk()
    assert desk.word(intent, ANA, private.word(desk.now, two))
    (text,) = said(desk)
    assert f"({one.code})" in text and f"({two.code})" in text and f"**OK {one.code}**" in text
    assert len(desk.open) == 2


@pytest.mark.ledger("PEND-43")
async def test_a_late_yes_is_told_that_it_expired(private: Table) -> None:
    action = await private.asked()
    assert action.expires_at is not None
    desk = await private.desk()
    assert desk.word("confirm", ANA, private.word(action.expires_at + timedelta(seconds=1), action))
    assert len(said(desk)) == 1 and "has expired" in said(desk)[0]
    await private.write(desk)
    desk = await private.desk()
    assert desk.word("confirm", ANA, private.word(action.expires_at + timedelta(seconds=2)))
    assert "has expired" in said(desk)[0]


@pytest.mark.ledger("PEND-39")
async def test_with_nothing_open_or_lately_settled_a_yes_is_an_ordinary_word(private: Table) -> None:
    desk = await private.desk()
    assert not desk.word("confirm", ANA, private.word(desk.now))
    await private.asked()
    desk = await private.desk()
    desk.withdraw(str(ANA), desk.now)
    await private.write(desk)
    desk = await private.desk()
    assert not desk.word("confirm", ANA, private.word(desk.now + timedelta(minutes=10, seconds=1)))
    assert not desk.word("confirm", BOB, private.word(desk.now))


# ── votes ──


async def test_a_vote_is_counted_and_said(group: Table) -> None:
    action = await group.asked(tool=make_tool([BOB, EVA], need=2))
    desk = await group.desk()
    assert desk.code(action.code, "confirm", BOB, desk.now)
    assert said(desk) == ["Your yes is counted: 1 of 2\\.\n\nDelete invoice INV\\-42"]
    assert (await group.write(desk)).actions == []
    desk = await group.desk()
    assert desk.code(action.code, "confirm", EVA, desk.now)
    assert (await group.write(desk)).actions == [action.pending_action_id]


async def test_whose_reply_it_is_not_hears_no_list(group: Table) -> None:
    one, two = await group.ask("INV-1"), await group.ask("INV-2")
    await group.deliver(one, two, message_id="both")
    desk = await group.desk()
    assert desk.reply("both", "confirm", BOB, desk.now)
    assert desk.says == []
    assert desk.reply("both", "confirm", ANA, desk.now)
    assert len(said(desk)) == 1


# ── launch and end ──


async def approved(private: Table) -> str:
    action = await private.asked()
    desk = await private.desk()
    desk.decide(action.pending_action_id, "confirm", ANA, desk.now)
    await private.write(desk)
    return action.pending_action_id


async def test_two_launches_of_one_action_meet_a_conflict(private: Table) -> None:
    action_id = await approved(private)
    first, second = await private.desk(), await private.desk()
    assert first.launch(action_id, 5, first.now) and second.launch(action_id, 6, second.now)
    await private.write(first)
    with pytest.raises(Conflict):
        await private.write(second)
    again = await private.desk()
    assert again.launch(action_id, 5, again.now) is None


async def test_an_end_is_told_edits_the_prompt_and_reaches_the_mailbox(private: Table) -> None:
    action_id = await approved(private)
    desk = await private.desk()
    desk.launch(action_id, 5, desk.now)
    await private.write(desk)
    desk = await private.desk()
    assert not desk.finish(action_id, 4, "done", "x", desk.now)
    assert desk.finish(action_id, 5, "done", "x", desk.now)
    told, edit = desk.says
    assert (told.reply.text, told.reply.edits, edit.reply.edits) == ("Done: Delete invoice INV\\-42", None, "m INV-42")
    written = await private.write(desk)
    (settled,) = written.accept
    assert (settled.body["kind"], settled.body["state"], settled.wakes) == ("settled", "done", False)
    desk = await private.desk()
    assert not desk.finish(action_id, 5, "failed", None, desk.now)


async def test_unknown_is_settled_by_a_late_end_or_by_hand(private: Table) -> None:
    action_id = await approved(private)
    desk = await private.desk()
    desk.launch(action_id, 5, desk.now)
    assert not desk.settle(action_id, "done", "op", desk.now)
    desk.finish(action_id, 5, "unknown", "the worker died", desk.now)
    assert "may or may not have happened" in said(desk)[0]
    await private.write(desk)
    desk = await private.desk()
    assert desk.settle(action_id, "failed", "op", desk.now)
    await private.write(desk)
    ended = await private.read(action_id)
    assert (ended.state, ended.outcome) == ("failed", "settled by op")


@pytest.mark.parametrize("when", ["press", "launch", "expiry"])
async def test_what_drifted_is_not_run_and_told_once(private: Table, when: str) -> None:
    action_id = await approved(private) if when == "launch" else (await private.asked()).pending_action_id
    private.drifts = True
    desk = await private.desk()
    match when:
        case "press":
            desk.decide(action_id, "confirm", ANA, desk.now)
        case "launch":
            assert desk.launch(action_id, 5, desk.now) is None
        case _:
            desk.expire(action_id, desk.now + timedelta(hours=1))
    assert len(said(desk)) == 1 and "no longer as it was shown" in said(desk)[0]
    assert (await private.write(desk)).actions == []
    desk = await private.desk()
    assert desk.launch(action_id, 6, desk.now) is None
    assert desk.says == []


# ── records that somebody changed ──


@pytest.mark.parametrize("state", ["pending", "approved"])
async def test_a_forged_record_ends_told_and_holds_again(private: Table, state: str) -> None:
    action = await private.asked()
    await private.tamper(action.pending_action_id, args={"invoice_id": "INV-666"}, state=state)
    desk = await private.desk()
    assert "no longer as it was shown" in said(desk)[0]
    await private.write(desk)
    ended = await private.read(action.pending_action_id)
    assert (ended.state, ended.reason, ended.args) == ("closed", "drifted", {})
    assert KEYRING.holds(ended)
    assert (await private.desk()).says == []


async def test_of_a_forged_one_that_was_running_nobody_says_that_nothing_happened(private: Table) -> None:
    action_id = await approved(private)
    desk = await private.desk()
    desk.launch(action_id, 5, desk.now)
    await private.write(desk)
    await private.tamper(action_id, outcome="ha")
    desk = await private.desk()
    assert "may or may not have happened" in said(desk)[0]
    await private.write(desk)
    assert (await private.read(action_id)).state == "unknown"
    desk = await private.desk()
    assert desk.finish(action_id, 5, "done", "gone", desk.now)


@pytest.mark.parametrize("broken", [{"fence": "x"}, {"requested_at": 1e99}, {"state": "won"}, {"preview": None}])
async def test_an_unreadable_record_ends_told_and_holds_up_nobody(private: Table, broken: dict[str, Any]) -> None:
    action, other = await private.asked("INV-1"), await private.asked("INV-2")
    await private.tamper(action.pending_action_id, **broken)
    desk = await private.desk()
    assert [each.pending_action_id for each in desk.open] == [other.pending_action_id]
    assert said(desk)[0].endswith(action.code)
    await private.write(desk)
    assert (await private.read(action.pending_action_id)).reason == "drifted"


async def test_a_record_of_another_conversation_is_not_here(private: Table) -> None:
    action = await private.asked()
    elsewhere = replace(private, address=GROUP)
    desk = await elsewhere.desk(action.pending_action_id)
    assert desk.action(action.pending_action_id) is None
    assert desk.press(action.pending_action_id, "any", ANA, desk.now).text.startswith("I no longer know this button")


async def test_without_any_of_its_keys_nothing_runs(private: Table) -> None:
    action_id = await approved(private)
    desk = await private.desk(keyring=Keyring([b"quite another key of ours"]))
    assert desk.launch(action_id, 5, desk.now) is None


# ── what is kept ──


async def test_the_index_of_open_actions_never_lapses_before_them(private: Table) -> None:
    action = await private.asked()
    private.later(31 * 86400)
    assert [each.pending_action_id for each in (await private.desk()).open] == [action.pending_action_id]


async def test_what_is_settled_is_kept_thirty_days(private: Table) -> None:
    action = await private.asked()
    desk = await private.desk()
    desk.withdraw(str(ANA), desk.now)
    await private.write(desk)
    key = Key("00", f"action/{action.pending_action_id}")
    private.later(30 * 86400 - 60)
    assert (await private.store.get([key]))[key].value is not None
    private.later(120)
    assert (await private.store.get([key]))[key].value is None


async def test_each_line_of_the_audit_names_the_one_before_and_the_record_the_last(private: Table) -> None:
    action_id = await approved(private)
    lines = await private.audit(action_id)
    assert [line["what"] for line in lines] == ["asked", "shown", "decided"]
    heads = ["", *(line["head"] for line in lines)]
    assert [line["before"] for line in lines] == heads[:-1]
    assert (await private.read(action_id)).audit == heads[-1]


async def test_a_desk_that_changed_nothing_writes_nothing(private: Table) -> None:
    await private.asked()
    transaction = Transaction(partition="00")
    (await private.desk()).write(transaction)
    assert transaction == Transaction(partition="00")
