"""An effect's outcome is told truly: late ends of threads, errors of the network, probes, locks, and many at once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator

from gateway import Agent, ChannelAgent, Confirm, NothingDone, Preview, ToolContext, ToolFailed, tool
from gateway.engine.engine import Engine
from gateway.engine.execution.effects import Effects
from gateway.engine.execution.executor import MOST_OF_A_TOOL, ActionExecutor
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import Tool
from gateway.tools.escape import legible, plain, shown
from gateway.tools.function import THREADS
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices, Model
from tests.engine.rig import Rig, Worker, killed, rig, until

DOUBT = "may or may not have happened"


class Slow:
    """A sync tool with calls held until `let_go`, and the record of the calls."""

    def __init__(self, **options: Any) -> None:
        self.let_go = threading.Event()
        self.begun, self.done = threading.Semaphore(0), list[str]()
        self.error: Exception | None = None
        self.at_once = self.most = 0

        @tool(**{"confirm": "Delete {invoice_id}?", "timeout_seconds": 0.02, **options})
        def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Delete an invoice."""
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.begun.release()
            assert self.let_go.wait(15)
            self.at_once -= 1
            if self.error is not None:
                raise self.error
            self.done.append(ctx.idempotency_key)
            return "It is gone."

        self.tool = delete_invoice


@pytest.fixture
def slow() -> Any:
    made: list[Slow] = []

    def make(**options: Any) -> Slow:
        made.append(Slow(**options))
        return made[-1]

    yield make
    for each in made:
        each.let_go.set()


def bot(delete_invoice: Tool) -> ChannelAgent:
    return ChannelAgent(Agent([delete_invoice], provider=Model()))


async def confirmed(chat: Rig, *people: str) -> None:
    people = people or ("ana",)
    for person in people:
        await chat.says(person, "delete INV-1")
    await chat.turns()
    for person in people:
        code = chat.platform.texts(person)[-1].partition("**OK ")[2][:4]
        await chat.says(person, f"ok {code}")


async def effect(worker: Worker, *, shown_after_seconds: float = 0.5, **options: float) -> ActionExecutor:
    """Run the longest-ready action, in a separate process."""
    process = ActionExecutor(worker.context, shown_after_seconds=shown_after_seconds)
    async with asyncio.timeout(60):
        await process.run(await worker.lease("action", **options))
    return process


async def told(chat: Rig) -> list[str]:
    """Return the texts after the question."""
    await chat.turns()
    return [text for text in chat.platform.texts() if "**" not in text]


async def stored(chat: Rig) -> PendingAction:
    [(key, _)] = await chat.store.scan("action/")
    action_id = key.name.removeprefix("action/")
    action = (await chat.worker.context.actions(f"{chat.bot.name}/test:bot:ana", action_id)).get(action_id)
    assert action is not None
    return action


@pytest.mark.parametrize(("error", "end"), [(None, "It is gone."), (ValueError("no"), "It did not work: ")])
async def test_finding_13_late_thread_result_settles_its_action(
    error: Exception | None, end: str, slow: Callable[..., Slow], tmp_path: Path
) -> None:
    late = slow()
    late.error = error
    async with rig(bot(late.tool), tmp_path) as chat:
        await chat.confirms()
        process = await effect(chat.worker)
        assert DOUBT in (await told(chat))[-1]
        late.let_go.set()
        await process.late.ended()
        assert (await told(chat))[-1].startswith(end)
        assert (await stored(chat)).state == ("failed" if error else "done")


