"""The way in: a channel's events become stored events, before anybody is told that they arrived."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from channels import (
    ButtonPress,
    CanAnswer,
    Channel,
    ConversationMoved,
    Event,
    Message,
    MessageEdited,
    OptOut,
    Parsed,
    Person,
    Reaction,
    Reply,
)
from gateway.engine import event_log
from gateway.engine.context import EngineContext
from gateway.engine.decisions import OVERTAKING, Decisions, named
from gateway.engine.intake.addressing import Addressing
from gateway.engine.intake.rates import Rates
from gateway.engine.intake.shapes import Shapes
from gateway.engine.reply_limits import once_a_minute, refusals, security_line
from gateway.engine.strangers import Strangers
from gateway.engine.turns.batch import is_plain
from gateway.engine.turns.interrupts import interrupt
from gateway.limits import Share
from gateway.pending.actions import OutgoingReply
from gateway.pending.reading import decides
from gateway.store.base import Flooded, Incoming, Overloaded, Put, StoreUnavailable, Transaction
from gateway.store.form import NewerForm
from gateway.wording import say

__all__ = ["Inbox"]

log = logging.getLogger("askfirst.inbox")

_OF_A_PERSON = (Message, MessageEdited, ButtonPress, Reaction)
"""Events that only a person causes. One without a person, such as some posts in channels, is not taken."""
_MOST_WARNED = 100
_NOTED_SECONDS = 3600.0


class Inbox:
    """Takes what channels parsed."""

    def __init__(self, context: EngineContext, decisions: Decisions) -> None:
        self._context, self._decisions, self._strangers = context, decisions, Strangers(context)
        self._messages = Rates(context.store, "messages", context.limits.messages)
        self._decided = Rates(context.store, "decisions", _twice(context.limits.messages))
        self._shapes = Shapes(context.store, context.bot.name)
        self._addressing = Addressing(context)
        self._warned: set[tuple[str, str]] = set()
        """Channel and name of each unknown field that the log has named."""
        self._noted: dict[str, float] = {}
        """Whose rate was used up -> when the log may say it again."""

    async def take(self, channel: Channel, parsed: Parsed, *, in_line: bool = False) -> None:
        """Store what a request held; durable when it returns.

        Where a platform hands out all that it has `in_line`, what is refused holds up everybody behind it: so it is
        stored though so much waits in its conversation, while the store has room. Raises StoreUnavailable and
        Overloaded.
        """
        if parsed.not_understood:  # an error would hold back the chat
            await self._shapes.note(channel.name, parsed.payload, await self._context.clock.now())
        for event, incoming in await self._store(channel, parsed.events, in_line):
            if isinstance(event, Message) and event.unknown_fields:
                self._warn(channel, event.unknown_fields)
            if incoming.decides:
                self._context.tasks.start(self._decisions.decide(incoming.conversation), "decide")
            elif isinstance(event, Message) and self._context.bot.when_busy == "interrupt":
                self._context.tasks.start(interrupt(self._context, event, incoming.conversation), "interrupt")

    async def _store(self, channel: Channel, events: Sequence[Event], in_line: bool) -> list[tuple[Event, Incoming]]:
        """Those that are new."""
        taken: list[tuple[Event, Incoming]] = []
        await self._context.read_words(*(event.person.language for event in events if event.person is not None))
        received = await self._context.clock.now()
        for event in events:
            if _is_nothing(event):
                continue
            has_author = event.person is not None or not isinstance(event, _OF_A_PERSON)
            if has_author and await self._strangers.may_talk(event.person):
                conversation = await self._conversation(event)
                decisive = await self._decides(event, conversation)
                meant = event if decisive else await self._addressing.meant(event, conversation)
                if meant is None:
                    continue
                event = meant
                if not await self._is_above_its_rate(event, conversation, decisive):
                    taken.append((event, self._incoming(channel, event, conversation, received, decisive)))
            elif isinstance(event, OptOut):  # a stranger too may want to hear nothing
                heard = replace(event, told=True)
                conversation = await self._conversation(event)
                taken.append((heard, self._incoming(channel, heard, conversation, received, decisive=True)))
            elif isinstance(event, Message) and event.person is not None and not event.address.group:
                self._context.tasks.start(self._strangers.turn_away(event, event.person), "turn away")
            elif isinstance(event, ButtonPress):
                self._context.tasks.start(self._refuse(channel, event), "refuse a press")
        if not taken:
            return []
        try:
            fresh = await self._accept([incoming for _, incoming in taken], in_line)
        except BaseException:  # also when the platform has waited long enough, which cancels it
            for event, incoming in taken:
                self._uncount(event, incoming)
            raise
        for (event, incoming), new in zip(taken, fresh, strict=True):
            event_log.accepted(event, incoming.conversation, new=new)
            if new:
                await self._addressing.forget(event, incoming.conversation)
            else:
                self._uncount(event, incoming)
        return taken if all(fresh) else [one for one, new in zip(taken, fresh, strict=True) if new]

    async def _accept(self, taken: Sequence[Incoming], in_line: bool) -> Sequence[bool]:
        try:
            return await self._context.store.accept(taken)
        except Flooded:
            if not in_line:
                raise
            return await self._context.store.accept([replace(incoming, refusable=False) for incoming in taken])
        except Overloaded as error:
            await self._context.refusing.refused(error, self._context.store)
            raise

    def _warn(self, channel: Channel, fields: Sequence[str]) -> None:
        """Name each field once, so that the operator learns why bare answers stop counting after a platform's news."""
        for field in fields:
            if (channel.name, field) not in self._warned and len(self._warned) < _MOST_WARNED:
                self._warned.add((channel.name, field))
                log.warning(
                    "%s: messages carry a field %.80r that this release does not know: "
                    "words beside it are not taken for a yes; upgrade Askfirst",
                    channel.name,
                    field,
                )

    async def _conversation(self, event: Event) -> str:
        """Whose event it is: a group that moved goes on as the conversation it was.

        What is written or pressed in a thread that our question began is of the conversation that asked.
        """
        store, conversation = self._context.store, self._context.conversation(event.address)
        thread = event.address.thread
        if thread is not None and (isinstance(event, ButtonPress) or getattr(event, "reply_to", None) == thread):
            around = self._context.conversation(replace(event.address, thread=None))
            key = self._context.key(around, "open")
            try:
                index = self._context.read_index(around, (await store.get([key]))[key]).index
            except NewerForm as error:  # it comes again, and may meet a process of that release
                raise StoreUnavailable(str(error)) from error
            if index.by_prompt(thread):
                return around
        if not event.address.group:
            return conversation
        key = self._context.key(conversation, "moved")
        if isinstance(event, ConversationMoved):
            before = self._context.conversation(event.came_from)
            await store.commit(Transaction(partition=key.partition, puts={key.name: Put(before)}))
            return before
        return cast("str | None", (await store.get([key]))[key].value) or conversation

    async def _decides(self, event: Event, conversation: str) -> bool:
        """Return True for what the decision lane works. A message is one if it names a question of this conversation,
        by code or as a reply; else it is a message like any other, whatever shape it has."""
        if not isinstance(event, Message) or event.command == "stop":
            return decides(event)
        if event.command in OVERTAKING:
            return True
        if not decides(event):
            return False
        key = self._context.key(conversation, "open")
        try:
            read = self._context.read_index(conversation, (await self._context.store.get([key]))[key])
        except NewerForm:
            return True
        return read.kind != "sealed" or bool(named(read.index, event, self._context.language(event.person)))

    async def _is_above_its_rate(self, event: Event, conversation: str, decisive: bool) -> bool:
        """Return True for what is not taken, since so much has come of its person, its place or all within a minute.
        The person is told once a minute, the operator once an hour."""
        if event.person is None or not isinstance(event, _OF_A_PERSON):
            return False
        rates = self._decided if decisive else self._messages
        whose = await rates.exceeded(event.person, event.address)
        if whose is None:
            return False
        context, person = self._context, event.person
        self._note_rate(whose, person, conversation)
        if isinstance(event, Message) and not await context.store.acquire([once_a_minute(f"fast/{person}")]):
            text = OutgoingReply(reply=Reply(text=say("too_fast", context.language(person))))
            parts = context.parts.render(conversation, event.address, [text], cause="too fast")
            await context.commit(Transaction(partition=context.store.partition(conversation), parts=parts))
        return True

    def _uncount(self, event: Event, incoming: Incoming) -> None:
        """An outage of ours that makes a platform deliver again uses up nobody's rate; a second delivery neither."""
        if event.person is not None and isinstance(event, _OF_A_PERSON):
            rates = self._decided if incoming.decides else self._messages
            rates.give_back(event.person, event.address)

    def _note_rate(self, whose: str, person: Person, conversation: str) -> None:
        now, name = time.monotonic(), str(person) if whose == "person" else conversation if whose == "place" else ""
        if now < self._noted.get(name, 0.0):
            return
        if len(self._noted) >= _MOST_WARNED:
            self._noted.clear()
        self._noted[name] = now + _NOTED_SECONDS
        log.warning(
            "more messages a minute than ASKFIRST_LIMITS allows for %s: what is above %s is not read, "
            "and its writer is told so",
            name or "all together",
            self._context.limits.messages,
        )

    def _incoming(
        self, channel: Channel, event: Event, conversation: str, received: datetime, decisive: bool
    ) -> Incoming:
        account, bot = f"{event.address.channel}:{event.address.account}", self._context.bot
        may_wait = bot.collect_seconds > 0 and isinstance(event, Message) and not decisive
        return Incoming(
            conversation=conversation,
            event_ids=tuple([f"{account}:{event_id}" for event_id in event.event_ids]),
            body=self._context.stamped_event(conversation, event, received),
            decides=decisive,
            wakes=isinstance(event, Message),
            about=f"edit/{event.person}/{event.message_id}" if isinstance(event, MessageEdited) else None,
            collects=may_wait and is_plain(cast("Message", event), bot.language or "en"),
            refusable=channel.capabilities.redelivers and _comes_again(event) and not decisive,
            keep_seconds=channel.capabilities.keep_seconds,
        )

    async def _refuse(self, channel: Channel, press: ButtonPress) -> None:
        """A stranger's press decides nothing, and is told so: the spinner on the button ends."""
        store, language = self._context.store, self._context.language(press.person)
        if isinstance(channel, CanAnswer) and press.answer_to is not None:
            await channel.answer(press.answer_to, say("not_yours", language), private=True)
        if await store.acquire([refusals(press.person)]):
            return
        conversation = self._context.conversation(press.address)
        line = security_line("stranger", press.person, conversation, await store.now())
        await store.commit(Transaction(partition=store.partition(conversation), appends=[("security", line)]))


def _twice(share: Share) -> Share:
    """Presses, codes and /stop are counted apart from messages: a flood of words takes no yes from anybody."""
    return Share(None if share.person is None else 2 * share.person)


def _is_nothing(event: Event) -> bool:
    """Return True for what nobody reads: a reaction, and an edit without words, such as a step of a live location."""
    return isinstance(event, Reaction) or (isinstance(event, MessageEdited) and not event.text)


def _comes_again(event: Event) -> bool:
    """Whether a platform that delivers messages again would this one; a slash command of Slack's is no message."""
    return isinstance(event, Message) and event.message_id is not None
