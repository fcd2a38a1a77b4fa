"""stash_pending inside a tool, and tools run alone under test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway import PendingConfirmation, ToolContext, emit_artifact, tool
from gateway.pending import PendingActionExistsError, compute_args_digest, stash_pending
from gateway.testing import run_tool
from gateway.tools import ToolError, ToolExecutionError, ToolValidationError

DELETED: list[str] = []
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@tool
def delete_invoice(invoice_id: str) -> PendingConfirmation:
    """Delete an invoice, as selectools' documents do it."""

    def delete() -> str:
        DELETED.append(invoice_id)
        return f"{invoice_id} is deleted."

    action = stash_pending(
        kind="delete_invoice", preview=f"Delete invoice {invoice_id}", executor=delete, args={"invoice_id": invoice_id}
    )
    return PendingConfirmation(action=action.kind, preview=action.preview, user_prompt="Reply yes or no.")


@tool
async def stash_twice() -> str:
    """Ask twice in one call."""
    stash_pending(kind="first", preview="The first")
    stash_pending(kind="second", preview="The second")
    return ""


@pytest.mark.ledger("PEND-06", "TEST-05")
async def test_tool_run_alone_shows_the_question() -> None:
    DELETED.clear()
    run = await run_tool(delete_invoice, {"invoice_id": "INV-42"}, person="telegram:1:2", now=lambda: NOW)
    assert run.value == PendingConfirmation("delete_invoice", "Delete invoice INV-42", "Reply yes or no.")
    (action,) = run.asked
    assert (action.kind, action.preview, action.args) == (
        "delete_invoice",
        "Delete invoice INV-42",
        {"invoice_id": "INV-42"},
    )
    assert (action.requester, action.conversation, action.status) == ("telegram:1:2", "test", "pending")
    assert (action.requested_at, action.ttl_seconds, action.tool_version) == (NOW, 60.0, "adapter")
    assert action.args_digest == compute_args_digest({"invoice_id": "INV-42"})
    assert DELETED == []
    (stash,) = run.stashes
    assert stash.executor is not None
    assert stash.executor() == "INV-42 is deleted."
    assert DELETED == ["INV-42"]


@pytest.mark.ledger("PEND-05")
async def test_outside_a_run_stashing_raises() -> None:
    with pytest.raises(ToolError, match="outside a run"):
        stash_pending(kind="delete_invoice", preview="Delete invoice INV-42")
    with pytest.raises(ToolError, match="outside a run"):
        delete_invoice(invoice_id="INV-42")


async def test_after_the_run_stashing_raises() -> None:
    go_on, failed = threading.Event(), asyncio.Event()
    loop, raised = asyncio.get_running_loop(), []

    def later() -> None:
        assert go_on.wait(60)
        try:
            stash_pending(kind="late", preview="Too late")
        except ToolError as error:
            raised.append(error)
        loop.call_soon_threadsafe(failed.set)

    tasks = []

    @tool
    async def starts_something() -> str:
        """Start something that goes on."""
        tasks.append(asyncio.create_task(asyncio.to_thread(later)))
        return "started"

    run = await run_tool(starts_something, {})
    go_on.set()
    await failed.wait()
    assert run.asked == () and len(raised) == 1
    await asyncio.gather(*tasks)


@pytest.mark.ledger("PEND-07")
async def test_a_second_stash_in_one_call_is_refused() -> None:
    with pytest.raises(ToolExecutionError) as raised:
        await run_tool(stash_twice, {})
    assert isinstance(raised.value.error, PendingActionExistsError)
    assert "'first'" in str(raised.value.error)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kind": ""}, "kind"),
        ({"preview": "  "}, "preview"),
        ({"ttl_seconds": -1}, "ttl_seconds"),
        ({"ttl_seconds": float("nan")}, "ttl_seconds"),
        ({"args": {"at": NOW}}, "canonical JSON"),
        ({"executor": "delete"}, "executor of 'k' must be a function, not a str"),
        ({"executor": lambda invoice_id: invoice_id}, "executor of 'k' is called without arguments"),
    ],
)
async def test_stash_with_invalid_options_is_refused(wrong: dict[str, Any], named: str) -> None:
    @tool
    async def asks() -> str:
        """Ask for something odd."""
        stash_pending(**{"kind": "k", "preview": "p", **wrong})
        return ""

    with pytest.raises(ToolExecutionError) as raised:
        await run_tool(asks, {})
    assert isinstance(raised.value.error, ValueError)
    assert named in str(raised.value.error)


async def test_concurrent_runs_do_not_see_each_other() -> None:
    runs = await asyncio.gather(*(run_tool(delete_invoice, {"invoice_id": f"INV-{n}"}) for n in range(20)))
    assert [run.asked[0].args["invoice_id"] for run in runs] == [f"INV-{n}" for n in range(20)]


@pytest.mark.ledger("PEND-13")
async def test_arguments_are_frozen_when_they_are_stashed() -> None:
    args: dict[str, Any] = {"ids": ["INV-42"]}

    @tool
    async def asks() -> str:
        """Ask, and change the arguments after it."""
        stash_pending(kind="k", preview="p", args=args, ttl_seconds=90)
        args["ids"].append("INV-43")
        return ""

    (action,) = (await run_tool(asks, {})).asked
    assert (action.args, action.ttl_seconds) == ({"ids": ["INV-42"]}, 90)


@pytest.mark.ledger("TEST-04", "TEST-05")
async def test_a_tool_run_alone_gives_its_files_and_gets_a_context() -> None:
    async def export(name: str, ctx: ToolContext) -> str:
        """Export something."""
        emit_artifact(content=b"1", filename=f"{name}.csv")
        ctx.emit_artifact(content=b"2", filename="more.csv")
        return f"{ctx.person} {ctx.language} {ctx.deps['db']} {ctx.clock() - NOW}"

    run = await run_tool(
        export, {"name": "all"}, deps={"db": "db"}, language="pt", now=lambda: NOW + timedelta(seconds=5)
    )
    assert run.value == "app:-:ana pt db 0:00:05"
    assert [each.filename for each in run.artifacts] == ["all.csv", "more.csv"]
    assert run.asked == ()
    with pytest.raises(ToolValidationError, match="name"):
        await run_tool(export, {})


@pytest.mark.ledger("PYG-16")
async def test_a_streaming_tool_run_alone_gives_its_pieces() -> None:
    @tool(streaming=True)
    def count() -> Iterator[int | None]:
        """Count."""
        yield from (1, None, 3)

    run = await run_tool(count, {})
    assert (run.pieces, run.value) == (("1", "None", "3"), "1None3")


async def test_a_tool_that_asks_by_itself_runs_as_after_a_yes() -> None:
    @tool(confirm="Pay {amount}?")
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    assert (await run_tool(pay, {"amount": 5})).value == "paid 5"
