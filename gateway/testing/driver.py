"""ChatDriver: a chat with a bot, for an author's own tests. The engine is real, over a store in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from channels import (
    Address,
    Attachment,
    Button,
    ButtonPress,
    Capabilities,
    Event,
    Media,
    Message,
    Parsed,
    Part,
    Person,
    Receipt,
    Reply,
    WebhookResponse,
)
from channels.catalogue import names
from channels.direct import DirectChannel
from gateway.agent import Agent
from gateway.assembly import in_memory
from gateway.channel_agent import ChannelAgent
from gateway.providers import Provider
from gateway.testing.doubles import FakeClock, ScriptedProvider
from gateway.tools.approver_places import channel_of


@dataclass(slots=True, kw_only=True)
class Shown:
    """A message of the bot as the person sees the message now."""

    number: int
    """The number of the message, counted from 1, for `says(reply_to=...)`."""
    place: str
    """The name of a person or of a #group; on another platform the written form, such as ``slack:T1:U7``."""
    text: str
    buttons: list[str] = field(default_factory=list)
    """The labels of the message's buttons."""
    artifacts: list[Media] = field(default_factory=list)
    edited: bool = False
    tokens: dict[str, str] = field(default_factory=dict, repr=False)
    address: Address = field(repr=False)


class _ChatChannel(DirectChannel):
    """A platform with buttons and edits. Every message is shown at once."""

    name: ClassVar[str] = "test"
    capabilities = Capabilities(max_text=100_000, buttons=100, button_label=100, edit=True, bare_yes="ordered")

    def __init__(self, shown: list[Shown], alerts: list[str]) -> None:
        self.shown, self.alerts = shown, alerts

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        if reply.edits is not None:
            return [Part(call="edit", arguments={"text": reply.text, "edits": reply.edits}, buttons=reply.buttons)]
        words = [Part(call="show", arguments={"text": reply.text}, buttons=reply.buttons)]
        files = [Part(call="show", arguments={"text": ""}, media=media) for media in reply.media]
        return [*(words if reply.text or reply.buttons else []), *files]

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        text, labels = str(part.arguments["text"]), _labels(part.buttons)
        if part.call == "edit":
            message = self.shown[int(str(part.arguments["edits"])) - 1]
            message.text, message.edited = text, True
            message.buttons, message.tokens = list(labels), labels
            return Receipt(message_id=str(message.number))
        place = address.place if address.channel == _ChatChannel.name else str(address)
        message = Shown(
            number=len(self.shown) + 1, place=place, text=text, buttons=list(labels), tokens=labels, address=address
        )
        if part.media is not None:
            message.artifacts.append(part.media)
        self.shown.append(message)
        return Receipt(message_id=str(message.number))

    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        self.alerts.append(text)


