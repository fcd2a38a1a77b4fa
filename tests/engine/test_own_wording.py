"""An author's own sentences, on every way from the bot to a person.

Each sentence of the bot has a mark in front. The default wording is taken away: a way into the work without the wording
of the bot raises LookupError instead of a sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from channels import Ambiguous, ButtonPress, Event, OptOut, Parsed, WebhookResponse
from gateway import Approvers, ChannelAgent, Confirm, ToolContext, wording
from gateway.config.limits import Limits, Share
from gateway.operations.base import served_wording
from gateway.operations.operator import Operator
from gateway.pending.seal import Keyring
from gateway.providers.base import ProviderError
from gateway.stored import keys
from gateway.testing import ScriptedProvider
from gateway.wording import Sentence, Wording, say, speaking
from gateway.wording.sentences import read
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, code_of, here, message, person_of, rig, until

MARK = "¤ "
_numbers = itertools.count()


def marked() -> dict[str, Sentence]:
    """Return every English sentence with the mark in front."""
    spoken = read("en")
    own: dict[str, Sentence] = {name: MARK + text for name, text in spoken.sentences.items()}
    return own | {name: {form: MARK + text for form, text in forms.items()} for name, forms in spoken.forms.items()}


class Answering(Platform):
    """A platform showing the result of a press to the presser."""

    name: ClassVar[str] = "test"

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self.answers: list[str] = []

    async def answer(self, answer_to: str, text: str, *, private: bool = True) -> None:
        self.answers.append(text)

    def shown(self) -> list[str]:
        """Return every text shown to people: messages, edits, labels of buttons and answers to presses."""
        parts = [part for _, part in self.sent]
        labels = [button.label for part in parts for button in part.buttons]
        return [*(str(part.arguments["text"]).replace("\\", "") for part in parts), *labels, *self.answers]


@dataclass
class Shop:
    """A bot with marked sentences, at work on its own loops."""

    chat: Rig
    platform: Answering
    invoices: Invoices

    async def take(self, *events: Event) -> None:
        engine = self.chat.worker.engine
        await engine.inbox.accept(self.platform, Parsed(events=events, response=WebhookResponse()))
        await until(engine.idle)

    async def says(self, text: str, person: str = "ana", **more: Any) -> None:
        code = next((code_of(each) for each in reversed(self.platform.texts(person)) if code_of(each)), "")
        await self.take(message(person, text.replace("CODE", code), **more))

    async def presses(self, label: str, person: str = "ana") -> None:
        tokens = [b.token for _, part in self.platform.sent for b in part.buttons if b.label == MARK + label]
        number = f"press {next(_numbers)}"
        press = ButtonPress(
            event_ids=(number,), address=here(person), person=person_of(person), token=tokens[-1], answer_to=number
        )
        await self.take(press)

    async def later(self, seconds: float) -> None:
        self.chat.store.offset_seconds += seconds
        await self.chat.worker.engine.due()
        await until(self.chat.worker.engine.idle)

    async def retried(self) -> None:
        """Let all retries of a failed turn pass."""
        for seconds in (6, 31, 121, 601):
            await self.later(seconds)

    def said(self) -> set[str]:
        """Return the names of the sentences that were shown. Each must have been shown with the mark."""
        found: set[str] = set()
        for name, text in read("en").sentences.items():
            pattern = re.sub(r"\\\{\w+\\\}", ".+?", re.escape(text))
            for shown in self.platform.shown():
                if re.search(f"{MARK}{pattern}(?!\\w)", shown, re.DOTALL):
                    found.add(name)
                elif len(text) > 20:
                    assert not re.search(pattern, shown, re.DOTALL), f"{name} is not the author's: {shown}"
        return found


@pytest.fixture(autouse=True)
def no_default_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "_SPEAKING", ContextVar("a wording that is always set"))


@pytest.fixture
async def open_shop(
    tmp_path: Path, invoices: Invoices, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., Awaitable[Shop]]]:
    """Yield a function to open the shop. The options are those of the bot, but for the limits and the people."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(*, people: tuple[str, ...] = ("*",), limits: Limits | None = None, **options: Any) -> Shop:
            platform = Answering(**options.pop("capabilities", {}))
            bot = await asyncio.to_thread(partial(invoices.bot, wording={"en": marked()}, **options))  # it reads files
            chat = await stack.enter_async_context(rig(bot, tmp_path, platform, people=people, limits=limits))
            chat.worker.engine.start()
            return Shop(chat, platform, invoices)

        yield opened


BY_BEN = Confirm("Delete invoice {invoice_id} for good?", approvers=Approvers(people=["test:bot:ben"]))
Story: TypeAlias = Callable[[Shop], Awaitable[None]]


