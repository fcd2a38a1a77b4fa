"""A person changes their mind again and again: one question stays open, and no card is shown twice.

`changes/LANGUAGE.txt` has the messages of the person and the answers of the model. `changes/LANGUAGE-PLATFORM.txt` has
the whole chat as the person reads it: of Telegram in each language, and of SMS in English.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from channels.slack.channel import SlackChannel
from channels.telegram.channel import TelegramChannel
from channels.twilio.channel import SmsChannel, WhatsAppChannel
from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool
from gateway.agent.withdrawing import WITHDRAW_QUESTION
from gateway.providers.base import Request, Response, ToolCall
from gateway.testing import ChatDriver, FakeClock
from gateway.testing.driver import _ChatChannel

CHATS = Path(__file__).with_name("changes")
CAPABILITIES = {
    "telegram": TelegramChannel.capabilities,
    "sms": SmsChannel.capabilities,
    "slack": SlackChannel.capabilities,
    "whatsapp": WhatsAppChannel.capabilities,
}
READS_AS = {"slack": "telegram"}
"""Platform -> the platform with the same texts."""
QUESTION = {
    "en": "Book a table for {people} on {day} at {time}?",
    "de": "Einen Tisch für {people} am {day} um {time} reservieren?",
    "es": "¿Reservar una mesa para {people} el {day} a las {time}?",
    "fr": "Réserver une table pour {people}, {day} à {time} ?",
    "pt": "Reservar uma mesa para {people} na {day} às {time}?",
}
_OPEN = re.compile(r"^- (q\d+), ", re.MULTILINE)


class Waiter:
    """A model with a script: each message is followed by an answer, or by a booking that replaces the open one."""

    name = "waiter"

    def __init__(self, script: list[tuple[str, str]]) -> None:
        self._answers = dict(script)

    async def complete(self, request: Request) -> Response:
        last = request.messages[-1]
        if last.role != "user":
            return Response(content="")
        answer = self._answers[last.content.strip().splitlines()[-1]]
        if not answer.startswith("! "):
            return Response(content=answer)
        people, day, time = answer.removeprefix("! ").split(" | ")
        notes = "\n".join(message.content for message in request.messages if message.role == "event")
        calls = [
            ToolCall(call_id="w", name=WITHDRAW_QUESTION, args={"questions": sorted({*_OPEN.findall(notes)})[-1:]})
        ]
        booking = ToolCall(call_id="b", name="book", args={"people": int(people), "day": day, "time": time})
        return Response(tool_calls=(*(calls if _OPEN.search(notes) else ()), booking), finish="tools")

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Release no resource."""


def restaurant(language: str, script: list[tuple[str, str]], booked: list[tuple[int, str, str]]) -> ChannelAgent:
    @tool(confirm=Confirm(QUESTION, verb="book"))
    async def book(people: int, day: str, time: str, ctx: ToolContext) -> str:
        """Book a table."""
        booked.append((people, day, time))
        return ""

    return ChannelAgent(Agent([book], provider=Waiter(script)), language=language)


def script_of(language: str) -> list[tuple[str, str]]:
    lines = (CHATS / f"{language}.txt").read_text(encoding="utf-8").splitlines()
    return [(said, answer) for said, _, answer in (line.partition(" => ") for line in lines)]


@pytest.mark.parametrize(
    "platform", ["telegram", "sms", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("slack", "whatsapp"))]
)
@pytest.mark.parametrize("language", QUESTION)
async def test_change_of_mind_ends_with_one_question(
    language: str, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ChatChannel, "capabilities", CAPABILITIES[platform])
    script, booked, clock = script_of(language), list[tuple[int, str, str]](), FakeClock()
    read: list[str] = []
    async with ChatDriver(restaurant(language, script, booked), clock=clock) as chat:

        async def says(text: str) -> None:
            before = len(chat.messages)
            await clock.advance(20)
            await chat.says("ana", text)
            read.extend([f"> {text}", *(message.text for message in chat.messages[before:])])

        for said, _ in script:
            await says(said)
        (left,) = (await chat.engine.context.actions("agent/test:bot:ana")).open
        for _ in range(2):
            await says(f"OK {left.code}")
    assert booked == [(8, left.args["day"], "19:00")]
    titles = [found[0] for text in read if (found := re.search(r"\*\*.*[?]\*\*", text))]
    assert set(Counter(titles).values()) <= {1, 2, 3}, "a question is shown again twice at most"
    codes = dict.fromkeys(code for text in read for code in re.findall(r"\b[A-ZÃ]{2,4} ([A-Z0-9]{4})\b", text))
    shown = "\n\n".join(read) + "\n"
    for number, code in enumerate(codes):
        shown = shown.replace(code, f"{number:04}")
    reads_as = READS_AS.get(platform, platform)
    if reads_as == "telegram" or (language, platform) == ("en", "sms"):
        assert shown == (CHATS / f"{language}-{reads_as}.txt").read_text(encoding="utf-8")
