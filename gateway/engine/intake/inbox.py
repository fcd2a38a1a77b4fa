"""The inbox: a channel's events are checked, limited and stored before the platform is answered.

Shapes count payloads not understood by the channel, and hold no words of a person. A shape holds the names of the
fields and the kinds of their values. Shapes show the operator that a platform has changed and an upgrade may be needed.
A process counts at most `_MOST_SHAPES` shapes of a channel. A shape is deleted 30 days after the last write.

Rate limits of incoming events, by person, place and all together, are shared by all processes. Asking the store about
every message would cost a round trip each. So a process takes portions, each a sixth of a minute's rate. The first
portion of a minute is taken without asking, and paid together with the second. Occasional messages cost no round trip.
A single process keeps the limit exactly, and each further process exceeds it by a sixth at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from channels import (
    Address,
    AnswerStopped,
    AskfirstError,
    ButtonPress,
    CanAnswer,
    Channel,
    ConversationMoved,
    Event,
    Feedback,
    Json,
    Message,
    MessageEdited,
    OptOut,
    Parsed,
    Person,
    Reaction,
    Reply,
)
from gateway.config.limits import Share
from gateway.engine.context import EngineContext
from gateway.engine.decisions.judging import OVERTAKING, named_actions
from gateway.engine.decisions.lane import Decisions
from gateway.engine.event_bodies import event_body
from gateway.engine.intake.addressing import Addressing, begins_thread
from gateway.engine.reply_limits import note_refusal, once_a_minute, refusals
from gateway.engine.strangers import Strangers
from gateway.engine.turns.batch import is_plain
from gateway.engine.turns.interrupts import interrupt
from gateway.observe.events import DuplicateDropped, MessageReceived, RateExceeded
from gateway.pending.actions import OutgoingReply
from gateway.pending.reading import decides
from gateway.store.base import Store
from gateway.store.errors import MailboxFull, Overloaded
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell, Incoming
from gateway.stored import keys
from gateway.tools.approver_places import place_around
from gateway.wording import say, speaking

log = logging.getLogger("askfirst.inbox")

_OF_A_PERSON = (Message, MessageEdited, ButtonPress, AnswerStopped, Feedback, Reaction)
"""Events that only a person causes. Without a person, like some posts in channels, they are not accepted."""
_MOST_WARNED = 100
_NOTED_SECONDS = 3600.0


class NotStarted(AskfirstError):
    """The platform of a channel could not be reached yet. The channel's events are refused, for a later redelivery."""


