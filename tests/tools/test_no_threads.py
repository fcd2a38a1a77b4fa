"""No more threads can be started: a sync tool's call fails, the model is told, and nothing of it happens later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from gateway import Agent, ChannelAgent, tool
from tests.engine.bots import Model
from tests.engine.rig import Rig, rig
from tests.threads import no_more_threads


class Invoices:
    """What a sync tool did."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.threads = ThreadPoolExecutor(2)
        """The tool's, none of them started yet."""

    def bot(self, *, confirm: bool | str) -> ChannelAgent:
        @tool(confirm=confirm)
        def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.deleted.append(invoice_id)
            return f"{invoice_id} is deleted."

        delete_invoice._function.threads = self.threads
        return ChannelAgent(Agent([delete_invoice], provider=Model()))


async def confirmed(chat: Rig) -> None:
    code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
    await chat.says("ana", f"ok {code}")
    await chat.worker.engine._actions.run(await chat.worker.lease("action"))
    await chat.turns()


async def test_call_without_a_thread_fails_and_only_the_next_happens(tmp_path: Path) -> None:
    made = Invoices()
    async with rig(made.bot(confirm=False), tmp_path) as chat:
        with no_more_threads():
            await chat.says("ana", "delete INV-1")
            await chat.turns()
        (told,) = chat.platform.texts()
        assert told.startswith("The tool said: Error executing tool 'delete_invoice'")
        await chat.says("ana", "delete INV-2")
        await chat.turns()
        assert chat.platform.texts()[1:] == ["The tool said: INV-2 is deleted."]
    made.threads.shutdown()
    assert made.deleted == ["INV-2"]


async def test_confirmed_action_told_as_failed_never_happens_later(tmp_path: Path) -> None:
    made = Invoices()
    async with rig(made.bot(confirm="Delete invoice {invoice_id}?"), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.turns()
        with no_more_threads():
            await confirmed(chat)
        assert "failed" in chat.platform.texts()[-1]
        await chat.says("ana", "delete INV-2")
        await chat.turns()
        await confirmed(chat)
    made.threads.shutdown()
    assert made.deleted == ["INV-2"]


async def test_call_taken_up_by_a_running_thread_is_waited_for(tmp_path: Path) -> None:
    """The pool has one thread, which ends what it did while the start of a second one fails."""
    made, held = Invoices(), Event()
    made.threads.submit(held.wait)
    submit = made.threads.submit

    def taken_up_meanwhile(run: object) -> None:
        with pytest.raises(RuntimeError), no_more_threads():
            submit(run)  # type: ignore[arg-type]
        held.set()
        while not made.deleted:  # the loop is held here, as it is within `submit`
            pass
        raise RuntimeError("can't start new thread")

    made.threads.submit = taken_up_meanwhile  # type: ignore[method-assign,assignment]
    async with rig(made.bot(confirm=False), tmp_path) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.turns()
        assert chat.platform.texts() == ["The tool said: INV-1 is deleted."]
    made.threads.shutdown()
    assert made.deleted == ["INV-1"]
