"""An effect with a hanging preview, probe or thread lets go of its lane, and its outcome is told truly."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from gateway import Agent, ChannelAgent, Confirm, Preview, tool
from gateway.engine.execution.effects import Effects
from gateway.engine.execution.executor import ActionExecutor
from gateway.tools import Tool
from gateway.tools.function import THREADS
from tests.engine.bots import Model
from tests.engine.rig import Worker, rig


def bot(delete_invoice: Tool) -> ChannelAgent:
    return ChannelAgent(Agent([delete_invoice], provider=Model()))


async def effect(worker: Worker, **options: float) -> None:
    """Run the action that has been ready longest, in a process that waits milliseconds for it."""
    effects = Effects(worker.context, timeout_seconds=0.02)
    async with asyncio.timeout(15):
        process = ActionExecutor(worker.context, effects=effects, preview_seconds=0.02)
        await process.run(await worker.lease("action", **options))


async def test_preview_hanging_at_the_launch_is_retried_for_a_minute(tmp_path: Path) -> None:
    looks, done = iter((True, False, False)), []

    async def ask(invoice_id: str) -> Preview:
        if not next(looks):
            await asyncio.Event().wait()
        return Preview(text=f"Delete {invoice_id}?", precondition={"lines": 3})

    @tool(confirm=ask)
    async def delete_invoice(invoice_id: str) -> None:
        """Delete an invoice."""
        done.append(invoice_id)

    async with rig(bot(delete_invoice), tmp_path) as chat:
        await chat.confirms()
        await effect(chat.worker)
        await chat.turns()
        assert not any("could not be checked" in text for text in chat.platform.texts())
        await chat.advance(61)
        await effect(chat.worker)
        await chat.turns()
        assert any("could not be checked" in text for text in chat.platform.texts())
        assert done == []


async def test_hanging_probe_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """The first worker dies while the effect runs; the second one asks the probe."""
    running = asyncio.Event()

    async def probe() -> None:
        await asyncio.Event().wait()

    @tool(confirm=Confirm("Delete {invoice_id}?", probe=probe), timeout_seconds=60)  # type: ignore[arg-type]
    async def delete_invoice(invoice_id: str) -> None:
        """Delete an invoice."""
        running.set()
        await asyncio.Event().wait()

    async with rig(bot(delete_invoice), tmp_path) as chat:
        await chat.confirms()
        died = asyncio.create_task(effect(chat.worker, lease_seconds=0.0))
        await running.wait()
        await effect(chat.another())
        await chat.turns()
        *_, text, question = chat.platform.texts()
        assert "may or may not have happened" in text
        assert "outcome unknown" in question
        died.cancel()
        await asyncio.gather(died, return_exceptions=True)


async def test_effect_without_a_free_thread_fails_and_never_happens(tmp_path: Path) -> None:
    let_go, done = threading.Event(), []

    @tool(confirm="Delete {invoice_id}?")
    def delete_invoice(invoice_id: str) -> None:
        """Delete an invoice."""
        done.append(invoice_id)

    threads = delete_invoice._function.threads
    for _ in range(THREADS):
        threads.submit(let_go.wait)
    async with rig(bot(delete_invoice), tmp_path) as chat:
        await chat.confirms()
        try:
            await effect(chat.worker)
        finally:
            let_go.set()
        await chat.turns()
        assert any("it could not be done. Nothing has happened" in text for text in chat.platform.texts())
    threads.shutdown()
    assert done == []