class Inbox:
    """Accepts the parsed events of channels."""

    def __init__(self, context: EngineContext, decisions: Decisions) -> None:
        self._context, self._decisions, self._strangers = context, decisions, Strangers(context)
        self._messages = Rates(context.store, "messages", context.rules.limits.messages)
        self._decided = Rates(context.store, "decisions", _twice(context.rules.limits.messages))
        self._shapes = Shapes(context.store, context.bot.name)
        self._addressing = Addressing(context)
        self._warned: set[tuple[str, str]] = set()
        """Channel and name of each logged unknown field."""
        self._noted: dict[str, float] = {}
        """Person, conversation or "" for all together -> the time from which an exceeded rate may be logged again."""

    async def accept(self, channel: Channel, parsed: Parsed, *, in_line: bool = False) -> None:
        """Store the events of a request. The events are durable on return.

        `in_line`: the platform delivers events in order, and a refused event would hold up all later events. An event
        is then stored despite a full conversation, while the store has room.

        Raises NotStarted while the channel's platform was never reached, StoreUnavailable and Overloaded.
        """
        if channel.name in self._context.unreached:
            raise NotStarted(f"{channel.name} is not started")
        if parsed.not_understood:  # an error would hold up the chat
            await self._shapes.note(channel.name, parsed.payload, await self._context.clock.now())
        with speaking(self._context.bot.wording):
            for event, incoming in await self._accept_events(channel, parsed.events, in_line):
                if isinstance(event, Message) and event.unknown_fields:
                    self._warn(channel, event.unknown_fields)
                if incoming.decides:
                    self._context.tasks.start(self._decisions.decide(incoming.conversation), "decide")
                elif isinstance(event, Message) and self._context.bot.when_busy == "interrupt":
                    self._context.tasks.start(interrupt(self._context, event, incoming.conversation), "interrupt")

    async def _accept_events(
        self, channel: Channel, events: Sequence[Event], in_line: bool
    ) -> list[tuple[Event, Incoming]]:
        """Store events, and return the new ones."""
        taken: list[tuple[Event, Incoming]] = []
        await self._context.load_languages(*(event.person.language for event in events if event.person is not None))
        received = await self._context.clock.now()
        for event in events:
            if _has_no_reader(event):
                continue
            if (admitted := await self._admitted(event)) is not None:
                event = admitted
                conversation = await self._conversation(event)
                decisive = await self._decides(event, conversation)
                meant = event if decisive else await self._addressing.event_for_bot(event, conversation)
                if meant is None:
                    continue
                event = meant
                if not await self._is_above_its_rate(event, conversation, decisive):
                    taken.append((event, self._incoming(channel, event, conversation, received, decisive)))
            elif isinstance(event, OptOut):  # a stranger too may opt out
                opt_out = replace(event, told=True)
                conversation = await self._conversation(event)
                taken.append((opt_out, self._incoming(channel, opt_out, conversation, received, decisive=True)))
            elif isinstance(event, Message) and event.person is not None and not event.address.group:
                self._context.tasks.start(self._strangers.turn_away(event, event.person), "turn away")
            elif isinstance(event, ButtonPress):
                self._context.tasks.start(self._refuse(channel, event), "refuse a press")
        if not taken:
            return []
        try:
            fresh = await self._store([incoming for _, incoming in taken], in_line)
        except BaseException:  # the timeout of the request cancels it
            for event, incoming in taken:
                self._uncount(event, incoming)
            raise
        for (event, incoming), new in zip(taken, fresh, strict=True):
            self._tell(event, incoming.conversation, new=new)
            if new:
                await self._addressing.forget(event, incoming.conversation)
            else:
                self._uncount(event, incoming)
        return taken if all(fresh) else [one for one, new in zip(taken, fresh, strict=True) if new]

    def _tell(self, event: Event, conversation: str, *, new: bool) -> None:
        events, event_id = self._context.events, event.event_ids[0] if event.event_ids else type(event).__name__
        if new:
            events.tell_now(
                MessageReceived,
                event_id=event_id,
                address=event.address,
                person=event.person,
                conversation=conversation,
                kind=type(event).__name__,
                **_content_of(event),
            )
        else:
            events.tell_now(DuplicateDropped, event_id=event_id, address=event.address, conversation=conversation)

    async def _store(self, taken: Sequence[Incoming], in_line: bool) -> Sequence[bool]:
        """Store events. Return True for each new event, False for each twin."""
        try:
            return await self._context.store.accept(taken)
        except MailboxFull:
            if not in_line:
                raise
            return await self._context.store.accept([replace(incoming, refusable=False) for incoming in taken])
        except Overloaded as error:
            await self._context.refusing.refused(error, self._context.store)
            raise

    def _warn(self, channel: Channel, fields: Sequence[str]) -> None:
        """Log each unknown field once. The line explains why bare replies stop counting after a change of the
        platform."""
        for name in fields:
            if (channel.name, name) not in self._warned and len(self._warned) < _MOST_WARNED:
                self._warned.add((channel.name, name))
                log.warning(
                    "%s: messages carry a field %.80r that this release does not know: "
                    "words beside it are not taken for a yes; upgrade Askfirst",
                    channel.name,
                    name,
                )

    async def _conversation(self, event: Event) -> str:
        """Return the conversation of an event. A moved group keeps the earlier conversation.

        In a thread begun by a prompt, a press or a reply to the prompt belongs to the conversation of the prompt. So
        does a message that begins a thread, if it has the code of a question of the group itself.
        """
        store, conversation = self._context.store, self._context.conversation(event.address)
        if (thread := event.address.thread) is not None:
            around = self._context.conversation(replace(event.address, thread=None))
            if await self._is_about_question_of(around, event, thread):
                return around
        if not event.address.group:
            return conversation
        key = keys.key(store, conversation, keys.before_move)
        if isinstance(event, ConversationMoved):
            before = self._context.conversation(event.came_from)
            await store.commit(Transaction(partition=key.partition, puts={key.name: Put(before)}))
            return before
        before_move = (await store.get([key]))[key].value
        return before_move if isinstance(before_move, str) and before_move else conversation

    async def _is_about_question_of(self, around: str, event: Event, thread: str) -> bool:
        """Return True for a press or a reply beneath a prompt of the group, and for a code at the top of the group."""
        if isinstance(event, ButtonPress) or getattr(event, "reply_to", None) == thread:
            return bool((await self._context.load_index(around)).index.by_prompt(thread))
        language = self._context.language(event.person)
        if not isinstance(event, Message) or not begins_thread(event) or not decides(event, language):
            return False
        return bool(named_actions((await self._context.load_index(around)).index, event, language))

    async def _decides(self, event: Event, conversation: str) -> bool:
        """Return True for an event of the decision lane.

        A message decides if it names an action of this conversation, by code or as a reply. Its form alone is enough
        only for a command, or if the index cannot be read.
        """
        language = self._context.language(event.person)
        if not isinstance(event, Message) or event.command == "stop":
            return decides(event, language)
        if event.command in OVERTAKING and not event.forwarded:
            return True
        if not decides(event, language):
            return False
        read = await self._context.load_index(conversation)
        return read.kind != "sealed" or bool(named_actions(read.index, event, language))

    async def _admitted(self, event: Event) -> Event | None:
        """Return the event of a person who may talk, or the vote of an approver in a group. None for any other."""
        if event.person is None and isinstance(event, _OF_A_PERSON):
            return None
        if await self._strangers.may_talk(event.person):
            return event
        if not await self._votes_in_group(event):
            return None
        return replace(event, votes_only=True) if isinstance(event, Message) else event

    async def _votes_in_group(self, event: Event) -> bool:
        """Return True for an answer to a question put to this group, or to this person in this group.

        The allow-list need not name the person.
        """
        answers = isinstance(event, ButtonPress) or (isinstance(event, Message) and event.command is None)
        if not answers or event.person is None or not event.address.group:
            return False
        conversation = await self._conversation(event)
        asked = (await self._context.load_index(conversation)).index.open
        rules = [entry.approvers for entry in asked]
        is_asked = any(
            str(event.person) in rule or place_around(rule, event.address, event.person, conversation) for rule in rules
        )
        return is_asked and await self._decides(event, conversation)

    async def _is_above_its_rate(self, event: Event, conversation: str, decisive: bool) -> bool:
        """Return True for an event above the rate of the person, the place or all together. It is not stored.

        The person is notified once a minute, the operator once an hour.
        """
        if event.person is None or not isinstance(event, _OF_A_PERSON):
            return False
        rates = self._decided if decisive else self._messages
        whose = await rates.exceeded(event.person, event.address)
        if whose is None:
            return False
        context, person = self._context, event.person
        context.events.tell_now(RateExceeded, address=event.address, conversation=conversation, share=whose)
        self._note_rate(whose, person, conversation)
        if isinstance(event, Message) and not await context.store.acquire([once_a_minute(f"fast/{person}")]):
            language = context.language(person)
            text = OutgoingReply(reply=Reply(text=say("too_fast", language)))
            parts = context.parts.render(conversation, event.address, [text], cause="too fast", language=language)
            await context.commit(Transaction(partition=context.store.partition(conversation), parts=parts))
        return True

    def _uncount(self, event: Event, incoming: Incoming) -> None:
        """Take an event out of the rates again: a refused event comes again, and a twin was stored before."""
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
            "rate limit of %s exceeded (ASKFIRST_LIMITS: %s messages a minute): extra messages are dropped, "
            "and their author is notified",
            name or "all together",
            self._context.rules.limits.messages,
        )

    def _incoming(
        self, channel: Channel, event: Event, conversation: str, received: datetime, decisive: bool
    ) -> Incoming:
        account = f"{event.address.channel}:{event.address.account}"
        is_album = isinstance(event, Message) and event.album is not None
        may_wait = (self._context.bot.collect_seconds > 0 or is_album) and not decisive
        return Incoming(
            conversation=conversation,
            event_ids=tuple([f"{account}:{event_id}" for event_id in event.event_ids]),
            body=event_body(self._context.keyring, conversation, event, received),
            decides=decisive,
            wakes=isinstance(event, Message),
            about=f"edit/{event.person}/{event.message_id}" if isinstance(event, MessageEdited) else None,
            collects=isinstance(event, Message) and may_wait and is_plain(event, self._context.language(None)),
            refusable=channel.capabilities.redelivers and _is_redelivered(event) and not decisive,
            keep_seconds=channel.capabilities.keep_seconds,
        )

    async def _refuse(self, channel: Channel, press: ButtonPress) -> None:
        """Answer the press of a stranger, to end the spinner on the button. The press decides no action."""
        store, language = self._context.store, self._context.language(press.person)
        if isinstance(channel, CanAnswer) and press.answer_to is not None:
            await channel.answer(press.answer_to, say("not_yours", language), private=True)
        if await store.acquire([refusals(press.person)]):
            return
        conversation = self._context.conversation(press.address)
        transaction = Transaction(partition=store.partition(conversation))
        note_refusal(transaction, "stranger", press.person, conversation, await store.now())
        await store.commit(transaction)