LOCKED = "“INV\\-1” is still there. "
FAILURES: list[tuple[str | None, Exception, str]] = [
    (None, ToolFailed("key sk-1"), "It did not work: "),
    (None, ValueError("key sk-1"), "It did not work: "),
    (None, ToolFailed("key sk-1", person="exit *3*"), "This did not work (“exit \\*3\\*”): Delete “INV\\-1”"),
    (None, ToolFailed("key sk-1", person=" "), "It did not work: "),
    (None, ToolFailed("key sk-1", person="a" * 301), f"This did not work (“{'a' * 300}”): Delete “INV\\-1”"),
    ("{invoice_id} is still there. {reason}", ToolFailed("key sk-1", person="Locked"), f"{LOCKED}“Locked”"),
    ("{invoice_id} is still there. {reason}", ToolFailed("key sk-1"), f"{LOCKED}It did not work."),
    ("{invoice_id} is still there. {reason}", ValueError("key sk-1"), f"{LOCKED}It did not work."),
    ("Ask Eve.", ToolFailed("key sk-1", person="Locked"), "Ask Eve."),
]


def failing(failed: str | None, error: Exception) -> Tool:
    @tool(confirm=Confirm("Delete {invoice_id}?", failed=failed))
    def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        raise error

    return delete_invoice


async def test_a_failure_tells_the_reason_and_asks_anew() -> None:
    wrong = []
    for failed, error, said in FAILURES:
        async with ChatDriver(bot(failing(failed, error))) as chat:
            await chat.says("ana", "delete INV-1")
            await chat.presses("ana", "Confirm")
            if not chat.last.text.startswith(said) or "sk-1" in chat.last.text or chat.last.buttons != ["Ask again"]:
                wrong.append((failed, error, chat.last.text, chat.last.buttons))
            await chat.presses("ana", "Ask again")
            if chat.last.buttons != ["Confirm", "Cancel", "Change"]:
                wrong.append((failed, error, chat.last.text, chat.last.buttons))
    assert wrong == []


async def test_finding_13_no_second_attempt_while_the_first_runs(slow: Callable[..., Slow], tmp_path: Path) -> None:
    late = slow(idempotent=True)
    async with rig(bot(late.tool), tmp_path) as chat:
        await chat.confirms()
        process = await effect(chat.worker)
        await chat.advance(3600)
        assert await chat.store.lease("w", ["action"]) is None
        assert DOUBT in (await told(chat))[-1]
        late.let_go.set()
        await process.late.ended()
        assert (late.most, len(late.done)) == (1, 1)
        assert (await told(chat))[-1] == "It is gone."


async def test_finding_13_lock_is_held_until_the_late_thread_ends(
    slow: Callable[..., Slow], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = slow(lock="invoice:{invoice_id}")
    async with rig(bot(late.tool), tmp_path) as chat:
        await chat.confirms()
        process = await effect(chat.worker)
        await chat.turns()
        await chat.confirms()
        await effect(chat.worker)
        assert "an earlier run of it has not ended, so nothing was done" in (await told(chat))[-1]
        assert "the lock 'invoice:INV-1' is not free" in caplog.text
        late.let_go.set()
        await process.late.ended()
        await chat.turns()
        late.let_go.clear()
        await chat.confirms()
        await effect(chat.worker)
        assert DOUBT in (await told(chat))[-1], "the lock is free again"
        assert late.most == 1


async def test_the_text_says_how_often_it_was_tried(tmp_path: Path) -> None:
    tries = 0

    @tool(confirm="Delete {invoice_id}?", idempotent=True)
    async def delete_invoice(invoice_id: str) -> None:
        """Delete an invoice."""
        nonlocal tries
        tries += 1
        raise TimeoutError

    async with rig(bot(delete_invoice), tmp_path) as chat:
        await chat.confirms()
        for _ in range(3):
            await effect(chat.worker)
            await chat.advance(5)
        assert tries == 3
        last = (await told(chat))[-1]
        assert DOUBT in last
        assert "It was tried 3 times" in last


@pytest.mark.parametrize("error", [ValueError(), NothingDone("it was closed"), ConnectionRefusedError()], ids=repr)
async def test_failure_does_not_settle_an_earlier_uncertain_attempt(error: Exception, tmp_path: Path) -> None:
    """The first attempt may have succeeded: the machine of histories found this failure (seed 1020)."""
    errors = [TimeoutError(), error]

    @tool(confirm="Delete {invoice_id}?", idempotent=True)
    async def delete_invoice(invoice_id: str) -> None:
        """Delete an invoice."""
        raise errors.pop(0)

    async with rig(bot(delete_invoice), tmp_path) as chat:
        await chat.confirms()
        for _ in range(2):
            await effect(chat.worker)
            await chat.advance(5)
        assert errors == []
        assert DOUBT in (await told(chat))[-1]
        assert (await stored(chat)).state == "unknown"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (TimeoutError(), "unknown"),
        (ConnectionResetError(), "unknown"),
        (asyncio.CancelledError(), "unknown"),
        (ConnectionRefusedError(), "failed"),
    ],
    ids=repr,
)
async def test_finding_14_broken_connection_is_a_failure_if_refused(
    chat: Rig, invoices: Invoices, error: BaseException, state: str
) -> None:
    invoices.error = error
    await chat.confirms()
    await effect(chat.worker)
    assert (DOUBT in (await told(chat))[-1]) == (state == "unknown")
    assert (await stored(chat)).state == state


