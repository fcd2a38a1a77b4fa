"""Servers by other authors, each from PyPI in a separate environment, as installed by an operator."""

from __future__ import annotations

import os
import signal
import subprocess
import venv
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway import Agent, MCPServer, ToolPolicy
from gateway.testing import ScriptedProvider
from gateway.testing import ToolCall as Called

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

CLOCK, REPOSITORY = "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The programs of both servers, with separate dependencies."""
    programs: dict[str, Path] = {}
    for package in (CLOCK, REPOSITORY):
        name = package.partition("==")[0]
        home = tmp_path_factory.mktemp(name)
        venv.create(home, with_pip=True)
        run = subprocess.run(
            [home / "bin" / "pip", "install", "--quiet", package], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, f"{package} cannot be installed here: {run.stderr.strip()[-200:]}"
        programs[name] = home / "bin" / name
    return programs


@pytest.fixture
async def clock(installed: Mapping[str, Path]) -> AsyncIterator[MCPServer]:
    server = MCPServer(command=[str(installed["mcp-server-time"])], policy=ToolPolicy(allow=["convert_time"]))
    yield server
    await server.close()


async def asked(server: MCPServer, *calls: Called) -> tuple[list[str], Any]:
    """Return the model's view of these calls, each in a separate reply, and the result of the run."""
    script = ScriptedProvider([*calls, "done"])
    result = await Agent([server], provider=script).run("go")
    return [each.content for each in script.requests[-1].messages if each.role == "tool"], result


def children() -> set[int]:
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "mcp-server"], capture_output=True, check=False)
    return set(map(int, found.stdout.split()))


async def test_a_clock_converts_and_its_other_tool_asks(clock: MCPServer) -> None:
    convert = {"source_timezone": "Europe/Madrid", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    told, _ = await asked(clock, Called("convert_time", convert))
    assert "Asia/Tokyo" in told[0]
    assert "T12:00:00" in told[0]
    told, result = await asked(clock, Called("get_current_time", {"timezone": "Europe/Madrid"}))
    assert result.stop_reason == "needs_confirmation"


async def test_a_wrong_argument_is_told_to_the_model(clock: MCPServer) -> None:
    wrong = {"source_timezone": "Nowhere/Town", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    told, result = await asked(clock, Called("convert_time", wrong), Called("convert_time", {"time": 5}))
    assert "Nowhere/Town" in told[0]
    assert "source_timezone" in told[1]
    assert not any("Traceback" in each for each in told)
    assert result.stop_reason == "answered"


async def test_a_killed_server_is_started_again(clock: MCPServer) -> None:
    convert = {"source_timezone": "Europe/Madrid", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    await asked(clock, Called("convert_time", convert))
    for process in children():
        os.kill(process, signal.SIGKILL)
    told, _ = await asked(clock, Called("convert_time", convert), Called("convert_time", convert))
    assert "Asia/Tokyo" in told[0] or "outcome is unknown" in told[0], "it may be sent before its end is noticed"
    assert "Asia/Tokyo" in told[1]
    await clock.close()
    assert children() == set()


async def test_a_repository_is_read_and_never_written(installed: Mapping[str, Path], tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    subprocess.run([*git, "init", "--quiet", "."], check=True)
    (tmp_path / "notes.txt").write_text("milk", encoding="utf-8")
    server = MCPServer(
        command=[str(installed["mcp-server-git"]), "--repository", str(tmp_path)],
        prefix="git_",
        policy=ToolPolicy(allow=["git_git_status"], deny=["git_git_commit"]),
    )
    try:
        told, _ = await asked(server, Called("git_git_status", {"repo_path": str(tmp_path)}))
        assert "notes.txt" in told[0]
        told, result = await asked(server, Called("git_git_commit", {"repo_path": str(tmp_path), "message": "x"}))
        assert "not allowed" in told[0] or "deny" in told[0].lower()
        assert result.stop_reason == "answered"
        head = subprocess.run([*git, "log"], capture_output=True, check=False)
        assert head.returncode != 0, "there is no commit"
    finally:
        await server.close()