def _content_of(event: Event) -> dict[str, Any]:
    """Return the words and the files of a message, for the observers."""
    if not isinstance(event, Message):
        return {}
    return {"said": event.written, "files": [file.filename or file.kind for file in event.attachments]}


def _twice(share: Share) -> Share:
    """Return the share of decisions, twice the rate of a person. So a flood of messages blocks no yes."""
    return Share(None if share.person is None else 2 * share.person)


def _has_no_reader(event: Event) -> bool:
    """Return True for a reaction, and for an edit without words, like a step of a live location."""
    return isinstance(event, Reaction) or (isinstance(event, MessageEdited) and not event.text)


def _is_redelivered(event: Event) -> bool:
    """Return True for a message redelivered by the platform after a refusal. A slash command of Slack is not
    redelivered."""
    return isinstance(event, Message) and event.message_id is not None


_MOST_SHAPES: Final = 100
_KEPT_SECONDS: Final = 30 * 86_400.0
_DEEPEST, _MOST_FIELDS = 6, 60
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,40}")


class Shapes:
    """Counts shapes in this process. A shape is stored at its 1st, 10th, 100th ... payload."""

    def __init__(self, store: Store, bot: str) -> None:
        self._store, self._bot = store, bot
        self._seen: dict[str, Counter[str]] = {}

    async def note(self, channel: str, payload: bytes, at: datetime) -> None:
        """Count a payload of a channel. Raises StoreUnavailable."""
        shape = shape_of(payload)
        name = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]
        seen = self._seen.setdefault(channel, Counter())
        if name not in seen and len(seen) >= _MOST_SHAPES:
            return
        seen[name] += 1
        if not re.fullmatch("10*", str(seen[name])):
            return
        conversation = f"{self._bot}/{channel}"
        key = keys.key(self._store, conversation, keys.shape, name)
        value: Json = {"conversation": conversation, "shape": shape, "seen": seen[name], "at": at.isoformat()}
        await self._store.commit(Transaction(partition=key.partition, puts={key.name: Put(value, _KEPT_SECONDS)}))


