"""A growing text: drafts in private chats, and edited messages elsewhere or where the server knows no drafts."""

from __future__ import annotations

import pytest

from channels import RateLimited, Reply, Undeliverable
from channels.telegram import TelegramChannel
from tests.channels.telegram.conftest import group, private
from tests.fakes.telegram import Chat, FakeTelegram, User


@pytest.fixture
async def team(telegram: FakeTelegram, ana: User) -> Chat:
    chat = telegram.group("Team")
    await telegram.person_says(chat, ana, "hello")
    return chat


async def test_a_private_chat_shows_a_draft(channel: TelegramChannel, telegram: FakeTelegram, ana: User) -> None:
    stream = await channel.stream(private(channel, ana))
    await stream.update("Hello")
    await stream.update("Hello **An")
    (first, second) = telegram.drafts
    assert (first.text, second.text, second.entities) == (
        "Hello",
        "Hello An",
        [{"type": "bold", "offset": 6, "length": 2}],
    )
    assert first.draft_id == second.draft_id != 0
    assert not telegram.sent
    assert not stream.message_ids
    assert (await channel.stream(private(channel, ana))) is not stream


async def test_a_draft_of_a_long_text_shows_its_end(
    channel: TelegramChannel, telegram: FakeTelegram, ana: User
) -> None:
    stream = await channel.stream(private(channel, ana))
    await stream.update("word " * 1000 + "end")
    assert telegram.drafts[-1].text.endswith("end")


async def test_a_server_without_drafts_is_asked_once(
    channel: TelegramChannel, telegram: FakeTelegram, ana: User
) -> None:
    telegram.fail_next("sendMessageDraft", 404, "Not Found")
    with pytest.raises(Undeliverable):
        await (await channel.stream(private(channel, ana))).update("Hello")
    stream = await channel.stream(private(channel, ana))
    await stream.update("Hello")
    await stream.update("Hello Ana")
    assert [message.text for message in telegram.sent] == ["Hello Ana"]
    assert [*stream.message_ids] == [str(telegram.sent[0].message_id)]


async def test_a_group_sees_one_message_grow(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    stream = await channel.stream(group(channel, team))
    for text in ("One", "One two", "One two", "One two three"):
        await stream.update(text)
    (message,) = telegram.sent
    assert (message.text, message.edits) == ("One two three", 2)
    assert not telegram.drafts


async def test_a_long_text_goes_on_in_a_new_message(
    channel: TelegramChannel, telegram: FakeTelegram, team: Chat
) -> None:
    stream = await channel.stream(group(channel, team))
    await stream.update("a " * 1500)
    await stream.update("a " * 2500)
    assert [len(message.text) <= 4096 for message in telegram.sent] == [True, True]
    assert len(stream.message_ids) == 2
    await stream.update("b")  # another reply begins
    assert [message.text for message in telegram.sent] == ["b"]
    await stream.finish([])
    assert not telegram.sent


async def test_a_limit_is_told_with_its_seconds(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    stream = await channel.stream(group(channel, team))
    await stream.update("One")
    telegram.fail_next("editMessageText", 429, "Too Many Requests", retry_after=17)
    with pytest.raises(RateLimited) as limited:
        await stream.update("One two")
    assert limited.value.retry_after_seconds == 17
    await stream.update("One two")
    assert [message.text for message in telegram.sent] == ["One two"]


async def test_the_answer_takes_the_place_of_the_text(
    channel: TelegramChannel, telegram: FakeTelegram, team: Chat
) -> None:
    begun = await channel.stream(group(channel, team))
    await begun.update("One tw")
    again = await channel.stream(group(channel, team), message_ids=begun.message_ids)
    (part,) = channel.render(group(channel, team), Reply(text="One two."))
    for _ in range(2):
        (receipt,) = await again.finish([part])
        assert receipt.message_id == str(telegram.sent[0].message_id)
    assert [message.text for message in telegram.sent] == ["One two."]
