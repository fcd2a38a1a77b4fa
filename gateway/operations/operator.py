"""What an operator may do by hand: look at what waits, withdraw it, say what became of it, see to dead letters, write.

It works on the store alone, so it is the same within a running server and beside a stopped one: what is to be said goes
into the outbox, and whoever delivers next sends it. Answers are JSON, for they may cross a socket.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Literal, TypeAlias

from channels import Address, AskfirstError, Channel, Json, OptedOut, Reply, Unreachable
from gateway.access.suppression import check_suppression
from gateway.engine.intake.shapes import PREFIX as SHAPES
from gateway.engine.pairing import Newcomers
from gateway.engine.parts import PartRenderer
from gateway.engine.retrying import attempts
from gateway.pending import deciding, settling
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.loading import Counters, load_actions, stored_action
from gateway.pending.seal import Keyring
from gateway.pending.upgrade import first_form_counts
from gateway.store.base import Conflict, Dead, Incoming, Key, Put, QueuedPart, Store, StoreRefused, Transaction, Waiting
from gateway.store.form import NewerForm
from gateway.tools.pending_action import PendingAction
from gateway.wording import say

__all__ = ["LETTERS_A_PAGE", "NotDone", "Operator", "claim", "served_bot"]

log = logging.getLogger("askfirst.operator")

Told: TypeAlias = dict[str, Json]

NAME = "operator"
"""How the audit names whoever uses it."""

LETTERS_A_PAGE = 100
_SERVED = "served"
_ACTION = "action/"


class NotDone(AskfirstError):
    """What was asked for cannot be done; nothing has changed. The message says why."""


class Operator:
    """One store in an operator's hands."""

    def __init__(self, store: Store, channels: Mapping[str, Channel], keyring: Keyring, *, bot: str | None) -> None:
        """`bot` is the name of the bot that is served from this store, if it is known."""
        self._store, self._channels, self._keyring, self._bot = store, channels, keyring, bot

    async def remember(self) -> None:
        """Write down which bot is served, for whoever works on this store from outside."""
        if await served_bot(self._store) != self._bot:  # a store that is full takes nothing new, and is served
            transaction = Transaction(partition=self._store.partition(_SERVED), puts={_SERVED: Put(self._bot)})
            await self._store.commit(transaction)

    # ── actions ──

    async def pending(self) -> list[Told]:
        """Return the actions that still need somebody, the oldest first.

        Those in doubt come before the open and the running ones: of unknown outcome, or unreadable, which somebody
        without the key has made them.
        """
        first_form = await first_form_counts(self._store, self._keyring)
        found: list[PendingAction] = []
        unreadable: list[Told] = []
        for key, record in await self._store.scan(_ACTION):
            try:
                action = stored_action(self._keyring, key, record, first_form=first_form)
            except NewerForm:
                continue
            if action is None:
                unreadable.append(_unreadable(key.name.removeprefix(_ACTION)))
            elif not action.settled or action.state == "unknown":
                found.append(action)
        found.sort(key=lambda action: (action.state != "unknown", action.requested_at))
        doubts = sum(action.state == "unknown" for action in found)
        return [*map(_summary, found[:doubts]), *unreadable, *map(_summary, found[doubts:])]

    async def action(self, action_id: str) -> Told:
        """All of one action, by its id or the beginning of it. Raises NotDone."""
        action = await self._find(action_id)
        return {
            **_summary(action),
            "args": dict(action.args),
            "conversation": action.conversation,
            "approvers": list(action.approvers),
            "decided_at": _iso(action.decided_at),
            "decided_by": action.decided_by,
            "launched_at": _iso(action.launched_at),
            "finished_at": _iso(action.finished_at),
            "outcome": action.outcome,
            "digest": action.digest,
            "seal": "holds",
        }

    # ── what waits ──

    async def waiting(self) -> Told:
        """Return how much waits in all, and the conversations in which most does."""
        stats = await self._store.stats()
        return {
            "waiting": stats.waiting,
            "oldest_seconds": round(stats.oldest_waiting_seconds),
            "unsent": stats.parts,
            "later": stats.parked,
            "conversations": [
                {"conversation": found.conversation, "waiting": found.waiting, "oldest": _iso(found.oldest)}
                for found in await self._store.mailboxes()
            ],
        }

    async def put_aside(self, conversation: str) -> Told:
        """Make dead letters of what waits in a conversation, which `replay` puts back. Raises NotDone."""
        if await self._store.is_held(conversation):
            raise NotDone(f"a turn of {conversation} runs: try again once it has ended, or write /stop there")
        many = 0
        while found := await self._store.mailbox(conversation):
            transaction = Transaction(partition=self._store.partition(conversation))
            transaction.consume = [(conversation, waiting.seq) for waiting in found]
            transaction.dead = [self._letter(waiting) for waiting in found]
            try:
                await self._store.commit(transaction)
            except Conflict:
                continue
            many += len(found)
        if not many:
            raise NotDone(f"nothing waits in {conversation}")
        return {"conversation": conversation, "put_aside": many}

    def _letter(self, waiting: Waiting) -> Dead:
        dead_id = f"{waiting.seq}-{secrets.token_hex(4)}"
        replayed = {name: value for name, value in waiting.body.items() if name != "mac"} | {"replayed": True}
        incoming = Incoming(
            conversation=waiting.conversation,
            event_ids=(f"replay/{dead_id}",),
            body=self._keyring.stamped("event", waiting.conversation, replayed),
        )
        reason = "put aside by the operator"
        return Dead(dead_id=dead_id, conversation=waiting.conversation, reason=reason, incoming=incoming)

    async def cancel(self, action_id: str) -> Told:
        """Withdraw an action that is not launched yet: its prompt says so, and the person is told. Raises NotDone."""

        def withdraw(actions: ConversationActions, action: PendingAction) -> bool:
            return bool(deciding.withdraw(actions, None, actions.now, action_id=action.pending_action_id, by=NAME))

        return await self._change(action_id, withdraw, "only what has not run yet can be cancelled")

    async def settle(self, action_id: str, state: Literal["done", "failed"]) -> Told:
        """Say what became of an action of unknown outcome; the person is told. Raises NotDone."""
        if state not in ("done", "failed"):
            raise NotDone(f"an action is settled as done or failed, not as {state}")

        def settle(actions: ConversationActions, action: PendingAction) -> bool:
            return settling.settle(actions, action.pending_action_id, state, NAME, actions.now)

        return await self._change(action_id, settle, "only what is unknown can be settled")

    # ── dead letters ──

    async def dead(self, after: str = "0") -> list[Told]:
        """Return a page of what was given up on, the oldest first, behind the letter of this `seq`; at the end of the
        last page the shapes of what was not understood. Raises NotDone."""
        if not after.isdecimal():
            raise NotDone(f"{after!r} is no place in the list: give the number that the page before ends with")
        letters = await self._store.dead_letters(after=int(after), limit=LETTERS_A_PAGE)
        shapes = [] if len(letters) == LETTERS_A_PAGE else await self._shapes()
        return [*map(_letter, letters), *(told for _, told in shapes)]

    async def drop_all(self, reason: str = "") -> Told:
        """Throw away all dead letters, or those with this in their reason."""
        return {"dropped": await self._store.drop_all(reason or None)}

    async def letter(self, dead_id: str) -> Told:
        """All of one dead letter, what a person wrote included. Raises NotDone."""
        for _, told in await self._shapes(dead_id):
            return told
        dead = await self._dead(dead_id)
        held = dead.incoming or dead.part
        return {**_letter(dead), "body": dict(held.body) if held is not None else dead.payload}

    async def replay(self, dead_id: str) -> Told:
        """Put a dead letter back where it came from. Raises NotDone."""
        dead = await self._dead(dead_id)
        if dead.incoming is None and dead.part is None:
            raise NotDone(f"{dead_id} holds nothing that could be replayed ({dead.reason}): drop it")
        return await self._gone(dead, await self._store.replay(dead.dead_id))

    async def drop(self, dead_id: str) -> Told:
        """Throw a dead letter away. Raises NotDone."""
        for key, told in await self._shapes(dead_id):
            await self._store.commit(Transaction(partition=key.partition, deletes=[key.name]))
            return told
        dead = await self._dead(dead_id)
        return await self._gone(dead, await self._store.drop(dead.dead_id))

    # ── writing ──

    async def send(self, address: str, text: str) -> Told:
        """Put a message, in Markdown, into the outbox of a conversation. Raises NotDone."""
        try:
            where = Address.parse(address)
        except ValueError as error:
            raise NotDone(str(error)) from None
        if not text.strip():
            raise NotDone("there is nothing to send: the text is empty")
        bot = self._bot if self._bot is not None else await served_bot(self._store)
        if bot is None:
            raise NotDone("no bot was ever served from this store: start it once with `askfirst serve`")
        conversation = f"{bot}/{where}"
        try:
            await check_suppression(self._store, conversation)
        except OptedOut:
            raise NotDone(f"{where} has opted out: nothing is sent there until they write START") from None
        except Unreachable as error:
            raise NotDone(
                f"{where} cannot be reached ({error.code}): nothing is sent there until something comes from there, "
                "or a day has passed"
            ) from None
        parts = self._queue(conversation, where, [OutgoingReply(reply=Reply(text=text))])
        await self._store.commit(Transaction(partition=self._store.partition(conversation), parts=parts))
        return {"conversation": conversation, "parts": len(parts)}

    # ── people ──

    async def people(self) -> Told:
        """Return who was turned away lately, and who was let in by a code."""
        knocked, admitted = await Newcomers(self._store, self._keyring).listed()
        return {"turned_away": [asdict(each) for each in knocked], "admitted": [asdict(each) for each in admitted]}

    async def admit(self, code: str) -> Told:
        """Let in the person with this code, and tell them. Raises NotDone."""
        newcomer = await Newcomers(self._store, self._keyring).admit(code, NAME)
        if newcomer is None:
            raise NotDone(f"no newcomer has the code {code!r} now: `askfirst people list` shows those who wait")
        bot = self._bot if self._bot is not None else await served_bot(self._store)
        where = Address.parse(newcomer.address)
        if bot is not None and where.channel in self._channels:
            conversation, text = f"{bot}/{where}", say("admitted", newcomer.language)
            parts = self._queue(conversation, where, [OutgoingReply(reply=Reply(text=text))])
            await self._store.commit(Transaction(partition=self._store.partition(conversation), parts=parts))
        return asdict(newcomer)

    async def expel(self, person: str) -> Told:
        """Take back that a person was let in by a code. Raises NotDone."""
        if not await Newcomers(self._store, self._keyring).expel(person):
            raise NotDone(f"{person} was not let in by a code: `askfirst people list` shows who was")
        return {"person": person}

    # ── in common ──

    async def _find(self, action_id: str) -> PendingAction:
        """Return the action whose id begins like this. Raises NotDone."""
        found = await self._store.scan(f"{_ACTION}{action_id}") if action_id else []
        if len(found) > 1:
            raise NotDone(f"{len(found)} actions begin with {action_id}: give more of the id")
        if not found:
            raise NotDone(f"there is no action {action_id}")
        first_form = await first_form_counts(self._store, self._keyring)
        try:
            action = stored_action(self._keyring, *found[0], first_form=first_form)
        except NewerForm:
            raise NotDone(f"action {action_id} was written by a newer release: use that one") from None
        if action is None:
            raise NotDone(f"action {action_id} was changed by somebody without the key, or ASKFIRST_SECRET is another")
        return action

    async def _change(
        self, action_id: str, change: Callable[[ConversationActions, PendingAction], bool], rule: str
    ) -> Told:
        for attempt in attempts():
            async with attempt:
                action = await self._find(action_id)
                actions = await load_actions(
                    self._store,
                    action.conversation,
                    keyring=self._keyring,
                    counters=Counters(),
                    drift=lambda _: None,
                    also=[action.pending_action_id],
                    first_form=await first_form_counts(self._store, self._keyring),
                )
                for tampered in actions.changes.tampered:
                    log.error("action %s was changed by somebody without the key: it will not run", tampered)
                if not change(actions, action):
                    action = actions.get(action.pending_action_id) or action
                    raise NotDone(f"action {action_id} is {action.reason or action.state}: {rule}")
                transaction = Transaction(partition=self._store.partition(action.conversation))
                actions.write(transaction)
                if action.address is not None:
                    transaction.parts = self._queue(
                        action.conversation, action.address, actions.says, language=action.language
                    )
                await self._store.commit(transaction)
        return _summary(await self._find(action_id))

    def _queue(
        self, conversation: str, address: Address, says: list[OutgoingReply], *, language: str = "en"
    ) -> list[QueuedPart]:
        if address.channel not in self._channels:
            raise NotDone(f"{address.channel} is not on: its settings are needed to write to {address}")
        return PartRenderer(self._channels, self._keyring).render(
            conversation, address, says, cause=NAME, language=language
        )

    async def _dead(self, dead_id: str) -> Dead:
        found = [dead for dead in await self._store.dead_letters() if dead_id and dead.dead_id.startswith(dead_id)]
        exact = [dead for dead in found if dead.dead_id == dead_id]
        if len(exact or found) > 1:
            raise NotDone(f"{len(found)} dead letters begin with {dead_id}: give more of the id")
        if not found:
            raise NotDone(f"there is no dead letter {dead_id}")
        return (exact or found)[0]

    async def _shapes(self, shape_id: str | None = None) -> list[tuple[Key, Told]]:
        """Return what was not understood, as lines of the list; of one id that one."""
        found = [
            (key, _shape(key.name, record.value))
            for key, record in await self._store.scan(SHAPES)
            if isinstance(record.value, dict)
        ]
        return [(key, told) for key, told in found if shape_id is None or told["id"] == shape_id]

    async def _gone(self, dead: Dead, was_there: bool) -> Told:
        if not was_there:
            raise NotDone(f"the dead letter {dead.dead_id} is not there any more")
        return _letter(dead)