def shape_of(payload: bytes) -> Json:
    """Return the shape of a payload: of JSON, of a form, or "bytes"."""
    try:
        return _shape(json.loads(payload), 0)
    except (ValueError, RecursionError):
        pass
    fields = parse_qsl(payload.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=None)
    if not any(_FIELD.fullmatch(name) for name, _ in fields):
        return "bytes"
    return {
        _name(name): shape_of(value.encode()) if name == "payload" else "text" for name, value in fields[:_MOST_FIELDS]
    }


def _shape(value: object, depth: int) -> Json:
    match value:
        case dict():
            if depth >= _DEEPEST:
                return "object"
            return {_name(str(name)): _shape(each, depth + 1) for name, each in list(value.items())[:_MOST_FIELDS]}
        case list():
            kinds = [_shape(each, depth + 1) for each in value[:_MOST_FIELDS]] if depth < _DEEPEST else []
            unique: dict[str, Json] = {json.dumps(kind, sort_keys=True): kind for kind in kinds}
            return list(unique.values())[:5]
        case bool():
            return "yes or no"
        case int() | float():
            return "number"
        case None:
            return "nothing"
    return "text"


def _name(name: str) -> str:
    return name if _FIELD.fullmatch(name) else "?"


_MINUTE: Final = 60.0
_PORTIONS: Final = 6
_MOST_KNOWN: Final = 10_000