class ChatDriver:
    """A chat with a bot. A call with a turn past the end of a ScriptedProvider's script raises AssertionError.

    A person is a name, ``ana``: the person ``test:bot:ana``. A person of another platform is the written form,
    ``slack:T1:U7``: of each installed channel, and of those named by an approver rule or by a tool's ``channels=``.

    ``async with ChatDriver(bot, provider=ScriptedProvider([...])) as chat: await chat.says("ana", "delete INV-42")``
    """

    def __init__(
        self, bot: ChannelAgent | Agent, *, provider: Provider | None = None, clock: FakeClock | None = None
    ) -> None:
        """`provider` replaces the bot's own while the chat lasts."""
        self.bot = bot if isinstance(bot, ChannelAgent) else ChannelAgent(bot)
        self.clock = clock or FakeClock()
        self._provider = provider
        self._shown: list[Shown] = []
        self._alerts: list[str] = []
        self._numbers = itertools.count(1)
        self._acted: Address | None = None
        self._stack: contextlib.AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            if self._provider is not None:
                own, self.bot.agent = self.bot.agent, self.bot.agent.using(self._provider)
                stack.callback(setattr, self.bot, "agent", own)
            channels = {name: _chat_channel(name, self._shown, self._alerts) for name in _channels(self.bot)}
            self.engine = await stack.enter_async_context(in_memory(self.bot, channels))
            self.engine.context.store.offset_seconds = self.clock.offset_seconds
            self.engine.start()
            self.clock.attach(self._moved)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._stack is not None:
            stack, self._stack = self._stack, None
            await stack.aclose()

    async def says(
        self,
        person: str,
        text: str,
        *,
        group: str | None = None,
        reply_to: int | None = None,
        attachments: Sequence[Attachment] = (),
        after: int | None = None,
        mentions_bot: bool = True,
    ) -> None:
        """Send a message of a person; returns when the conversation is idle.

        `reply_to` is the number of a message of the bot. `after` is the number of the last bot message seen by the
        person, for words arriving late; None: the newest message. `mentions_bot` addresses a message in a group to the
        bot; in other chats every message is addressed to the bot.
        """
        address = _address(person) if group is None else _group(group)
        seen = after if after is not None else self._newest(address)
        command, words = None, text
        if text.startswith("/"):
            command, _, words = text[1:].partition(" ")
        await self._take(
            Message(
                event_ids=(f"message {(number := next(self._numbers))}",),
                address=address,
                person=_person(person),
                message_id=f"own {number}",
                text=words,
                command=command,
                reply_to=str(reply_to) if reply_to is not None else None,
                attachments=tuple(attachments),
                after=str(seen) if seen is not None else None,
                mentions_bot=mentions_bot and group is not None,
                answers_bot=reply_to is not None,
            )
        )

    async def presses(self, person: str, label: str) -> None:
        """Press the newest button with this label for a person, in the person's own chat or a group.

        Raises LookupError when no message shows the button now.
        """
        for message in reversed(self._shown):
            if label in message.tokens:
                await self._take(
                    ButtonPress(
                        event_ids=(f"press {(number := next(self._numbers))}",),
                        address=message.address,
                        person=_person(person),
                        answer_to=f"press {number}",
                        token=message.tokens[label],
                        message_id=str(message.number),
                    ),
                )
                return
        there = sorted({f"{each!r}" for message in self._shown for each in message.tokens})
        raise LookupError(f"no message shows a button {label!r} now, only {', '.join(there) or 'none at all'}")

    @property
    def messages(self) -> list[Shown]:
        """All messages of the bot, oldest first, in the present state."""
        return list(self._shown)

    @property
    def alerts(self) -> list[str]:
        """The private answers to presses, oldest first."""
        return list(self._alerts)

    @property
    def last(self) -> Shown:
        """The newest message in the chat of the last message or press. Raises LookupError when there is none."""
        for message in reversed(self._shown):
            if message.address == self._acted:
                return message
        raise LookupError("the bot has said nothing yet")

    def _newest(self, address: Address) -> int | None:
        return next((message.number for message in reversed(self._shown) if message.address == address), None)

    async def _take(self, event: Event) -> None:
        self._acted = event.address
        name = event.address.channel
        channel = self.engine.context.channels.get(name)
        if channel is None:
            raise ValueError(
                f"nobody of {name} is played: no channel of that name is installed, "
                "and no approvers= or channels= names it"
            )
        await self.engine.inbox.accept(channel, Parsed(events=(event,), response=WebhookResponse()))
        await self._idle()

    async def _moved(self, offset_seconds: float) -> None:
        self.engine.context.store.offset_seconds = offset_seconds
        await self.engine.due()
        await self._idle()

    async def _idle(self) -> None:
        tasks = self.engine.context.tasks
        while not await self.engine.idle():
            await asyncio.sleep(0.001)
            await tasks.ended()  # without a question to the store at each look
        if isinstance(provider := self.bot.agent.provider, ScriptedProvider):
            provider.assert_followed()


def _channels(bot: ChannelAgent) -> set[str]:
    """Return the platforms to play: the driver's own, the installed, and those that the bot's tools name."""
    found = {_ChatChannel.name, *names()}
    for tool, _ in bot.agent.reach.values():
        rule = tool.approvers
        found |= tool.channels or set()
        if rule is not None:
            found |= {channel_of(approver) for approver in (*(rule.listed or ()), *rule.standin)}
    return found - {DirectChannel.name}


def _chat_channel(name: str, shown: list[Shown], alerts: list[str]) -> _ChatChannel:
    played: type[_ChatChannel] = type("_ChatChannel", (_ChatChannel,), {"name": name})
    return played(shown, alerts)


def _person(written: str) -> Person:
    if written.count(":") < 2:
        return Person(channel=_ChatChannel.name, account="bot", user_id=written, name=written.capitalize())
    person = Person.parse(written)
    return replace(person, name=person.user_id)


def _address(person: str) -> Address:
    """Return the address of a person's own chat."""
    if person.count(":") < 2:
        return Address(channel=_ChatChannel.name, account="bot", place=person)
    played = Person.parse(person)
    return Address(channel=played.channel, account=played.account, place=played.user_id)


def _group(name: str) -> Address:
    if name.count(":") < 2:
        return Address(channel=_ChatChannel.name, account="bot", place=f"#{name}", group=True)
    return replace(Address.parse(name), group=True)


def _labels(buttons: Sequence[Button]) -> dict[str, str]:
    return {button.label: button.token for button in buttons}
