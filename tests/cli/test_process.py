"""The life of ``askfirst serve`` as a process: the ways to end, and the faults survived."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest

from gateway import Agent, Gateway, Settings
from gateway.cli.process import run
from gateway.cli.serve import goes_with_container
from tests.cli.processes import Process, forked, running
from tests.cli.test_dev import DEV
from tests.cli.test_serve import SERVE, register, settings, until_not_ready
from tests.e2e.house import SIGNING
from tests.fakes.openai import Call, FakeOpenAI, Say
from tests.fakes.telegram import FakeTelegram
from tests.kill.stage import Stage, on_stage
from tests.store.redis_server import RedisServer
from tests.web.raw import Client

LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF = b"POST /webhooks/telegram HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf"
NOBODY = {"ASKFIRST_ALLOW": "*"}


async def port_of(server: Process) -> int:
    return int((await server.url()).rpartition(":")[2])


@pytest.fixture
def hangup(request: pytest.FixtureRequest) -> Iterator[None]:
    """The handler of SIGHUP. The server inherits the handler, and the tests themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("hangup", [signal.SIG_DFL], indirect=True)
@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    ("begun", "number"), [(forked, signal.SIGTERM), (forked, signal.SIGINT), (running, signal.SIGHUP)]
)
async def test_a_signal_ends_the_server_cleanly(
    here: Path, begun: Callable[..., AbstractAsyncContextManager[Process]], number: signal.Signals
) -> None:
    async with begun(*SERVE, cwd=here, env=NOBODY) as server:
        await server.url()
        assert os.path.lexists(here / ".askfirst" / "askfirst.db.sock")
        server.signal(number)
        assert await server.ended() == 0
    assert not os.path.lexists(here / ".askfirst" / "askfirst.db.sock")
    assert "Traceback" not in server.said


@pytest.mark.parametrize("hangup", [signal.SIG_IGN], indirect=True)
@pytest.mark.usefixtures("hangup")
async def test_under_nohup_it_stays_when_the_terminal_goes(here: Path) -> None:
    async with running(*SERVE, cwd=here, env=NOBODY) as server, aiohttp.ClientSession() as http:
        url = await server.url()
        server.signal(signal.SIGHUP)
        async with http.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0


async def test_a_signal_during_the_start_ends_the_server_cleanly(here: Path, telegram: FakeTelegram) -> None:
    """The platform has not answered yet."""
    asked = telegram.hold("getMe")
    async with forked(*SERVE, cwd=here, env=settings(telegram)) as server:
        await asked.reached()
        server.signal(signal.SIGTERM)
        asked.release()
        assert await server.ended() == 0
    assert "Traceback" not in server.said


async def test_a_second_signal_while_it_starts_ends_it_at_once(here: Path, telegram: FakeTelegram) -> None:
    asked = telegram.hold("getMe")
    async with forked(*SERVE, cwd=here, env=settings(telegram)) as server:
        await asked.reached()
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert await server.ended() in (128 + signal.SIGINT, 128 + signal.SIGTERM)


async def test_open_connections_do_not_delay_the_shutdown(here: Path) -> None:
    async with forked(*SERVE, cwd=here, env=NOBODY) as server, contextlib.AsyncExitStack() as stack:
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
        async with forked(*SERVE, cwd=here, env=env) as server, aiohttp.ClientSession() as http:
            await register(telegram, here, server)
            await telegram.person_says(ana, ana, "one")
            await model.wait_for(1)
            server.signal(signal.SIGTERM)
            await until_not_ready(http, await server.url())
            await telegram.person_says(ben, ben, "two")
            held.set()
            assert await server.ended() == 0
        assert len(model.requests) == 1
        async with forked(*SERVE, cwd=here, env=env) as server:
            await telegram.wait_for(lambda: telegram.last(ben))
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
        assert [message.text for message in telegram.sent] == ["First.", "Second."]


@pytest.fixture(params=["full", "closed"])
def broken(request: pytest.FixtureRequest) -> Iterator[int]:
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
    async with forked(*command, cwd=here, env=NOBODY) as server:
        port = await port_of(server)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        async with Client(port) as kept:
            await kept.send(LIVE)
            assert await kept.status() == 200
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 10, hard))
            async with contextlib.AsyncExitStack() as stack:
                many = [await stack.enter_async_context(Client(port)) for _ in range(50)]
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


