"""The teller: order, waiting, limits and faults of observers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from gateway import AgentObserver
from gateway.observe.callbacks import Callbacks
from gateway.observe.events import BatchStart, CostWarning, ObservedEvent, RunEvent, ToolChunk, ToolEnd
from gateway.observe.reader import EventReader
from gateway.observe.teller import MOST_WAITING, RunTeller, Teller, begin_run

SECRET = "my card is 4111"


class Chunks(AgentObserver):
    def __init__(self, heard: list[Any], mark: str = "") -> None:
        self.heard, self.mark = heard, mark

    def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> Any:
        self.heard.append(self.mark + chunk)


class Later(Chunks):
    """An observer waiting for an asyncio event before each chunk. Runs in the background."""

    def __init__(self, heard: list[Any], mark: str = "", *, go: asyncio.Event | None = None) -> None:
        super().__init__(heard, mark)
        self.go = go

    async def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> None:
        if self.go is not None:
            await self.go.wait()
        await asyncio.sleep(0)
        self.heard.append(self.mark + chunk)


class Blocking(Later):
    blocking = True
    timeout_seconds = 5.0


class Faulty(AgentObserver):
    def __init__(self, error: Callable[[], BaseException]) -> None:
        self.error = error

    def on_event(self, event: ObservedEvent) -> Any:
        raise self.error()


class FaultyLater(Faulty):
    async def on_event(self, event: ObservedEvent) -> None:
        raise self.error()


class FaultyBlocking(FaultyLater):
    blocking = True


class Reads:
    """A reader of the gateway, or of a single run."""

    def __init__(self, *kinds: type[ObservedEvent]) -> None:
        self.kinds, self.events = kinds, list[ObservedEvent]()

    def read(self, event: ObservedEvent) -> None:
        self.events.append(event)


async def chunk(teller: Teller, text: str) -> None:
    await teller.tell(ToolChunk, "r", call_id="c", tool_name="t", chunk=text)


def chunk_now(teller: Teller, text: str) -> None:
    teller.tell_now(ToolChunk, "r", call_id="c", tool_name="t", chunk=text)


# ── the listeners and the order ──


@pytest.mark.ledger("OBS-01", "OBS-27")
async def test_observers_are_called_in_list_order() -> None:
    heard: list[str] = []
    teller = Teller(observers=[Chunks(heard, "a"), Blocking(heard, "b"), Chunks(heard, "c"), Later(heard, "d")])
    await chunk(teller, "1")
    await chunk(teller, "2")
    await teller.drain()
    assert [each for each in heard if each[0] in "ac"] == ["a1", "c1", "a2", "c2"]
    assert [each for each in heard if each[0] == "b"] == ["b1", "b2"]
    assert [each for each in heard if each[0] == "d"] == ["d1", "d2"]


@pytest.mark.ledger("OBS-30")
async def test_async_observers_end_after_the_sync_ones() -> None:
    heard: list[str] = []
    await chunk(Teller(observers=[Blocking(heard, "async "), Chunks(heard, "sync ")]), "1")
    assert heard == ["sync 1", "async 1"]


async def test_one_overridden_method_hears_one_event() -> None:
    heard: list[str] = []
    teller = Teller(observers=[Chunks(heard)])
    assert teller.listeners(ToolChunk) is not None
    assert teller.listeners(BatchStart) is None
    await teller.tell(BatchStart, batch_id="b", prompts_count=1)
    await chunk(teller, "1")
    assert heard == ["1"]


@pytest.mark.parametrize("observers", [[], [Chunks([])], [AgentObserver()]], ids=["none", "of others", "base"])
async def test_an_event_without_listener_is_not_made(observers: list[AgentObserver]) -> None:
    made: list[object] = []

    class Counted(BatchStart):
        def __init__(self, **fields: Any) -> None:
            made.append(fields)

    class CountedOfRun(CostWarning):
        def __init__(self, *args: Any, **fields: Any) -> None:
            made.append(fields)

    teller = Teller(observers=observers, readers=[Reads(ToolChunk)])
    await teller.tell(Counted, batch_id="b", prompts_count=1)
    teller.tell_now(Counted, batch_id="b", prompts_count=1)
    run = RunTeller(teller, "r", cast("Any", Reads(ToolChunk)))
    await run.tell(CountedOfRun, cost_used=1.0, threshold=1.0)
    run.tell_now(CountedOfRun, cost_used=1.0, threshold=1.0)
    assert made == []

    await Teller(readers=[Reads(Counted)]).tell(Counted, batch_id="b", prompts_count=1)
    assert len(made) == 1


async def test_readers_hear_first_and_each_its_kinds() -> None:
    chunks, batches, everything = Reads(ToolChunk), Reads(BatchStart), Reads()
    everything.kinds = None  # type: ignore[assignment]
    heard: list[str] = []

    class Looks(Chunks):
        def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> None:
            heard.extend(each.chunk for each in chunks.events if isinstance(each, ToolChunk))

    teller = Teller(readers=[chunks, batches, everything], observers=[Looks(heard)])
    await chunk(teller, "1")
    chunk_now(teller, "2")
    assert heard == ["1", "1", "2"]
    assert (len(chunks.events), len(batches.events), len(everything.events)) == (2, 0, 2)


async def test_a_run_has_its_id_and_its_own_reader() -> None:
    own, common = Reads(ToolChunk), Reads(ToolChunk, CostWarning)
    heard: list[str] = []
    run = RunTeller(Teller(readers=[common], observers=[Chunks(heard)]), "run 1", cast("Any", own))
    await run.tell(ToolChunk, call_id="c", tool_name="t", chunk="1")
    run.tell_now(ToolChunk, call_id="c", tool_name="t", chunk="2")
    await run.tell(CostWarning, cost_used=1.0, threshold=0.5)

    assert heard == ["1", "2"]
    assert len(own.events) == 2
    assert [each.run_id for each in common.events if isinstance(each, RunEvent)] == ["run 1"] * 3


async def test_new_listeners_count_after_the_change() -> None:
    class Changing(Chunks):
        wanted = False

        def wants(self, name: str) -> bool:
            return self.wanted

    heard: list[str] = []
    observer = Changing(heard)
    teller = Teller(observers=[observer])
    await chunk(teller, "1")
    observer.wanted = True
    teller.listeners_changed()
    await chunk(teller, "2")
    assert heard == ["2"]


# ── waiting ──


@pytest.mark.ledger("OBS-28")
async def test_a_blocking_observer_is_awaited() -> None:
    go, heard = asyncio.Event(), list[str]()
    telling = asyncio.create_task(chunk(Teller(observers=[Blocking(heard, go=go)]), "1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not telling.done()
    go.set()
    await telling
    assert heard == ["1"]


@pytest.mark.ledger("OBS-28")
async def test_an_endless_observer_costs_its_time_limit() -> None:
    class Endless(Blocking):
        timeout_seconds = 0.01

    heard: list[str] = []
    teller = Teller(observers=[Endless([], go=asyncio.Event()), Blocking(heard)])
    async with asyncio.timeout(2):
        await chunk(teller, "1")
    assert heard == ["1"]
    assert teller.failed == {"Endless": 1}


@pytest.mark.ledger("OBS-29")
async def test_the_background_is_drained_in_order() -> None:
    go, heard = asyncio.Event(), list[str]()
    teller = Teller(observers=[Later(heard, go=go)])
    for number in range(5):
        await chunk(teller, str(number))
    await asyncio.sleep(0)
    assert heard == []

    go.set()
    await teller.drain()
    assert heard == ["0", "1", "2", "3", "4"]

    await chunk(teller, "after a drain")
    await teller.drain()
    assert heard[-1] == "after a drain"


async def test_tell_now_waits_for_none() -> None:
    heard: list[str] = []
    teller = Teller(observers=[Blocking(heard, "b"), Chunks(heard, "s")])
    chunk_now(teller, "1")
    chunk_now(teller, "2")
    assert heard == ["s1", "s2"]
    await teller.drain()
    assert heard == ["s1", "s2", "b1", "b2"]


async def test_a_drain_ends_at_its_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    teller = Teller(observers=[Later([], go=asyncio.Event())])
    for number in range(3):
        await chunk(teller, str(number))
    async with asyncio.timeout(2):
        await teller.drain(0.01)
    assert teller.dropped == {"Later": 2}  # the first was begun
    assert [each.getMessage() for each in caplog.records] == [
        "observer Later is too slow: events are dropped (logged once)"
    ]


async def test_events_beyond_the_most_waiting_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    go, heard = asyncio.Event(), list[str]()
    teller = Teller(observers=[Later(heard, go=go)])
    await chunk(teller, "0")
    await asyncio.sleep(0)  # it is begun, so it waits no more
    for number in range(1, MOST_WAITING + 4):
        await chunk(teller, str(number))
    assert teller.dropped == {"Later": 3}
    assert len(caplog.records) == 1

    go.set()
    await teller.drain()
    assert heard == [str(number) for number in range(MOST_WAITING + 1)]


# ── faults ──


@pytest.mark.ledger("OBS-31", "PYG-33")
@pytest.mark.parametrize("faulty", [Faulty, FaultyLater, FaultyBlocking])
@pytest.mark.parametrize("error", [lambda: ValueError(SECRET), asyncio.CancelledError], ids=["error", "cancelled"])
async def test_a_failing_observer_hurts_none(
    caplog: pytest.LogCaptureFixture, faulty: type[Faulty], error: Callable[[], BaseException]
) -> None:
    heard: list[str] = []
    teller = Teller(observers=[faulty(error), Chunks(heard)])
    for text in ("1", "2", "3"):
        await chunk(teller, text)
    await teller.tell(BatchStart, batch_id="b", prompts_count=1)
    async with asyncio.timeout(2):
        await teller.drain()

    assert heard == ["1", "2", "3"]
    assert teller.failed == {faulty.__name__: 4}
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line.partition(":")[0] for line in lines] == [
        f"observer {faulty.__name__} failed at tool_chunk",
        f"observer {faulty.__name__} failed at batch_start",
    ]
    assert SECRET not in caplog.text


async def test_observer_with_a_failing_wants_is_counted_and_skipped() -> None:
    class Lost(AgentObserver):
        def wants(self, name: str) -> bool:
            raise ValueError(SECRET)

    heard: list[str] = []
    teller = Teller(observers=[Lost(), Chunks(heard)])
    await chunk(teller, "1")
    assert (heard, teller.failed) == (["1"], {"Lost": 1})


@pytest.mark.ledger("OBS-34")
async def test_return_value_of_an_observer_is_ignored() -> None:
    class Vetoes(AgentObserver):
        def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> Any:
            return False

    heard: list[str] = []
    teller = Teller(observers=[Vetoes(), Chunks(heard)])
    await chunk(teller, "1")
    assert heard == ["1"]
    assert not teller.failed


async def test_a_cancelled_run_stays_cancelled() -> None:
    heard: list[str] = []
    teller = Teller(observers=[Blocking([], go=asyncio.Event()), Blocking(heard)])
    telling = asyncio.create_task(chunk(teller, "1"))
    await asyncio.sleep(0)
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    assert heard == []
    assert not teller.failed


def test_a_new_loop_goes_on_without_the_old_ones_events() -> None:
    heard: list[str] = []
    observer = Later(heard)
    teller = Teller(observers=[observer])

    async def of_first_loop() -> None:
        observer.go = asyncio.Event()
        await chunk(teller, "begun")
        await asyncio.sleep(0)
        await chunk(teller, "waiting")

    async def of_second_loop() -> None:
        observer.go = None
        await chunk(teller, "new")
        await teller.drain()

    asyncio.run(of_first_loop())  # warnings are errors: no coroutine is left without an await
    assert teller.dropped == {"Later": 1}
    asyncio.run(of_second_loop())
    assert heard == ["new"]


class Stubborn(AgentObserver):
    blocking = True
    timeout_seconds = 0.01

    def __init__(self) -> None:
        self.calls = 0
        self.released = asyncio.Event()

    async def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> None:
        self.calls += 1
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.released.wait()


async def test_a_run_waits_once_for_an_observer_that_never_ends() -> None:
    observer = Stubborn()
    teller = Teller(observers=[observer])
    try:
        await teller.tell(ToolChunk, "r", call_id="c", tool_name="t", chunk="x")
        assert (observer.calls, teller.failed["Stubborn"]) == (1, 1)
        await teller.tell(ToolChunk, "r", call_id="c", tool_name="t", chunk="y")
        assert observer.calls == 1, "the second is handed over, and not waited for"
    finally:
        observer.released.set()
    await teller.drain()
    assert observer.calls == 2


def test_runs_in_several_threads_each_have_their_queue() -> None:
    handled: list[str] = []

    class Slow(AgentObserver):
        async def on_tool_chunk(self, run_id: str, call_id: str, tool_name: str, chunk: str) -> None:
            await asyncio.sleep(0)
            handled.append(chunk)

    teller = Teller(observers=[Slow()])

    async def run() -> None:
        for number in range(50):
            await teller.tell(ToolChunk, "r", call_id="c", tool_name="t", chunk=str(number))
        await teller.drain()

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(asyncio.run, run()) for _ in range(16)]:
            each.result()
    assert (len(handled), teller.dropped["Slow"]) == (800, 0)


async def test_change_of_an_event_by_an_observer_reaches_no_trace() -> None:
    class Redacts(AgentObserver):
        def on_event(self, event: ObservedEvent) -> None:
            event.result = None  # type: ignore[attr-defined]

    teller = begin_run(Teller(observers=[Redacts()]), "r", clock=lambda: datetime.now(UTC))
    await teller.tell(ToolEnd, call_id="c", tool_name="look", result="found", duration_ms=1.0)
    assert [step.tool_result for step in teller.trace.trace()] == ["found"]


async def test_dropped_event_of_a_callback_closes_its_coroutine() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    callbacks = Callbacks()
    callbacks.add("batch_start", lambda *_: slow())
    teller = Teller(observers=[callbacks])
    for _ in range(MOST_WAITING + 5):
        teller.tell_now(BatchStart, batch_id="b", prompts_count=1)
    await teller.drain(0)
    gc.collect()  # warnings are errors: a coroutine without an await would warn here
    assert teller.dropped["Callbacks"] > 0


def test_reader_without_a_known_event_is_refused() -> None:
    with pytest.raises(TypeError, match="reads an event that does not exist"):
        type("Odd", (EventReader,), {"turn_ends": lambda self, event: None})
    with pytest.raises(TypeError, match="there is an event 'turn_end' already"):
        type("Twin", (BatchStart,), {}, name="turn_end")

    class Counts(EventReader):
        def batch_start(self, event: BatchStart) -> None:
            seen.append(event.batch_id)

    class CountsMore(Counts):
        def flush(self) -> int:
            event = [1]
            return len(event)

    seen: list[str] = []
    CountsMore().read(BatchStart(batch_id="b", prompts_count=1))
    assert seen == ["b"]
    assert CountsMore.kinds == Counts.kinds
