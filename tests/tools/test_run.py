"""Running a tool: on the loop or in a thread, whole or in pieces, in time, one at a time."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import askfirst
import gateway
from gateway import Agent, ChannelAgent
from gateway.tools import (
    Injected,
    NothingDone,
    OutcomeUnknown,
    Tool,
    ToolBusy,
    ToolContext,
    ToolError,
    ToolExecutionError,
    ToolTimeout,
    ToolValidationError,
    tool,
)
from gateway.tools.function import THREADS, Function
from gateway.tools.locks import outlasted
from tests.engine.bots import Model
from tests.engine.rig import Rig, rig
from tests.threads import no_more_threads

CTX = ToolContext(person="telegram:1:2", language="pt", idempotency_key="k", deps={"db": 1})
speaker: ContextVar[str] = ContextVar("speaker")


@pytest.mark.ledger("TOOL-33", "TOOL-34", "TEST-04")
async def test_a_function_gets_its_values_in_its_own_types() -> None:
    @tool(description="Add.")
    def add(a: int, b: int) -> int:
        return a + b

    @tool(description="Book.")
    async def book(day: date, note: str | None) -> tuple[Any, Any]:
        return day, note

    assert await add.run({"a": "2", "b": 3}, CTX) == 5
    assert await book.run({"day": "2026-11-21"}, CTX) == (date(2026, 11, 21), None)
    with pytest.raises(ToolValidationError):
        await add.run({"a": 2}, CTX)
    assert add(2, 3) == 5


@pytest.mark.ledger("TOOL-38", "PYG-19")
async def test_a_context_is_filled_in_wherever_it_is_asked_for() -> None:
    @tool(description="Who.")
    async def who(ctx: ToolContext, thing: str, also: ToolContext | None = None) -> tuple[Any, ...]:
        return ctx, thing, also

    assert await who.run({"thing": "x"}, CTX) == (CTX, "x", CTX)


async def test_a_context_says_when_and_whether_to_go_on() -> None:
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    ctx = ToolContext(person="a:b:c", now=lambda: moment)
    assert (ctx.clock(), ctx.cancelled) == (moment, False)
    ctx.stopping.set()
    assert ctx.cancelled
    with pytest.raises(ToolError, match="outside a run"):
        ctx.emit_artifact(content=b"x")


@pytest.mark.ledger("RUN-07", "RES-14", "PYG-01")
async def test_sync_function_runs_in_a_thread_with_callers_context() -> None:
    @tool(description="Where.")
    def where() -> tuple[str, bool]:
        return speaker.get(), threading.current_thread() is threading.main_thread()

    speaker.set("ana")
    assert await where.run({}, CTX) == ("ana", False)


@pytest.mark.ledger("RUN-06")
def test_async_function_is_recognised_at_definition() -> None:
    class Callable:
        async def __call__(self, a: int) -> int:
            return a

    async def plain(a: int) -> int:
        return a

    async def pieces(a: int) -> AsyncIterator[int]:
        yield a

    options = {"name": "t", "description": "T."}
    assert all(tool(**options)(f).is_async for f in (plain, pieces, Callable(), functools.partial(plain)))  # type: ignore[call-overload]
    assert not tool(**options)(lambda: None).is_async  # type: ignore[call-overload]


@pytest.mark.ledger("TOOL-36", "TOOL-37", "TOOL-38")
async def test_injected_values_reach_the_function() -> None:
    @tool(description="Check.", injected_kwargs={"user_id": 123}, config_injector=lambda: {"role": "admin"})
    def check_permissions(resource: str, user_id: int, role: Injected[str]) -> tuple[Any, ...]:
        return resource, user_id, role

    assert await check_permissions.run({"resource": "r"}, CTX) == ("r", 123, "admin")
    for hidden in ("user_id", "role"):
        with pytest.raises(ToolValidationError, match=f"'{hidden}' is not a valid parameter"):
            await check_permissions.run({"resource": "r", hidden: 999}, CTX)


@pytest.mark.ledger("TOOL-39")
async def test_a_missing_parameter_may_want_to_be_annotated_injected() -> None:
    @tool(description="Check.", config_injector=lambda: {"role": "admin"})
    def check_permissions(resource: str, role: str) -> str:
        return role

    assert "role" in check_permissions.parameters["properties"]
    with pytest.raises(ToolValidationError, match=r"role: Missing required parameter.*annotated Injected\[...\]"):
        await check_permissions.run({"resource": "r"}, CTX)
    assert askfirst.Injected is gateway.Injected is Injected


async def test_argument_of_the_model_is_not_replaced_by_an_injector() -> None:
    @tool(description="Pay.", config_injector=lambda: {"cents": 999})
    def pay(cents: int) -> int:
        return cents

    with pytest.raises(ToolError, match=r"Injected\[...\]"):
        await pay.run({"cents": 1}, CTX)


@pytest.mark.ledger("TOOL-43", "PYG-17", "PYG-02")
async def test_a_streaming_tool_is_heard_piece_by_piece() -> None:
    @tool(description="Count.", streaming=True)
    def lines() -> Iterator[str | None]:
        yield "[Line 1] a\n"
        yield None
        yield "[Line 2] b\n"

    @tool(description="Count.", streaming=True)
    async def numbers() -> AsyncIterator[int]:
        for n in (1, 2):
            yield n

    heard: list[str] = []
    assert await lines.run({}, CTX, on_chunk=heard.append) == "[Line 1] a\nNone[Line 2] b\n"
    assert heard == ["[Line 1] a\n", "None", "[Line 2] b\n"]
    assert await numbers.run({}, CTX, on_chunk=heard.append) == "12"


@pytest.mark.ledger("TOOL-34")
async def test_a_generator_that_does_not_stream_is_drained_in_silence() -> None:
    @tool(description="Count.")
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    heard: list[str] = []
    assert await numbers.run({}, CTX, on_chunk=heard.append) == "12"
    assert heard == []


def _sync_forever(piece: str, closed: list[bool]) -> Iterator[str]:
    try:
        while True:
            yield piece
    finally:
        closed.append(True)


async def _async_forever(piece: str, closed: list[bool]) -> AsyncIterator[str]:
    try:
        while True:
            yield piece
    finally:
        closed.append(True)


@pytest.mark.parametrize(
    ("forever", "piece"), [(_sync_forever, "x" * 10_000), (_async_forever, "x" * 10_000), (_async_forever, "")]
)
async def test_an_endless_generator_is_stopped(forever: Callable[..., Any], piece: str) -> None:
    closed: list[bool] = []
    endless = tool(name="endless", description="Never end.")(functools.partial(forever, piece, closed))
    with pytest.raises(OutcomeUnknown, match="yielded more than a result can hold"):
        await endless.run({}, CTX)
    assert closed == [True]


@pytest.mark.ledger("TOOL-35", "ERR-02")
async def test_error_of_a_function_is_chained() -> None:
    cause = ValueError("Cannot divide by zero")

    @tool(description="Divide.")
    def divide() -> None:
        raise cause

    with pytest.raises(ToolExecutionError, match=r"'divide': ValueError \(test_run\.py:\d+ divide\)$") as caught:
        await divide.run({}, CTX)
    assert caught.value.__cause__ is cause
    assert caught.value.error is cause


@pytest.mark.parametrize("error", [OutcomeUnknown("hm"), NothingDone("no")])
async def test_outcome_reported_by_a_tool_passes_unchanged(error: ToolError) -> None:
    @tool(description="Pay.")
    async def pay() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await pay.run({}, CTX)
    assert caught.value is error


@pytest.mark.ledger("RTY-10", "RTY-12", "ERR-07")
async def test_late_function_frees_its_caller_with_unknown_outcome() -> None:
    let_go = threading.Event()

    @tool(description="Hang.")
    def hang() -> None:
        let_go.wait()

    @tool(description="Hang.", timeout_seconds=0.01)
    async def hang_here() -> None:
        await asyncio.Event().wait()

    try:
        with pytest.raises(ToolTimeout, match=r"'hang' timed out after 0\.01 seconds") as caught:
            await hang.run({}, CTX, timeout_seconds=0.01)
        assert isinstance(caught.value, OutcomeUnknown)
    finally:
        let_go.set()
    with pytest.raises(ToolTimeout, match="'hang_here'"):
        await hang_here.run({}, CTX, timeout_seconds=60)


class Hanging:
    """A sync tool with calls hanging until the release, in every thread of the tool."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Semaphore(0), threading.Event()
        self.ran: list[str] = []

        @tool(description="Look.")
        def look(what: str) -> str:
            self.ran.append(what)
            self.begun.release()
            self.let_go.wait()
            return what

        @tool(description="Show.")
        def show(what: str) -> Iterator[str]:
            yield look(what)
            self.let_go.wait()
            yield "and more"

        self.look, self.show = look, show

    async def fill(self, filled: Tool) -> list[asyncio.Task[Any]]:
        """Start a call for each thread."""
        hang = [asyncio.create_task(filled.run({"what": "hung"}, CTX)) for _ in range(THREADS)]
        for _ in hang:
            assert await asyncio.to_thread(self.begun.acquire, timeout=15)
        return hang


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.let_go.set()


