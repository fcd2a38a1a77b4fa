"""A grace that is over: the process ends although something in it hangs, and the next one takes up what it held."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.processes import Process
from tests.fakes.openai import Call, Say
from tests.kill.stage import Stage, on_stage
from tests.store.conftest import server
from tests.store.redis_server import RedisServer

__all__ = ["server"]

pytestmark = pytest.mark.timeout(180)
"""Two processes start one after another, and more is waited for than done."""

BOT = Path(__file__).with_name("hanging.py")
HURRIED = """
import sys
from importlib import import_module
from gateway.cli import main
serve = import_module("gateway.cli.serve")
serve.GRACE_SECONDS, serve.LAST_SECONDS = map(float, sys.argv[1:3])
main(sys.argv[3:], prog_name="askfirst")
"""
GRACE_SECONDS = 1.0
LONG = 600.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        yield stage


@contextlib.asynccontextmanager
async def serving(stage: Stage, *, last_seconds: float = LONG, **env: str) -> AsyncIterator[Process]:
    """``askfirst serve`` with a grace of a second. Only with the `last_seconds` it is ended whatever hangs."""
    serve = ("serve", str(BOT), "--host=127.0.0.1", "--port=0")
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HURRIED, str(GRACE_SECONDS), str(last_seconds), *serve),
        cwd=stage.directory,
        env={**os.environ, **stage.env, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    process = Process(started)
    try:
        await process.url()
        await stage.webhook_to(process)
        yield process
    finally:
        await process.end()


async def begun(stage: Stage, count: int = 1) -> None:
    """Returns when so many tools hang."""
    while runs(stage) < count:
        await asyncio.sleep(0.01)


def runs(stage: Stage) -> int:
    """How often a tool has begun."""
    file = stage.directory / "begun"
    return file.read_text().count("begun") if file.exists() else 0


async def ends(process: Process) -> None:
    """Told to end it does, with the code of a process that was told to, and all it held is told of or handed back."""
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0, process.said
    assert "Traceback" not in process.said


async def test_tools_that_hang_hold_up_no_end_and_are_not_begun_again(stage: Stage) -> None:
    """One that ends when it is told to, one that refuses, and one in each kind of thread."""
    people = {tool: stage.telegram.person(tool) for tool in ("wait", "refuse", "block", "block_elsewhere")}
    async with serving(stage) as process:
        for count, (tool, person) in enumerate(people.items(), 1):
            stage.model.script([Call(tool, {})])
            await stage.telegram.person_says(person, person, "do it")
            await begun(stage, count)
        await ends(process)
    assert stage.telegram.sent == []
    stage.model.script([Say("Nobody knows.")] * len(people))
    async with serving(stage) as process:
        await stage.until(lambda: all(stage.texts(person) == ["Nobody knows."] for person in people.values()))
        await ends(process)
    asked = stage.model.requests[len(people) :]
    assert [("unknown" in request["messages"][-1]["content"]) for request in asked] == [True] * len(people)
    assert runs(stage) == len(people)


@pytest.mark.parametrize("shared", [False, True], ids=["sqlite", "redis"])
async def test_silent_model_delays_no_shutdown_and_is_asked_again(
    tmp_path: Path, server: RedisServer, shared: bool
) -> None:
    hold = asyncio.Event()
    async with on_stage(tmp_path, server.url if shared else f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        ana = stage.telegram.person("Ana")
        async with serving(stage) as process:
            stage.model.script([Say("never seen", hold=hold), Say("Hello!")])
            await stage.telegram.person_says(ana, ana, "hi")
            await stage.model.wait_for(1)
            await ends(process)
        async with serving(stage) as process:
            await stage.until(lambda: stage.texts(ana) == ["Hello!"])
            await ends(process)
        hold.set()


async def test_hanging_action_is_told_as_unknown_and_not_repeated(stage: Stage) -> None:
    ana = stage.telegram.person("Ana")
    async with serving(stage) as process:
        stage.model.script([Call("pay_invoice", {"invoice_id": "INV-1"})])
        await stage.telegram.person_says(ana, ana, "pay INV-1")
        prompt = await stage.until(lambda: stage.telegram.last(ana, button="Confirm"))
        assert prompt is not None
        await stage.telegram.press(prompt, "Confirm", ana)
        await begun(stage)
        await ends(process)
    async with serving(stage) as process:
        await stage.until(lambda: not prompt.buttons)
        await stage.until(lambda: len(stage.texts(ana)) > 1)
        press = await stage.telegram.press(prompt, "Confirm", ana)
        await stage.until(lambda: press.answered)
        assert "may or may not" in press.text
        await ends(process)
    _, told = stage.texts(ana)
    assert "may or may not have happened" in told
    assert runs(stage) == 1


async def test_bot_that_hangs_at_its_end_is_left_behind_soon(stage: Stage) -> None:
    async with serving(stage, last_seconds=1.0, HANGS_AT_ITS_END="1") as process:
        await ends(process)
    assert "something does not end" in process.said
