"""The adapter of hooks, and callbacks by the name of an event."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from gateway.config.options import WrongOption
from gateway.observe.callbacks import HOOKS, Callbacks, HooksObserver, event_names
from gateway.observe.events import (
    EVENTS,
    IterationEnd,
    IterationStart,
    LlmEnd,
    LlmStart,
    ObservedEvent,
    RunEnd,
    RunError,
    RunStart,
    ToolChunk,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
    TurnEnd,
)
from gateway.observe.teller import MOST_WAITING, Teller
from tests.observe.samples import RESULT, sample

CALLS: dict[str, tuple[type[ObservedEvent], Callable[[Any], tuple[Any, ...]]]] = {
    "on_agent_start": (RunStart, lambda said: (said.messages,)),
    "on_agent_end": (RunEnd, lambda _: (RESULT, RESULT.usage)),
    "on_iteration_start": (IterationStart, lambda said: (said.iteration, said.messages)),
    "on_iteration_end": (IterationEnd, lambda said: (said.iteration, said.response)),
    "on_tool_start": (ToolStart, lambda said: (said.tool_name, said.tool_args)),
    "on_tool_chunk": (ToolChunk, lambda said: (said.tool_name, said.chunk)),
    "on_tool_end": (ToolEnd, lambda said: (said.tool_name, said.result, said.duration_ms)),
    "on_tool_error": (ToolErrorRaised, lambda said: (said.tool_name, said.error, said.tool_args)),
    "on_llm_start": (LlmStart, lambda said: (said.messages, said.model)),
    "on_llm_end": (LlmEnd, lambda said: (said.response, said.usage)),
    "on_error": (RunError, lambda said: (said.error, said.context)),
}
"""Each hook with the event and the received arguments."""


async def tell(teller: Teller, event: ObservedEvent) -> None:
    await teller.tell(type(event), **event.values())


def hooks_observer(**hooks: Callable[..., Any]) -> HooksObserver:
    with pytest.warns(DeprecationWarning, match="observers="):
        return HooksObserver(hooks)


async def tell_turn_end(teller: Teller, run_id: str) -> None:
    await teller.tell(TurnEnd, run_id, conversation="c", stop_reason="answered", duration_ms=1.0)


# ── hooks ──


@pytest.mark.ledger("OBS-32")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_hook_gets_its_arguments(name: str, is_async: bool) -> None:
    got: list[tuple[Any, ...]] = []

    async def later(*args: Any) -> None:
        got.append(args)

    teller = Teller(observers=[hooks_observer(**{name: later if is_async else lambda *args: got.append(args)})])
    kind, expected = CALLS[name]
    event = sample(kind)
    await tell(teller, event)
    await teller.drain()
    assert got == [expected(event)]
    assert not teller.failed


@pytest.mark.ledger("OBS-32")
def test_there_are_eleven_hooks() -> None:
    assert set(HOOKS) == set(CALLS)
    assert len(HOOKS) == 11


@pytest.mark.ledger("OBS-33", "OBS-34")
async def test_missing_hooks_are_skipped_and_errors_kept_away() -> None:
    def fails(*args: Any) -> None:
        raise ValueError("no")

    observer = hooks_observer(on_tool_start=fails, on_tool_end=lambda *_: "stop")
    teller = Teller(observers=[observer])
    for kind in EVENTS.values():
        await tell(teller, sample(kind))
    assert teller.failed == {"HooksObserver": 1}
    assert [name for name in EVENTS if observer.wants(name)] == ["tool_start", "tool_end"]


@pytest.mark.parametrize(("name", "says"), [("on_tool_strat", "did you mean on_tool_start?"), ("x", "is no hook;")])
def test_unknown_hook_is_named_with_the_known_ones(name: str, says: str) -> None:
    with pytest.raises(WrongOption) as caught:
        HooksObserver({name: print, "on_tool_end": print})
    assert list(caught.value.issues) == [f"hooks[{name!r}]"]
    assert says in str(caught.value)
    assert all(known in str(caught.value) for known in CALLS)


def test_the_warning_names_the_line_of_the_caller() -> None:
    with pytest.warns(DeprecationWarning) as warned:
        HooksObserver({})
    assert warned[0].filename == __file__


# ── callbacks ──


async def test_callbacks_are_called_in_order() -> None:
    heard: list[Any] = []
    callbacks = Callbacks()
    callbacks.add("turn_end", lambda *args: heard.append(args))
    callbacks.add("turn_end", lambda run_id, *_: heard.append(run_id))
    callbacks.add("turn_start", lambda *_: heard.append("not this"))
    await tell_turn_end(Teller(observers=[callbacks]), "r")
    assert heard == [("r", "c", "answered", 1.0), "r"]


async def test_async_callbacks_follow_the_sync_ones_in_order() -> None:
    heard: list[str] = []

    class Notifier:
        async def __call__(self, *args: Any) -> None:
            heard.append("object")

    async def first(*args: Any) -> None:
        await asyncio.sleep(0)
        heard.append("first")

    callbacks = Callbacks()
    for function in (first, lambda *args: first(*args), Notifier(), lambda *_: heard.append("sync")):
        callbacks.add("turn_end", function)
    teller = Teller(observers=[callbacks])
    await tell_turn_end(teller, "r")
    assert heard == ["sync"]
    await teller.drain()
    assert heard == ["sync", "first", "first", "object"]
    assert not teller.failed


async def test_a_callback_that_is_added_later_is_called() -> None:
    heard: list[str] = []
    callbacks = Callbacks()
    teller = Teller(observers=[callbacks])
    callbacks.tell_changes_to(teller)
    await tell_turn_end(teller, "before")
    assert not callbacks.wants("turn_end")

    callbacks.add("turn_end", lambda run_id, *_: heard.append(run_id))
    assert callbacks.wants("turn_end")
    assert not callbacks.wants("turn_start")
    await tell_turn_end(teller, "after")
    assert heard == ["after"]


async def test_callbacks_keep_no_teller_alive() -> None:
    callbacks, ended = Callbacks(), list[str]()

    class Noted(Teller):
        def __del__(self) -> None:
            ended.append("teller")

    callbacks.tell_changes_to(Noted())
    gc.collect()
    assert ended == ["teller"]
    callbacks.add("turn_end", print)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_failing_callback_does_not_keep_the_others(is_async: bool) -> None:
    heard: list[str] = []

    async def fails_later(*args: Any) -> None:
        raise ValueError("no")

    def fails(*args: Any) -> None:
        raise ValueError("no")

    async def hears_later(*args: Any) -> None:
        heard.append("heard")

    callbacks = Callbacks()
    for function in (fails_later, hears_later) if is_async else (fails, fails, lambda *_: heard.append("heard")):
        callbacks.add("turn_end", function)
    teller = Teller(observers=[callbacks])
    await tell_turn_end(teller, "r")
    await teller.drain()
    assert heard == ["heard"]
    assert teller.failed == {"Callbacks": 1}


@pytest.mark.parametrize("is_object", [False, True], ids=["function", "object"])
async def test_dropped_callbacks_leave_no_coroutine(is_object: bool) -> None:
    go = asyncio.Event()

    async def waits(*args: Any) -> None:
        await go.wait()

    class Waits:
        async def __call__(self, *args: Any) -> None:
            await go.wait()

    callbacks = Callbacks()
    callbacks.add("turn_end", Waits() if is_object else waits)
    teller = Teller(observers=[callbacks])
    for number in range(MOST_WAITING + 2):
        await tell_turn_end(teller, str(number))
    gc.collect()  # warnings are errors: a coroutine without an await would warn here
    assert teller.dropped == {"Callbacks": 2}
    go.set()
    await teller.drain()


@pytest.mark.parametrize(("name", "says"), [("turn_ende", "did you mean turn_end"), ("event", "'event' is no event")])
def test_an_unknown_event_is_named_with_near_ones(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Callbacks().add(name, print)


def test_every_event_with_a_method_can_have_a_callback() -> None:
    assert event_names() <= set(EVENTS)
    assert "turn_end" in event_names()
