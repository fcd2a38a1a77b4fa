"""What all parts of the engine share in one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, cast

import orjson

from channels import Address, Channel, Event, Json, Media, Message, Person
from channels.events import event_to_json, event_to_text
from gateway.access import AllowList
from gateway.artifacts import RETENTION_SECONDS, Artifact, ArtifactStore, NotKept
from gateway.channel_agent import ChannelAgent
from gateway.engine import event_log
from gateway.engine.alarms import Alarms, outcomes
from gateway.engine.clock import StoreClock, is_timely
from gateway.engine.concurrency import BackgroundTasks, WorkerPool
from gateway.engine.overload import Overload
from gateway.engine.pacing import Pacing
from gateway.engine.parts import PartRenderer
from gateway.engine.reply_limits import once_a_minute
from gateway.engine.retrying import attempts
from gateway.limits import Limits
from gateway.observe import Feed
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Index
from gateway.pending.loading import Counters, Find, ReadIndex, load_actions, read_index
from gateway.pending.seal import Keyring, Purpose
from gateway.pending.upgrade import upgrade
from gateway.pending.words import prepare, prepared
from gateway.store.base import (
    Cell,
    Committed,
    Key,
    Lease,
    QueuedPart,
    Record,
    Snapshot,
    Store,
    Transaction,
    Waiting,
    Written,
)
from gateway.store.codec import micros
from gateway.tools.pending_action import Detail, PendingAction

log = logging.getLogger("askfirst.engine")

_OTHER_RELEASE_WITHIN = timedelta(seconds=60)

__all__ = ["EngineContext", "asked_last", "in_thread", "person_of", "typed"]


class Holding(Protocol):
    """A lease that this process holds."""

    lease: Lease
    ends: bool
    """A commit gives it back, or has: whether it was lost before, that commit says."""

    def look(self) -> None:
        """Wake its beat early."""


@dataclass(slots=True, kw_only=True)
class EngineContext:
    """One process's view of everything: the store, the channels, the bot, the keys."""

    store: Store
    channels: Mapping[str, Channel]
    bot: ChannelAgent
    allowed: AllowList
    """Who may talk to the bot."""
    keyring: Keyring
    artifacts: ArtifactStore
    feed: Feed
    worker: str
    """Fresh for every start: a restarted twin must not pass for its predecessor."""
    limits: Limits = field(default_factory=Limits)
    lease_seconds: float = 6.0
    """How long a lease lasts that is not renewed: what a process held that is gone is taken over after that."""
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    held: dict[tuple[str, str], Holding] = field(default_factory=dict)
    """By kind and lane."""
    down: set[str] = field(default_factory=set)
    """Channels whose platform did not take this process's last call."""
    refused: set[str] = field(default_factory=set)
    """Channels whose platform takes our token no longer, which the log has said."""
    sending: Mapping[str, WorkerPool] = field(default_factory=dict)
    """Channel -> those who work off its outboxes, while this process does."""
    refusing: Overload = field(default_factory=Overload)
    """Whether new messages of everybody are refused just now."""
    turn_of: dict[str, str] = field(default_factory=dict)
    """Conversation -> the person whose turn this process runs there now."""
    counters: Counters = field(default_factory=Counters)
    first_form_until: datetime | None = None
    """Until then counts what a release before the sealed form wrote."""
    clock: StoreClock = field(init=False)
    pacing: Pacing = field(init=False)
    parts: PartRenderer = field(init=False)
    alarms: Alarms = field(init=False)

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store)
        self.pacing = Pacing(self.store)
        self.parts = PartRenderer(self.channels, self.keyring)
        self.alarms = Alarms(self.bot, self.feed, self.tasks)

    async def commit(self, transaction: Transaction) -> Committed:
        """What whoever holds a lease commits; see `Store.commit`."""
        lease, held = transaction.lease, None
        if lease is not None and transaction.finish is not None:
            held = self.held.get((lease.kind, lease.lane))
        if held is None or held.lease is not lease:
            committed = await self.store.commit(transaction)
        else:
            held.ends = True
            try:
                committed = await self.store.commit(transaction)
            except BaseException:
                held.ends = False
                raise
        self.clock.observe(committed.at)
        if transaction.appends:
            event_log.audited(transaction)
        return committed

    @property
    def first_form(self) -> bool:
        """What a release before the sealed form writes still counts: processes of it may be running."""
        return self.first_form_until is not None and self.clock.guess() < self.first_form_until

    async def upgrade(self) -> None:
        """Write what an older release left in the form of this one, once a store."""

        async def rewrite(conversation: str, action_ids: frozenset[str]) -> None:
            for attempt in attempts(patient=True):
                async with attempt:
                    actions = await self.actions(conversation, *action_ids, first_form=True)
                    transaction = Transaction(partition=actions.partition)
                    actions.write(transaction)
                    transaction.parts = self.parts.render(
                        conversation, actions.index.address, actions.says, cause="upgrade", language=actions.language
                    )
                    await self.commit(transaction)

        self.first_form_until = await upgrade(self.store, self.keyring, rewrite)
        await self.clock.now()

    def conversation(self, address: Address) -> str:
        """The key of a conversation: the bot's name and the address."""
        return f"{self.bot.name}/{address}"

    def language(self, person: Person | None, otherwise: str = "en") -> str:
        """The bot's own when it has one, else the person's, else this one."""
        return self.named_language(person) or otherwise

    def named_language(self, person: Person | None) -> str | None:
        """Return the bot's own language when it has one, else that which the platform names for the person."""
        return self.bot.language or (person.language if person is not None else None)

    async def read_words(self, *tags: str | None) -> None:
        """Have the words of these languages read, so that reading an answer blocks nothing."""
        wanted = ["en", *filter(None, (self.bot.language, *tags))]
        if not prepared(*wanted):
            await asyncio.to_thread(prepare, *wanted)

    async def language_there(self, conversation: str, person: Person | None) -> str:
        """Return `language`, and where the person names none that of what was asked last in this conversation."""
        key = self.key(conversation, "open")
        index = self.read_index(conversation, (await self.store.get([key]))[key]).index
        return self.language(person, asked_last(index) or "en")

    def language_asked(self, lease: Lease) -> str | None:
        """Return the language of what was asked last in the conversation of this lease; None: nothing was."""
        read = self.index_of(lease)
        return asked_last(read.index) if read is not None else None

    def key(self, conversation: str, name: str) -> Key:
        """A record or log of a conversation: ``session``, ``transcript``, ``receipts``, ``visible``."""
        return Key(self.store.partition(conversation), f"{name}/{conversation}")

    def index_of(self, lease: Lease) -> ReadIndex | None:
        """Return the index of the conversation of this lease as it was when it was taken; None when it could not be
        read. Raises NewerForm."""
        if not self.has_prefetch(lease):
            return None
        return self.read_index(lease.lane, lease.prefetched[self.key(lease.lane, "open")])

    def read_index(self, conversation: str, record: Record) -> ReadIndex:
        """Read the index of a conversation. Raises NewerForm."""
        return read_index(self.keyring, self.counters, conversation, record, first_form=self.first_form)

    def hears(self, lease: Lease, person: Person | None) -> bool:
        """Return True while it matters for a bare word that this person writes in the conversation of this lease, as
        far as the index that was read with it tells."""
        read = self.index_of(lease)
        return read is not None and (read.kind != "sealed" or read.index.hears(str(person), lease.prefetched.now))

    def says(self, lease: Lease) -> bool:
        """Return True while it matters for a bare word what the bot says in the conversation of this lease."""
        read = self.index_of(lease)
        return read is not None and (read.kind != "sealed" or read.index.heeds(lease.prefetched.now))

    def is_open(self, lease: Lease) -> bool:
        """Return False when nothing waits for an answer in the conversation of this lease, by what was read with it."""
        read = self.index_of(lease)
        return read is None or read.kind != "sealed" or bool(read.index.open)

    def has_prefetch(self, lease: Lease) -> bool:
        """Whether what was asked for with this lease could be read."""
        return bool(lease.prefetched.records)

    async def actions(
        self,
        conversation: str,
        *also: str,
        find: Find = lambda index: (),
        seen: Snapshot | None = None,
        first_form: bool = False,
    ) -> ConversationActions:
        """Read the actions of a conversation; see `load_actions`."""
        channel = self.channels.get(conversation.partition("/")[2].partition(":")[0])
        actions = await load_actions(
            self.store,
            conversation,
            keyring=self.keyring,
            counters=self.counters,
            first_form=first_form or self.first_form,
            find=find,
            drift=self.drifted,
            also=also,
            capabilities=channel.capabilities if channel is not None else None,
            seen=seen,
        )
        for action_id in actions.changes.tampered:
            self.alarms.sound(actions.by_id[action_id], "forged")
        return actions

    def sound_undelivered(self, parts: Iterable[QueuedPart]) -> None:
        """Tell operators of the outcomes among these parts, which did not reach their person."""
        for queued in parts:
            for action_id in outcomes([queued]):
                self.tasks.start(self._sound_undelivered(queued.conversation, action_id), "alarm")

    async def _sound_undelivered(self, conversation: str, action_id: str) -> None:
        action = (await self.actions(conversation, action_id)).get(action_id)
        if action is not None:
            self.alarms.sound(action, "undeliverable")

    async def keep(self, artifact: Artifact, person: str) -> Media:
        """Keep a file that a tool made for a person, within what they and all together may keep.

        What was kept counts for as long as files stay, little by little less. Raises NotKept.
        """
        share = self.limits.files
        if artifact.content is not None and not await self.artifacts.has(artifact):
            size = len(artifact.content) / 1024**2
            named = ((f"person/{person}", share.person), ("all", share.all))
            limits = [(name, most) for name, most in named if most is not None]
            full = [name for name, most in limits if size > most]
            cells = [
                Cell(name=f"files/{name}", burst=most, period_seconds=RETENTION_SECONDS, cost=size)
                for name, most in limits
                if not full
            ]
            if full or (cells and await self.store.acquire(cells)):
                if not await self.store.acquire([once_a_minute(f"files told/{person}")]):
                    log.warning("%s keeps as many MiB of files as ASKFIRST_LIMITS allows (%s)", person, share)
                raise NotKept(f"ASKFIRST_LIMITS allows files={share} MiB")
        return await self.artifacts.keep(artifact)

    async def keep_files(self, actions: ConversationActions) -> None:
        """Keep the files that what is to be said refers to, before the commit that queues it.

        Raises NotKept for one of a new question. The file of an older one was kept when it was asked, so there the
        decision at hand goes on.
        """
        for action_id, file in actions.files.items():
            try:
                await self.artifacts.keep(file)
            except NotKept as error:
                action = actions.get(action_id)
                if action is None or not action.prompts:
                    raise
                log.error("the file of the question %s was not kept again: %s", action_id, error)

    def is_genuine(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> bool:
        """Return True for what this gateway has written, or a release before the sealed form while that counts."""
        return self.keyring.is_genuine(purpose, context, body) or (self.first_form and "mac" not in body)

    def stamped(self, conversation: str, body: Mapping[str, Json], received: datetime) -> dict[str, Json]:
        """Return the body of an event with the time of its receipt and this gateway's seal."""
        return self.keyring.stamped("event", conversation, {**body, "received": micros(received)})

    def stamped_event(self, conversation: str, event: Event, received: datetime) -> Mapping[str, Json]:
        """Return the stored form of a platform's event with the time of its receipt and this gateway's seal."""
        try:
            text = event_to_text(event)
        except ValueError:  # half a character, which another distribution's channel may hand on
            return self.stamped(conversation, cast("dict[str, Json]", event_to_json(event)), received)
        body = {**orjson.loads(text), "received": micros(received)}
        sealed = self.keyring.stamped("event", conversation, body)
        return Written(f'{text[:-1]},"received":{body["received"]},"mac":"{sealed["mac"]}"}}')

    def for_replay(self, waiting: Waiting) -> Mapping[str, Json]:
        """Return the body of an event that is put aside: replayed, it is read, and decides nothing."""
        body = {name: value for name, value in waiting.body.items() if name != "mac"}
        return self.keyring.stamped("event", waiting.conversation, {**body, "replayed": True})

    def may_decide(self, waiting: Waiting) -> bool:
        """Return True for an event that was stamped about when it was received."""
        received = waiting.body.get("received")
        return is_timely(waiting.stamp, received) or (received is None and self.first_form)

    def drifted(self, action: PendingAction) -> Detail | None:
        """Return why an action may no longer happen as it was shown; see `ChannelAgent.drifted`.

        Where several processes share the store, another one may have the tool as it was shown: while a question is
        open, and for a minute after the yes, it is left to that one.
        """
        detail = self.bot.drifted(action)
        if detail == "other_release" and self.store.shared and self.waits_for_release(action):
            return None
        return detail

    def waits_for_release(self, action: PendingAction) -> bool:
        """Return True while an action may still be taken by a process that has its tool as it was shown."""
        if action.state != "approved" or action.decided_at is None:
            return action.open
        return self.clock.guess() - action.decided_at < _OTHER_RELEASE_WITHIN

    def wall_clock(self) -> datetime:
        """What a tool takes for now: this machine's clock, moved as the store's is."""
        return datetime.now(UTC) + timedelta(seconds=self.store.offset_seconds)

    def nudge(self, kind: str, lane: str) -> None:
        """Make the holder of this lease, if it is in this process, look for signals now."""
        held = self.held.get((kind, lane))
        if held is not None:
            held.look()


def asked_last(index: Index) -> str | None:
    """Return the language of what was asked last; None: nothing was."""
    latest = max(index.entries, key=lambda entry: entry.at, default=None)
    return latest.language if latest is not None else None


def typed(message: Message) -> bool:
    """Return True for words that the person typed here to us: no other message decides anything.

    Reading an answer looks past one mention of a bot; whether it was ours only the channel knows.
    """
    copied = message.forwarded or message.via_bot or message.transcribed or message.replayed
    beside = message.spoiled_by or message.attachments or message.command is not None
    return not copied and not beside and (message.mentions_bot or "@" not in message.text)


def in_thread(message: Message) -> bool:
    """Whether it answers a message only by standing in the thread beneath it, with all else that is said there."""
    return message.reply_to is not None and message.reply_to == message.address.thread


def person_of(written: str, name: str | None = None) -> Person:
    """The person of a written form. Raises ValueError when it is none."""
    return replace(Person.parse(written), name=name)