async def claim(store: Store, bot: str) -> None:
    """Make a store that several processes share this bot's. Raises StoreRefused when it is another's.

    Two bots would take each other's messages: whoever leases a conversation answers in it. An embedded store has one
    owner, whose bot may have been renamed.
    """
    if not store.shared:
        return
    key = Key(store.partition(_SERVED), _SERVED)
    for attempt in attempts():
        async with attempt:
            record = (await store.get([key]))[key]
            if record.value == bot:
                return
            if record.value is not None:
                raise StoreRefused(
                    f"This store holds the conversations of the bot {record.value!r}, and its messages would be taken "
                    f"by {bot!r}. Give {bot!r} a database of its own: another number at the end of ASKFIRST_STORE."
                )
            claimed = Transaction(partition=key.partition, expect={key.name: record.version}, puts={key.name: Put(bot)})
            await store.commit(claimed)


async def served_bot(store: Store) -> str | None:
    """The name of the bot that was last served from this store."""
    key = Key(store.partition(_SERVED), _SERVED)
    name = (await store.get([key]))[key].value
    return name if isinstance(name, str) else None


def _summary(action: PendingAction) -> Told:
    return {
        "id": action.pending_action_id,
        "code": action.code,
        "tool": action.kind,
        "preview": action.preview,
        "state": action.state,
        "reason": action.reason,
        "requester": action.requester,
        "requested_at": _iso(action.requested_at),
        "shown_at": _iso(action.shown_at),
        "expires_at": _iso(action.expires_at),
    }


def _unreadable(action_id: str) -> Told:
    """Return what stands in the list for a record that cannot be read, or whose seal does not hold."""
    return {
        "id": action_id,
        "code": "",
        "tool": "",
        "preview": "unreadable: somebody has changed the record, or it is damaged",
        "state": "unreadable",
        "reason": None,
        "requester": "",
        "requested_at": None,
        "shown_at": None,
        "expires_at": None,
    }


def _letter(dead: Dead) -> Told:
    what = "event" if dead.incoming is not None else "part" if dead.part is not None else "payload"
    return {
        "id": dead.dead_id,
        "what": what,
        "conversation": dead.conversation,
        "reason": dead.reason,
        "at": _iso(dead.stamp),
        "seq": dead.seq,
    }


def _shape(name: str, value: Mapping[str, Json]) -> Told:
    return {
        "id": name.rpartition("/")[2],
        "what": "shape",
        "conversation": value["conversation"],
        "reason": f"not understood, {value['seen']} times or more",
        "at": value["at"],
        "seq": None,
        "body": value["shape"],
    }


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