class Frozen:
    """A tool for freezing a worker, and a probe with a scripted answer."""

    def __init__(self) -> None:
        self.found: Literal["done", "not_done"] = "not_done"
        self.running, self.let_go = asyncio.Event(), asyncio.Event()

        async def probe(invoice_id: str) -> str:
            return self.found

        @tool(confirm=Confirm("Delete {invoice_id}?", probe=probe), timeout_seconds=60)  # type: ignore[arg-type]
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.running.set()
            await self.let_go.wait()
            return "It is gone."

        self.tool = delete_invoice


async def test_finding_12_not_done_counts_after_the_longest_run(tmp_path: Path) -> None:
    frozen = Frozen()
    async with rig(bot(frozen.tool), tmp_path) as chat:
        await chat.confirms()
        first = asyncio.create_task(effect(chat.worker, lease_seconds=0.0))
        await frozen.running.wait()
        other = chat.another()
        await effect(other)
        assert await told(chat) == []
        await chat.advance(30)
        await effect(other)
        assert await told(chat) == []
        await chat.advance(60)
        await effect(other)
        assert (await told(chat))[-1].startswith("It did not work")
        frozen.let_go.set()
        await first
        assert (await told(chat))[-1] == "It is gone.", "the worker that was only frozen knows better"
        assert (await stored(chat)).state == "done"


async def test_a_probe_that_finds_it_done_counts_at_once(tmp_path: Path) -> None:
    frozen = Frozen()
    frozen.found = "done"
    async with rig(bot(frozen.tool), tmp_path) as chat:
        await chat.confirms()
        first = asyncio.create_task(effect(chat.worker, lease_seconds=0.0))
        await frozen.running.wait()
        await effect(chat.another())
        assert (await told(chat))[-1].startswith("Done: ")
        frozen.let_go.set()
        await first
        assert len(await told(chat)) == 1


async def test_a_probe_is_asked_after_a_timeout_of_a_worker_that_lives(tmp_path: Path) -> None:
    frozen = Frozen()
    frozen.tool.timeout_seconds = 0.02
    async with rig(bot(frozen.tool), tmp_path) as chat:
        await chat.confirms()
        await effect(chat.worker)
        assert await told(chat) == []
        frozen.found = "done"
        await chat.advance(5)
        await effect(chat.worker)
        assert (await told(chat))[-1].startswith("Done: ")


