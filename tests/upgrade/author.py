"""Whoever brings a store into the state of the fixtures, plot by plot. It runs with the code of the older release."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from channels import Json
from gateway.store.types import Key
from tests.fakes.telegram import Chat, User
from tests.upgrade.books import APPROVERS
from tests.upgrade.valve import Valve
from tests.upgrade.world import World

__all__ = ["Author"]

_NOTES = ("for March", "für den März – ¿listo?", 'with "quotes", {braces} and a \\', "")


class Author:
    """Brings a store into the state that is wanted. Each plot has its own invoices, which name it."""

    def __init__(self, world: World, valve: Valve) -> None:
        self.world, self.valve, self.phones = world, valve, world.phones
        self.people: list[User] = [*APPROVERS]
        self.chats: list[Chat] = []
        self.of: dict[str, tuple[Chat | User, User]] = {}
        """Invoice -> the chat where it was asked about, and by whom."""
        self.app: dict[str, tuple[str, str | None]] = {}
        """Invoice -> the user and conversation of `ask_channel`."""
        self.said: dict[str, list[list[Json]]] = {}
        """Kind of thing -> [chat, text], ..."""
        self.background: list[asyncio.Task[Any]] = []
        self._ids = itertools.count(1001)
        for user in APPROVERS:
            self.phones.join(user)

    # ── people and what they do ──

    def person(self) -> User:
        """Somebody new."""
        number = next(self._ids)
        user = User(number, f"Person{number}", ("en", "en", "pt", "es")[number % 4])
        self.people.append(user)
        return self.phones.join(user)

    def group(self) -> Chat:
        chat = self.phones.gather(Chat(-1_002_000_000_000 - next(self._ids), "supergroup", "Team"))
        self.chats.append(chat)
        return chat

    async def ask(self, *calls: tuple[str, dict[str, Json]], chat: Chat | None = None, by: User | None = None) -> User:
        """Somebody has tools called: (tool, arguments)."""
        user = by or self.person()
        for _, args in calls:
            self.of[str(args["invoice_id"])] = chat or user, user
        text = "\n".join(f"{name} {json.dumps(args, ensure_ascii=False)}" for name, args in calls)
        await self.world.says(chat or user, user, text)
        return user

    async def ask_app(self, user: str, conversation: str | None, *calls: tuple[str, dict[str, Json]]) -> None:
        for _, args in calls:
            self.app[str(args["invoice_id"])] = user, conversation
        text = "\n".join(f"{name} {json.dumps(args, ensure_ascii=False)}" for name, args in calls)
        await self.world.bot.ask_channel(user, text, conversation_id=conversation)

    async def writes(self, kind: str, text: str, *, chat: Chat | User | None = None, by: User | None = None) -> User:
        """Somebody writes something that the manifest keeps under `kind`."""
        user = by or self.person()
        where = chat or user
        self.said.setdefault(kind, []).append([where.id, text])
        await self.world.says(where, user, text)
        return user

    async def press(self, invoice: str, intent: str, *, by: User | None = None) -> None:
        [confirm, cancel] = (await self.tokens(invoice))[0]
        await self.world.presses(confirm if intent == "confirm" else cancel, by or self.of[invoice][1])

    async def records(self) -> dict[str, dict[str, Any]]:
        """Every action, by its invoice."""
        found = await self.valve.store.scan("action/")
        return {record.value["args"]["invoice_id"]: record.value for _, record in found}

    async def tokens(self, invoice: str) -> list[list[str]]:
        """(confirm, cancel) of each showing, oldest first."""
        return (await self._shown())[(await self.records())[invoice]["pending_action_id"]]

    async def _shown(self) -> dict[str, list[list[str]]]:
        records = (await self.records()).values()
        buttons = [token for message in self.phones.sent for token in message.once_shown.values()]
        for conversation in {record["conversation"] for record in records}:
            for part in await self.valve.store.outbox(conversation):
                buttons += [button["token"] for button in part.body["part"]["buttons"]]
            log = Key(self.valve.store.partition(conversation), f"visible/{conversation}")
            for entry in await self.valve.store.read(log):
                buttons += [button["token"] for button in entry.value.get("buttons") or ()]
        known = {hashlib.sha256(token.encode()).hexdigest(): token for token in buttons}
        shown: dict[str, list[list[str]]] = {}
        for record in records:
            own = [known[token["sha256"]] for token in record["tokens"] if token["sha256"] in known]
            shown[record["pending_action_id"]] = [own[at : at + 2] for at in range(0, len(own), 2)]
        return shown

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await condition():
                await asyncio.sleep(0.01)

    # ── the plots ──

    async def open_questions(self) -> None:
        """What waits for an answer, and nothing more is to be said of it."""
        for number in range(44):
            await self.ask(_any_call("SOLO", number))
        for number in range(12):
            await self.ask(*[_any_call("TRIO", 3 * number + each) for each in range(3)])
        for number in range(8):
            group = self.group()
            for each in range(3):
                await self.ask(_any_call("TEAM", 3 * number + each), chat=group)
        for number in range(8):
            await self.ask(("refund_invoice", _args("REFUND", number, amount=number + 0.1)), chat=self.group())
            await self.ask(("close_books", _args("CLOSE", number)), chat=self.group())
        for number in range(12):
            await self.ask(("void_receipt", _args("SHORT", number)))
            calls = [_any_call("DESK", 2 * number + each) for each in range(2)]
            await self.ask_app(f"clerk{number}", f"desk-{number}", *calls)
        for number in range(8):
            await self.ask_app(f"guest{number}", None, _any_call("OWN", number))
        pairs = [await self.ask(_any_call("PAIR", 2 * number)) for number in range(8)]
        again = [await self.ask(_any_call("AGAIN", number)) for number in range(6)]
        await self.world.idle()
        for number, user in enumerate(pairs):
            await self.ask(_any_call("PAIR", 2 * number + 1), by=user)
        for user in again:
            await self.world.says(user, user, "and what is new?")
        for number in range(4):
            await self.press(f"CLOSE-{number}", "confirm", by=APPROVERS[0])
        await self.world.idle()

    async def dead_letters(self) -> None:
        """An event, a part and a payload that were given up."""
        await self.writes("dead", "crash")
        self.phones.fail_next("sendMessage", 400, "Bad Request: not enough rights to send text messages to the chat")
        await self.writes("dead", "anybody there?", by=self.person())
        await self.world.idle()
        for _ in range(3):
            await self.world.later(10)
        await self.phones.deliver("message", self.person(), {"message_id": "what?"})
        await self.world.idle()

    async def settled(self) -> None:
        """What became something lately."""
        for plot in ("DONE", "REFUSED", "FAILED", "STOPPED"):
            for number in range(4):
                await self.ask(("delete_invoice", _args(plot, number)))
        await self.ask_app("clerk20", "desk-20", ("delete_invoice", _args("DONE", 20)))
        await self.world.idle()
        for number in range(4):
            await self.press(f"DONE-{number}", "confirm")
            await self.press(f"FAILED-{number}", "confirm")
            await self.press(f"REFUSED-{number}", "cancel")
            user = self.of[f"STOPPED-{number}"][1]
            await self.world.says(user, user, "/stop")
        record = (await self.records())["DONE-20"]
        await self.world.bot.decide(record["requester"], "confirm", action_id=record["pending_action_id"])
        await self.world.idle()
        user = self.person()
        for number in range(6):
            await self.ask(_any_call("ELDER", number), by=user)
            await self.world.idle()
            await self.press(f"ELDER-{number}", "confirm")
            await self.world.idle()
        await self.ask(_any_call("ELDER", 6), by=user)
        await self.world.idle()

    async def half_done(self) -> None:
        """Effects that run when the process dies, and others that were approved and never began."""
        running = [
            *[("delete_invoice", _args("LOST", number)) for number in range(2)],
            *[("archive_invoice", _args("REPEAT", number)) for number in range(2)],
            *[("book_invoice", _args("PROBED", number)) for number in range(2)],
        ]
        for call in [*running, *[_any_call("YES", number) for number in range(5)]]:
            await self.ask(call)
        await self.ask(_any_call("YES", 5), chat=self.group())
        await self.ask_app("clerk21", "desk-21", _any_call("YES", 6))
        await self.world.idle()
        books = self.world.books
        books.never_end = {str(args["invoice_id"]) for _, args in running} | {"NOTED-0"}
        for _, args in running:
            await self.press(str(args["invoice_id"]), "confirm")
        await self.ask(("note_down", _args("NOTED", 0)))

        async def all_hang() -> bool:
            return {*books.hanging} == books.never_end

        await self.until(all_hang)
        await self._stand_still("action")
        for number in range(6):
            await self.press(f"YES-{number}", "confirm")
        record = (await self.records())["YES-6"]
        decided = self.world.bot.decide(record["requester"], "confirm", action_id=record["pending_action_id"])
        self.background.append(asyncio.ensure_future(decided))

        async def all_approved() -> bool:
            records = await self.records()
            return all(records[f"YES-{number}"]["state"] == "approved" for number in range(7))

        await self.until(all_approved)

    async def questions_to_be_answered(self) -> None:
        """What has an answer waiting at the end, and turns that die after they have asked."""
        counts = {
            "WORDYES": 3,
            "WORDNO": 2,
            "PRESSED": 3,
            "PRESSEDNO": 2,
            "CODE": 2,
            "CODENO": 1,
            "REPLY": 2,
            "STOP": 1,
        }
        for plot, count in counts.items():
            for number in range(count):
                await self.ask(_any_call(plot, number))
        await self.ask(_any_call("OTHER", 0), chat=self.group())
        for number in range(3):
            await self.ask(_any_call("QUEUED", number))
        for invoice in ("NOTIFY-0", "NOTIFY-1"):
            user = await self.ask(_any_call("NOTIFY", int(invoice[-1])))
            address = f"telegram:{self.phones.bot.id}:{user.id}"
            self.said.setdefault("notify", []).append([user.id, f"about {invoice}"])
            await self.world.bot.notify(address, f"about {invoice}", after_seconds=600)

        async def all_shown() -> bool:
            records = await self.records()
            mine = [record for invoice, record in records.items() if invoice.split("-")[0] in {*counts, "QUEUED"}]
            return len(mine) == sum(counts.values()) + 3 and all(record["shown_at"] for record in mine)

        await self.until(all_shown)
        for number, calls in enumerate((1, 2)):
            user = self.person()
            conversation = f"{self.world.bot.name}/telegram:{self.phones.bot.id}:{user.id}"
            self.valve.unended.add(conversation)
            await self.ask(*[_any_call("ASKED", 2 * number + each) for each in range(calls)], by=user)
        self.valve.unended.add(f"{self.world.bot.name}/app:-:desk-22")
        asked = self.world.bot.ask_channel("clerk22", "hello from the counter", conversation_id="desk-22")
        self.background.append(asyncio.ensure_future(asked))

        async def all_stand() -> bool:
            return self.valve.standing == self.valve.unended

        await self.until(all_stand)

    async def unsent(self) -> None:
        """What waits in outboxes: never tried, refused once, and perhaps sent."""
        hold = self.phones.hold("sendMessage")
        await self.ask(_any_call("TWICE", 0))
        await hold.reached()
        self.phones.fail_next("sendMessage", 500, times=3)
        for number in range(3):
            await self.ask(_any_call("DOWN", number))

        async def all_refused() -> bool:
            conversations = [
                record["conversation"] for name, record in (await self.records()).items() if "DOWN" in name
            ]
            parts = [await self.valve.store.outbox(conversation) for conversation in conversations]
            return [[part.tries for part in waiting] for waiting in parts] == [[1]] * 3

        await self.until(all_refused)
        await self._stand_still("out")
        for number in range(7):
            await self.ask(_any_call("UNSENT", number))
        await self.ask(_any_call("UNSENT", 7), chat=self.group())
        await self.writes("unsent", "what is the time?")
        for number in range(3):
            await self.press(f"QUEUED-{number}", "cancel")

        async def all_queued() -> bool:
            return bool((await self.valve.store.stats()).parts == 1 + 3 + 8 + 1 + 3 * 2)

        await self.until(all_queued)

    async def what_waits(self) -> None:
        """Events that were taken in and never looked at."""
        await self._stand_still("turn")
        await self._stand_still("all")
        records = await self.records()
        for number in range(4):
            await self.writes("hello", f"hello number {number}")
        user = await self.writes("hello", "the first of two")
        await self.writes("hello", "the second of two", by=user)
        group = self.group()
        await self.writes("hello", "I am the first here", chat=group)
        await self.writes("hello", "and I the second", chat=group)
        for number in range(2):
            await self.ask(_any_call("LATER", number))
        words = {"WORDYES": "yes", "WORDNO": "no", "CODE": "OK {}", "CODENO": "NO {}", "STOP": "/stop"}
        for plot, word in words.items():
            for invoice in [invoice for invoice in records if invoice.split("-")[0] == plot]:
                user = self.of[invoice][1]
                await self.world.says(user, user, word.format(records[invoice]["code"]))
        for number in range(2):
            message, _ = self.phones.bearing((await self.tokens(f"REPLY-{number}"))[0][0])
            user = self.of[f"REPLY-{number}"][1]
            await self.world.says(user, user, "yes", reply_to=message)
        for number in range(3):
            await self.press(f"PRESSED-{number}", "confirm")
        for number in range(2):
            await self.press(f"PRESSEDNO-{number}", "cancel")
        await self.press("OTHER-0", "confirm", by=self.person())

    async def _stand_still(self, what: str) -> None:
        self.valve.shut.add(what)
        await asyncio.sleep(0.2)  # whoever was asking for work meanwhile has it

    async def manifest(self) -> dict[str, Json]:
        """What the tests have to know."""
        shown, records = await self._shown(), await self.records()
        actions: list[Json] = [
            self._noted(invoice, record, shown[record["pending_action_id"]])
            for invoice, record in sorted(records.items())
        ]
        stats = await self.valve.store.stats()
        names = ("waiting", "pointed", "parts", "timers", "dead")
        messages: list[Json] = [
            [message.chat.id, message.message_id, dict(message.once_shown)]
            for message in self.phones.sent
            if message.once_shown
        ]
        return {
            "written_at": (await self.valve.store.now()).isoformat(),
            "counts": {name: getattr(stats, name) for name in names},
            "numbers": list(self.phones.numbers),
            "people": [[user.id, user.first_name, user.language_code] for user in self.people],
            "groups": [[chat.id, chat.title] for chat in self.chats],
            "messages": messages,
            "actions": actions,
            "in_checkpoints": sorted(invoice for invoice in self.of if invoice.startswith("ASKED")),
            "said": {kind: list(lines) for kind, lines in self.said.items()},
        }

    def _noted(self, invoice: str, record: dict[str, Any], tokens: list[list[str]]) -> dict[str, Json]:
        """What the tests have to know of an action."""
        noted: dict[str, Json] = {
            "invoice": invoice,
            "id": record["pending_action_id"],
            "code": record["code"],
            "kind": record["kind"],
            "args": record["args"],
            "person": record["requester"],
            "state": record["state"],
            "tokens": [list(pair) for pair in tokens],
        }
        if invoice in self.app:
            return noted | {"app": list(self.app[invoice])}
        chat, user = self.of[invoice]
        return noted | {"chat": chat.id, "user": user.id}


def _args(plot: str, number: int, **more: Json) -> dict[str, Json]:
    return {"invoice_id": f"{plot}-{number}", **more}


def _any_call(plot: str, number: int) -> tuple[str, dict[str, Json]]:
    """One tool after the other."""
    match number % 5:
        case 0:
            return "delete_invoice", _args(plot, number)
        case 1:
            return "pay_invoice", _args(plot, number, amount=410.2 + number, note=_NOTES[number % len(_NOTES)])
        case 2:
            return "send_reminder", _args(plot, number, lines=["Please pay.", f"INV {number}"])
        case 3:
            return "archive_invoice", _args(plot, number)
        case _:
            return "cancel_order", _args(plot, number)
