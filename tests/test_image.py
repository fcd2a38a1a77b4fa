"""Dockerfile and compose.yaml, tested as far as possible without a Docker engine: the commands really run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from gateway.cli.serve import GRACE_SECONDS
from gateway.config.settings import Settings
from gateway.store.redis import RedisStore
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming
from tests.cli.processes import running
from tests.store.conftest import redis_url
from tests.store.redis_server import RedisServer, answers

__all__ = ["redis_url"]

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def instructions(name: str) -> list[str]:
    return [found.strip() for found in re.findall(rf"^\s*{name} (.*)$", DOCKERFILE, re.MULTILINE)]


def copied() -> list[str]:
    """Return the paths that the image takes from this directory."""
    sources = [copy.split()[:-1] for copy in instructions("COPY") if not copy.startswith("--from")]
    return [source for group in sources for source in group]


def test_copied_paths_exist_and_reach_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    let_in = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*"
    assert copied()
    for source in copied():
        assert (ROOT / source).exists()
        assert any(Path(source).is_relative_to(allowed) for allowed in let_in), source


def test_image_runs_as_a_user_by_number() -> None:
    """The user is a number: otherwise Kubernetes' runAsNonRoot refuses the image."""
    before, _, after = DOCKERFILE.rpartition("\nUSER ")
    assert after.split()[0] == "10001:10001"
    assert "groupadd --gid 10001" in before and "useradd --uid 10001 --gid 10001" in before
    assert "\nRUN " not in after


def test_both_image_stages_name_the_same_base() -> None:
    build, final = (line.split()[0] for line in instructions("FROM"))
    assert build == final and re.fullmatch(r"python:3\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", build)


