"""Dockerfile and compose.yaml, as far as they can be tried without a Docker engine: their commands are really run."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.serve import GRACE_SECONDS
from gateway.settings import Settings
from gateway.store.redis import RedisStore
from tests.cli.processes import running
from tests.store.redis_server import RedisServer

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def instructions(name: str) -> list[str]:
    return [found.strip() for found in re.findall(rf"^\s*{name} (.*)$", DOCKERFILE, re.MULTILINE)]


def copied() -> list[str]:
    """What the image takes from this directory."""
    sources = [copy.split()[:-1] for copy in instructions("COPY") if not copy.startswith("--from")]
    return [source for group in sources for source in group]


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    let_in = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*"
    assert copied()
    for source in copied():
        assert (ROOT / source).exists()
        assert any(Path(source).is_relative_to(allowed) for allowed in let_in), source


def test_nothing_runs_as_root() -> None:
    before, _, after = DOCKERFILE.rpartition("\nUSER ")
    assert after.split()[0] == "askfirst" and "useradd --uid 10001" in before
    assert "\nRUN " not in after


async def test_the_health_check_sees_whether_it_serves(tmp_path: Path) -> None:
    (check,) = instructions("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command[0] == "python"
    env = {"ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}", "ASKFIRST_ALLOW": "*"}
    bot = ROOT / next(source for source in copied() if source.endswith(".py"))
    async with running("serve", bot, "--host=127.0.0.1", "--port=0", cwd=tmp_path, env=env) as process:
        port = (await process.url()).rpartition(":")[2]
        assert ":8080/" in command[-1]
        here = [sys.executable, *(word.replace("8080", port) for word in command[1:])]
        healthy = await asyncio.create_subprocess_exec(*here)
        assert await healthy.wait() == 0
    ill = await asyncio.create_subprocess_exec(*here, stderr=asyncio.subprocess.DEVNULL)
    assert await ill.wait() != 0


@pytest.mark.parametrize("name", ["web", "worker"])
def test_a_service_of_ours_ends_in_peace_and_can_change_nothing_but_its_volumes(name: str) -> None:
    service = COMPOSE["services"][name]
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["command"] == ["serve", "bot.py", "--role", name]
    for variable in service["environment"]:
        assert variable.removeprefix("ASKFIRST_").lower() in Settings.model_fields
    assert all(volume.endswith(":ro") or volume.split(":")[0] in COMPOSE["volumes"] for volume in service["volumes"])


async def test_its_redis_keeps_what_it_is_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program, *flags = COMPOSE["services"]["redis"]["command"]
    assert program == "redis-server"
    server = RedisServer(tmp_path, options=flags)
    await server.start()
    try:
        store = RedisStore(server.url)
        await store.open()
        await store.close()
    finally:
        await server.kill()
    assert caplog.messages == []
    assert flags[flags.index("--appendfsync") + 1] == "always"


def test_the_image_serves_a_bot_with_the_store_on_its_volume() -> None:
    assert shlex.split(instructions("VOLUME")[0]) == ["/data"]
    assert "ASKFIRST_STORE=sqlite:////data/askfirst.db" in DOCKERFILE
    assert json.loads(instructions("CMD")[-1]) == ["serve", "bot.py"]
