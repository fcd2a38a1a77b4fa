"""Actions and tools on a real store, for the tests of the rules."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from channels import Address, Json, Person
from gateway.pending import prompting
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import Showing
from gateway.pending.loading import Counters, load_actions, stored_action
from gateway.pending.propose import ProposalRefused, propose_action
from gateway.pending.seal import Keyring, compute_digest
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.tools import Approvers, Confirm, Preview, Tool, tool
from gateway.tools.pending_action import PendingAction, compute_args_digest

__all__ = [
    "ANA",
    "BOB",
    "EVA",
    "GROUP",
    "KEYRING",
    "NOW",
    "PRIVATE",
    "Table",
    "deletion",
    "make_tool",
    "record",
    "said",
    "table",
]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEYRING = Keyring([b"a key of more than 16 bytes"])
ANA, BOB, EVA = (
    Person(channel="test", account="bot", user_id=name, name=name.capitalize()) for name in ("ana", "bob", "eva")
)
PRIVATE = Address(channel="test", account="bot", place="ana")
GROUP = Address(channel="test", account="bot", place="#team", group=True)


def record(**changes: Any) -> PendingAction:
    """A well-formed action of Ana's without a shown prompt."""
    args: dict[str, Json] = {"invoice_id": "INV-42"}
    action = PendingAction(
        pending_action_id="5e" * 16,
        kind="delete_invoice",
        tool_version="v",
        args=args,
        precondition={"etag": "7"},
        preview="Delete invoice INV-42?",
        table=(("Invoice", "INV-42"),),
        code="K7PA",
        requester=str(ANA),
        requester_name="Ana",
        conversation="bot/test:bot:ana",
        address=PRIVATE,
        args_digest=compute_args_digest(args),
        parser_version="1-abc",
        requested_at=NOW,
    )
    action = replace(action, **changes)
    return replace(action, digest=compute_digest(action))


def deletion(confirm: Any = "Delete invoice {invoice_id}?", **options: Any) -> Tool:
    """A tool with an irreversible effect."""

    @tool(confirm=confirm, **options)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        return f"{invoice_id} is deleted."

    found: Tool = delete_invoice
    return found


def make_tool(
    people: Sequence[Person] = (),
    *,
    need: int = 1,
    requester: bool = False,
    ttl_seconds: float | None = None,
    standin: Sequence[str] = (),
) -> Tool:
    """The deletion with an approver rule."""
    written = [str(person) for person in people]
    rule = Approvers(people=written, need=need, requester=requester, standin=standin) if people else None
    return deletion(Confirm("Delete invoice {invoice_id}?", approvers=rule, ttl_seconds=ttl_seconds))


@dataclass
class Table:
    """A conversation of a store in memory, with all records."""

    store: SqliteStore
    address: Address
    keyring: Keyring
    drifts: bool = False

    @property
    def conversation(self) -> str:
        return f"bot/{self.address}"

    async def actions(self, *also: str, keyring: Keyring | None = None, **more: Any) -> ConversationActions:
        return await load_actions(
            self.store,
            self.conversation,
            keyring=keyring or self.keyring,
            counters=Counters(),
            find=lambda index: [entry.action_id for entry in index.settled],
            drift=lambda action: "changed" if self.drifts else None,
            also=also,
            **more,
        )

    async def write(self, actions: ConversationActions, **more: Any) -> Transaction:
        """Commit the changed records."""
        transaction = Transaction(partition=self.store.partition(self.conversation), **more)
        await actions.write(transaction)
        await self.store.commit(transaction)
        return transaction

    async def ask(self, invoice: str = "INV-42", *, by: Person = ANA, tool: Tool | None = None) -> PendingAction:
        """Ask for a deletion and show the prompt, without a delivery."""
        actions = await self.actions()
        action = self.proposed(actions, invoice, by=by, tool=tool)
        if actions.get(action.pending_action_id) is None:
            actions.ask(action)
        prompting.show_prompt(actions, [action])
        await self.write(actions)
        return await self.read(action.pending_action_id)

    def propose(
        self,
        actions: ConversationActions,
        invoice: str = "INV-42",
        *,
        by: Person = ANA,
        tool: Tool | None = None,
        **more: Any,
    ) -> PendingAction | ProposalRefused:
        given: dict[str, Any] = {
            "person": by,
            "address": self.address,
            "language": "en",
            "turn_started": actions.now,
            "answer_window_seconds": 60.0,
        }
        preview = more.pop("preview", Preview(text=f"Delete invoice {invoice}?"))
        return propose_action(actions, tool or deletion(), {"invoice_id": invoice}, preview, **{**given, **more})

    def proposed(self, actions: ConversationActions, invoice: str = "INV-42", **more: Any) -> PendingAction:
        """Return an accepted proposal."""
        action = self.propose(actions, invoice, **more)
        assert not isinstance(action, ProposalRefused), action.why
        return action

    async def deliver(self, *asked: PendingAction, message_id: str = "m1") -> datetime:
        """Record the arrival of the prompt."""
        actions = await self.actions()
        shows = frozenset(action.pending_action_id for action in asked)
        showing = Showing(at=actions.now, queued=actions.now, shows=shows, alone=True, message_id=message_id)
        prompting.note_arrived(actions, showing)
        await self.write(actions)
        return actions.now

    async def asked(self, invoice: str = "INV-42", **options: Any) -> PendingAction:
        """Ask, and deliver the prompt."""
        action = await self.ask(invoice, **options)
        await self.deliver(action, message_id=f"m {invoice}")
        return await self.read(action.pending_action_id)

    async def read(self, action_id: str) -> PendingAction:
        """The stored record."""
        key = Key("00", f"action/{action_id}")
        action = stored_action(self.keyring, key, (await self.store.get([key]))[key])
        assert action is not None
        return action

    async def tamper(self, action_id: str, **changes: Json) -> None:
        """Change fields of the stored record, as an attacker with the file but without the key could."""
        key = Key("00", f"action/{action_id}")
        stored: Any = (await self.store.get([key]))[key].value
        transaction = Transaction(partition="00")
        body = json.dumps({**json.loads(stored["body"]), **changes})
        transaction.puts[key.name] = Put({**stored, "body": body})
        await self.store.commit(transaction)

    async def audit(self, action_id: str) -> list[dict[str, Any]]:
        lines: list[Any] = [entry.value for entry in await self.store.read(Key("00", "audit"))]
        return [line for line in lines if line["action"] == action_id]

    def word(self, at: datetime | None, *shown: PendingAction, **changes: Any) -> BareReply:
        """A bare word typed at this moment, right after these prompts."""
        assert at is not None
        ids = frozenset(action.pending_action_id for action in shown)
        first = min((action.shown_at for action in shown if action.shown_at is not None), default=at)
        last = Showing(at=first, queued=first, shows=ids, alone=True, message_id="m")
        return replace(BareReply(at=at, fresh=True, shown=(last,) if shown else (), written="after"), **changes)

    def later(self, seconds: float) -> None:
        self.store.offset_seconds += seconds


@asynccontextmanager
async def table(address: Address = PRIVATE) -> AsyncIterator[Table]:
    store = SqliteStore(":memory:")
    await store.open()
    try:
        yield Table(store, address, KEYRING)
    finally:
        await store.close()


def said(actions: ConversationActions) -> list[str]:
    """Return the queued replies without the edits of prompts."""
    return [say.reply.text for say in actions.says if say.reply.edits is None]