# ── a grace that is over ──


pytestmark = pytest.mark.timeout(180)
"""Two processes start one after another. Most of the time is waiting."""

BOT = Path(__file__).with_name("hanging.py")
GRACE_SECONDS = 1.0
LONG = 600.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, f"sqlite:///{tmp_path / 'askfirst.db'}") as stage:
        yield stage


@contextlib.asynccontextmanager
async def serving(stage: Stage, *, last_seconds: float = LONG, **env: str) -> AsyncIterator[Process]:
    """``askfirst serve`` with a grace of a second. Only `last_seconds` ends a hanging process."""
    constants = {"gateway.cli.serve.GRACE_SECONDS": GRACE_SECONDS, "gateway.cli.serve.LAST_SECONDS": last_seconds}
    serve = ("serve", BOT, "--host=127.0.0.1", "--port=0")
    async with forked(*serve, cwd=stage.directory, env={**stage.env, **env}, constants=constants) as process:
        await process.url()
        await stage.webhook_to(process)
        yield process


async def begun(stage: Stage, count: int = 1) -> None:
    while runs(stage) < count:
        await asyncio.sleep(0.01)


def runs(stage: Stage) -> int:
    file = stage.directory / "begun"
    return file.read_text().count("begun") if file.exists() else 0


async def ends(process: Process) -> None:
    """End the process by SIGTERM. The exit code is 0, and the log has no traceback."""
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0, process.said
    assert "Traceback" not in process.said


async def test_hanging_tools_delay_no_shutdown_and_are_not_rerun(stage: Stage) -> None:
    """One tool that ends on request, one that refuses, and one in each kind of thread."""
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
async def test_silent_model_delays_no_shutdown(tmp_path: Path, server: RedisServer, shared: bool) -> None:
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


# ── around the gateway ──


async def test_objects_loaded_at_the_start_are_frozen_for_the_gc(tmp_path: Path) -> None:
    """A full garbage collection would block the event loop for longer than a platform may wait."""
    settings = Settings(store=f"sqlite:///{tmp_path / 'askfirst.db'}", secret=SIGNING, allow="*")
    gateway = await asyncio.to_thread(Gateway, Agent([], provider="demo"), settings)
    left_alone: list[int] = []

    def announce(url: str) -> None:
        left_alone.append(gc.get_freeze_count())

    try:
        await run(gateway, "127.0.0.1", 0, stopped=_at_once, grace_seconds=1, announce=announce)
    finally:
        gc.unfreeze()
    assert left_alone[0] > 50_000


def test_event_loop_has_at_least_32_threads_for_dns() -> None:
    """By default uvloop has four threads for DNS, two of which look up names. The setting is read before the start."""
    code = (
        "import asyncio, os\n"
        "from gateway.cli.process import event_loop\n"
        "with asyncio.Runner(loop_factory=event_loop) as runner:\n"
        "    runner.run(asyncio.wait_for(runner.get_loop().getaddrinfo('localhost', 80), 10))\n"
        "    print(len(os.listdir('/proc/self/task')))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "UV_THREADPOOL_SIZE"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(ran.stdout) >= 32


async def _at_once() -> None:
    return


# ── a store in a container ──


ROOT = "590 480 0:52 / / ro,relatime master:1 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
VOLUME = "612 590 254:1 /var/lib/docker/volumes/{}/_data /data rw,relatime - ext4 /dev/vda1 rw\n"
BOUND = "613 590 254:1 /srv/askfirst /data rw,relatime - ext4 /dev/vda1 rw\n"


@pytest.mark.parametrize(
    ("mounts", "directory", "goes"),
    [
        (ROOT, "/data", True),
        (ROOT + VOLUME.format("9f" * 32), "/data", True),
        (ROOT + VOLUME.format("askfirst_data"), "/data", False),
        (ROOT + VOLUME.format("askfirst_data"), "/data/deep/er", False),
        (ROOT + VOLUME.format("askfirst_data"), "/database", True),
        (ROOT + BOUND, "/data", False),
        (ROOT + BOUND + VOLUME.format("9f" * 32), "/bot/.askfirst", True),
    ],
)
def test_a_directory_mounted_by_name_or_path_stays(mounts: str, directory: str, goes: bool) -> None:
    assert goes_with_container(Path(directory), mounts) is goes
