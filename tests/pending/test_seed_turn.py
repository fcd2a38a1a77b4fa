"""stash_pending in a bot's own tools: the turn ends with the question, and a yes runs what was stashed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway import (
    Agent,
    AgentConfig,
    ChannelAgent,
    Gateway,
    PendingAction,
    PendingConfirmation,
    Settings,
    ToolContext,
    ToolFailed,
    stash_pending,
    tool,
)
from gateway.agent import Ask, Asked, LoopPorts
from gateway.pending import SqlitePendingStore
from gateway.pending.seed.state import state_of
from gateway.providers import ModelMessage
from gateway.store.sqlite import SqliteStore
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.pending.seed_places import SECRET

CALL = ToolCall("delete_invoice", {"invoice_id": "INV-42"})


class Invoices:
    """A tool as selectools' documents have it, and what it did."""

    def __init__(self, *, closure: bool = True, ttl_seconds: float | None = None) -> None:
        self.deleted: list[str] = []

        @tool
        def delete_invoice(invoice_id: str) -> PendingConfirmation:
            """Delete an invoice."""
            action = stash_pending(
                kind="delete_invoice",
                preview=f"Delete invoice {invoice_id}",
                executor=partial(self.delete, invoice_id) if closure else None,
                args={"invoice_id": invoice_id},
                ttl_seconds=ttl_seconds,
            )
            return PendingConfirmation(action.kind, action.preview, "Reply yes or no.")

        self.tool = delete_invoice

    def delete(self, invoice_id: str) -> str:
        self.deleted.append(invoice_id)
        return f"{invoice_id} is deleted."

    def chat(self, *script: Any) -> ChatDriver:
        return ChatDriver(ChannelAgent(Agent([self.tool])), provider=ScriptedProvider(script))


@pytest.mark.ledger("PEND-06", "PEND-18")
async def test_the_turn_ends_with_the_question_and_a_yes_runs_it_once() -> None:
    invoices = Invoices()
    async with invoices.chat(CALL, "You said yes.") as chat:
        await chat.says("ana", "delete INV-42")
        assert "Delete invoice INV\\-42" in chat.last.text and "INV-42" in chat.last.text.replace("\\", "")
        assert invoices.deleted == []
        await chat.says("ana", "yes")
        assert chat.last.text == "INV-42 is deleted."
        await chat.says("ana", "and thanks")
        assert invoices.deleted == ["INV-42"]


async def test_no_withdraws_the_stashed_action() -> None:
    invoices = Invoices()
    async with invoices.chat(CALL) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "no")
        assert "Delete invoice INV" in chat.last.text
        assert invoices.deleted == []


async def test_its_time_is_the_one_that_was_stashed() -> None:
    invoices = Invoices(ttl_seconds=90)
    async with invoices.chat(CALL) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.clock.advance(91)
        assert "expired" in chat.last.text
        assert invoices.deleted == []


@pytest.mark.ledger("PEND-31")
async def test_without_an_executor_it_does_not_run() -> None:
    invoices = Invoices(closure=False)
    async with invoices.chat(CALL) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes")
        assert invoices.deleted == []
        assert "deleted" not in chat.last.text


async def test_a_factory_runs_from_the_record() -> None:
    invoices = Invoices(closure=False)

    def factory(record: PendingAction) -> Any:
        return lambda: invoices.delete(str(record.args["invoice_id"]))

    async with invoices.chat(CALL) as chat:
        chat.bot.register_executor_factory("delete_invoice", factory)
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes")
        assert chat.last.text == "INV-42 is deleted."


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("way", ["generator", "async generator", "async"])
async def test_whatever_an_executor_is_its_end_is_told(way: str, *, made: bool) -> None:
    invoices = Invoices(closure=not made)

    def pieces(invoice_id: str) -> Iterator[str]:
        invoices.deleted.append(invoice_id)
        yield f"{invoice_id} is "
        yield "deleted."

    async def pieces_later(invoice_id: str) -> AsyncIterator[str]:
        for piece in pieces(invoice_id):
            yield piece

    async def whole(invoice_id: str) -> str:
        return "".join(pieces(invoice_id))

    executors: dict[str, Any] = {"generator": pieces, "async generator": pieces_later, "async": whole}
    invoices.delete = executors[way]  # type: ignore[method-assign]
    async with invoices.chat(CALL) as chat:
        if made:
            chat.bot.register_executor_factory("delete_invoice", lambda record: partial(executors[way], "INV-42"))
        await chat.says("ana", "delete INV-42")
        assert invoices.deleted == []
        await chat.says("ana", "yes")
        assert (chat.last.text, invoices.deleted) == ("INV-42 is deleted.", ["INV-42"])


