"""An outcome is told in the action's own language, on every path to the end: here in a Portuguese chat.

The platform names a person's language only with a message: a press, a timer, an operator and a process taking over know
the language from the action alone.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, TypeAlias

import pytest

from channels import Ambiguous, DeliveryReport, Message, Person, Reply
from gateway import Agent, ChannelAgent, Confirm, NothingDone, OutcomeUnknown, Preview, ToolContext, tool
from gateway.config.limits import Limits, Share
from gateway.engine.context import EngineContext
from gateway.engine.turns import language as detection
from gateway.engine.turns.language import detect_language, prepare_detection
from gateway.operations.operator import Operator
from gateway.tools import Tool, ToolBusy
from gateway.tools.pending_action import PendingAction
from gateway.wording import LANGUAGES, say
from tests.engine.bots import Invoices, Model
from tests.engine.rig import Platform, Rig, here, message, rig
from tests.engine.test_tampered_records import read, write
from tests.threads import all_threads_hang, files_hang

ANA = Person(channel="test", account="bot", user_id="ana", name="Ana")
_numbers = itertools.count()


class Answering(Platform):
    """A platform showing the result of a press to the presser."""

    name: ClassVar[str] = "test"

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self.answers: list[str] = []

    async def answer(self, answer_to: str, text: str, *, private: bool = True) -> None:
        self.answers.append(text)


class Shop:
    """A Portuguese bot with scripted failures."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.preview_error: Exception | None = None
        self.folder = 1

    def delete_invoice(self, version: str = "1", **options: Any) -> Tool:
        async def look(invoice_id: str, ctx: ToolContext) -> Preview:
            assert ctx.language == "pt-BR"
            if self.preview_error is not None:
                raise self.preview_error
            return Preview(text=f"Apagar {invoice_id}?", precondition=self.folder)

        @tool(confirm=Confirm(look, verb="delete"), version=version, **options)
        async def delete_invoice(invoice_id: str) -> None:
            """Delete an invoice."""
            if self.error is not None:
                raise self.error

        return delete_invoice

    def bot(self, version: str = "1") -> ChannelAgent:
        return ChannelAgent(Agent([self.delete_invoice(version)], provider=Model()))


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def loja(tmp_path: Path, shop: Shop) -> AsyncIterator[Rig]:
    async with rig(shop.bot(), tmp_path, Answering(reports=True)) as chat:
        yield chat


# ── texts shown to people ──


@cache
def _patterns(language: str) -> dict[str, re.Pattern[str]]:
    """Return the pattern of each sentence, with any values put in."""
    made = {}
    for name, sentence in LANGUAGES[language].items():
        pieces = [(re.escape(text), field) for text, field, *_ in Formatter().parse(sentence)]
        pattern = "".join(text + (".+?" if field is not None else "") for text, field in pieces)
        made[name] = re.compile(rf"(?<!\w){pattern}(?!\w)", re.DOTALL)
    return made


def told(chat: Rig) -> Iterator[str]:
    """Yield every text shown to people: texts, edits, the words of buttons, the answers to a press."""
    for _, part in chat.platform.sent:
        yield str(part.arguments["text"]).replace("\\", "")  # the escapes of Markdown
        yield from (button.label for button in part.buttons)
    if isinstance(chat.platform, Answering):
        yield from chat.platform.answers


def sentences(chat: Rig, language: str) -> set[str]:
    """Return the names of the shown sentences of the gateway in this language."""
    return {name for text in told(chat) for name, each in _patterns(language).items() if each.search(text)}


# ── acts of people ──


async def says(chat: Rig, text: str) -> None:
    event = message("ana", text)
    await chat.take(replace(event, person=replace(ANA, language="pt-BR")))


async def asked(chat: Rig) -> PendingAction:
    await says(chat, "delete INV-1")
    await chat.work()
    (action,) = await chat.actions()
    return action


async def press(chat: Rig, label: str) -> None:
    """Press the newest button with these words; the platform names no language with a press."""
    buttons = [button for _, part in chat.platform.sent for button in part.buttons if button.label == label]
    await press_token(chat, buttons[-1].token)


async def press_token(chat: Rig, token: str) -> None:
    await chat.presses(token, answer_to=f"press {next(_numbers)}")


def operator(chat: Rig) -> Operator:
    context = chat.worker.context
    return Operator(chat.store, context.channels, context.keyring, bot="agent")


# ── the ways in which an action ends, and the sentences that must have been said ──