@pytest.mark.parametrize("name", ["web", "worker", "redis"])
def test_a_service_has_no_rights_and_bounds(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True and service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["mem_limit"] and service["pids_limit"]


def test_the_redis_is_reached_by_our_services_alone() -> None:
    assert COMPOSE["services"]["redis"]["networks"] == ["store"]
    assert "ports" not in COMPOSE["services"]["redis"]
    assert COMPOSE["networks"]["store"]["internal"] is True


async def test_the_health_check_sees_whether_it_serves(tmp_path: Path) -> None:
    (check,) = instructions("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command[0] == "python"
    env = {"ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}", "ASKFIRST_ALLOW": "*"}
    bot = ROOT / next(source for source in copied() if source.endswith(".py"))
    async with running("serve", bot, "--host=127.0.0.1", "--port=0", cwd=tmp_path, env=env) as process:
        here = {"PORT": (await process.url()).rpartition(":")[2]}  # `serve` listens there when its host sets it
        healthy = await asyncio.create_subprocess_exec(sys.executable, *command[1:], env=here)
        assert await healthy.wait() == 0
    ill = await asyncio.create_subprocess_exec(
        sys.executable, *command[1:], env=here, stderr=asyncio.subprocess.DEVNULL
    )
    assert await ill.wait() != 0


@pytest.mark.parametrize("name", ["web", "worker"])
def test_service_has_grace_to_end_and_writes_only_its_volumes(name: str) -> None:
    service = COMPOSE["services"][name]
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["command"] == ["serve", "bot.py", "--role", name]
    assert service["environment"]["REDIS_PASSWORD"] == ""
    for variable in service["environment"].keys() - {"REDIS_PASSWORD"}:
        assert variable.removeprefix("ASKFIRST_").lower() in Settings.model_fields
    assert all(volume.endswith(":ro") or volume.split(":")[0] in COMPOSE["volumes"] for volume in service["volumes"])


PASSWORD = "e3b0c44298fc1c149afbf4c8996fb924"


def redis_flags() -> list[str]:
    program, *flags = [
        re.sub(r"\$\{REDIS_PASSWORD:[^}]*\}", PASSWORD, w) for w in COMPOSE["services"]["redis"]["command"]
    ]
    assert program == "redis-server"
    return flags


@contextlib.contextmanager
def its_redis(directory: Path) -> Iterator[str]:
    """Run Redis with the flags of compose.yaml. Yields the address as in our services."""
    server = RedisServer(directory, options=redis_flags())
    with server.running():
        while not answers(server.url):
            time.sleep(0.01)
        ours = COMPOSE["services"]["web"]["environment"]["ASKFIRST_STORE"]
        ours = re.sub(r"\$\{REDIS_PASSWORD:[^}]*\}", PASSWORD, ours)
        yield ours.replace("redis:6379", server.url.removeprefix("redis://"))


async def test_compose_redis_syncs_every_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with its_redis(tmp_path) as url:
        store = RedisStore(url)
        await store.open()
        await store.close()
    assert caplog.messages == []
    flags = redis_flags()
    assert flags[flags.index("--appendfsync") + 1] == "always"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with its_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


COMMAND = re.compile(r"redis\.p?call\('([A-Z]+)'|\"([A-Z]+)\"")


def commands_of_the_store() -> set[str]:
    """Return the commands in the Lua scripts, and all words of capital letters in the modules of the client."""
    room = ROOT / "gateway" / "store"
    files = [*(room / "lua").glob("*.lua"), *(room / "redis").glob("*.py")]
    words = {word for file in files for found in COMMAND.findall(file.read_text()) for word in found if word}
    return {word.lower() for word in words}


async def allowed_commands(redis: Redis) -> set[str]:
    """Return the commands allowed by the rules of compose.yaml, by the categories of this server."""
    allowed: set[str] = set()
    for rule in (flag for flag in redis_flags() if re.match(r"[+-]@?\w+$", flag)):
        named = await redis.acl_cat(rule[2:]) if rule[1] == "@" else [rule[1:]]
        allowed = allowed | {*map(str, named)} if rule[0] == "+" else allowed - {*map(str, named)}
    return {name.partition("|")[0] for name in allowed}


async def test_redis_user_may_run_every_command_of_the_store(redis_url: str) -> None:
    async with Redis.from_url(redis_url, driver_info=None, decode_responses=True) as redis:
        known = await redis.execute_command("COMMAND")  # type: ignore[no-untyped-call]
        used = commands_of_the_store() & {*known}
        assert {"evalsha", "script", "info", "zadd", "publish", "unlink"} <= used
        assert used - await allowed_commands(redis) == set()


async def test_redis_user_waits_for_an_event_and_works_it(url: str) -> None:
    """The server refuses a key or a channel without the prefix `askfirst:`."""
    store = RedisStore(url, ack_seconds=5)
    await store.open()
    waiting = asyncio.create_task(store.lease("worker", ["turn"], wait_seconds=60, lease_seconds=60))
    await store.stats()
    assert await store.accept([Incoming(conversation="c", event_ids=("e",), body={})]) == [True]
    lease = await waiting
    assert lease is not None and lease.lane == "c"
    consume = [("c", event.seq) for event in lease.events]
    await store.commit(Transaction(partition=lease.partition, lease=lease, finish="done", consume=consume))
    assert not await store.has_work("c")
    await store.close()


@pytest.mark.parametrize("words", [("GET", "other"), ("KEYS", "*"), ("FLUSHALL",), ("CONFIG", "GET", "*")])
async def test_gateways_redis_user_may_run_no_other_command(url: str, words: tuple[str, ...]) -> None:
    async with Redis.from_url(url, driver_info=None) as redis:
        with pytest.raises(NoPermissionError):
            await redis.execute_command(*words)  # type: ignore[no-untyped-call]


async def test_redis_user_without_a_password_is_refused(url: str) -> None:
    async with Redis.from_url(re.sub(r"//.*@", "//", url), driver_info=None) as redis:
        with pytest.raises(AuthenticationError):
            await redis.ping()


def test_the_image_serves_a_bot_with_the_store_on_its_volume() -> None:
    assert shlex.split(instructions("VOLUME")[0]) == ["/data"]
    assert "ASKFIRST_STORE=sqlite:////data/askfirst.db" in DOCKERFILE
    assert json.loads(instructions("CMD")[-1]) == ["serve", "bot.py"]
