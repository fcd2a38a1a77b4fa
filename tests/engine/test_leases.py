"""Leases: renewed while work runs, lost without harm, given back at the end of a process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from channels import Event, Unavailable
from gateway import Agent, ChannelAgent, ToolContext, providers, tool
from gateway.engine.execution.executor import MOST_OF_A_TOOL
from gateway.engine.leases import HeldLease
from gateway.engine.platforms import Poller
from gateway.engine.turns.runner import TurnRunner
from gateway.providers import Request, Response
from gateway.store.errors import Fenced, StoreUnavailable
from gateway.store.types import Lease
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Rig, Worker, killed, message, on_redis_at_night, rig, until, user_lines
from tests.stored import action_of

pytestmark = pytest.mark.both_stores


async def lapsed(chat: Rig) -> Lease:
    """Return the lapsed lease of a turn, free for a take-over at once."""
    await chat.says("ana", "hello")
    return await chat.worker.lease("turn", lease_seconds=0.0)


async def beat(chat: Rig, lease: Lease) -> None:
    """Have the holder renew now, and wait for the renewal."""
    before = chat.wire.calls["renew"]
    chat.worker.context.nudge(lease.kind, lease.lane)
    await until(lambda: chat.wire.calls["renew"] != before)


async def held(chat: Rig, lease: Lease, finish: asyncio.Event) -> asyncio.Task[str]:
    """Begin work under a lease, lasting until `finish`."""

    async def work() -> str:
        with HeldLease(chat.worker.context, lease):
            await finish.wait()
        return "finished"

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    return working


async def working_engine(chat: Rig, invoices: Invoices) -> None:
    """Start the engine, and wait for the start of a long turn."""
    chat.worker.engine.start()
    await chat.says("ana", "wait")
    await invoices.model.waiting.wait()


async def begun_to_stop(chat: Rig) -> asyncio.Task[None]:
    stopping = asyncio.create_task(chat.worker.engine.stop())
    await asyncio.sleep(0)
    return stopping


def cancel(chat: Rig, work: asyncio.Task[object]) -> None:
    chat.wire.hooks.clear()
    work.cancel()


async def test_a_lost_lease_ends_the_work(chat: Rig) -> None:
    lease = await lapsed(chat)
    working = await held(chat, lease, asyncio.Event())
    await chat.another().lease("turn")
    await beat(chat, lease)
    with pytest.raises(Fenced):
        await working
    assert working.cancelling() == 0
    assert chat.worker.context.held == {}


async def test_store_away_for_a_while_does_not_end_the_work(chat: Rig) -> None:
    lease = await lapsed(chat)
    chat.wire.errors["renew"] = [StoreUnavailable("no answer")] * 3
    finish = asyncio.Event()

    working = await held(chat, lease, finish)
    for _ in range(4):
        await beat(chat, lease)
    finish.set()
    assert await working == "finished"


async def test_work_cancelled_from_outside_stays_cancelled(chat: Rig) -> None:
    lease = await lapsed(chat)

    working = await held(chat, lease, asyncio.Event())
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert chat.worker.context.held == {}


async def test_work_cancelled_while_losing_its_lease_is_cancelled(chat: Rig) -> None:
    lease = await lapsed(chat)

    async def work() -> None:
        with HeldLease(chat.worker.context, lease):
            try:
                await asyncio.Event().wait()
            finally:
                working.cancel()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    await chat.another().lease("turn")
    await beat(chat, lease)
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_error_of_the_work_is_raised_unchanged(chat: Rig) -> None:
    lease = await lapsed(chat)
    with pytest.raises(ZeroDivisionError), HeldLease(chat.worker.context, lease):
        raise ZeroDivisionError
    assert chat.worker.context.held == {}


async def test_heartbeat_after_the_finishing_commit_keeps_the_outcome(
    chat: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.says("ana", "hello")
    lease = await chat.worker.lease("turn")

    async def late() -> None:
        chat.wire.hooks.clear()
        await beat(chat, lease)
        for _ in range(3):
            await chat.store.stats()

    chat.wire.hooks["commit answered"] = late
    outcome = await chat.worker.turn_of(lease)
    assert outcome is not None and outcome.stop_reason == "answered"
    assert "taken over" not in caplog.text


async def test_turn_logs_that_the_answer_to_its_commit_is_lost(chat: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await chat.says("ana", "hello")
    lease = await chat.worker.lease("turn")
    chat.wire.lost_answers["commit"] = 1
    await chat.worker.turn_of(lease)
    assert (await chat.store.stats()).waiting == 0
    assert "somebody else has taken over, or our commit was applied and its answer lost" in caplog.text


async def test_turn_cancelled_during_its_last_commit_is_cancelled(chat: Rig) -> None:
    await chat.says("ana", "hello")
    running = asyncio.create_task(chat.worker.turn())
    chat.wire.hooks["commit answered"] = lambda: cancel(chat, running)
    with pytest.raises(asyncio.CancelledError):
        await running
    await chat.turns()
    assert chat.platform.texts() == ["You said: hello"]


@pytest.mark.parametrize("times", [1, 2])
async def test_turn_cancelled_twice_leaves_no_unretrieved_error(
    chat: Rig, invoices: Invoices, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.says("ana", "wait")
    lease = await chat.worker.lease("turn", lease_seconds=0.0)
    running = asyncio.create_task(chat.worker.turn_of(lease))
    await invoices.model.waiting.wait()
    await chat.another().lease("turn")
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    await chat.store.stats()
    gc.collect()
    assert "never retrieved" not in caplog.text


async def approved(chat: Rig, half: Worker | None = None) -> Lease:
    """Return the lease of an action after Ana's yes; `half` has the lease first, and gives it back."""
    await chat.hears("ana", "delete INV-1")
    await chat.says("ana", "yes")
    await chat.worker.turn()
    lease = await (half or chat.worker).lease("action")
    if half is not None:
        await half.engine._actions.run(lease)
    return lease