Step: TypeAlias = str | int | Callable[[Rig, Shop], Awaitable[object]]
"""A text of Ana; the label of a pressed button, in brackets; seconds to pass; or any other call."""
YES, AGAIN = "[Confirmar]", "[Perguntar de novo]"


async def go(chat: Rig, shop: Shop, steps: Sequence[Step]) -> None:
    for step in steps:
        if isinstance(step, int):
            await chat.advance(step)
        elif isinstance(step, str) and step.startswith("["):
            await press(chat, step[1:-1])
        elif isinstance(step, str):
            (action,) = await chat.actions()
            await says(chat, step.replace("CODE", action.code))
        else:
            await step(chat, shop)


def made(**changes: Any) -> Step:
    """Change the shop, to cause a failure from now on."""

    async def change(chat: Rig, shop: Shop) -> None:
        vars(shop).update(changes)

    return change


async def work(chat: Rig, shop: Shop) -> None:
    await chat.work()


async def progress(chat: Rig, shop: Shop) -> None:
    (action,) = await chat.actions()
    await chat.worker.engine._actions._show_progress(action)
    await chat.worker.deliver()


async def failed_report(chat: Rig, shop: Shop) -> None:
    ids = (f"report {next(_numbers)}",)
    await chat.take(DeliveryReport(event_ids=ids, address=here("ana"), person=ANA, message_id="1", status="failed"))


async def withdrawal(chat: Rig, shop: Shop) -> None:
    (action,) = await chat.actions()
    await operator(chat).cancel(action.pending_action_id)


def settlement(state: Any) -> Step:
    async def settle(chat: Rig, shop: Shop) -> None:
        (action,) = await chat.actions()
        await operator(chat).settle(action.pending_action_id, state)

    return settle


async def crash(chat: Rig, shop: Shop) -> None:
    """The process of the launch dies, and another process takes the action over."""
    lease = await chat.worker.lease("action", lease_seconds=0.05)
    engine = chat.worker.engine
    found = await engine._actions._find(lease)
    assert found is not None
    assert await engine._actions._launch(lease, found) is not None
    other = chat.another()
    await other.engine._actions.run(await other.lease("action", wait_seconds=15))


async def no_sentence_yet(chat: Rig, shop: Shop) -> None:
    assert sentences(chat, "pt") & {"not_checked", "drifted"} == set(), "it is tried for a minute"


async def next_release(chat: Rig, shop: Shop) -> None:
    chat.worker.context.bot = shop.bot("2")


async def forgery(chat: Rig, shop: Shop) -> None:
    (action,) = await chat.actions()
    name = f"action/{action.pending_action_id}"
    stored = await read(chat, name)
    await write(chat, name, {**stored, "body": stored["body"].replace("INV-1", "INV-9")})


async def deletion(chat: Rig, shop: Shop) -> None:
    (action,) = await chat.actions()
    await write(chat, f"action/{action.pending_action_id}", None)
    await says(chat, f"ok {action.code}")


async def unknown_press(chat: Rig, shop: Shop) -> None:
    await press_token(chat, "nonsense")


async def late_press(chat: Rig, shop: Shop) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineContext, "may_decide", lambda self, waiting: False)
        await press(chat, YES[1:-1])


DOUBT = made(error=OutcomeUnknown("x"))
WAYS: dict[str, tuple[Sequence[Step], set[str]]] = {
    "confirmed": ([YES], {"done", "confirmed_by", "pressed_ok"}),
    "refused": (["[Cancelar]"], {"cancelled", "cancelled_by", "pressed_no"}),
    "refused with a reason": (["não CODE valor errado"], {"cancelled_because", "cancelled_by_because"}),
    "under way": ([YES, progress], {"running_note"}),
    "failed": ([made(error=ValueError("x")), YES], {"failed", "failed_note"}),
    "nothing done": ([made(error=NothingDone("x")), YES], {"nothing_done"}),
    "busy": ([made(error=ToolBusy("delete_invoice", "x")), YES], {"busy"}),
    "unknown": ([DOUBT, YES], {"unknown", "unknown_note"}),
    "expired": ([901], {"expired", "expired_note", "button_again"}),
    "not launched": ([YES, 906], {"not_started"}),
    "never arrived": ([failed_report, YES], {"already_expired"}),
    "withdrawn by an operator": ([withdrawal], {"cancelled", "withdrawn_note"}),
    "stopped": (["/stop"], {"stopped_waiting", "withdrawn_note"}),
    "settled as done": ([DOUBT, YES, work, settlement("done")], {"unknown", "done"}),
    "settled as failed": ([DOUBT, YES, work, settlement("failed")], {"unknown", "failed"}),
    "taken over after a crash": ([YES, crash], {"unknown", "unknown_note"}),
    "changed": ([made(folder=2), YES], {"drifted", "drifted_note"}),
    "not_checked": (
        [made(preview_error=RuntimeError("x")), YES, work, no_sentence_yet, 61],
        {"not_checked", "not_checked_note"},
    ),
    "other_release": ([YES, next_release, work, 61], {"other_release", "other_release_note", "pressed_ok"}),
    "tampered": ([forgery, YES], {"tampered"}),
    "deleted": ([deletion], {"tampered"}),
    "unknown button": ([unknown_press], {"unknown_button"}),
    "held up": ([late_press], {"held_up"}),
    "shown again": (["olá"], {"still_waiting", "prompt_code", "prompt_window"}),
    "shown often enough": (["olá", work] * 3, {"still_open"}),
    "listed": (["/pending"], {"pending_list"}),
    "unclear": (["olá", work, "sim"], {"say_code"}),
    "asked again": ([901, work, AGAIN], {"expired", "one_moment"}),
    "not asked again": ([901, work, made(preview_error=ValueError("x")), AGAIN], {"cannot_ask_again"}),
    "pressed too late": ([901, work, YES], {"already_expired"}),
}


