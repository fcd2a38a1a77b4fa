"""Interceptors of tool calls: the shown call is the executed call, and a veto before the launch runs no tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Json
from gateway import Agent, ChannelAgent, ToolContext, Vetoed
from gateway.agent import AgentConfig
from gateway.agent.interceptors import _plain
from gateway.observe.events import InterceptorVetoed, ToolErrorRaised, ToolStart
from gateway.observe.runs import action_event_id
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices
from tests.engine.rig import Rig, killed, rig
from tests.engine.test_intercepted_messages import FAILURES, blocks_in_a_thread
from tests.engine.test_tampered_records import press, texts

Args = dict[str, Any]


def heard(invoices: Invoices) -> str:
    """Return the last result of a tool call told to the model."""
    return [each.content for each in invoices.model.requests[-1].messages if each.role == "tool"][-1]


# ── before the question ──


@pytest.mark.ledger("PYG-44")
async def test_edited_arguments_are_validated_shown_and_run(chat: Rig, invoices: Invoices) -> None:
    @chat.bot.intercept("tool_call")
    async def in_capitals(tool_name: str, tool_args: Args, context: ToolContext) -> None:
        assert (tool_name, context.person) == ("delete_invoice", "test:bot:ana")
        tool_args["invoice_id"] = tool_args["invoice_id"].upper()

    await chat.handles("ana", "delete inv-1")
    (asked,) = await chat.actions()
    assert asked.args == {"invoice_id": "INV-1"} and "INV\\-1" in chat.platform.texts()[-1]
    await press(chat, 1)
    assert invoices.deleted == ["INV-1"]


async def test_edit_that_breaks_the_schema_is_refused_like_any_call(chat: Rig, invoices: Invoices) -> None:
    @chat.bot.intercept("tool_call")
    def breaks(tool_args: Args) -> None:
        tool_args["invoice_id"] = ["INV-1"]

    await chat.handles("ana", "delete INV-1")
    assert await chat.actions() == [] and "invoice_id" in heard(invoices)


async def test_vetoed_call_is_not_asked_and_the_model_gets_the_reason(chat: Rig, invoices: Invoices) -> None:
    @chat.bot.intercept("tool_call")
    async def closed(tool_args: Args) -> None:
        if tool_args["invoice_id"] == "INV-1":
            raise Vetoed("The books are closed.")

    await chat.handles("ana", "delete INV-1 INV-2")
    (asked,) = await chat.actions()
    assert asked.args == {"invoice_id": "INV-2"}
    (told,) = chat.worker.told.of_kind(InterceptorVetoed)
    assert (told.stage, told.tool_name, told.call_id) == ("tool_call", "delete_invoice", "c0")
    assert chat.worker.told.of_kind(ToolErrorRaised) == [], "a veto is told once"
    await chat.handles("ana", "delete INV-1")
    assert heard(invoices) == "Tool 'delete_invoice' was not run: The books are closed."


async def test_two_interceptors_edit_one_after_the_other(chat: Rig) -> None:
    for letter in "AB":

        @chat.bot.intercept("tool_call")
        async def append(tool_args: Args, letter: str = letter) -> None:
            tool_args["invoice_id"] += letter

    await chat.handles("ana", "delete INV-")
    assert [action.args for action in await chat.actions()] == [{"invoice_id": "INV-AB"}]


async def test_a_dict_that_is_changed_later_changes_no_call(chat: Rig, invoices: Invoices) -> None:
    kept: list[Args] = []
    chat.bot.intercept("tool_call")(lambda tool_args: kept.append(tool_args))
    (asked,) = await chat.asks(1)
    for each in kept:
        each["invoice_id"] = "INV-9"
    await chat.handles("ana", f"ok {asked.code}")
    for each in kept:
        each["invoice_id"] = "INV-9"
    assert (invoices.deleted, len(kept)) == (["INV-1"], 2)


@pytest.mark.parametrize("broken", FAILURES, ids=lambda function: function.__name__)
async def test_a_call_that_could_not_be_checked_is_not_made(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture, broken: Callable[[], Any]
) -> None:
    chat.bot.interceptors.timeout_seconds = 0.01
    chat.bot.intercept("tool_call")(broken)
    await chat.handles("ana", "delete INV-1")
    assert await chat.actions() == [] and "it could not be checked" in heard(invoices)
    (told,) = chat.worker.told.of_kind(ToolErrorRaised)
    assert broken.__name__ in told.what and "a secret" not in told.what + caplog.text + heard(invoices)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", float("nan")], ids=["set", "bytes", "nan"])
async def test_arguments_that_are_no_json_are_not_run(chat: Rig, invoices: Invoices, value: Any) -> None:
    chat.bot.intercept("tool_call")(lambda tool_args: tool_args.update(invoice_id=value))
    await chat.handles("ana", "delete INV-1")
    assert await chat.actions() == [] and "it could not be checked" in heard(invoices)


async def test_call_without_confirmation_is_intercepted(tmp_path: Path) -> None:
    ran: list[str] = []

    async def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return "noted"

    script = ScriptedProvider([[ToolCall("note", {"text": "a"}), ToolCall("note", {"text": "b"})], "Noted."])
    own = ChannelAgent(Agent([note], provider=script, config=AgentConfig(parallel_tool_execution=True)))

    @own.intercept("tool_call")
    def never_a(tool_args: Args) -> None:
        if tool_args["text"] == "a":
            raise Vetoed
        tool_args["text"] += "!"

    async with rig(own, tmp_path) as chat:
        await chat.handles("ana", "note")
        assert ran == ["b!"]
        assert [event.tool_args for event in chat.worker.told.of_kind(ToolStart)] == [{"text": "b!"}]
        results = [each.content for each in script.requests[-1].messages if each.role == "tool"]
        assert results == ["Tool 'note' was not run: it was vetoed. Do not try it again.", "noted"]


# ── at the launch ──


async def test_edit_at_the_launch_changes_no_argument(chat: Rig, invoices: Invoices) -> None:
    launches = list[str]()

    @chat.bot.intercept("tool_call")
    async def edits_what_was_shown(tool_args: Args, context: ToolContext) -> None:
        if context.action is not None:
            launches.append(context.action.pending_action_id)
            tool_args["invoice_id"] = "INV-9"
            context.action.args["invoice_id"] = "INV-9"  # type: ignore[index]

    (asked,) = await chat.asks(1)
    await press(chat, 1)
    assert (invoices.deleted, launches) == (["INV-1"], [asked.pending_action_id])
    assert [action.args for action in await chat.actions()] == [{"invoice_id": "INV-1"}]


async def test_veto_at_the_launch_runs_no_tool_and_tells_the_reason(chat: Rig, invoices: Invoices) -> None:
    open_ = True

    @chat.bot.intercept("tool_call")
    async def until_noon() -> None:
        if not open_:
            raise Vetoed("It is past noon.")

    (asked,) = await chat.asks(1)
    open_ = False
    await press(chat, 1)
    (action,) = await chat.actions()
    assert (action.state, action.reason, action.detail) == ("closed", "drifted", "changed")
    assert invoices.deleted == []
    said = [text for text in chat.platform.texts() if "It is past noon." in text]
    assert len(said) == 1 and "could not be done. Nothing has happened" in said[0]
    (told,) = chat.worker.told.of_kind(InterceptorVetoed)
    about = (told.stage, told.tool_name, told.event_id)
    assert about == ("launch", "delete_invoice", action_event_id(asked.pending_action_id))
    await chat.handles("ana", "well?")
    (note,) = [each.content for each in invoices.model.requests[-1].messages if each.role == "event"]
    assert "it was NOT done" in note and "It is past noon." in note


@pytest.mark.parametrize("broken", FAILURES, ids=lambda function: function.__name__)
async def test_unchecked_action_waits_a_minute_and_then_does_not_run(
    chat: Rig, invoices: Invoices, broken: Callable[[], Any]
) -> None:
    fails = False
    chat.bot.interceptors.timeout_seconds = 0.01

    @chat.bot.intercept("tool_call")
    async def switched() -> Any:
        return (
            None if not fails else await asyncio.to_thread(broken) if broken is blocks_in_a_thread else await broken()
        )

    await chat.asks(1)
    fails = True
    await press(chat, 1)
    assert [action.state for action in await chat.actions()] == ["approved"]
    chat.store.offset_seconds += 70
    await chat.work()
    (action,) = await chat.actions()
    assert (action.state, action.detail, invoices.deleted) == ("closed", "not_checked", [])


async def test_an_action_is_launched_once_its_check_works_again(chat: Rig, invoices: Invoices) -> None:
    fails = False

    @chat.bot.intercept("tool_call")
    async def switched() -> None:
        if fails:
            raise ValueError

    await chat.asks(1)
    fails = True
    await press(chat, 1)
    fails = False
    await chat.advance(10)
    await chat.work()
    assert invoices.deleted == ["INV-1"]


async def test_worker_that_stops_during_the_check_launches_no_action(chat: Rig, invoices: Invoices) -> None:
    checking, calls = asyncio.Event(), list[str]()

    @chat.bot.intercept("tool_call")
    async def slow(context: ToolContext) -> None:
        if context.action is not None:
            calls.append(context.idempotency_key)
            if len(calls) == 1:
                checking.set()
                await asyncio.Event().wait()

    (asked,) = await chat.asks(1)
    await chat.says("ana", f"ok {asked.code}")
    lease = await chat.worker.lease("action", lease_seconds=0.0)
    running = asyncio.ensure_future(chat.worker.engine._actions.run(lease))
    await checking.wait()
    await killed(running)
    assert [action.state for action in await chat.actions()] == ["approved"]
    await chat.worker.engine._actions.run(await chat.worker.lease("action"))
    assert (invoices.deleted, calls) == (["INV-1"], [asked.pending_action_id] * 2)


async def test_question_asked_again_is_checked_again_and_not_edited() -> None:
    invoices, vetoes = Invoices(), False
    own = invoices.bot()

    @own.intercept("tool_call")
    async def appends(tool_args: Args) -> None:
        tool_args["invoice_id"] += "-x"
        if vetoes:
            raise Vetoed("Not today.")

    async with ChatDriver(own) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.clock.advance(16 * 60)
        await chat.presses("ana", "Ask again")
        assert "INV-1-x" in chat.last.text.replace("\\", "") and "-x-x" not in chat.last.text.replace("\\", "")
        await chat.clock.advance(16 * 60)
        vetoes = True
        await chat.presses("ana", "Ask again")
        assert "Not today." in chat.last.text and not chat.last.buttons
    assert invoices.deleted == []


# ── take-over ──


async def test_edited_question_stays_the_same_after_a_take_over(chat: Rig) -> None:
    calls = 0

    @chat.bot.intercept("tool_call")
    async def counts(tool_args: Args) -> None:
        nonlocal calls
        calls += 1
        tool_args["invoice_id"] = f"INV-{calls}"

    await chat.says("ana", "delete INV-9")
    await dies_before_its_end(chat)
    await chat.another().turn()
    await chat.work()
    assert [action.args for action in await chat.actions()] == [{"invoice_id": "INV-1"}]
    assert calls == 1 and texts(chat).count("Delete invoice") == 1


async def test_a_vetoed_call_stays_vetoed_when_the_turn_is_taken_over(chat: Rig) -> None:
    calls = 0

    @chat.bot.intercept("tool_call")
    async def once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Vetoed("Not now.")

    await chat.says("ana", "delete INV-1")
    await dies_before_its_end(chat)
    await chat.another().turn()
    await chat.work()
    assert (await chat.actions(), calls) == ([], 1)
    assert chat.platform.texts() == ["The tool said: Tool 'delete_invoice' was not run: Not now."]
    assert len(chat.worker.told.of_kind(InterceptorVetoed)) == 1


async def dies_before_its_end(chat: Rig) -> None:
    """Run a turn, and let the worker die after recording the steps: the last commit never arrives."""
    lease, wire = await chat.worker.lease("turn", lease_seconds=0.0), cast("Any", chat.wire)
    commit = wire.commit

    async def dies(transaction: Any) -> Any:
        if transaction.finish is not None:
            raise asyncio.CancelledError
        return await commit(transaction)

    wire.commit = dies
    try:
        with pytest.raises(asyncio.CancelledError):
            await chat.worker.turn_of(lease)
    finally:
        del wire.commit


def test_the_copy_of_arguments_is_json() -> None:
    """A type foreign to JSON, a tuple for example, becomes the stored form."""
    given: dict[str, Json] = {"rows": (1, 2), "deep": {"x": [None, 2**70]}}  # type: ignore[dict-item]
    assert _plain("f", given) == {"rows": [1, 2], "deep": {"x": [None, 2**70]}}