async def states(chat: Rig) -> list[object]:
    return [action_of(record.value).state for _, record in await chat.store.scan("action/")]


async def test_execution_cancelled_before_its_effect_has_failed(chat: Rig, invoices: Invoices) -> None:
    running = asyncio.create_task(chat.worker.engine._actions.run(await approved(chat)))
    chat.wire.hooks["commit"] = lambda: cancel(chat, running)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (invoices.deleted, await states(chat), (await chat.store.stats()).leased) == ([], ["failed"], 0)


async def test_execution_cancelled_after_its_effect_is_done(chat: Rig, invoices: Invoices) -> None:
    running = asyncio.create_task(chat.worker.engine._actions.run(await approved(chat)))
    chat.wire.hooks["get"] = lambda: cancel(chat, running) if invoices.deleted else None
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (invoices.deleted, await states(chat), (await chat.store.stats()).leased) == (["INV-1"], ["done"], 0)


async def test_execution_taken_over_logs_it_and_records_its_result(
    chat: Rig, invoices: Invoices, caplog: pytest.LogCaptureFixture
) -> None:
    invoices.hold = asyncio.Event()
    await chat.hears("ana", "delete INV-1")
    await chat.says("ana", "yes")
    await chat.worker.turn()
    lease = await chat.worker.lease("action", lease_seconds=0.0)
    running = asyncio.create_task(chat.worker.engine._actions.run(lease))
    await invoices.running.wait()
    await chat.another().lease("action")
    invoices.hold.set()
    await running
    assert caplog.text.count("somebody else has taken over") == 1
    assert (invoices.deleted, await states(chat)) == (["INV-1"], ["done"])


async def test_action_waits_for_a_process_that_has_its_channel(chat: Rig, invoices: Invoices) -> None:
    half = Worker(chat.bot, chat.wire, {}, chat.files)
    await approved(chat, half)
    assert (invoices.deleted, await states(chat)) == ([], ["approved"])
    await chat.advance(10)
    await chat.worker.engine._actions.run(await chat.worker.lease("action"))
    await chat.turns()
    assert invoices.deleted == ["INV-1"]
    assert "Invoice INV-1 is deleted." in chat.platform.texts()


async def test_approval_past_its_limit_waits_for_no_channel(chat: Rig, invoices: Invoices) -> None:
    half = Worker(chat.bot, chat.wire, {}, chat.files)
    await approved(chat, half)
    chat.store.offset_seconds += 16 * 60
    await half.engine._actions.run(await half.lease("action"))
    assert (invoices.deleted, await states(chat)) == ([], ["closed"])


