"""The life of ``askfirst serve`` as a process: how it ends, and what it outlives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.cli.processes import Process, running
from tests.cli.test_dev import DEV
from tests.cli.test_serve import SERVE, register, settings, until_not_ready
from tests.fakes.openai import FakeOpenAI, Say
from tests.fakes.telegram import FakeTelegram
from tests.web.raw import Client

LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF = b"POST /webhooks/telegram HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf"
NOBODY = {"ASKFIRST_ALLOW": "*"}


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


async def port_of(server: Process) -> int:
    return int((await server.url()).rpartition(":")[2])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_in_peace(here: Path, number: signal.Signals) -> None:
    async with running(*SERVE, cwd=here, env=NOBODY) as server:
        await server.url()
        assert os.path.lexists(here / ".askfirst" / "askfirst.db.sock")
        server.signal(number)
        assert await server.ended() == 0
    assert not os.path.lexists(here / ".askfirst" / "askfirst.db.sock")
    assert "Traceback" not in server.said


@pytest.fixture
def nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("nohup")
async def test_under_nohup_it_stays_when_the_terminal_goes(here: Path) -> None:
    async with running(*SERVE, cwd=here, env=NOBODY) as server, aiohttp.ClientSession() as http:
        url = await server.url()
        server.signal(signal.SIGHUP)
        async with http.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0


async def test_a_signal_while_it_starts_ends_it_in_peace(here: Path, telegram: FakeTelegram) -> None:
    """The platform has not answered yet."""
    asked = telegram.hold("getMe")
    async with running(*SERVE, cwd=here, env=settings(telegram)) as server:
        await asked.reached()
        server.signal(signal.SIGTERM)
        asked.release()
        assert await server.ended() == 0
    assert "Traceback" not in server.said


async def test_a_second_signal_while_it_starts_ends_it_at_once(here: Path, telegram: FakeTelegram) -> None:
    asked = telegram.hold("getMe")
    async with running(*SERVE, cwd=here, env=settings(telegram)) as server:
        await asked.reached()
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert await server.ended() in (128 + signal.SIGINT, 128 + signal.SIGTERM)


async def test_clients_that_hold_on_do_not_hold_it_up(here: Path) -> None:
    async with running(*SERVE, cwd=here, env=NOBODY) as server, contextlib.AsyncExitStack() as stack:
        port = await port_of(server)
        clients = [await stack.enter_async_context(Client(port)) for _ in range(3)]
        silent, kept, half = clients
        await kept.send(LIVE)
        assert await kept.status() == 200
        await half.send(HALF)
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
        for client in (silent, kept):
            assert await client.rest() == b""
    assert "Traceback" not in server.said


async def test_message_during_shutdown_is_answered_by_the_next_process(here: Path, telegram: FakeTelegram) -> None:
    held = asyncio.Event()
    async with FakeOpenAI() as model:
        model.script([Say("First.", hold=held), Say("Second.")])
        env = settings(
            telegram, ASKFIRST_PROVIDER="openai:gpt-5-mini", OPENAI_BASE_URL=model.url, OPENAI_API_KEY=model.key
        )
        ana, ben = telegram.person("Ana"), telegram.person("Ben")
        async with running(*SERVE, cwd=here, env=env) as server, aiohttp.ClientSession() as http:
            await register(telegram, here, server)
            await telegram.person_says(ana, ana, "one")
            await model.wait_for(1)
            server.signal(signal.SIGTERM)
            await until_not_ready(http, await server.url())
            await telegram.person_says(ben, ben, "two")
            held.set()
            assert await server.ended() == 0
        assert len(model.requests) == 1
        async with running(*SERVE, cwd=here, env=env) as server:
            await telegram.wait_for(lambda: telegram.last(ben))
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
        assert [message.text for message in telegram.sent] == ["First.", "Second."]


@pytest.fixture(params=["full", "closed"])
def broken(request: pytest.FixtureRequest) -> Iterator[int]:
    """A file that nothing can be written to."""
    if request.param == "full":
        file = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, file = os.pipe()
        os.close(reader)
    yield file
    os.close(file)


async def test_server_goes_on_when_its_logs_cannot_be_written(here: Path, telegram: FakeTelegram, broken: int) -> None:
    async with running(*SERVE, cwd=here, env=settings(telegram), stderr=broken) as server:
        await register(telegram, here, server)
        async with Client(await port_of(server)) as forger:
            await forger.send(HALF.replace(b"100", b"4"))
            assert await forger.status() == 401
        ana = telegram.person("Ana")
        await telegram.person_says(ana, ana, "list the invoices")
        await telegram.wait_for(lambda: telegram.last(ana))
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0


@pytest.mark.parametrize("command", [SERVE, DEV], ids=["uvloop", "asyncio"])
async def test_server_out_of_file_descriptors_goes_on_once_some_free(here: Path, command: tuple[str, ...]) -> None:
    began = time.monotonic()
    async with running(*command, cwd=here, env=NOBODY) as server:
        port = await port_of(server)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        async with Client(port) as kept:
            await kept.send(LIVE)
            assert await kept.status() == 200
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 10, hard))
            async with contextlib.AsyncExitStack() as stack:
                many = [await stack.enter_async_context(Client(port)) for _ in range(200)]
                for client in many:
                    with contextlib.suppress(ConnectionError):
                        await client.send(LIVE)
                assert await many[0].status() == 200
                await kept.send(LIVE)
                assert await kept.status() == 200
            status = 0
            while status != 200:
                async with Client(port) as client:
                    with contextlib.suppress(ConnectionError):
                        await client.send(LIVE)
                    status = await client.status()
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    lines = server.said.count("\n")
    assert lines < 20 + time.monotonic() - began, server.said