async def confirmed(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.presses("Confirm")


async def refused(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.says("NO CODE")


async def unclear(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.says("yes but not today")
    await shop.says("hello")


async def failed(shop: Shop) -> None:
    shop.invoices.error = RuntimeError("no")
    await confirmed(shop)


async def planned(shop: Shop) -> None:
    await shop.says("delete INV-1 INV-2")
    await shop.presses("Confirm all")


async def expired(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.later(86_400 * 2)
    await shop.presses("Confirm")


async def changed(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.presses("Change")


async def commanded(shop: Shop) -> None:
    for command in ("start", "help", "pending", "receipts", "usage", "export", "forget", "whoami", "new", "stop"):
        await shop.says(f"/{command}")


async def stopped(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.says("/stop")


async def opted_out(shop: Shop) -> None:
    for opted_in in (False, True):
        number = f"opt {next(_numbers)}"
        await shop.take(
            OptOut(event_ids=(number,), address=here("ana"), person=person_of("ana"), opted_in=opted_in, told=False)
        )


async def in_doubt(shop: Shop) -> None:
    shop.platform.will = [Ambiguous("no answer")]
    await shop.says("hello")
    await shop.later(60)


async def greeted(shop: Shop) -> None:
    await shop.says("hello", "eve")


async def hurried(shop: Shop) -> None:
    for _ in range(7):
        await shop.says("hello")


async def cancelled_by_operator(shop: Shop) -> None:
    await shop.says("delete INV-1")
    context = shop.chat.worker.context
    operator = Operator(shop.chat.store, context.channels, context.keyring, bot="agent", wording=context.bot.wording)
    (action,) = await shop.chat.actions()
    await operator.run("cancel", {"action_id": action.pending_action_id})
    await until(shop.chat.worker.engine.idle)


async def out_of_reach(shop: Shop) -> None:
    script = [ProviderError("test", "down", retryable=True)] * 99
    shop.chat.bot.agent = shop.chat.bot.agent.using(ScriptedProvider(script))
    await shop.says("hello")
    await shop.retried()


async def broken(shop: Shop) -> None:
    shop.chat.bot.agent = shop.chat.bot.agent.using(ScriptedProvider([RuntimeError("broken")] * 9))
    await shop.says("hello")
    await shop.retried()


async def answered_with_nothing(shop: Shop) -> None:
    shop.chat.bot.agent = shop.chat.bot.agent.using(ScriptedProvider([""] * 9))
    await shop.says("hello")


async def approved_elsewhere(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.later(86_400 / 2)
    await shop.presses("Confirm", "ben")


async def taken_back_by_an_approver(shop: Shop) -> None:
    await shop.says("delete INV-1")
    await shop.says("NO CODE too dear", "ben")


STORIES: list[tuple[Story, dict[str, Any], set[str]]] = [
    (confirmed, {}, {"prompt_code", "prompt_window", "button_confirm", "button_cancel", "confirmed_by", "pressed_ok"}),
    (refused, {}, {"cancelled_by", "cancelled"}),
    (unclear, {}, {"still_waiting"}),
    (failed, {}, {"failed", "failed_note", "button_again"}),
    (planned, {}, {"button_confirm_all", "button_confirm_code", "prompt_numbers"}),
    (expired, {}, {"expired_note", "already_expired"}),
    (changed, {}, {"change_how", "button_change"}),
    (
        commanded,
        {},
        {"greeting", "help", "cmd_new", "pending_none", "receipts_none", "usage_day", "export_ask", "forget_ask"}
        | {"whoami", "new_done", "stopped_nothing"},
    ),
    (stopped, {}, {"stopped_waiting", "withdrawn_note"}),
    (opted_out, {"capabilities": {"opt_out": True}}, {"opted_out", "greeting"}),
    (in_doubt, {}, {"may_be_duplicate"}),
    (greeted, {"people": ("test:bot:ana",)}, {"stranger"}),
    (greeted, {"people": ("pairing", "test:bot:ana")}, {"newcomer"}),
    (hurried, {"limits": Limits(messages=Share(6))}, {"too_fast", "repeated"}),
    (cancelled_by_operator, {}, {"cancelled", "withdrawn_note"}),
    (confirmed, {"confirm": True}, {"run_tool"}),
    (out_of_reach, {}, {"model_down", "gave_up"}),
    (broken, {}, {"error_incident"}),
    (answered_with_nothing, {}, {"empty_answer"}),
    (
        approved_elsewhere,
        {"confirm": BY_BEN},
        {"prompt_asked", "deciders", "asks_approval", "still_waiting", "confirmed_by"},
    ),
    (taken_back_by_an_approver, {"confirm": BY_BEN}, {"not_approved_because", "button_again_of"}),
]


@pytest.mark.parametrize(("story", "options", "expected"), STORIES)
async def test_each_sentence_on_the_way_is_the_authors(
    open_shop: Callable[..., Awaitable[Shop]], story: Story, options: dict[str, Any], expected: set[str]
) -> None:
    shop = await open_shop(**options)
    await story(shop)
    assert shop.said() >= expected, "\n".join(shop.platform.shown())


# ── bots beside each other, and restarts ──


def bot_of(invoices: Invoices, mark: str, **options: Any) -> ChannelAgent:
    """Return a bot with this mark in front of each sentence."""
    return invoices.bot(wording={"en": {name: mark + text for name, text in read("en").sentences.items()}}, **options)


async def test_each_bot_of_a_process_speaks_its_own_sentences() -> None:
    bots = [await asyncio.to_thread(bot_of, Invoices(), mark) for mark in ("1: ", "2: ")]
    asked: list[str] = []

    @bots[0].command("ask")
    async def ask(ctx: ToolContext, text: str) -> str:
        """Ask the other bot, and itself again."""
        asked.append((await bots[1].ask_channel("ana", "/new")).content)
        return say("done", ctx.language, preview="it")

    async with bots[0], bots[1]:
        texts = await asyncio.gather(*(bot.ask_channel("ana", "/new") for bot in bots * 3))
        assert [result.content[:3] for result in texts] == ["1: ", "2: "] * 3
        assert (await bots[0].ask_channel("ana", "/ask")).content == "1: Done: it"
        assert asked[0].startswith("2: ")
        action = (await bots[1].ask_channel("ana", "delete INV-1")).pending[0]
        decided = await bots[1].decide("app:-:ana", "cancel", action_id=action.pending_action_id)
        assert decided.content.startswith("2: Not done")


@pytest.mark.parametrize("confirm", ["Delete invoice {invoice_id} for good?", True])
async def test_an_open_question_is_decided_after_a_change_of_wording(tmp_path: Path, confirm: Any) -> None:
    """No sentence is part of a sealed record, but the question of `run_tool`, which stays as it was shown."""
    store, invoices = f"sqlite:///{tmp_path}/askfirst.db", Invoices()
    before = await asyncio.to_thread(bot_of, invoices, "before: ", confirm=confirm, store=store)
    async with before:
        first, second = [(await before.ask_channel(f"ana{n}", "delete INV-1")).pending[0] for n in (1, 2)]
    after = await asyncio.to_thread(bot_of, invoices, "after: ", confirm=confirm, store=store)
    async with after:
        again = (await after.ask_channel("ana1", "delete INV-2")).content
        assert "after: You have" in again and "before: You have" not in again
        done = await after.decide("app:-:ana1", "confirm", action_id=first.pending_action_id)
        refused = await after.decide("app:-:ana2", "cancel", action_id=second.pending_action_id)
    assert (done.content, invoices.deleted) == ("Invoice INV-1 is deleted.", ["INV-1"])
    assert refused.content.startswith("after: Not done")
    assert first.preview.startswith("before: Run") is (confirm is True)


async def test_commands_beside_a_server_speak_as_the_bot_served_last(tmp_path: Path, invoices: Invoices) -> None:
    own = Wording("familiar", {"en": {"cancelled": "Nope: {preview}"}})
    async with rig(invoices.bot(), tmp_path) as chat:
        context = chat.worker.context

        def operator(wording: Wording | None, keyring: Keyring = context.keyring) -> Operator:
            return Operator(chat.store, context.channels, keyring, bot="agent", wording=wording)

        with speaking(Wording()):
            assert (await served_wording(chat.store, context.keyring)).own == {}
            await operator(Wording()).remember()
            assert await chat.store.scan(keys.WORDING) == [], "nothing to remember of a bot without its own"
            await operator(own).remember()
            await chat.hears("ana", "delete INV-1")
            (action,) = await chat.actions()
        kept = await served_wording(chat.store, context.keyring)
        assert (kept.tone, kept.own) == ("familiar", own.own)
        assert (await served_wording(chat.store, Keyring([b"another key of 16 bytes"]))).own == {}
        await asyncio.to_thread(kept.spoken, "en")  # a command beside the server has a loop of its own, which may wait
        await operator(None).run("cancel", {"action_id": action.pending_action_id})
        with speaking(Wording()):
            await chat.turns()
        assert "Nope: Delete invoice “INV-1” for good" in [text.replace("\\", "") for text in chat.platform.texts()]