async def test_ended_lease_leaves_no_cycle_for_the_garbage_collector(chat: Rig) -> None:
    lease = await lapsed(chat)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(10):
            with HeldLease(chat.worker.context, lease):
                await asyncio.sleep(0)
        gc.collect()
        assert not [found for found in gc.garbage if isinstance(found, HeldLease)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


# ── the end of a process ──


async def test_stop_lets_turns_finish_and_sends_their_replies(chat: Rig, invoices: Invoices) -> None:
    await working_engine(chat, invoices)
    stopping = await begun_to_stop(chat)
    invoices.model.let_go.set()
    await stopping
    stats = await chat.store.stats()
    assert (stats.waiting, stats.parts, stats.leased) == (0, 0, 0)
    assert chat.platform.texts() == ["You said: wait"]


async def test_outcome_of_an_action_is_sent_before_the_process_ends(chat: Rig, invoices: Invoices) -> None:
    await chat.hears("ana", "delete INV-1")
    invoices.hold = asyncio.Event()
    chat.worker.engine.start()
    await chat.says("ana", "yes")
    await invoices.running.wait()
    stopping = await begun_to_stop(chat)
    invoices.hold.set()
    await stopping
    assert "Invoice INV-1 is deleted." in chat.platform.texts()
    assert (await chat.store.stats()).parts == 0


async def test_stopping_waits_until_every_loop_gave_its_lease_back(chat: Rig) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def step() -> float:
        begun.append(number := len(begun))
        try:
            return await asyncio.Future[float]()
        finally:
            for _ in range(5 * number):
                await asyncio.sleep(0)
            ended.append(number)

    repeating = asyncio.create_task(chat.worker.engine._repeat("step", step, times=3))
    await until(lambda: len(begun) == 3)
    repeating.cancel()
    await asyncio.wait([repeating])
    assert ended == begun


async def test_others_are_sent_to_while_a_turn_is_waited_for(chat: Rig, invoices: Invoices) -> None:
    await working_engine(chat, invoices)
    stopping = await begun_to_stop(chat)
    await chat.notify("hello", place="bob")
    await until(lambda: chat.platform.texts("bob"))
    assert not stopping.done()
    invoices.model.let_go.set()
    await stopping


async def test_a_platform_that_is_down_holds_up_no_end(chat: Rig) -> None:
    chat.platform.will = [Unavailable("503")] * 3
    chat.worker.engine.start()
    await chat.says("ana", "hello")
    await until(lambda: chat.platform.keys)
    async with asyncio.timeout(60):
        await chat.worker.engine.stop()
    stats = await chat.store.stats()
    assert (stats.parts, stats.parked, stats.leased) == (1, 1, 0)


async def test_unfinished_work_is_handed_back_at_once(chat: Rig, invoices: Invoices) -> None:
    await working_engine(chat, invoices)
    await chat.worker.engine.stop(grace_seconds=0.0)
    assert len(chat.worker.context.tasks) == 0 and chat.worker.context.held == {}
    stats = await chat.store.stats()
    assert (stats.leased, stats.ready, stats.waiting) == (0, 1, 1)
    invoices.model.let_go.set()
    other = chat.another()
    await other.turn()
    await other.deliver()
    assert chat.platform.texts() == ["You said: wait"]


async def test_turn_stopped_four_times_is_not_put_aside(chat: Rig, invoices: Invoices) -> None:
    await chat.says("ana", "wait")
    for _ in range(5):
        invoices.model.waiting.clear()
        running = asyncio.create_task(chat.another().turn())
        await invoices.model.waiting.wait()
        await killed(running)
    invoices.model.let_go.set()
    await chat.turns()
    assert chat.platform.texts() == ["You said: wait"]


@pytest.mark.ledger("PYG-24")
async def test_no_task_and_no_lease_is_left_after_work(chat: Rig) -> None:
    before = asyncio.all_tasks()
    chat.worker.engine.start()
    for person in ("ana", "bob", "cleo"):
        await chat.says(person, "delete INV-1")
    await until(lambda: len(chat.platform.sent) >= 3)
    await chat.worker.engine.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert len(chat.worker.context.tasks) == 0 and chat.worker.context.held == {}
    assert (await chat.store.stats()).leased == 0


async def test_message_during_a_stop_is_still_stored(chat: Rig, invoices: Invoices) -> None:
    await working_engine(chat, invoices)
    stopping = await begun_to_stop(chat)
    await chat.says("bob", "hello")
    invoices.model.let_go.set()
    await stopping
    await chat.another().turn()
    assert invoices.model.requests[-1].messages[-1].content == "hello"


async def test_a_callback_may_take_its_time(tmp_path: Path, invoices: Invoices) -> None:
    go_on, done = asyncio.Event(), []
    bot = invoices.bot()

    @bot.on_outcome
    async def slow(action: object) -> None:
        await go_on.wait()
        done.append(action)

    async with rig(bot, tmp_path) as chat:
        chat.worker.engine.start()
        await chat.says("ana", "delete INV-1")
        while not chat.platform.sent or (await chat.store.stats()).parts:
            await asyncio.sleep(0.001)
        await chat.says("ana", "yes")
        await until(lambda: "Invoice INV-1 is deleted." in chat.platform.texts())
        assert not any(kind == "action" for kind, _ in chat.worker.context.held)
        go_on.set()
        await until(lambda: done)


@on_redis_at_night
async def test_callbacks_that_hang_hold_up_no_action(tmp_path: Path, invoices: Invoices) -> None:
    bot = invoices.bot()

    @bot.on_outcome
    async def hang(action: object) -> None:
        await asyncio.Event().wait()

    async with rig(bot, tmp_path) as chat:
        chat.worker.engine.start()
        people = [f"person {number}" for number in range(40)]  # more than act at once
        for words in ("delete INV-1", "yes"):
            for person in people:
                await chat.says(person, words)
            while len(chat.platform.sent) < len(people) or (await chat.store.stats()).parts:
                await asyncio.sleep(0.001)
        await until(lambda: len(invoices.deleted) >= len(people))
        await chat.worker.engine.stop(grace_seconds=0)


@on_redis_at_night
async def test_effects_of_one_tool_that_hang_hold_up_no_other_tools(tmp_path: Path) -> None:
    begun: list[str] = []
    hold = asyncio.Event()

    @tool(confirm="Ship to {who}?")
    async def ship(who: str) -> str:
        """Ship."""
        begun.append(who)
        await hold.wait()
        return "shipped"

    @tool(confirm="Pay {who}?")
    async def pay(who: str) -> str:
        """Pay."""
        begun.append(who)
        return "paid"

    class Model(ScriptedProvider):
        async def complete(self, request: Request) -> Response:
            name, who = request.messages[-1].content.split()
            call = providers.ToolCall(call_id="1", name=name, args={"who": who})
            return Response(tool_calls=(call,), finish="tools")

    async with rig(ChannelAgent(Agent([ship, pay], provider=Model([]))), tmp_path) as chat:
        chat.worker.engine.start()
        asked = [(f"ship {number}", f"person {number}") for number in range(2 * MOST_OF_A_TOOL)]
        for text, person in [*asked, ("pay ana", "ana")]:
            await chat.says(person, text)
        while len(chat.platform.sent) <= len(asked) or (await chat.store.stats()).parts:
            await asyncio.sleep(0.001)
        for _, person in asked:
            await chat.says(person, "yes")
        await until(lambda: len(begun) >= MOST_OF_A_TOOL)
        await chat.says("ana", "yes")
        await until(lambda: "ana" in begun)
        assert len(begun) == MOST_OF_A_TOOL + 1
        hold.set()


async def test_a_tool_in_a_turn_that_is_taken_over_is_ended(tmp_path: Path) -> None:
    ended = asyncio.Event()
    started = asyncio.Event()

    @tool
    async def brew(ctx: ToolContext) -> str:
        """Take for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    script = ScriptedProvider([ToolCall("brew", {}), "It is not known."])
    async with rig(ChannelAgent(Agent([brew], provider=script)), tmp_path) as chat:
        await chat.says("ana", "brew")
        lease = await chat.worker.lease("turn", lease_seconds=0.0)
        zombie = asyncio.create_task(TurnRunner(chat.worker.context, chat.worker.decisions).run(lease))
        await started.wait()
        other = chat.another()
        taken = await other.lease("turn")
        await beat(chat, lease)
        assert await zombie is None and ended.is_set()
        await TurnRunner(other.context, other.decisions).run(taken)
        assert user_lines(script) == ["brew"]
        script.assert_used_up()


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("hunter2"), "RuntimeError ("), (StoreUnavailable("it is full: make room"), "it is full: make room")],
)
async def test_unexpected_error_ends_no_loop_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    async with ChatDriver(Invoices().bot()) as chat:
        store, called = chat.engine.context.store, asyncio.Event()
        tick, failures = store.run_timers, iter([error, error])

        async def failing() -> float | None:
            if (failure := next(failures, None)) is not None:
                raise failure
            called.set()
            return await tick()

        monkeypatch.setattr(store, "run_timers", failing)
        await called.wait()
        await until(lambda: "goes on" in caplog.text)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("timers:")]
    assert len(said) == 2
    assert said[0].startswith(f"timers: {told}") and said[1] == "timers: goes on"
    assert "hunter2" not in caplog.text


LONG, SHORT = 60.0, 0.09


class Polled(Platform):
    """Hands out the items of `waits` to any poller; `polling` counts the pollers."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self.polling = 0

    async def poll(self) -> AsyncGenerator[tuple[Event, ...], None]:
        self.polling += 1
        try:
            while True:
                event = await self.waits.get()
                if isinstance(event, Exception):
                    raise event
                yield (event,)
        finally:
            self.polling -= 1


@pytest.fixture
def platform() -> Polled:
    return Polled()


@pytest.fixture
async def house(tmp_path: Path, platform: Polled) -> AsyncIterator[Rig]:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))
    async with rig(bot, tmp_path, platform) as house:
        yield house