async def test_functions_that_hang_hold_up_no_other_tool(hanging: Hanging) -> None:
    @tool(description="Where.")
    def where() -> str:
        return threading.current_thread().name

    hung = [*await hanging.fill(hanging.look), *await hanging.fill(hanging.show)]
    assert (await where.run({}, CTX, timeout_seconds=15)).startswith("tool-where")
    hanging.let_go.set()
    assert await asyncio.gather(*hung) == ["hung"] * THREADS + ["hungand more"] * THREADS


@pytest.mark.parametrize("name", ["look", "show"])
async def test_call_that_no_thread_took_in_time_never_runs(name: str, hanging: Hanging) -> None:
    filled: Tool = getattr(hanging, name)
    hung = await hanging.fill(filled)
    with pytest.raises(NothingDone, match=f"'{name}' did not run: earlier calls"):
        await filled.run({"what": "late"}, CTX, timeout_seconds=0.01)
    hanging.let_go.set()
    await asyncio.gather(*hung)
    await filled.run({"what": "next"}, CTX)
    assert hanging.ran == ["hung"] * THREADS + ["next"]


async def test_caller_cancelled_before_a_thread_is_free_is_cancelled(hanging: Hanging) -> None:
    await hanging.fill(hanging.look)
    waiting = asyncio.create_task(hanging.look.run({"what": "late"}, CTX, timeout_seconds=60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_generator_that_gave_a_piece_counts_as_begun() -> None:
    heard, let_go = asyncio.Event(), threading.Event()

    def pay() -> Iterator[str]:
        yield from ("a half", "the rest")

    function = Function(pay, "pay")

    def fill(piece: str) -> None:
        for _ in range(THREADS):
            function.threads.submit(let_go.wait)
        heard.set()

    paying = asyncio.create_task(function.call({}, CTX, on_chunk=fill))
    try:
        await heard.wait()
        paying.cancel()
        with pytest.raises(asyncio.CancelledError):  # not NotBegun
            await paying
    finally:
        let_go.set()


async def test_a_late_call_ends_as_its_function_does(hanging: Hanging) -> None:
    late: list[Future[Any]] = []
    with pytest.raises(ToolTimeout):
        await hanging.look.run({"what": "x"}, CTX, timeout_seconds=0.01, on_late=late.append)
    cancelled = asyncio.create_task(hanging.look.run({"what": "y"}, CTX, on_late=late.append))
    assert await asyncio.to_thread(hanging.begun.acquire, timeout=15)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    hanging.let_go.set()
    assert [await asyncio.wrap_future(call) for call in late] == ["x", "y"]


async def test_generator_left_between_pieces_has_an_unknown_outcome(hanging: Hanging) -> None:
    late: list[Future[Any]] = []
    with pytest.raises(ToolTimeout):
        await hanging.show.run({"what": "x"}, CTX, timeout_seconds=0.01, on_late=late.append)
    hanging.let_go.set()
    with pytest.raises(OutcomeUnknown):
        await asyncio.wrap_future(late[0])


async def test_a_lock_is_held_for_a_call_that_outlasts_its_caller(hanging: Hanging) -> None:
    made = Tool(hanging.look, name="look", description="Look.", lock="look")
    waiting = asyncio.create_task(made.run({"what": "x"}, CTX, timeout_seconds=0.02))
    second = asyncio.create_task(made.run({"what": "y"}, CTX, timeout_seconds=0.04))
    for each in (waiting, second):
        with pytest.raises(ToolError) as caught:
            await each
        assert isinstance(caught.value, ToolTimeout if each is waiting else ToolBusy)
    with pytest.raises(ToolBusy, match="holds 'look'"):
        await made.run({"what": "z"}, CTX)
    hanging.let_go.set()
    while outlasted("look"):
        await asyncio.sleep(0.001)
    assert await made.run({"what": "z"}, CTX) == "z"
    assert hanging.ran == ["x", "z"]


async def test_a_tool_that_calls_another_has_begun(hanging: Hanging) -> None:
    @tool(description="Pay, then look.", timeout_seconds=0.01)
    async def pay() -> None:
        await hanging.look.run({"what": "late"}, CTX)

    await hanging.fill(hanging.look)
    with pytest.raises(ToolTimeout, match="'pay'"):
        await pay.run({}, CTX)


async def test_timeout_raised_by_the_function_is_an_ordinary_error() -> None:
    @tool(description="Fetch.", timeout_seconds=60)
    async def fetch() -> None:
        raise TimeoutError("the server is slow")

    with pytest.raises(ToolExecutionError, match="TimeoutError"):
        await fetch.run({}, CTX)


@pytest.mark.ledger("PYG-10", "PYG-11")
async def test_lock_lets_one_call_per_value_run_across_tools() -> None:
    inside: list[str] = []
    most: dict[str, int] = {}

    async def work(invoice_id: str) -> None:
        """Work."""
        inside.append(invoice_id)
        most[invoice_id] = max(most.get(invoice_id, 0), inside.count(invoice_id))
        most["any"] = max(most.get("any", 0), len(inside))
        await asyncio.sleep(0)
        inside.remove(invoice_id)

    pay = tool(name="pay", lock="invoice:{invoice_id}")(work)
    delete = tool(name="delete", lock="invoice:{invoice_id}")(work)
    calls = [made.run({"invoice_id": n}, CTX) for made in (pay, delete) for n in ("1", "2")]
    await asyncio.gather(*calls)
    assert most == {"1": 1, "2": 1, "any": 2}


@pytest.mark.ledger("PYG-11", "ERR-09")
async def test_wait_for_a_lock_counts_and_ends_without_an_effect() -> None:
    entered, let_go = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @tool(description="Work.", lock="all")
    async def work(name: str) -> None:
        ran.append(name)
        entered.set()
        await let_go.wait()

    first = asyncio.ensure_future(work.run({"name": "first"}, CTX))
    await entered.wait()
    with pytest.raises(NothingDone, match="another call holds 'all'"):
        await work.run({"name": "second"}, CTX, timeout_seconds=0.01)
    let_go.set()
    await first
    assert ran == ["first"]
    await work.run({"name": "third"}, CTX)
    assert ran == ["first", "third"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
async def test_function_that_raises_an_exit_only_fails(error: BaseException) -> None:
    @tool(description="On the loop.")
    async def on_the_loop() -> None:
        raise error

    @tool(description="In a thread.")
    def in_a_thread() -> None:
        raise error

    for each in (on_the_loop, in_a_thread):
        with pytest.raises(ToolExecutionError):
            await each.run({}, CTX)


async def test_a_call_that_is_closed_from_outside_ends_at_once() -> None:
    @tool(description="Wait.")
    async def wait() -> None:
        await asyncio.Event().wait()

    running = wait.run({}, CTX)
    running.send(None)
    await asyncio.to_thread(running.close)


async def test_cancelled_caller_cancels_the_function() -> None:
    begun = asyncio.Event()

    @tool(description="Wait.")
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(wait.run({}, CTX))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_stop_iteration_in_a_thread_fails_at_once() -> None:
    @tool(description="Find.", timeout_seconds=5)
    def find() -> str:
        return next(word for word in ("a", "b") if word == "c")

    with pytest.raises(ToolExecutionError, match="StopIteration"):
        await find.run({}, CTX)


@pytest.mark.ledger("PYG-13")
async def test_one_deadline_covers_all_pieces_of_a_stream() -> None:
    @tool(streaming=True, timeout_seconds=0.05)
    async def count() -> AsyncIterator[str]:
        """Count."""
        while True:
            await asyncio.sleep(0.01)  # each piece is in time
            yield "one more"

    with pytest.raises(ToolTimeout):
        await count.run({}, CTX)


@pytest.mark.ledger("PYG-20")
async def test_an_injected_function_is_passed_and_not_called() -> None:
    def clock() -> int:
        raise AssertionError("it is the tool that calls it")

    @tool(injected_kwargs={"now": clock})
    async def stamp(now: Injected[Any]) -> str:
        """Stamp."""
        return "passed" if now is clock else "called"

    assert await stamp.run({}, CTX) == "passed"


# ── No more threads can be started: a sync tool's call fails, the model is told, and the function never runs later ──


class Invoices:
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.threads = ThreadPoolExecutor(2)
        """The tool's threads, none started yet."""

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
    """The pool has one thread, busy with earlier work while the start of a second fails."""
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
