"""Places without messages: a closed topic, a locked thread, a channel without rights, on Telegram and on Slack."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels import Address, Part, PlaceRefused, Receipt, Unreachable
from gateway.store.errors import Fenced
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.testing.doubles import LostCall
from tests.engine.bots import Invoices
from tests.engine.places import World, opened
from tests.engine.rig import Platform, rig

pytestmark = pytest.mark.both_stores


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as world:
        yield world


@pytest.mark.parametrize("how", ["closed", "deleted"])
@pytest.mark.parametrize("way", ["press", "code", "reply"])
async def test_question_of_a_closed_topic_is_asked_beside_it(world: World, how: str, way: str) -> None:
    if how == "closed":
        world.telegram.topic_closes(world.group, world.topic)
    else:
        world.telegram.topic_is_deleted(world.group, world.topic)
    await world.says("delete 42")
    (shown,) = world.read(world.group)
    assert (shown.thread, "Delete invoice “42” for good?" in shown.text) == (None, True)
    assert "Only Ana" in shown.text
    if way == "press":
        assert await world.presses(shown, by=world.ben) == "This is not yours to answer."
        await world.presses(shown)
    else:
        is_reply = way == "reply"
        text = "yes" if is_reply else f"OK {world.code(shown.text)}"
        await world.says(text, chat=world.group, reply_to=shown if is_reply else None)
    assert world.invoices.deleted == ["42"]
    assert not shown.buttons and "✅" in shown.text
    assert [each.text for each in world.read(world.group)][1:] == ["Invoice 42 is deleted."]


async def test_answer_of_a_closed_topic_stands_beside_it(world: World) -> None:
    world.telegram.topic_closes(world.group, world.topic)
    await world.says("hello")
    assert [(each.thread, each.text) for each in world.read(world.group)] == [(None, "You said: hello")]


@pytest.mark.parametrize("word", ["press", "yes", "code"])
async def test_group_without_rights_is_asked_in_private(world: World, word: str) -> None:
    """The rules of the private chat hold: a bare yes counts there."""
    await world.says("hi", chat=world.ana)
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    shown = world.prompt(world.ana)
    assert shown.text.startswith("Delete invoice “42” for good?") and "Only" not in shown.text
    if word == "press":
        await world.presses(shown)
    else:
        await world.says("yes" if word == "yes" else f"OK {world.code(shown.text)}", chat=world.ana)
    assert world.invoices.deleted == ["42"]
    assert world.read(world.group) == [] and world.read(world.ben) == []
    assert [each.text for each in world.read(world.ana)][2:] == ["Invoice 42 is deleted."]
    assert "✅" in shown.text


async def test_no_in_private_ends_the_question(world: World) -> None:
    await world.says("hi", chat=world.ana)
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    await world.says("no", chat=world.ana)
    assert world.invoices.deleted == [] and world.read(world.ana)[-1].text.startswith("Not done: Delete")


async def test_question_shown_nowhere_is_told_with_the_next_message(world: World) -> None:
    """Ana never wrote to the bot in private. News of the group stay out of other groups."""
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    assert world.telegram.sent == []
    lobby = world.telegram.group("Lobby")
    await world.says(f"hello @{world.telegram.bot.username}", chat=lobby)
    assert [each.text for each in world.read(lobby)] == ["You said: hello"]
    await world.says("hello", chat=world.ana)
    told = "The question could not be shown anywhere, so nothing was done: Delete invoice “42” for good"
    assert [each.text for each in world.read(world.ana)] == ["You said: hello", told]
    await world.says("hello again", chat=world.ana)
    assert len(world.read(world.ana)) == 3, "it is told once"


async def test_news_of_a_group_are_told_in_the_group(world: World) -> None:
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    world.telegram.refusing.clear()
    await world.says("hello")
    texts = [each.text for each in world.read(world.group)]
    assert sorted(texts) == [
        "The question could not be shown anywhere, so nothing was done: Delete invoice “42” for good",
        "You said: hello",
    ]


@pytest.mark.parametrize("private", [False, True], ids=["first word in private later", "private chat known"])
async def test_news_refused_once_more_are_kept_in_order(world: World, private: bool) -> None:
    world.telegram.takes_rights(world.group)
    for invoice_id in ("41", "42"):
        await world.says(f"delete {invoice_id}")
    if private:
        world.telegram.refusing[world.ana.id, None] = "Bad Request: CHAT_RESTRICTED"
        await world.says("hi", chat=world.ana)
        assert world.read(world.ana) == []
    for _ in range(2):
        await world.says("so?")
    assert world.telegram.sent == []
    world.telegram.refusing.pop((world.ana.id, None), None)
    await world.says("are you there?", chat=world.ana)
    await world.says("hello again", chat=world.ana)
    lost = "The question could not be shown anywhere, so nothing was done: Delete invoice"
    news = [f"{lost} “41” for good", f"{lost} “42” for good"]
    assert [each.text for each in world.read(world.ana)] == ["You said: are you there?", *news, "You said: hello again"]


async def test_refused_news_move_into_the_private_chat(world: World) -> None:
    await world.says("hi", chat=world.ana)
    world.telegram.takes_rights(world.group)
    world.telegram.refusing[world.ana.id, None] = "Bad Request: CHAT_RESTRICTED"
    await world.says("delete 42")
    world.telegram.refusing.pop((world.ana.id, None))
    await world.says("hello")
    told = "The question could not be shown anywhere, so nothing was done: Delete invoice “42” for good"
    assert sorted(each.text for each in world.read(world.ana)[1:]) == [told, "You said: hello"]


async def test_refused_news_of_a_group_stay_out_of_other_groups(world: World) -> None:
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    await world.says("so?")
    lobby = world.telegram.group("Lobby")
    await world.says("hello", chat=lobby, mentions=True)
    assert [each.text for each in world.read(lobby)] == ["You said: hello"]
    world.telegram.refusing.clear()
    await world.says("hello")
    assert len(world.read(world.group)) == 2


async def test_outcome_of_a_place_that_is_gone_is_told_later(world: World) -> None:
    await world.says("delete 42")
    world.telegram.takes_rights(world.group)
    await world.presses(world.prompt(world.group))
    assert world.invoices.deleted == ["42"]
    await world.says("hello", chat=world.ana)
    assert [each.text for each in world.read(world.ana)] == ["You said: hello", "Invoice 42 is deleted."]


async def test_outcome_is_told_later_where_private_is_shut_too(world: World) -> None:
    await world.says("hi", chat=world.ana)
    await world.says("delete 42")
    world.telegram.takes_rights(world.group)
    world.telegram.refusing[world.ana.id, None] = "Bad Request: CHAT_RESTRICTED"
    await world.presses(world.prompt(world.group))
    world.telegram.refusing.clear()
    await world.says("hello", chat=world.ana)
    assert [each.text for each in world.read(world.ana)][1:] == ["You said: hello", "Invoice 42 is deleted."]


async def test_edited_record_ends_the_question_asked_in_private(world: World) -> None:
    await world.says("hi", chat=world.ana)
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    shown, store = world.prompt(world.ana), world.gateway.store
    action = next(each for each in await world.actions() if each.ballot_of is None)
    key = keys.key(store, action.conversation, lambda _: keys.action(action.pending_action_id))
    record: Any = (await store.get([key]))[key].value
    edited = {**record, "body": record["body"].replace('"42"', '"666"')}
    await store.commit(Transaction(partition=key.partition, puts={key.name: Put(edited)}))
    await world.presses(shown)
    assert world.invoices.deleted == [] and not shown.buttons
    assert "was changed from outside the chat" in world.read(world.ana)[-1].text


async def test_missed_news_are_forgotten_with_their_person(world: World) -> None:
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    store = world.gateway.store
    assert await store.scan(keys.MISSED)
    await world.gateway.bot.conversations.forget(f"telegram:{world.telegram.bot.id}:{world.ana.id}")
    of_ana = re.compile(rf"(?<!\d){world.ana.id}(?!\d)")  # a time may hold the same digits
    assert not [key.name for key, record in await store.scan("") if of_ana.search(f"{key.name} {record.value}")]


async def test_stop_in_private_withdraws_the_question_of_the_group(world: World) -> None:
    await world.says("hi", chat=world.ana)
    world.telegram.takes_rights(world.group)
    await world.says("delete 42")
    shown = world.prompt(world.ana)
    await world.says("/stop", chat=world.ana)
    await world.presses(shown)
    assert world.invoices.deleted == [] and not shown.buttons
    assert {each.state for each in await world.actions()} == {"closed"}


async def test_blocked_bot_tells_the_end_once_unblocked(world: World) -> None:
    await world.says("hi", chat=world.ana)
    world.telegram.fail_next("sendMessage", 403, "Forbidden: bot was blocked by the user")
    await world.says("delete 42", chat=world.ana)
    await world.says("hello", chat=world.ana)
    assert world.read(world.ana)[1].text == "You said: hello"
    assert "nothing was done: Delete invoice “42”" in world.read(world.ana)[2].text


async def test_buttons_of_the_earlier_place_no_longer_decide(world: World) -> None:
    await world.says("delete 42")
    before = world.prompt(world.group)
    world.telegram.topic_closes(world.group, world.topic)
    await world.says("what is the weather?")
    after = world.prompt(world.group)
    assert after is not before and after.thread is None
    assert await world.presses(before) == "This button belongs to another chat."
    assert world.invoices.deleted == []
    await world.presses(after)
    assert world.invoices.deleted == ["42"]


async def test_topic_that_opens_again_takes_the_question_back(world: World) -> None:
    world.telegram.topic_closes(world.group, world.topic)
    await world.says("delete 42")
    world.telegram.refusing.clear()
    await world.says("what is the weather?")
    again = world.prompt(world.group)
    assert again.thread == world.topic
    await world.presses(again)
    assert world.invoices.deleted == ["42"]


async def test_only_the_refused_part_of_an_answer_moves(world: World) -> None:
    await world.says("hi", chat=world.ana)
    long = "word " * 1_500
    hold = world.telegram.hold("sendMessage")
    said = asyncio.create_task(world.says(long))
    await hold.reached()
    world.telegram.takes_rights(world.group)
    hold.release()
    await said
    first, second = world.read(world.group), world.read(world.ana)[1:]
    assert len(first) == len(second) == 1
    assert (first[0].text + " " + second[0].text).split() == ["You", "said:", *long.split()]


async def test_plan_of_a_closed_topic_is_asked_item_by_item(world: World) -> None:
    world.telegram.topic_closes(world.group, world.topic)
    await world.says("delete 42 43")
    shown = world.read(world.group)
    assert len(shown) == 2 and {each.thread for each in shown} == {None}
    for each in shown:
        await world.presses(each)
    assert sorted(world.invoices.deleted) == ["42", "43"]


# ── approvers in the group ──


async def test_approver_of_a_closed_topic_is_asked_beside_it(tmp_path: Path) -> None:
    async with opened(tmp_path, people=["telegram:7000001:1002"], name="our office") as world:
        world.telegram.topic_closes(world.group, world.topic)
        await world.says("delete 42")
        (shown,) = world.read(world.group)
        assert "our office" in shown.text and "Ana (Telegram" in shown.text
        assert await world.presses(shown) == "This is not yours to answer."
        await world.presses(shown, by=world.ben)
        assert world.invoices.deleted == ["42"]


async def test_asker_cannot_approve_in_private_for_others(tmp_path: Path) -> None:
    async with opened(tmp_path, people=["telegram:7000001:1002"], name="our office") as world:
        for person in (world.ana, world.ben):
            await world.says("hi", chat=person, by=person)
        world.telegram.takes_rights(world.group)
        await world.says("delete 42")
        assert len(world.read(world.ana)) == len(world.read(world.ben)) == 1
        await world.says("hello", chat=world.ana)
        assert "nothing was done: Delete invoice “42”" in world.read(world.ana)[-1].text


# ── Slack ──


@pytest.mark.parametrize("way", ["press", "code", "reply"])
async def test_question_of_a_locked_thread_is_asked_beside_it(world: World, way: str) -> None:
    ts = await world.writes("hello")
    world.slack.refusing[world.channel, ts] = "thread_locked"
    await world.writes("delete 42", thread=ts)
    shown = world.slack.last(world.channel, button="Confirm")
    assert shown is not None and shown.thread is None and "Only <@" not in shown.text
    if way == "press":
        await world.presses(shown)
    elif way == "code":
        await world.slack.says(world.eva, world.channel, f"OK {world.code(shown.text)}")
    else:
        await world.slack.says(world.eva, world.channel, "no", thread=shown.ts)
    await world.quiet()
    assert world.invoices.deleted == ([] if way == "reply" else ["42"])
    assert not shown.buttons


@pytest.mark.parametrize(
    "error",
    ["restricted_action", "restricted_action_read_only_channel", "is_archived", "not_in_channel", "channel_not_found"],
)
async def test_channel_without_rights_is_asked_in_private(world: World, error: str) -> None:
    if error.startswith("restricted"):
        world.slack.refusing[world.channel, None] = error
    else:
        world.slack.unreachable[world.channel] = error
    await world.writes("delete 42")
    direct = world.slack.direct(world.eva)
    shown = world.slack.last(direct, button="Confirm")
    assert shown is not None
    await world.presses(shown)
    assert world.invoices.deleted == ["42"]
    assert {each.channel for each in world.slack.sent} == {direct}
    assert world.slack.sent[-1].text == "Invoice 42 is deleted."


@pytest.mark.parametrize("answer", ["Confirm", "Cancel"])
async def test_without_a_private_chat_the_asker_alone_sees_it(world: World, answer: str) -> None:
    world.slack.refusing[world.channel, None] = "restricted_action"
    world.slack.no_direct[world.eva] = "user_disabled"
    await world.writes("delete 42")
    (shown,) = world.slack.whispers
    assert shown.only_to == world.eva and world.code(shown.text)
    await world.presses(shown, answer)
    assert world.invoices.deleted == (["42"] if answer == "Confirm" else [])
    assert world.slack.sent == [] and len(world.slack.whispers) == 2
    assert {each.only_to for each in world.slack.whispers} == {world.eva}
    assert not world.slack.called("chat.update")


async def test_slack_question_shown_nowhere_is_told_in_the_channel(world: World) -> None:
    world.slack.unreachable[world.channel] = "is_archived"
    world.slack.no_direct[world.eva] = "cannot_dm_bot"
    await world.writes("delete 42")
    world.slack.unreachable.clear()
    await world.writes("hello", by=world.dan)
    await world.writes("hello")
    texts = [each.text for each in world.slack.sent]
    assert sorted(texts)[0].startswith("The question could not be shown anywhere, so nothing was done: Delete invoice")
    assert len(texts) == 3


async def test_outcome_kept_on_slack_reads_the_same_later(world: World) -> None:
    """The text in the call to Slack is escaped, has broken mentions, and is cut at 4,000 characters."""
    world.invoices.outcome = "A&B <C> @here " + "x" * 4_500
    await world.writes("delete 41")
    shown = world.slack.last(world.channel, button="Confirm")
    assert shown is not None
    await world.presses(shown)
    in_time = world.slack.sent[-1]
    await world.writes("delete 42")
    shown = world.slack.last(world.channel, button="Confirm")
    assert shown is not None
    world.slack.unreachable[world.channel] = "is_archived"
    world.slack.no_direct[world.eva] = "cannot_dm_bot"
    await world.presses(shown)
    world.slack.unreachable.clear()
    await world.writes("hello")
    late = [each for each in world.slack.sent if "x" * 100 in each.shown and each is not in_time]
    assert [(each.text, each.shown) for each in late] == [(in_time.text, in_time.shown)]


async def test_unreachable_platform_defers_the_private_question(world: World) -> None:
    world.slack.refusing[world.channel, None] = "restricted_action"
    world.slack.fail_next("conversations.open", "service_unavailable")
    await world.writes("delete 42")
    assert len(world.slack.called("conversations.open")) == 2
    assert world.slack.last(world.slack.direct(world.eva), button="Confirm") is not None


# ── a process that dies in between ──


class Shut(Platform):
    """Takes no message in groups."""

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        if address.group:
            raise PlaceRefused("no_rights")
        return await super().send(address, part, key=key)

    def reroute(self, part: Part, address: Address, *, only_to: str = "", buttons: bool = False) -> Part | None:
        return None if only_to else replace(part, buttons=part.buttons if buttons else ())

    async def open(self, person: object) -> Address:
        return Address(channel="test", account="bot", place=str(person).rpartition(":")[2])


@pytest.mark.parametrize("answer_lost", [False, True], ids=["before it took effect", "after it took effect"])
@pytest.mark.parametrize("text", ["delete 42", "hello"])
async def test_a_death_neither_repeats_nor_loses_the_move(tmp_path: Path, text: str, answer_lost: bool) -> None:
    async def moved(dies_after: int | None) -> tuple[list[str], bool]:
        invoices = Invoices()
        async with rig(invoices.bot(), tmp_path, Shut()) as chat:
            await chat.hears("ana", "hi")
            await chat.says("ana", text, place="#1")
            await chat.worker.turn()
            lease = await chat.worker.lease("out", lease_seconds=0.0)
            chat.wire.calls_left, chat.wire.last_answer_lost = dies_after, answer_lost
            with contextlib.suppress(LostCall):
                await chat.worker.delivery.run(lease)
            died = chat.wire.calls_left == 0
            chat.wire.calls_left = None
            chat.worker = chat.another()
            for _ in range(3):
                await asyncio.sleep(0)
                await chat.advance(10)
                with contextlib.suppress(Fenced):
                    await chat.store.renew(lease, lease_seconds=0.0)
                await chat.worker.engine._decisions.sweep(0.0)
                await chat.work()
            texts = chat.platform.texts()[1:]
            await chat.handles("ana", "yes")
            await chat.worker.engine._decisions.sweep(0.0)
            await chat.work()
            assert invoices.deleted == (["42"] if text == "delete 42" else [])
            return [re.sub(r"OK \w{4}", "OK", each.partition("NO ")[0]) for each in texts], died

    undisturbed, died = await moved(None)
    assert len(undisturbed) == 1
    calls = 0
    while not calls or died:
        calls += 1
        found, died = await moved(calls)
        assert found == undisturbed, calls
    assert calls > 4


class Mute(Shut):
    """Takes no message in groups, and opens no private chat."""

    async def open(self, person: object) -> Address:
        raise Unreachable("never_wrote")


@pytest.mark.parametrize("answer_lost", [False, True], ids=["before it took effect", "after it took effect"])
async def test_a_death_neither_repeats_nor_loses_the_news(tmp_path: Path, answer_lost: bool) -> None:
    async def told(dies_after: int | None) -> tuple[list[str], bool]:
        async with rig(Invoices().bot(), tmp_path, Mute()) as chat:
            await chat.handles("ana", "delete 42", place="#1")
            await chat.worker.engine._decisions.sweep(0.0)
            await chat.says("ana", "so?", place="#1")
            await chat.worker.turn()
            leased: list[Lease] = []
            chat.wire.calls_left, chat.wire.last_answer_lost = dies_after, answer_lost
            with contextlib.suppress(LostCall):
                await chat.worker.engine._decisions.sweep(0.0)
                leased.append(await chat.worker.lease("out", lease_seconds=0.0))
                await chat.worker.delivery.run(leased[0])
            died = chat.wire.calls_left == 0
            chat.wire.calls_left = None
            chat.worker = chat.another()
            for _ in range(3):
                await asyncio.sleep(0)
                await chat.advance(100)
                for lease in leased:
                    with contextlib.suppress(Fenced):
                        await chat.store.renew(lease, lease_seconds=0.0)
                await chat.worker.engine._decisions.sweep(0.0)
                await chat.work()
            for text in ("hello", "hello again"):
                await chat.handles("ana", text)
            return chat.platform.texts(), died

    undisturbed, died = await told(None)
    assert len(undisturbed) == 3 and "nothing was done: Delete invoice" in undisturbed[1]
    calls = 0
    while not calls or died:
        calls += 1
        found, died = await told(calls)
        assert found == undisturbed, calls
    assert calls > 4
