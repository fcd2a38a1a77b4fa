"""A message may end its writer's running turn when the bot lets it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool
from gateway.agent import AgentConfig
from gateway.engine.turns.interrupts import interrupt
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, Worker, message, rig, until, user_lines


def bot(script: ScriptedProvider, tools: Any = ()) -> ChannelAgent:
    return ChannelAgent(Agent(tools, provider=script), when_busy="interrupt")


def look(worker: Worker) -> None:
    """Its beat comes round."""
    worker.context.nudge("turn", next(lane for kind, lane in worker.context.held if kind == "turn"))


async def hears_nothing(chat: Rig) -> None:
    """Its beat has come round, and what there was to hear was heard."""
    for _ in range(2):  # the second has begun: the first has ended
        beats = chat.wire.calls["renew"]
        while chat.wire.calls["renew"] == beats:
            look(chat.worker)
            await asyncio.sleep(0.001)


async def idle(chat: Rig) -> None:
    """What was started beside the work has ended, a signal that was to be sent for instance."""
    await chat.worker.context.tasks.ended()


async def test_interrupting_message_is_answered_with_the_one_before() -> None:
    hold = asyncio.Event()
    script = ScriptedProvider([hold, "both"])
    async with ChatDriver(bot(script)) as chat:
        first = asyncio.create_task(chat.says("ana", "one"))
        await until(lambda: script.requests)
        await chat.says("ana", "two")
        await first
        assert [each.text for each in chat.messages] == ["both"]
        assert user_lines(script) == ["one", "two"]


async def test_message_without_interrupt_waits_for_the_end_of_the_turn(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(), tmp_path) as chat:
        await chat.says("ana", "wait")
        running = asyncio.create_task(chat.worker.turn())
        await invoices.model.waiting.wait()
        await chat.says("ana", "two")
        await idle(chat)
        assert chat.wire.calls["commit"] == 0, "nobody is told"
        invoices.model.let_go.set()
        await running
        await chat.turns()
        assert chat.platform.texts() == ["You said: wait", "You said: two"]


async def test_message_taken_by_another_process_interrupts_the_turn(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        other = chat.another()
        await chat.says("ana", "wait")
        running = asyncio.create_task(other.turn())
        await invoices.model.waiting.wait()
        await chat.says("ana", "two")
        await idle(chat)
        look(other)
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "cancelled"
        await chat.turns()
        assert chat.platform.texts() == ["You said: two"]


async def test_interrupt_needs_an_ordinary_message_of_the_same_person(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        await chat.says("ana", "wait", place="#team")
        running = asyncio.create_task(chat.worker.turn())
        await invoices.model.waiting.wait()
        await chat.says("bob", "hello", place="#team")
        for text in ("/pending", "yes", "no"):
            await chat.says("ana", text, place="#team")
        await idle(chat)
        await hears_nothing(chat)
        invoices.model.let_go.set()
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "answered"
        await chat.turns()
        assert chat.platform.texts("#team")[:2] == ["You said: wait", "You said: hello"]


async def test_turns_own_message_does_not_interrupt_it(tmp_path: Path) -> None:
    """Another process may have taken it up before word of it was sent."""
    invoices = Invoices()
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        hello = message("ana", "wait")
        await chat.take(hello)
        await idle(chat)
        running = asyncio.create_task(chat.worker.turn())
        await invoices.model.waiting.wait()
        lane = chat.worker.context.conversation(hello.address)
        await interrupt(chat.worker.context, hello, lane)
        await hears_nothing(chat)
        invoices.model.let_go.set()
        outcome = await running
        assert outcome is not None and outcome.stop_reason == "answered"


async def test_a_tool_is_not_interrupted_and_what_it_did_is_known(tmp_path: Path) -> None:
    paying = asyncio.Event()
    paid: list[str] = []

    @tool
    async def pay(invoice_id: str, ctx: ToolContext) -> str:
        """Pay."""
        paying.set()
        await until(lambda: ctx.cancelled)
        paid.append(invoice_id)
        return f"{invoice_id} is paid"

    calls = [ToolCall("pay", {"invoice_id": "INV-1"}), ToolCall("pay", {"invoice_id": "INV-2"})]
    script = ScriptedProvider([calls, "INV-1 is paid, INV-2 is not."])
    one_by_one = AgentConfig(parallel_tool_execution=False)
    own = ChannelAgent(Agent([pay], provider=script, config=one_by_one), when_busy="interrupt")
    async with rig(own, tmp_path) as chat:
        await chat.says("ana", "pay both")
        running = asyncio.create_task(chat.worker.turn())
        await paying.wait()
        await chat.says("ana", "only the first!")
        await running
        await chat.turns()
        assert paid == ["INV-1"]
        assert chat.platform.texts() == ["INV-1 is paid, INV-2 is not."]
        results = [each.content for each in script.requests[-1].messages if each.role == "tool"]
        assert results == ["INV-1 is paid", "Tool 'pay' was not run: the person has ended this turn."]
        assert user_lines(script) == ["pay both", "only the first!"]


async def test_interrupt_keeps_the_question_already_asked(tmp_path: Path) -> None:
    """It ends a turn; it is no /stop."""
    started = asyncio.Event()

    async def preview(invoice_id: str, ctx: ToolContext) -> str:
        started.set()
        await until(lambda: ctx.cancelled)
        return f"Delete {invoice_id}?"

    @tool(confirm=preview)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        raise AssertionError("never")

    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), "Fine."])
    async with rig(bot(script, [delete_invoice]), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        running = asyncio.create_task(chat.worker.turn())
        await started.wait()
        await chat.says("ana", "please")
        await running
        await chat.turns()
        assert [bool(part.buttons) for _, part in chat.platform.sent] == [True, False, True]
        assert "Fine." in chat.platform.texts()


async def test_death_during_an_interrupt_loses_neither_message(tmp_path: Path) -> None:
    invoices = Invoices()
    async with rig(invoices.bot(when_busy="interrupt"), tmp_path) as chat:
        await chat.says("ana", "one")
        await chat.worker.lease("turn", lease_seconds=0.0)
        await chat.says("ana", "two")
        await idle(chat)
        await chat.turns()
        assert user_lines_of(invoices) == ["one", "two"]


def user_lines_of(invoices: Invoices) -> list[str]:
    return [each.content for each in invoices.model.requests[-1].messages if each.role == "user"]


async def test_stop_ends_a_turn_that_goes_on_after_an_outcome(tmp_path: Path) -> None:
    @tool(confirm=Confirm("Delete {invoice_id}?", after="resume"))
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        return "gone"

    hold = asyncio.Event()
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"}), hold])
    async with ChatDriver(ChannelAgent(Agent([delete_invoice], provider=script))) as chat:
        await chat.says("ana", "delete INV-1, then mail Bob")
        pressing = asyncio.create_task(chat.presses("ana", "Confirm"))
        await until(lambda: len(script.requests) >= 2)
        await chat.says("ana", "/stop")
        await pressing
        assert chat.last.text == say("stopped", "en")


def test_unknown_when_busy_is_refused() -> None:
    with pytest.raises(ValueError, match="when_busy"):
        ChannelAgent(Agent(), when_busy="steer")  # type: ignore[arg-type]