async def test_waiting_effect_begins_when_another_of_its_tool_ends(tmp_path: Path) -> None:
    hold, begun = asyncio.Event(), list[str]()

    @tool(confirm="Delete {invoice_id}?")
    async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
        """Delete an invoice."""
        begun.append(ctx.person)
        await hold.wait()
        return "It is gone."

    async with rig(bot(delete_invoice), tmp_path) as chat, asyncio.timeout(60):
        people = [f"person {number}" for number in range(2 * MOST_OF_A_TOOL)]
        await confirmed(chat, *people)
        patient = ActionExecutor(chat.worker.context, again_seconds=3600.0)
        chat.worker.engine = Engine(chat.worker.context, actions=patient)
        chat.worker.engine.start()
        while len(begun) < MOST_OF_A_TOOL or (stats := await chat.store.stats()).ready or stats.leased > MOST_OF_A_TOOL:
            await asyncio.sleep(0.001)
        hold.set()
        await until(lambda: len(begun) >= len(people))


def edits(chat: Rig) -> list[tuple[str, int]]:
    """Return the edits of the question, each text with the number of buttons."""
    return [(str(part.arguments["text"]), len(part.buttons)) for _, part in chat.platform.sent if part.call == "edit"]


async def test_an_effect_that_takes_a_while_is_shown_to_be_under_way(tmp_path: Path) -> None:
    frozen = Frozen()
    async with rig(bot(frozen.tool), tmp_path) as chat, asyncio.timeout(60):
        await chat.confirms()
        effect_runs = asyncio.create_task(effect(chat.worker, shown_after_seconds=0.0))
        while not (await chat.store.stats()).parts:
            await asyncio.sleep(0.001)
        await chat.worker.deliver()
        assert edits(chat) == [("**Delete “INV\\-1”**\n\n⏳ Confirmed by Ana. Working on it…", 0)]
        frozen.let_go.set()
        await effect_runs
        assert await told(chat) == ["It is gone."]
        assert len(edits(chat)) == 2
        assert "✅ Confirmed by Ana, done" in edits(chat)[-1][0]


async def test_an_effect_that_is_over_soon_is_changed_once(tmp_path: Path) -> None:
    frozen = Frozen()
    frozen.let_go.set()
    async with rig(bot(frozen.tool), tmp_path) as chat:
        await chat.confirms()
        await effect(chat.worker)
        await chat.turns()
        assert len(edits(chat)) == 1


async def test_ended_effect_is_not_shown_to_be_under_way(tmp_path: Path) -> None:
    frozen = Frozen()
    frozen.let_go.set()
    async with rig(bot(frozen.tool), tmp_path) as chat:
        await chat.confirms()
        found = await stored(chat)
        process = await effect(chat.worker)
        await process._show_progress(found)
        await chat.turns()
        assert [note for note, _ in edits(chat) if "Working" in note] == []


async def test_a_change_that_a_newer_one_has_overtaken_is_not_sent(tmp_path: Path) -> None:
    frozen = Frozen()
    async with rig(bot(frozen.tool), tmp_path) as chat, asyncio.timeout(60):
        await chat.confirms()
        effect_runs = asyncio.create_task(effect(chat.worker, shown_after_seconds=0.0))
        while not (await chat.store.stats()).parts:
            await asyncio.sleep(0.001)
        frozen.let_go.set()
        await effect_runs
        assert await told(chat) == ["It is gone."]
        [(text, _)] = edits(chat)
        assert "✅ Confirmed by Ana, done" in text
        assert (await chat.store.stats()).parts == 0


async def test_each_action_of_a_joint_prompt_shows_its_own_state(tmp_path: Path, invoices: Invoices) -> None:
    invoices.hold = asyncio.Event()
    async with ChatDriver(invoices.bot()) as chat, asyncio.timeout(60):
        await chat.says("ana", "delete INV-1 INV-2")
        pressing = asyncio.create_task(chat.presses("ana", "Confirm 1"))
        await until(lambda: "Working on it" in chat.messages[0].text)
        text = chat.messages[0].text
        said = [text.index(words) for words in ("INV\\-1", "⏳ Confirmed by Ana", "INV\\-2", "You have")]
        assert said == sorted(said)
        assert text.count("Confirmed by") == 1
        invoices.hold.set()
        await pressing
        assert "✅ Confirmed by Ana, done" in chat.messages[0].text


