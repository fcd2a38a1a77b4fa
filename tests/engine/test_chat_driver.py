"""ChatDriver stamps words with the newest message that their writer had seen."""

from __future__ import annotations

import pytest

from channels import Event, Message
from gateway import Agent, ChannelAgent
from gateway.testing import ChatDriver, ScriptedProvider


class Recorded(ChatDriver):
    """Keeps what people did."""

    def __init__(self, *said: str) -> None:
        super().__init__(ChannelAgent(Agent([])), provider=ScriptedProvider(list(said)))
        self.events: list[Event] = []

    async def _take(self, event: Event) -> None:
        self.events.append(event)
        await super()._take(event)

    @property
    def seen(self) -> list[str | None]:
        return [event.after for event in self.events if isinstance(event, Message)]


async def test_words_come_after_the_newest_of_their_place() -> None:
    async with Recorded("to Ana", "to Bob", "to the team", "to Ana again", "to the team again") as chat:
        await chat.says("ana", "one")
        await chat.says("bob", "two")
        await chat.says("ana", "three", group="team")
        await chat.says("ana", "four")
        await chat.says("bob", "five", group="team")
        assert chat.seen == [None, None, None, "1", "3"]
        assert [message.text for message in chat.messages][3:] == ["to Ana again", "to the team again"]


async def test_words_may_come_late() -> None:
    async with Recorded("one", "two", "three") as chat:
        for _ in range(2):
            await chat.says("ana", "go on")
        await chat.says("ana", "go on", after=1)
        assert chat.seen == [None, "1", "1"]


async def test_the_end_of_the_script_fails_the_call_that_led_there() -> None:
    async with Recorded("one") as chat:
        await chat.says("ana", "hello")
        with pytest.raises(AssertionError, match=r"the script of 1 steps is used up.*last user: 'and now\?'"):
            await chat.says("ana", "and now?")


async def test_a_script_of_the_bots_own_fails_it_too() -> None:
    bot = ChannelAgent(Agent([], provider=ScriptedProvider([])))
    async with ChatDriver(bot) as chat:
        with pytest.raises(AssertionError, match="used up"):
            await chat.says("ana", "hello")