@dataclass(slots=True)
class _Portion:
    """The events this process may accept under a rate without asking the store."""

    left: int
    since: float
    unpaid: int
    """The events of the portion taken without asking."""
    refused_until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the store is asked. Concurrent events share the new portion."""


class Rates:
    """Rate limit per minute. `now` counts seconds."""

    def __init__(self, store: Store, name: str, share: Share, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._name, self._share, self._now = store, name, share, now
        self._portions: OrderedDict[str, _Portion] = OrderedDict()

    async def exceeded(self, person: Person, address: Address) -> Literal["person", "place", "all"] | None:
        """Count an event. Return the exceeded rate, or None."""
        if self._share.person is not None and not await self._take(f"person/{person}", self._share.person):
            return "person"
        if self._share.place is not None and not await self._take(_place(address), self._share.place):
            return "place"
        if self._share.all is not None and not await self._take("all", self._share.all):
            return "all"
        return None

    def give_back(self, person: Person, address: Address) -> None:
        """Take an event out of the count. The event was not stored: refused, or a twin."""
        for name in (f"person/{person}", _place(address), "all"):
            if (portion := self._portions.get(name)) is not None:
                portion.left += 1

    async def _take(self, name: str, a_minute: int) -> bool:
        now, size = self._now(), max(1, a_minute // _PORTIONS)
        portion = self._portions.pop(name, None) or _Portion(size, now, unpaid=size)
        self._portions[name] = portion
        if len(self._portions) > _MOST_KNOWN:
            self._portions.popitem(last=False)
        if now - portion.since >= _MINUTE and now >= portion.refused_until:
            portion.left, portion.since, portion.unpaid = max(size, portion.left), now, size
        if not portion.left:
            async with portion.asking:
                if not portion.left and now >= portion.refused_until:
                    await self._ask(portion, f"{self._name}/{name}", a_minute, size, now)
        if not portion.left:
            return False
        portion.left -= 1
        return True

    async def _ask(self, portion: _Portion, name: str, a_minute: int, size: int, now: float) -> None:
        """Ask the store for a further portion, or for a single event if less than a portion is left of the rate."""
        wait = 0.0
        for asked in dict.fromkeys((size, 1)):
            cost = min(portion.unpaid + asked, a_minute)
            cell = Cell(name=name, burst=a_minute, period_seconds=_MINUTE, cost=cost)
            if not (wait := await self._store.acquire([cell])):
                portion.left, portion.unpaid = cost - portion.unpaid, 0
                return
        portion.refused_until = now + wait


def _place(address: Address) -> str:
    return f"place/{address.channel}:{address.account}:{address.place}"