@contextlib.asynccontextmanager
async def polling(
    worker: Worker, platform: Polled, lease_seconds: float, again_seconds: float = 1.0
) -> AsyncIterator[asyncio.Task[None]]:
    worker.context.lease_seconds = lease_seconds
    poller = Poller(worker.context, worker.engine.inbox, platform, again_seconds=again_seconds)
    task = asyncio.create_task(poller.run())
    try:
        yield task
    finally:
        await killed(task)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.platforms")


async def heard(house: Rig, platform: Polled, text: str) -> None:
    """Have a person write, and the message stored."""
    before = (await house.store.stats()).ready
    await platform.waits.put(message(text, text))
    while (await house.store.stats()).ready == before:
        await asyncio.sleep(0.001)


async def test_second_process_polls_as_soon_as_the_first_ends(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, LONG) as first:
        await heard(house, platform, "ana")
        async with polling(house.another(), platform, SHORT):
            await until(lambda: "test is polled by another process" in caplog.text)
            assert platform.polling == 1
            first.cancel()
            await heard(house, platform, "ben")
            assert platform.polling == 1


async def test_dead_poller_is_replaced_when_its_lease_lapses(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Poller(house.worker.context, house.worker.engine.inbox, platform)
    assert await gone._lease.take()
    async with polling(house.another(), platform, SHORT):
        await until(lambda: "test is polled by another process" in caplog.text)
        assert platform.polling == 0
        await house.advance(house.worker.context.lease_seconds + 1.0)
        await heard(house, platform, "ana")


async def test_process_with_a_lost_lease_stops_polling(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, 0.6):
        await heard(house, platform, "ana")
        await house.advance(10.0)  # it was held up for longer than its lease
        async with polling(house.another(), platform, SHORT):
            await until(lambda: "test is no longer polled by this process: its lease is lost" in caplog.text)
            await until(lambda: platform.polling == 1)
            await heard(house, platform, "ben")


async def test_no_process_polls_without_a_store(house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture) -> None:
    async with polling(house.worker, platform, SHORT):
        await heard(house, platform, "ana")
        house.wire.calls_left = 0
        await until(lambda: "its lease is lost" in caplog.text)
        assert platform.polling == 0
        await until(lambda: "test is not polled: the store does not answer; it is tried again" in caplog.text)
        assert "by another process" not in caplog.text
        house.wire.calls_left = None
        await heard(house, platform, "ben")


async def test_polling_stops_when_a_hanging_store_outlasts_the_lease(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, SHORT):
        await heard(house, platform, "ana")
        house.wire.pause_after = 0
        await until(lambda: "its lease is lost" in caplog.text)
        assert platform.polling == 0
        house.wire.resume.set()


async def test_a_channel_that_breaks_is_polled_again_and_told_once(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, LONG, again_seconds=0.001):
        for _ in range(3):
            await platform.waits.put(KeyError("a person's words"))
        await heard(house, platform, "ana")
        assert caplog.text.count("test: KeyError (test_leases.py:") == 1
        assert "words" not in caplog.text