async def test_late_thread_result_during_a_stop_is_told(slow: Callable[..., Slow], tmp_path: Path) -> None:
    late = slow()
    async with rig(bot(late.tool), tmp_path) as chat, asyncio.timeout(60):
        await chat.confirms()
        engine = chat.worker.engine
        engine.start()
        await until(lambda: any(DOUBT in text for text in chat.platform.texts()))
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0.01)
        late.let_go.set()
        await stopping
        assert any(text == "It is gone." for text in chat.platform.texts())


async def test_hanging_thread_delays_a_stop_by_its_grace_at_most(slow: Callable[..., Slow], tmp_path: Path) -> None:
    late = slow()
    async with rig(bot(late.tool), tmp_path) as chat, asyncio.timeout(60):
        await chat.confirms()
        chat.worker.engine.start()
        await until(lambda: any(DOUBT in text for text in chat.platform.texts()))
        await chat.worker.engine.stop(0.01)
        assert (await stored(chat)).state == "unknown"


async def brief_effect(worker: Worker, **options: float) -> None:
    """Run the longest-ready action, in a process waiting milliseconds for the end."""
    effects = Effects(worker.context, timeout_seconds=0.02)
    async with asyncio.timeout(60):
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
        await brief_effect(chat.worker)
        await chat.turns()
        assert not any("could not be checked" in text for text in chat.platform.texts())
        await chat.advance(61)
        await brief_effect(chat.worker)
        await chat.turns()
        assert any("could not be checked" in text for text in chat.platform.texts())
        assert done == []


async def test_hanging_probe_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """The first worker dies while the effect runs; the second worker asks the probe."""
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
        died = asyncio.create_task(brief_effect(chat.worker, lease_seconds=0.0))
        await running.wait()
        await brief_effect(chat.another())
        await chat.turns()
        *_, text, question = chat.platform.texts()
        assert "may or may not have happened" in text
        assert "outcome unknown" in question
        await killed(died)


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
            await brief_effect(chat.worker)
        finally:
            let_go.set()
        await chat.turns()
        assert any("it could not be done. Nothing has happened" in text for text in chat.platform.texts())
    threads.shutdown()
    assert done == []


@pytest.mark.both_stores
async def test_approved_action_waits_for_room_and_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Invoices()
    async with rig(made.bot(), tmp_path) as chat:
        room = False

        async def has_headroom(*store: Any) -> bool:
            return room

        monkeypatch.setattr(type(chat.store), "has_headroom", has_headroom)
        await chat.hears("ana", "delete INV-1")
        code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
        await chat.says("ana", f"ok {code}")
        actions = chat.worker.engine._actions
        await actions.run(await chat.worker.lease("action"))
        assert made.deleted == []
        assert await chat.store.lease("w", ["action"]) is None
        room = True
        await chat.advance(5.0)
        await actions.run(await chat.worker.lease("action"))
        assert made.deleted == ["INV-1"]
        assert await chat.store.lease("w", ["action"]) is None


async def test_a_check_that_changes_its_value_each_time_is_not_asked() -> None:
    paid: list[int] = []

    @tool(confirm="Pay {cents} cents?")
    def pay(cents: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    script = ScriptedProvider([ToolCall("pay", {"cents": 5}), "No."])
    async with ChatDriver(ChannelAgent(Agent(tools=[pay])), provider=script) as chat:
        await chat.says("ana", "pay 5 euros")
        if chat.last.buttons:
            assert "Pay 500 cents" in chat.last.text
            await chat.presses("ana", "Confirm")
        assert paid in ([], [500])


@pytest.mark.parametrize("value", [["א", 5, 7], {"a": ["אבג", 1]}], ids=json.dumps)
def test_right_to_left_text_in_a_list_moves_no_text_around_it(value: Any) -> None:
    for read in (plain(shown(value)), legible(f"Move {shown(value, bare=False)}?")):
        found = read[read.index("\u2068") : read.index("\u2069")]
        assert found.startswith('\u2068"') and found.endswith('"')
