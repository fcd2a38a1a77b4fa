"""Plans shown in several messages of the platform: buttons, numbers and limits, on a real store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from channels import Address, Channel
from channels.channel import is_one_message
from channels.slack.channel import SlackChannel
from channels.telegram.channel import TelegramChannel
from channels.twilio.channel import SmsChannel, WhatsAppChannel
from gateway.pending import deciding, prompting
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import Showing
from gateway.pending.selecting import read_selection
from gateway.pending.words import words_of
from gateway.tools import Preview
from gateway.tools.pending_action import PendingAction
from tests.pending.records import ANA, PRIVATE, Table

_TWILIO = "AC" + "0" * 32, "token", "+15550001111"
CHANNELS: dict[str, Channel] = {
    "telegram": TelegramChannel("1:token", "secret"),
    "slack": SlackChannel("xoxb-token", "secret"),
    "sms": SmsChannel(*_TWILIO, public_url="https://bot.example"),
    "whatsapp": WhatsAppChannel(*_TWILIO, public_url="https://bot.example"),
}
PLACES: dict[str, Address] = {
    "telegram": PRIVATE,
    "slack": Address(channel="slack", account="T1", place="D1"),
    "sms": Address(channel="sms", account="+15550001111", place="+15557654321"),
    "whatsapp": Address(channel="whatsapp", account="+15550001111", place="+15557654321"),
}


async def shown_on(table: Table, platform: str, *lengths: int, plan: str | None = "p") -> ConversationActions:
    """Ask for these deletions at once on a platform, without a commit."""
    channel = CHANNELS[platform]
    actions = await table.actions(capabilities=channel.capabilities, fits=partial(is_one_message, channel))
    proposed: list[PendingAction] = []
    for number, length in enumerate(lengths, start=1):
        more: dict[str, Any] = {"address": PLACES[platform], "plan": plan, "proposed": proposed}
        proposed.append(table.proposed(actions, f"{plan}{number} ".ljust(length, "x"), **more))
    prompting.show_prompt(actions, [actions.ask(action) for action in proposed])
    prompting.write_files(actions)
    return actions


def listed(actions: ConversationActions) -> list[list[int]]:
    """Return the numbers of the questions in each queued message."""
    ids = [action.pending_action_id for action in actions.open]
    return [[1 + ids.index(each) for each in said.shows] for said in actions.says if said.shows]


def assert_one_part_each(platform: str, actions: ConversationActions) -> None:
    channel = CHANNELS[platform]
    prompting.write_files(actions)
    for said in actions.says:
        assert len(channel.render(PLACES[platform], said.reply)) == 1
        assert len(said.reply.buttons) <= channel.capabilities.buttons


@pytest.mark.parametrize("platform", CHANNELS)
@pytest.mark.parametrize("length", [10, 400, 1_200, 2_000])
async def test_each_message_is_one_part_of_the_platform(private: Table, platform: str, length: int) -> None:
    actions = await shown_on(private, platform, *[length] * 10)
    assert_one_part_each(platform, actions)
    assert [number for message in listed(actions) for number in message] == [*range(1, 11)]
    for said in actions.says:
        asked = [actions.by_id[action_id] for action_id in said.shows]
        assert all(f"{action.code}" in said.reply.text for action in asked), "an item is never split"


@pytest.mark.parametrize("platform", CHANNELS)
async def test_no_number_of_open_questions_is_too_many_to_show_again(private: Table, platform: str) -> None:
    channel = CHANNELS[platform]
    for plan in "abcde":
        actions = await shown_on(private, platform, *[30] * 10, plan=plan)
        await private.write(actions)
    actions = await private.actions(capabilities=channel.capabilities, fits=partial(is_one_message, channel))
    assert len(actions.open) == 50
    prompting.show_again(actions, str(ANA))
    assert_one_part_each(platform, actions)
    assert sum(len(said.shows) for said in actions.says) == 50


@pytest.mark.parametrize("platform", CHANNELS)
async def test_question_too_long_for_one_part_is_a_file(private: Table, platform: str) -> None:
    actions = await shown_on(private, platform, 1_300, plan=None)
    (action,) = actions.open
    assert action.filed == (platform in ("sms", "whatsapp"))
    assert len(actions.files) == action.filed
    prompted = actions.says[-1]
    assert len(CHANNELS[platform].render(PLACES[platform], prompted.reply)) == 1
    assert [button.label for button in prompted.reply.buttons][:1] == (
        ["Confirm"] if CHANNELS[platform].capabilities.buttons else []
    )


async def test_characters_that_count_twice_are_counted_so(private: Table) -> None:
    """3,000 characters outside of the first plane are 6,000 units on Telegram; the limit is 4,096."""
    channel = CHANNELS["telegram"]
    actions = await private.actions(capabilities=channel.capabilities, fits=partial(is_one_message, channel))
    action = private.proposed(actions, "🦊" * 2_500)
    assert action.filed


# ── words ──


def words(text: str) -> Callable[[int], Any]:
    return lambda items: read_selection(text, items, words_of("en"))


async def two_messages(private: Table, *, arrived: Sequence[int]) -> tuple[ConversationActions, BareReply]:
    """Three questions in two messages, the arrival of these messages, and an answer after the arrival."""
    actions = await shown_on(private, "telegram", 700, 700, 700)
    assert listed(actions) == [[1, 2], [3]]
    says = list(actions.says)
    await private.write(actions)
    actions = await private.actions()
    for number in arrived:
        said = says[number - 1]
        showing = Showing(
            at=actions.now,
            queued=actions.now,
            shows=frozenset(said.shows),
            alone=said.alone,
            listed=said.listed,
            message_id=f"m{number}",
        )
        prompting.note_arrived(actions, showing)
    await private.write(actions)
    actions = await private.actions()
    sending = () if len(arrived) == len(says) else says[-1].listed
    shown = actions.index.last_said(actions.now) if not sending else ()
    return actions, BareReply(at=actions.now, fresh=True, shown=shown, written="after", sending=sending)


@pytest.mark.parametrize("text", ["1", "3", "1, 3", "all", "all but 1"])
@pytest.mark.parametrize("sending", [True, False])
async def test_numbers_count_only_while_every_message_has_arrived(private: Table, text: str, sending: bool) -> None:
    actions, said = await two_messages(private, arrived=[1])
    if not sending:  # the second message was given up
        said = replace(said, shown=actions.index.last_said(actions.now), sending=())
    assert deciding.select(actions, words(text), ANA, said, "en")
    assert len(actions.open) == 3 and not actions.changes.approved
    assert all(action.code in actions.says[-1].reply.text for action in actions.open), "the answer gives the codes"


async def test_numbers_go_on_over_the_messages_of_a_list(private: Table) -> None:
    actions, said = await two_messages(private, arrived=[1, 2])
    first, _, third = actions.open
    assert deciding.select(actions, words("1, 3"), ANA, said, "en")
    states = [actions.by_id[each.pending_action_id].state for each in (first, third)]
    assert states == ["approved", "approved"] and len(actions.open) == 1


async def test_edited_message_keeps_its_numbers(private: Table) -> None:
    actions, said = await two_messages(private, arrived=[1, 2])
    first, second, third = actions.open
    deciding.select(actions, words("not 3"), ANA, said, "en")
    assert [each.reply.edits for each in actions.says if each.reply.edits] == ["m2"]
    deciding.code(actions, first.code, lambda verb, asked: "cancel", ANA, actions.now, "en")
    edit = actions.says[-1]
    assert edit.reply.edits == "m1" and f"2\\. **Delete invoice {second.args['invoice_id']}"[:20] in edit.reply.text
    assert actions.by_id[third.pending_action_id].reason == "refused"


# ── a list asking for the questions meant by a yes or a no ──


async def which(private: Table, intent: Any, *invoices: str) -> tuple[ConversationActions, BareReply]:
    """Several questions asked in separate messages, a bare word, the list in answer, and a number after the list."""
    asked: list[PendingAction] = []
    for invoice in invoices:
        actions = await private.actions()
        asked.append(private.proposed(actions, invoice, preview=Preview(text=f"Delete invoice “{invoice}”?")))
        prompting.show_prompt(actions, [actions.ask(asked[-1])])
        await private.write(actions)
        await private.deliver(asked[-1], message_id=invoice)
    actions = await private.actions()
    assert deciding.word(actions, lambda verb, lang: intent, ANA, private.word(actions.now, asked[-1]), "en")
    (said,) = actions.says
    assert (said.intent, len(said.listed)) == (intent, len(invoices))
    await private.write(actions)
    actions = await private.actions()
    showing = Showing(
        at=actions.now, queued=actions.now, alone=said.alone, listed=said.listed, intent=said.intent, message_id="list"
    )
    return actions, BareReply(at=actions.now, fresh=True, shown=(showing,), written="after")


DO = {"2": ["2"], "the first": ["1"], "both": ["1", "2"], "all": ["1", "2"], "1 and 2": ["1", "2"], "all but 1": ["2"]}


@pytest.mark.parametrize("text", DO)
@pytest.mark.parametrize("intent", ["confirm", "cancel"])
async def test_number_after_the_list_has_the_intent_of_the_bare_word(private: Table, text: str, intent: Any) -> None:
    actions, said = await which(private, intent, "1", "2")
    if intent == "cancel" and text == "all but 1":
        return  # it refuses one of a list of refusals: the answer is the codes
    asked = {str(action.args["invoice_id"]): action for action in actions.open}
    assert deciding.select(actions, words(text), ANA, said, "en")
    ended = {name: actions.by_id[action.pending_action_id] for name, action in asked.items()}
    state = "approved" if intent == "confirm" else "closed"
    assert sorted(name for name, action in ended.items() if action.state == state) == DO[text]


async def test_all_confirms_only_actions_shown_whole_in_the_list(private: Table) -> None:
    actions, said = await which(private, "confirm", "1", "2")
    action = actions.open[0]
    actions.by_id[action.pending_action_id] = replace(action, args={**action.args, "amount": 5})
    assert deciding.select(actions, words("both"), ANA, said, "en")
    assert len(actions.open) == 2 and not actions.changes.approved


@pytest.mark.parametrize("late", [{"written": "before"}, {"written": "unknown"}, {"fresh": False}])
async def test_number_after_the_list_follows_the_order_of_a_bare_word(private: Table, late: dict[str, Any]) -> None:
    actions, said = await which(private, "confirm", "1", "2")
    assert deciding.select(actions, words("1"), ANA, replace(said, **late), "en")
    assert len(actions.open) == 2 and not actions.changes.approved


# ── a no that could not be taken ──


async def test_no_that_was_not_taken_leaves_the_question_to_its_code(private: Table) -> None:
    action = await private.asked()
    actions = await private.actions()
    early = private.word(action.shown_at, action, written="before")
    assert deciding.word(actions, lambda verb, lang: "cancel", ANA, early, "en")
    await private.write(actions)
    actions = await private.actions()
    assert deciding.word(actions, lambda verb, lang: "confirm", ANA, private.word(actions.now, action), "en")
    assert len(actions.open) == 1, "the question has not been shown again since the no"
    await private.write(actions)
    actions = await private.actions()
    again = Showing(
        at=actions.now, queued=actions.now, shows=frozenset({action.pending_action_id}), alone=True, message_id="again"
    )
    word = replace(private.word(actions.now, action), shown=(again,))
    assert deciding.word(actions, lambda verb, lang: "confirm", ANA, word, "en")
    assert not actions.open


@pytest.mark.parametrize("refusing", ["none", "not 2"])
async def test_untaken_refusal_of_a_list_leaves_it_to_the_codes(private: Table, refusing: str) -> None:
    actions, said = await two_messages(private, arrived=[1, 2])
    assert deciding.select(actions, words(refusing), ANA, replace(said, fresh=False), "en")
    await private.write(actions)
    actions = await private.actions()
    assert deciding.select(actions, words("2"), ANA, replace(said, at=actions.now), "en")
    assert len(actions.open) == 3 and not actions.changes.approved
