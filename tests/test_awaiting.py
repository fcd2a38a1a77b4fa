"""A forgotten `await` is named; with one, a call is a coroutine like any other."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from gateway import Agent, ChannelAgent
from gateway.testing import ScriptedProvider

HINT = "ask_channel is async and has not run: write `await bot.ask_channel(...)`"


def bot() -> ChannelAgent:
    return ChannelAgent(Agent(provider=ScriptedProvider(["Hello."] * 2)))


def content(asked: Any) -> object:
    return asked.content


LOOKS: dict[str, Callable[[Any], object]] = {
    "content": content,
    "pending": lambda asked: asked.pending,
    "repr": lambda asked: pytest.fail(repr(asked)),
    "text": lambda asked: pytest.fail(f"{asked}"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_result_that_was_not_awaited_says_use_await(look: str) -> None:
    asked = bot().ask_channel("ana", "hello")
    with pytest.raises((AttributeError, pytest.fail.Exception)) as caught:
        LOOKS[look](asked)
    assert HINT in str(caught.value)
    asked.close()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("ask_channel", ("ana", "hello")), ("decide", ("app:-:ana", "confirm")), ("notify", ("telegram:1:2", "Hello."))],
)
def test_a_call_that_is_dropped_warns_once_at_its_line(name: str, arguments: tuple[str, ...]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(bot(), name)(*arguments)
        gc.collect()
    ((warning),) = caught
    assert str(warning.message) == HINT.replace("ask_channel", name)
    assert (warning.category, warning.filename) == (RuntimeWarning, __file__)


async def in_a_task(asked: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.create_task(asked)


async def in_a_group(asked: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asked)
    return task.result()


async def gathered(asked: Awaitable[Any]) -> Any:
    return (await asyncio.gather(asked))[0]


async def within_a_time(asked: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(asked, 20)


async def shielded(asked: Awaitable[Any]) -> Any:
    return await asyncio.shield(asked)


async def from_a_thread(asked: Coroutine[Any, Any, Any]) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, loop))


async def awaited(asked: Awaitable[Any]) -> Any:
    return await asked


WAYS = [awaited, in_a_task, in_a_group, gathered, within_a_time, shielded, from_a_thread]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_call_is_awaited_in_every_way(way: Callable[[Any], Awaitable[Any]]) -> None:
    async with bot() as started:
        assert (await way(started.ask_channel("ana", "hello"))).content == "Hello."
        with pytest.raises((ValueError, ExceptionGroup), match=r"user_id|TaskGroup"):
            await way(started.ask_channel("", "hello"))
    gc.collect()


def test_asyncio_run_takes_a_call() -> None:
    with pytest.raises(ValueError, match="user_id"):
        asyncio.run(bot().ask_channel("", "hello"))


async def test_a_cancelled_call_ends_as_any_coroutine() -> None:
    async with bot() as started:
        task = asyncio.create_task(started.ask_channel("ana", "hello"), name="asks")
        assert "ask_channel" in repr(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_it_counts_as_a_coroutine_function() -> None:
    for method in (ChannelAgent.ask_channel, bot().ask_channel, functools.partial(bot().ask_channel, "ana")):
        assert inspect.iscoroutinefunction(method) and asyncio.iscoroutinefunction(method)
    assert list(inspect.signature(bot().ask_channel).parameters)[:2] == ["user_id", "message"]
    assert bot().ask_channel.__name__ == "ask_channel" and "Send a message" in str(bot().ask_channel.__doc__)
    asked = bot().ask_channel("ana", "hello")
    assert inspect.isawaitable(asked) and asyncio.iscoroutine(asked)
    asked.close()


async def test_a_subclass_may_go_on_with_the_call() -> None:
    class Louder(ChannelAgent):
        async def ask_channel(self, user_id: str, message: str, **more: Any) -> Any:
            return await super().ask_channel(user_id, message.upper(), **more)

    async with Louder(Agent(provider=ScriptedProvider(["Hello."]))) as started:
        assert (await started.ask_channel("ana", "hello")).content == "Hello."
