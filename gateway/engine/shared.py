"""What all parts of the engine share in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from channels import Address, Channel, Message, Person
from gateway.artifacts import ArtifactStore
from gateway.channel_agent import ChannelAgent
from gateway.engine.crew import Crew
from gateway.engine.pacing import Pacing
from gateway.engine.tasks import Tasks
from gateway.observe import Feed
from gateway.pending.desk import Desk
from gateway.pending.seal import Keyring
from gateway.store.base import Committed, Key, Lease, Snapshot, Store, Transaction

__all__ = ["Shared", "in_thread", "person_of", "typed"]


class Holding(Protocol):
    """A lease that this process holds."""

    lease: Lease
    ends: bool
    """A commit gives it back, or has: whether it was lost before, that commit says."""

    def look(self) -> None:
        """Wake its beat early."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """One process's view of everything: the store, the channels, the bot, the keys."""

    store: Store
    channels: Mapping[str, Channel]
    bot: ChannelAgent
    keyring: Keyring
    artifacts: ArtifactStore
    feed: Feed
    worker: str
    """Fresh for every start: a restarted twin must not pass for its predecessor."""
    lease_seconds: float = 6.0
    """How long a lease lasts that is not renewed: what a process held that is gone is taken over after that."""
    tasks: Tasks = field(default_factory=Tasks)
    held: dict[tuple[str, str], Holding] = field(default_factory=dict)
    """By kind and lane."""
    down: set[str] = field(default_factory=set)
    """Channels whose platform did not take this process's last call."""
    refused: set[str] = field(default_factory=set)
    """Channels whose platform takes our token no longer, which the log has said."""
    sending: Mapping[str, Crew] = field(default_factory=dict)
    """Channel -> those who work off its outboxes, while this process does."""
    turn_of: dict[str, str] = field(default_factory=dict)
    """Conversation -> the person whose turn this process runs there now."""
    pacing: Pacing = field(init=False)

    def __post_init__(self) -> None:
        self.pacing = Pacing(self.store)

    async def commit(self, transaction: Transaction) -> Committed:
        """What whoever holds a lease commits; see `Store.commit`."""
        lease, held = transaction.lease, None
        if lease is not None and transaction.finish is not None:
            held = self.held.get((lease.kind, lease.lane))
        if held is None or held.lease is not lease:
            return await self.store.commit(transaction)
        held.ends = True
        try:
            return await self.store.commit(transaction)
        except BaseException:
            held.ends = False
            raise

    def conversation(self, address: Address) -> str:
        """The key of a conversation: the bot's name and the address."""
        return f"{self.bot.name}/{address}"

    def language(self, person: Person | None) -> str:
        """The bot's own when it has one, else the person's, else English."""
        return self.bot.language or (person.language if person is not None else None) or "en"

    def key(self, conversation: str, name: str) -> Key:
        """A record or log of a conversation: ``session``, ``transcript``, ``receipts``, ``visible``."""
        return Key(self.store.partition(conversation), f"{name}/{conversation}")

    def was_asked(self, lease: Lease) -> bool:
        """Whether anybody was ever asked anything in the conversation of this lease, before it was taken, as far as
        that can be read."""
        return not self.is_shown(lease) or lease.seen[self.key(lease.lane, "open")].value is not None

    def is_shown(self, lease: Lease) -> bool:
        """Whether what was asked for with this lease could be read."""
        return bool(lease.seen.records)

    async def desk(self, conversation: str, language: str, *also: str, seen: Snapshot | None = None) -> Desk:
        """`seen` has the index that was read already."""
        channel = self.channels.get(conversation.partition("/")[2].partition(":")[0])
        return await Desk.load(
            self.store,
            conversation,
            keyring=self.keyring,
            language=language,
            drift=self.bot.drifted,
            also=also,
            capabilities=channel.capabilities if channel is not None else None,
            seen=seen,
        )

    def wall_clock(self) -> datetime:
        """What a tool takes for now: this machine's clock, moved as the store's is."""
        return datetime.now(UTC) + timedelta(seconds=self.store.offset_seconds)

    def nudge(self, kind: str, lane: str) -> None:
        """Make the holder of this lease, if it is in this process, look for signals now."""
        held = self.held.get((kind, lane))
        if held is not None:
            held.look()


def typed(message: Message) -> bool:
    """Whether the person wrote this to us just now: what was not typed, or is meant for somebody else, decides nothing.

    Reading an answer looks past one mention of a bot; whether it was ours only the channel knows.
    """
    copied = message.forwarded or message.via_bot or message.transcribed or bool(message.attachments)
    return not copied and (message.mentions_bot or "@" not in message.text)


def in_thread(message: Message) -> bool:
    """Whether it answers a message only by standing in the thread beneath it, with all else that is said there."""
    return message.reply_to is not None and message.reply_to == message.address.thread


def person_of(written: str, name: str | None = None) -> Person:
    """The person of a written form. Raises ValueError when it is none."""
    channel, _, rest = written.partition(":")
    account, _, user_id = rest.partition(":")
    if not (channel and account and user_id):
        raise ValueError(f"not a person: {written!r} (write channel:account:user, for example telegram:123:456)")
    return Person(channel=channel, account=account, user_id=user_id, name=name)