@pytest.mark.parametrize("name", WAYS)
async def test_every_end_is_told_in_the_language_of_the_action(loja: Rig, shop: Shop, name: str) -> None:
    steps, expected = WAYS[name]
    assert (await asked(loja)).language == "pt-BR"
    await go(loja, shop, steps)
    await loja.work()
    assert sentences(loja, "pt") >= expected, "\n".join(told(loja))
    assert sentences(loja, "en") == set(), "\n".join(told(loja))


@pytest.mark.parametrize("name", ["changed", "not_checked", "other_release", "tampered"])
async def test_each_kind_of_drift_has_its_own_sentence(loja: Rig, shop: Shop, name: str) -> None:
    """A shown action can drift in four ways: the record names the way, and each way has a separate sentence."""
    await asked(loja)
    await go(loja, shop, WAYS[name][0])
    await loja.work()
    assert [(action.reason, action.detail) for action in await loja.actions()] == [("drifted", name)]
    four = {"drifted", "not_checked", "other_release", "tampered"}
    assert sentences(loja, "pt") & four == {"drifted" if name == "changed" else name}


@pytest.mark.parametrize("name", ["expired", "withdrawn by an operator", "settled as done", "confirmed", "deleted"])
async def test_a_note_that_it_may_come_twice_is_in_the_same_language(loja: Rig, shop: Shop, name: str) -> None:
    await asked(loja)
    await go(loja, shop, WAYS[name][0])
    if name == "confirmed":
        await loja.worker.engine._actions.run(await loja.worker.lease("action"))
    queued = await loja.store.outbox("agent/test:bot:ana")
    assert {part.body["language"] for part in queued} == {"pt-BR"}


async def test_press_without_alerts_is_answered_in_the_chats_language(tmp_path: Path, shop: Shop) -> None:
    async with rig(shop.bot(), tmp_path) as chat:
        await asked(chat)
        await go(chat, shop, WAYS["pressed too late"][0])
        await chat.work()
        assert "already_expired" in sentences(chat, "pt")
        assert sentences(chat, "en") == set()


LOST = Ambiguous("timeout")
WARNING = say("may_be_duplicate", "pt")


@pytest.fixture
def portuguese(tmp_path: Path, invoices: Invoices) -> AbstractAsyncContextManager[Rig]:
    """Return a Portuguese bot for Ana alone."""
    return rig(invoices.bot(language="pt"), tmp_path, people=["test:bot:ana"])


def in_language(language: str, text: str) -> Message:
    event = message("ana", text)
    assert event.person is not None
    return replace(event, person=replace(event.person, language=language))


async def notify(chat: Rig, after_seconds: float) -> None:
    reply = Reply(text="A fatura venceu.")
    await chat.worker.engine.runtime.notify(here("ana"), reply, after_seconds=after_seconds)
    await chat.advance(after_seconds)
    while (await chat.store.stats()).pointed:
        await chat.worker.decisions.sweep(0)


async def deliver_in_doubt(chat: Rig) -> None:
    """Let the first call get no answer, so the reply is sent once more behind a warning."""
    chat.platform.will = [LOST]
    await chat.retries(4, every=20)


