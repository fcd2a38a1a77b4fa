"""The context of the engine: everything that its parts share in one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from channels import Address, Channel, Json, Person, Reply
from channels.channel import is_one_message
from gateway.access import AllowList
from gateway.access.reached import ReachedLimits
from gateway.artifacts import ArtifactStore
from gateway.channel_agent import ChannelAgent
from gateway.config.limits import Budget, Limits, Retention
from gateway.engine.alarms import Alarms, Forgeries, Overload, outcomes
from gateway.engine.clock import StoreClock, is_timely
from gateway.engine.concurrency import BackgroundTasks, WorkerPool
from gateway.engine.files import FileKeeper
from gateway.engine.pacing import Pacing
from gateway.engine.parts import PartRenderer
from gateway.engine.reservations import Reservations
from gateway.engine.telling import tell_audited
from gateway.engine.tool_locks import ToolLocks
from gateway.observe.teller import Teller
from gateway.pending.actions import ConversationActions
from gateway.pending.loading import Counters, Find, ReadIndex, load_actions, read_index
from gateway.pending.old_seals import look_at_actions
from gateway.pending.seal import Keyring, Purpose
from gateway.pending.sealed_records import seal_anew, seal_value
from gateway.pending.words import prepare, prepared
from gateway.providers.base import Transcriber
from gateway.store.base import Store
from gateway.store.codec import decode
from gateway.store.errors import Conflict, StoreError
from gateway.store.transaction import Committed, Transaction
from gateway.store.types import Key, Lease, QueuedPart, Record, Snapshot, Waiting
from gateway.stored import keys
from gateway.tools.locks import Hold
from gateway.tools.pending_action import Detail, PendingAction
from gateway.wording import FALLBACK

TRACES_TTL_SECONDS = 604_800.0
"""Life of the stored trace of a turn: a week."""
_OTHER_RELEASE_SECONDS = 60.0


class Holding(Protocol):
    """A lease that this process holds."""

    lease: Lease
    ends: bool
    """True while a commit that gives the lease back runs, and after it. That commit says if the lease was lost."""

    def look(self) -> None:
        """Renew the lease at once, and look for its signals."""

    async def make_sure(self) -> None:
        """Check that the lease is still held. Raises Fenced and StoreUnavailable."""


@dataclass(slots=True, kw_only=True)
class EngineContext:
    """Everything that the parts of one process share: the store, the channels, the bot, the keys."""

    store: Store
    channels: Mapping[str, Channel]
    bot: ChannelAgent
    allowed: AllowList
    """The people that may talk to the bot."""
    keyring: Keyring
    artifacts: ArtifactStore
    events: Teller
    """Tells what happens in this process to the log, the metrics, the console and the authors' observers."""
    worker: str
    """The name of this process in its leases. It is new at every start, so that no process passes for the one before
    it."""
    limits: Limits = field(default_factory=Limits)
    budgets: Sequence[Budget] = ()
    """The budgets of `ASKFIRST_BUDGETS`."""
    transcriber: Transcriber | None = None
    """Writes down voice messages for a bot without one of its own."""
    traces_ttl_seconds: float = TRACES_TTL_SECONDS
    """Life of the stored trace of a turn; 0: none is stored."""
    retention: Retention = field(default_factory=Retention)
    lease_seconds: float = 6.0
    """Life of a lease that is not renewed. After it, another process takes over the work of one that died."""
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    held: dict[tuple[str, str], Holding] = field(default_factory=dict)
    """The leases of this process, by kind and lane."""
    unreached: set[str] = field(default_factory=set)
    """Channels that accept no event yet: this process has not reached their platform, which delivers again."""
    down: set[str] = field(default_factory=set)
    """Channels with a platform that did not take this process's last call."""
    refused: set[str] = field(default_factory=set)
    """Channels with a platform that no longer takes the bot's token. The log has said so."""
    sending: Mapping[str, WorkerPool] = field(default_factory=dict)
    """Channel -> the worker pool of its outboxes, while this process sends."""
    refusing: Overload = field(default_factory=Overload)
    """The store's refusals of new messages."""
    turn_of: dict[str, str] = field(default_factory=dict)
    """Conversation -> the person of the turn that this process runs there now."""
    turn_reads: Sequence[str] = ()
    """The prefixes of the records that the features of turns read with the lease of a turn."""
    counters: Counters = field(default_factory=Counters)
    decide: Callable[[str], Coroutine[Any, Any, None]] | None = None
    """Works the decision lane of a conversation, so that events handed over to it wait for no other process."""
    clock: StoreClock = field(init=False)
    pacing: Pacing = field(init=False)
    parts: PartRenderer = field(init=False)
    reservations: Reservations = field(init=False)
    files: FileKeeper = field(init=False)
    reached: ReachedLimits = field(init=False)
    alarms: Alarms = field(init=False)
    forgeries: Forgeries = field(init=False)
    hold: Hold | None = field(init=False)
    """Holds the lock of a tool in the store; None if this process is alone with it."""

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store)
        self.pacing = Pacing(self.store)
        self.reservations = Reservations(self.store, self.clock)
        self.parts = PartRenderer(self.channels, self.keyring)
        self.reached = ReachedLimits(self.store, self.tasks.start)
        self.files = FileKeeper(self.artifacts, self.store, self.limits.files, self.reached)
        self.alarms = Alarms(self.bot, self.events, self.tasks)
        self.forgeries = Forgeries(self.events)
        locks = ToolLocks(self.store, self.worker, lambda: self.lease_seconds)
        self.hold = locks.hold if self.store.shared else None

    # ── the store ──

    async def commit(self, transaction: Transaction) -> Committed:
        """Commit a transaction; see `Store.commit`. A lease that it gives back is not renewed any more."""
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
            tell_audited(self.events, transaction)
        if transaction.hand_over and self.decide is not None:
            deciding = [event.conversation for event in transaction.hand_over if event.decides]
            for conversation in dict.fromkeys(deciding):
                self.tasks.start(self.decide(conversation), "decide")
        return committed

    def conversation(self, address: Address) -> str:
        """Return the name of a conversation: the bot's name and the address."""
        return f"{self.bot.name}/{address}"

    def is_genuine(self, purpose: Purpose, context: str, body: Mapping[str, Json]) -> bool:
        """Return True for a body with a valid seal."""
        return self.keyring.is_genuine(purpose, context, body)

    def sealed(self, name: str, value: Json) -> Json:
        """Return the stored form of a record that only this gateway may write."""
        return seal_value(self.keyring, name, value)

    def unsealed(self, key: Key, record: Record, conversation: str) -> Json:
        """Return the value of a record of `sealed`; None without one.

        One that was changed without the key is left out, and told to the operator. One with the seal of an old key is
        sealed anew in the background.
        """
        if record.value is None:
            return None
        opened = self.keyring.open(key.name, record.value)
        if opened is None:
            self.forgeries.tell(key.name, conversation)
            return None
        if opened.is_old:
            self.tasks.start(self._seal_anew(key, record), "seal anew")
        value: Json = decode(opened.text)
        return value

    async def _seal_anew(self, key: Key, record: Record) -> None:
        with contextlib.suppress(StoreError):
            await seal_anew(self.store, self.keyring, key, record)

    def may_decide(self, waiting: Waiting) -> bool:
        """Return True for an event that the store stamped within a minute of its receipt."""
        return is_timely(waiting.stamp, waiting.body.get("received"))

    # ── languages ──

    def language(self, person: Person | None, otherwise: str | None = None) -> str:
        """Return the language to answer a person in: the named one, else `otherwise`, else English."""
        return self.named_language(person) or otherwise or FALLBACK

    def named_language(self, person: Person | None) -> str | None:
        """Return the bot's own language if it has one, else the language that the platform names for the person."""
        return self.bot.language or (person.language if person is not None else None)

    async def read_words(self, *tags: str | None) -> None:
        """Load the words of these languages in a thread, so that reading an answer does not block."""
        wanted = [FALLBACK, *filter(None, (self.bot.language, *tags))]
        if not prepared(*wanted):
            await asyncio.to_thread(prepare, *wanted)

    def language_of(self, actions: ConversationActions) -> str:
        """Return the language of what is said about these actions, else the one for a person that names none."""
        return actions.language or self.language(None)

    async def language_there(self, conversation: str, person: Person | None) -> str:
        """Return `language`, with that of the conversation's newest question for a person that names none."""
        return self.language(person, (await self.load_index(conversation)).index.last_asked_language())

    def language_asked(self, lease: Lease) -> str | None:
        """Return the language of the newest question, from the index that came with the lease; None without one."""
        read = self.prefetched_index(lease)
        return read.index.last_asked_language() if read is not None else None

    # ── actions ──

    async def load_index(self, conversation: str) -> ReadIndex:
        """Load the index of a conversation. Raises StoreError."""
        key = keys.key(self.store, conversation, keys.index)
        return self.read_index(conversation, (await self.store.get([key]))[key])

    def read_index(self, conversation: str, record: Record) -> ReadIndex:
        """Read the index of a conversation from its record."""
        return read_index(self.keyring, self.counters, conversation, record)

    def has_prefetch(self, lease: Lease) -> bool:
        """Return True if the records that the lease asked for could be read with it."""
        return bool(lease.prefetched.records)

    def prefetched_index(self, lease: Lease) -> ReadIndex | None:
        """Return the index that came with the lease of a turn or an outbox; None if it could not be read."""
        if not self.has_prefetch(lease):
            return None
        return self.read_index(lease.lane, lease.prefetched[keys.key(self.store, lease.lane, keys.index)])

    def message_matters(self, lease: Lease, person: Person | None) -> bool:
        """Return True if a bare reply may have to know that this person wrote something, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is not None and (read.kind != "sealed" or read.index.hears(str(person), lease.prefetched.now))

    def reply_matters(self, lease: Lease) -> bool:
        """Return True if a bare reply may have to know that the bot said something, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is not None and (read.kind != "sealed" or read.index.heeds(lease.prefetched.now))

    def may_stream(self, conversation: str) -> bool:
        """Return True if answers are shown in this conversation while they are written."""
        channel = self.channels.get(_channel_of(conversation))
        return channel is not None and channel.capabilities.stream and self.bot.agent.config.streams_on(channel.name)

    def may_be_open(self, lease: Lease) -> bool:
        """Return False if no action is open in the conversation, by the index of the lease."""
        read = self.prefetched_index(lease)
        return read is None or read.kind != "sealed" or bool(read.index.open)

    async def actions(
        self,
        conversation: str,
        *also: str,
        find: Find = lambda index: (),
        seen: Snapshot | None = None,
    ) -> ConversationActions:
        """Load the actions of a conversation; see `load_actions`. A forged action raises an alarm.

        If an old key has sealed one of them, all are sealed anew and loaded again.
        """
        channel = self.channels.get(_channel_of(conversation))
        actions = await load_actions(
            self.store,
            conversation,
            keyring=self.keyring,
            counters=self.counters,
            find=find,
            drift=self.drifted,
            also=also,
            capabilities=channel.capabilities if channel is not None else None,
            fits=self._fits,
            seen=seen,
        )
        if actions.changes.old_seals:
            with contextlib.suppress(Conflict):  # the next reader does it
                if (await look_at_actions(self.store, self.keyring, conversation, mends=True)).many:
                    return await self.actions(conversation, *also, find=find)
        for action_id in actions.changes.tampered:
            self.alarms.sound(actions.by_id[action_id], "forged")
        return actions

    def _fits(self, address: Address, reply: Reply) -> bool:
        """Return True if a reply is one message of its platform, with all its buttons."""
        channel = self.channels.get(address.channel)
        return channel is None or is_one_message(channel, address, reply)

    def drifted(self, action: PendingAction) -> Detail | None:
        """Return why an action may no longer happen as it was shown; see `ChannelAgent.drifted`.

        A ballot asks about an action of another conversation, where this is looked at.
        On a shared store, another process may have the tool as it was shown. While the question is open, and for a
        minute after the yes, the action is left to that process.
        """
        detail = self.bot.drifted(action) if action.ballot_of is None else None
        if detail == "other_release" and self.store.shared and self.waits_for_release(action):
            return None
        return detail

    def waits_for_release(self, action: PendingAction) -> bool:
        """Return True while an action may still be run by a process that has its tool as it was shown."""
        if action.state != "approved" or action.decided_at is None:
            return action.open
        return (self.clock.guess() - action.decided_at).total_seconds() < _OTHER_RELEASE_SECONDS

    # ── this process ──

    def sound_undelivered(self, parts: Iterable[QueuedPart]) -> None:
        """Raise an alarm for each outcome among these parts, which did not reach their person."""
        for queued in parts:
            for action_id in outcomes([queued]):
                self.tasks.start(self._sound_undelivered(queued.conversation, action_id), "alarm")

    async def _sound_undelivered(self, conversation: str, action_id: str) -> None:
        action = (await self.actions(conversation, action_id)).get(action_id)
        if action is not None:
            self.alarms.sound(action, "undeliverable")

    def wall_clock(self) -> datetime:
        """Return the time for tools: this machine's clock, moved by the store's offset."""
        return datetime.now(UTC) + timedelta(seconds=self.store.offset_seconds)

    def nudge(self, kind: str, lane: str) -> None:
        """Have a lease of this process renewed at once, so that its holder gets its signals."""
        held = self.held.get((kind, lane))
        if held is not None:
            held.look()


def _channel_of(conversation: str) -> str:
    return conversation.partition("/")[2].partition(":")[0]
