"""Interceptors of messages: a stopped message never reaches the model, and no answer to an action is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from channels import Message, OptOut, Person
from gateway import Agent, ChannelAgent, Vetoed, tool
from gateway.agent.interceptors import InterceptorFailed
from gateway.observe.events import InterceptorVetoed, TurnFailed
from gateway.store.types import FOLDED_AFTER_SECONDS
from gateway.stored import keys
from gateway.testing import ScriptedProvider, ToolCall
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, here, killed, rig, until, user_lines
from tests.engine.test_tampered_records import press, texts


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "nothing"


def bot(*steps: Any, **options: Any) -> tuple[ChannelAgent, ScriptedProvider]:
    script = ScriptedProvider(steps)
    return ChannelAgent(Agent([look], provider=script), **options), script


def refuse_bad(bot: ChannelAgent, answer: str = "Please be kind.") -> list[str]:
    """Veto messages with the word "bad". Return the checked texts."""
    seen: list[str] = []

    @bot.intercept("message")
    async def kind_words(message: Message) -> None:
        seen.append(message.text)
        if "bad" in message.text:
            raise Vetoed(answer)

    return seen


async def transcript(chat: Rig) -> str:
    lines = await chat.store.read(keys.key(chat.store, "agent/test:bot:ana", keys.transcript))
    return str([line.value for line in lines])


@pytest.mark.ledger("PYG-33")
async def test_model_gets_no_vetoed_message_and_the_person_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "askfirst.events")
    own, script = bot("Hello.")
    refuse_bad(own)
    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "a bad word")
        assert (chat.platform.texts(), script.requests) == (["Please be kind."], [])
        assert "bad" not in await transcript(chat)
        (told,) = chat.worker.told.of_kind(InterceptorVetoed)
        assert (told.stage, told.tool_name) == ("message", "") and told.interceptor.endswith("kind_words")
        (line,) = [record for record in caplog.records if record.message == "vetoed"]
        assert vars(line)["run"] == told.run_id and "bad word" not in str(vars(line))
        await chat.handles("ana", "hello")
        assert user_lines(script) == ["hello"]
        assert chat.platform.texts()[1:] == ["Hello."]


async def test_a_veto_without_a_reason_is_silent(tmp_path: Path) -> None:
    own, script = bot()
    refuse_bad(own, answer="")
    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "bad")
        assert (chat.platform.texts(), script.requests, await chat.ready()) == ([], [], 0)


async def test_of_several_messages_only_the_vetoed_one_is_left_out(tmp_path: Path) -> None:
    own, script = bot("Hello.")
    seen = refuse_bad(own)
    async with rig(own, tmp_path) as chat:
        for text in ("one", "bad two", "three"):
            await chat.says("ana", text)
        await chat.work()
        assert user_lines(script) == ["one", "three"]
        assert chat.platform.texts() == ["Please be kind.", "Hello."]
        assert seen == ["one", "bad two", "three"]
        assert "bad two" not in await transcript(chat)


async def test_interceptors_are_called_in_order_until_the_first_veto(tmp_path: Path) -> None:
    own, _ = bot("Hello.")
    called: list[str] = []

    @own.intercept("message")
    def first(**given: Any) -> None:
        called.append(f"first: {', '.join(sorted(given))}, {given['context'].person}")

    refuse_bad(own)

    @own.intercept("message")
    async def last(message: Message) -> None:
        called.append(f"last {message.text}")

    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "bad", "good")
    keywords = "first: context, message, test:bot:ana"
    assert called == [keywords, keywords, "last good"]


async def test_authors_command_is_intercepted_and_a_built_in_one_not(tmp_path: Path) -> None:
    own, _ = bot()
    ran: list[str] = []

    @own.command("pay")
    async def pay(_: Any, text: str) -> str:
        ran.append(text)
        return "paid"

    @own.intercept("message")
    async def closed() -> None:
        raise Vetoed("We are closed.")

    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "/pay 5", "/pending", "/help", "/new", "/whoami", "/stop")
        assert ran == []
        assert texts(chat).count("We are closed.") == 1 and "test:bot:ana" in texts(chat)


# ── answers to actions ──


OPT_OUT = OptOut(
    event_ids=("out",), address=here("ana"), person=Person(channel="test", account="bot", user_id="ana", name="Ana")
)
ANSWERS: dict[str, tuple[Callable[[Rig, str], Any], str]] = {
    "a press": (lambda chat, code: press(chat, 1), "done"),
    "a code": (lambda chat, code: chat.says("ana", f"ok {code}"), "done"),
    "a bare yes": (lambda chat, code: chat.says("ana", "yes", after="1"), "done"),
    "a bare no": (lambda chat, code: chat.says("ana", "no"), "closed"),
    "stop": (lambda chat, code: chat.says("ana", "/stop"), "closed"),
    "an opt-out": (lambda chat, code: chat.take(OPT_OUT), "closed"),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_no_answer_to_an_action_is_intercepted(chat: Rig, answer: str) -> None:
    vetoing = False

    @chat.bot.intercept("message")
    async def all_of_them() -> None:
        if vetoing:
            raise Vetoed("No.")

    (asked,) = await chat.asks(1)
    vetoing = True
    gives, state = ANSWERS[answer]
    await gives(chat, asked.code)
    await chat.work()
    assert [action.state for action in await chat.actions()] == [state]
    assert chat.worker.told.of_kind(InterceptorVetoed) == []


async def test_a_veto_is_no_answer_to_an_action(chat: Rig, invoices: Invoices) -> None:
    refuse_bad(chat.bot, answer="yes")
    (asked,) = await chat.asks(1)
    await chat.handles("ana", "bad")
    assert [action.state for action in await chat.actions()] == ["pending"]
    assert asked.code in chat.platform.texts()[-1], "what is open is said under the answer"
    await chat.says("ana", "yes")  # something else was written after the question
    await chat.work()
    assert invoices.deleted == []


# ── edits ──


@pytest.mark.parametrize("folded", [False, True])
async def test_the_model_never_gets_a_vetoed_edit(tmp_path: Path, folded: bool) -> None:
    own, script = bot("Hello.", "Yes.")
    refuse_bad(own)
    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "hello", message_id="m1")
        for message_id, text in (("m1", "fine"), ("m2", "bad")):
            await chat.edits("ana", message_id, text)
        if folded:
            await chat.advance(FOLDED_AFTER_SECONDS + 1)
            await chat.work()
        await chat.handles("ana", "well?")
        (note,) = [each.content for each in script.requests[-1].messages if each.role == "event"]
        assert "fine" in note and "bad" not in note
        assert len(chat.worker.told.of_kind(InterceptorVetoed)) == 1


async def test_an_edit_that_could_not_be_checked_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, script = bot("Hello.", "Yes.")

    @own.intercept("message")
    async def broken(message: Message) -> None:
        if message.text == "changed":
            raise ValueError(message.text)

    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "hello", message_id="m1")
        await chat.edits("ana", "m1", "changed")
        await chat.handles("ana", "well?")
        assert [each.content for each in script.requests[-1].messages] == ["hello", "Hello.", "well?"]
    assert "is left out" in caplog.text and "ValueError" in caplog.text and "changed" not in caplog.text


async def test_an_edit_that_kills_its_workers_is_not_checked_again(tmp_path: Path) -> None:
    own, _ = bot("Hello.")
    seen = refuse_bad(own)
    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "hello", message_id="m1")
        await chat.edits("ana", "m1", "deadly")
        await chat.says("ana", "well?")
        for _ in range(4):
            await chat.worker.lease("turn", lease_seconds=0.0)
        await chat.turns()
        assert seen == ["hello"] and "deadly" in str(await chat.store.dead_letters())


# ── interceptors that fail ──


async def hangs() -> None:
    await asyncio.Event().wait()


async def ignores_its_end() -> None:
    for _ in range(2):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


async def raises() -> None:
    raise ValueError("a secret")


async def exits() -> None:
    raise SystemExit(3)


async def is_cancelled() -> None:
    raise asyncio.CancelledError


async def says_false() -> bool:
    return False


def blocks_in_a_thread() -> str:
    return "a secret"


FAILURES = [hangs, ignores_its_end, raises, exits, is_cancelled, says_false, blocks_in_a_thread]


@pytest.mark.parametrize("broken", FAILURES, ids=lambda function: function.__name__)
async def test_failing_interceptor_loses_and_lets_through_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: Callable[[], Any]
) -> None:
    own, script = bot("Hello.")
    own.interceptors.timeout_seconds = 0.01
    mended = False

    @own.intercept("message")
    async def switched() -> Any:
        return None if mended else await asyncio.to_thread(broken) if broken is blocks_in_a_thread else await broken()

    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "hello")
        assert (script.requests, chat.platform.texts()) == ([], [])
        (failed,) = chat.worker.told.of_kind(TurnFailed)
        assert isinstance(failed.error, InterceptorFailed) and "switched failed: " in failed.why
        mended = True
        await chat.advance(2)
        await chat.work()
        assert chat.platform.texts() == ["Hello."]
    assert "a secret" not in caplog.text


async def test_ask_channel_raises_the_failure_of_an_interceptor() -> None:
    own, _ = bot()
    own.intercept("message")(raises)
    async with own:
        with pytest.raises(InterceptorFailed, match=r"^the interceptor raises failed: ValueError"):
            await own.ask_channel("ana", "hello")


async def test_a_call_of_ask_channel_gets_the_veto() -> None:
    own, _ = bot()
    refuse_bad(own)
    async with own:
        result = await own.ask_channel("ana", "bad")
    assert (result.stop_reason, result.content) == ("vetoed", "Please be kind.")


# ── take-over ──


async def test_a_veto_stands_when_another_worker_continues_the_turn(tmp_path: Path) -> None:
    hold = asyncio.Event()
    own, script = bot(ToolCall("look", {}), hold, "Done.")
    seen: list[str] = []

    @own.intercept("message")
    async def once(message: Message) -> None:
        seen.append(message.text)
        if message.text == "two" and seen.count("two") == 1:  # the second time it would pass
            raise Vetoed("Not two.")

    async with rig(own, tmp_path) as chat:
        for text in ("one", "two"):
            await chat.says("ana", text)
        running = asyncio.ensure_future(chat.worker.turn())
        await until(lambda: len(script.requests) >= 2)
        await killed(running)
        other = chat.another()
        await other.turn()
        await chat.work()
        assert user_lines(script) == ["one"] and seen == ["one", "two"]
        assert chat.platform.texts() == ["Not two.", "Done."]
        assert "two" not in await transcript(chat)


async def test_worker_that_stops_during_the_check_leaves_it_to_another(tmp_path: Path) -> None:
    own, _ = bot("Hello.")
    checking, calls = asyncio.Event(), []

    @own.intercept("message")
    async def slow(message: Message) -> None:
        calls.append(message.text)
        if len(calls) == 1:
            checking.set()
            await asyncio.Event().wait()

    async with rig(own, tmp_path) as chat:
        await chat.says("ana", "hello")
        running = asyncio.ensure_future(chat.worker.turn())
        await checking.wait()
        await killed(running)
        await chat.another().turn()
        await chat.work()
        assert (chat.platform.texts(), calls) == (["Hello."], ["hello", "hello"])


# ── registration ──


def test_unknown_stage_and_unknown_arguments_are_refused() -> None:
    own, _ = bot()
    with pytest.raises(ValueError, match="'messages' is no stage: intercept 'message' or 'tool_call'"):
        own.intercept("messages")  # type: ignore[arg-type]

    def wants_a_tool(tool_name: str) -> None: ...

    def yields(message: Message) -> Any:
        yield message

    def takes_one(message: Message, /) -> None: ...

    with pytest.raises(ValueError, match="wants_a_tool needs tool_name: it only gets context, message"):
        own.intercept("message")(wants_a_tool)
    with pytest.raises(ValueError, match="yields is a generator"):
        own.intercept("message")(yields)
    with pytest.raises(ValueError, match="an interceptor is called with keywords"):
        own.intercept("message")(takes_one)