async def test_a_stranger_is_warned_in_the_bots_language(portuguese: AbstractAsyncContextManager[Rig]) -> None:
    async with portuguese as chat:
        await chat.says("eve", "olá")
        await deliver_in_doubt(chat)
        assert chat.platform.texts("eve") == [WARNING, say("stranger", "pt")]


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
async def test_a_notification_is_warned_of_in_the_bots_language(
    portuguese: AbstractAsyncContextManager[Rig], after_seconds: float
) -> None:
    async with portuguese as chat:
        await notify(chat, after_seconds)
        await deliver_in_doubt(chat)
        assert chat.platform.texts() == [WARNING, "A fatura venceu."]


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
async def test_a_notification_is_warned_of_as_the_last_question(chat: Rig, after_seconds: float) -> None:
    await chat.take(in_language("pt", "delete INV-1"))
    await chat.work()
    chat.platform.sent.clear()
    await notify(chat, after_seconds)
    await deliver_in_doubt(chat)
    assert chat.platform.texts() == [WARNING, "A fatura venceu."]


async def test_too_fast_is_warned_of_in_the_persons_language(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(), tmp_path, limits=Limits(messages=Share(1))) as chat:
        for _ in range(5):
            await chat.take(in_language("pt", "olá"))
        await deliver_in_doubt(chat)
        assert chat.platform.texts()[:2] == [WARNING, say("too_fast", "pt")]


async def test_code_beside_words_of_the_bots_language_decides(
    portuguese: AbstractAsyncContextManager[Rig], invoices: Invoices
) -> None:
    """The platform names no language for Ana, and the words are not English."""
    async with portuguese as chat:
        await chat.handles("ana", "delete INV-1")
        (action,) = await chat.actions()
        await chat.handles("ana", f"pode sim {action.code}")
        assert invoices.deleted == ["INV-1"]


LONG = "Bom dia, gostaria de apagar uma fatura antiga do mês passado, por favor"


@pytest.fixture(scope="module", autouse=True)
def _detection() -> None:
    prepare_detection()


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = list(detection._loaded)
    monkeypatch.setitem(sys.modules, "eld", None)
    detection._loaded.clear()
    prepare_detection()
    yield
    detection._loaded[:] = before


async def language_after(chat: Rig, *said: str) -> str:
    for text in said:
        await chat.handles("ana", text)
    (action,) = await chat.actions()
    return action.language


async def test_question_is_in_the_language_the_person_wrote_before(chat: Rig) -> None:
    assert await language_after(chat, LONG, "delete INV-1") == "pt"
    assert any("Confirmar" in button.label for _, part in chat.platform.sent for button in part.buttons)


@pytest.mark.parametrize(
    ("reply", "deleted"),
    [
        ("pode apagar", ["INV-1"]),
        pytest.param("go ahead", ["INV-1"], id="English counts beside it"),
        pytest.param("oui, supprime-la", [], id="another language costs a question more and is no yes"),
    ],
)
async def test_a_reply_is_read_in_the_language_of_the_question(
    chat: Rig, invoices: Invoices, reply: str, deleted: list[str]
) -> None:
    """The reply alone is too short to show a language, and the platform names no language."""
    await language_after(chat, LONG, "delete INV-1")
    await chat.advance(5)
    await chat.handles("ana", reply)
    assert invoices.deleted == deleted


async def test_short_message_alone_names_no_language(chat: Rig) -> None:
    assert await language_after(chat, "delete INV-1") == "en"


async def test_language_of_the_bot_beats_a_detected_one(tmp_path: Path, invoices: Invoices) -> None:
    async with rig(invoices.bot(language="fr"), tmp_path) as chat:
        assert await language_after(chat, LONG, "delete INV-1") == "fr"


def test_newest_text_of_clear_language_decides() -> None:
    assert detect_language(["ok", "please delete the oldest invoice of last month", LONG]) == "en"
    assert detect_language([LONG, "please delete the oldest invoice of last month"]) == "pt"
    assert detect_language(["sim", "INV-1 INV-2 INV-3 INV-4 INV-5 INV-6"]) is None


@pytest.mark.usefixtures("without_the_library")
def test_without_the_library_no_language_is_found() -> None:
    assert detect_language([LONG]) is None


async def test_new_language_needs_no_thread_of_an_author_or_a_disk(chat: Rig, invoices: Invoices) -> None:
    with all_threads_hang(), files_hang():
        async with asyncio.timeout(10):
            await chat.worker.context.load_languages("es-MX", "xx", "x" * 10_000)
    assert {"es", "es-MX", "xx"} <= chat.worker.context._languages
    assert max(len(tag or "") for tag in chat.worker.context._languages) < 36