async def test_a_bot_refuses_a_factory_that_cannot_make_one() -> None:
    bot = Invoices().chat().bot

    async def later(record: PendingAction) -> Any:
        raise AssertionError

    for wrong in (later, "delete"):
        with pytest.raises(ValueError, match="factory of 'delete_invoice' must"):
            bot.register_executor_factory("delete_invoice", wrong)  # type: ignore[arg-type]


async def test_an_executor_that_fails_is_told_without_its_words() -> None:
    invoices = Invoices()

    def fails(invoice_id: str) -> str:
        raise RuntimeError("db down")

    invoices.delete = fails  # type: ignore[method-assign]
    async with invoices.chat(CALL) as chat:
        await chat.says("ana", "delete INV-42")
        await chat.says("ana", "yes")
        assert "db down" not in chat.last.text
        assert "Delete invoice INV" in chat.last.text


async def test_agent_alone_runs_a_stash_only_if_confirm_action_agrees() -> None:
    invoices = Invoices()
    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL]))
    result = await agent.run("delete INV-42")
    assert (result.stop_reason, [action.kind for action in result.pending]) == (
        "needs_confirmation",
        ["delete_invoice"],
    )
    assert invoices.deleted == []

    config = AgentConfig(confirm_action=lambda name, args, reason: True)
    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL, "It is done."]), config=config)
    result = await agent.run("delete INV-42")
    assert (result.content, invoices.deleted) == ("It is done.", ["INV-42"])


async def test_a_turn_that_is_taken_over_still_asks() -> None:
    """The closure is gone with the process before; that the person is asked is not."""
    steps: list[Any] = []

    class Kept:
        def __init__(self) -> None:
            self.steps = list(steps)

        async def record(self, step: Any) -> None:
            steps.append(step)

    invoices = Invoices()
    asked = PendingAction(
        pending_action_id="5e" * 16,
        kind="delete_invoice",
        tool_version="adapter",
        preview="Delete invoice INV-42",
        requester="app:-:ana",
        conversation="c",
        requested_at=datetime(2026, 3, 1, tzinfo=UTC),
    )

    async def ask(asks: Sequence[Ask]) -> Sequence[Asked]:
        return [Asked(confirmation=PendingConfirmation(asks[0].tool.name, "p", "u"), action=asked)]

    agent = Agent([invoices.tool], provider=ScriptedProvider([CALL]))
    context = ToolContext(person="app:-:ana", conversation="c", idempotency_key="t")
    message = [ModelMessage(role="user", content="delete INV-42")]
    first = await agent.turn(message, context=context, on_confirm=ask, ports=LoopPorts(journal=Kept()))
    other = agent.using(ScriptedProvider([]))
    again = await other.turn(message, context=context, on_confirm=ask, ports=LoopPorts(journal=Kept()))
    for outcome in (first, again):
        assert (outcome.stop_reason, [each.action for each in outcome.asked]) == ("asked", [asked])
    assert first.messages == again.messages


async def test_engine_settles_the_action_of_a_process_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    store = SqliteStore(tmp_path / "askfirst.db")
    pending, begun = SqlitePendingStore(store), asyncio.Event()

    async def hangs() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    await pending.stash("ana", kind="delete_invoice", preview="Delete invoice INV-42", executor=hangs)
    popping = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await begun.wait()
    running, doubts, told = state_of(store).running, list[PendingAction](), asyncio.Event()
    assert list(running)
    running.clear()  # as in the process after it
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])), store=store)

    def doubt(action: PendingAction) -> None:
        doubts.append(action)
        told.set()

    bot.on_doubt(doubt)
    settings = Settings(store=f"sqlite:///{tmp_path / 'other.db'}", secret=SECRET, allow="*")
    async with Gateway(bot, settings):
        async with asyncio.timeout(20):
            await told.wait()
        assert [(each.state, each.kind) for each in doubts] == [("unknown", "delete_invoice")]
        popping.cancel()
        await asyncio.wait([popping])


async def test_a_tool_that_stashes_and_then_fails_asks_nothing() -> None:
    @tool
    async def half() -> str:
        """Stash, and fail."""
        stash_pending(kind="k", preview="Half")
        raise ToolFailed("no")

    async with ChatDriver(
        ChannelAgent(Agent([half])), provider=ScriptedProvider([ToolCall("half", {}), "It failed."])
    ) as chat:
        await chat.says("ana", "go")
        assert [message.text for message in chat.messages] == ["It failed."]
