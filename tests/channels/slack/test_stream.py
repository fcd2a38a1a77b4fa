"""A growing text in one message of Slack that is edited."""

from __future__ import annotations

from channels import Reply
from channels.slack import SlackChannel
from tests.channels.slack.conftest import place
from tests.fakes.slack import FakeSlack


async def test_one_message_grows_and_becomes_the_answer(channel: SlackChannel, slack: FakeSlack, ana: str) -> None:
    address = place(slack, slack.direct(ana), thread="1712.000100")
    stream = await channel.stream(address)
    for text in ("One", "One **tw", "One **two** <!channel>"):
        await stream.update(text)
    (message,) = slack.sent
    assert (message.edits, message.thread) == (2, "1712.000100")
    assert "<!channel>" not in message.text
    again = await channel.stream(address, message_ids=stream.message_ids)
    (part,) = channel.render(address, Reply(text="One **two**."))
    (receipt,) = await again.finish([part])
    assert receipt.message_id == message.ts
    assert [each.text for each in slack.sent] == ["One two."]


async def test_a_text_without_an_answer_is_deleted(channel: SlackChannel, slack: FakeSlack, ana: str) -> None:
    stream = await channel.stream(place(slack, slack.direct(ana)))
    await stream.update("Let me look.")
    await stream.finish([])
    await stream.finish([])
    assert slack.sent == []
