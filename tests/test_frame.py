"""The frame itself: the guards around every test work, and the locked packages can be installed anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest
from blockbuster import BlockingError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gateway
from scripts import chromium, redis_server
from tests import conftest

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; [^;\\]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\\n|\n))+")


@pytest.mark.parametrize("address", [("192.0.2.1", 443), ("2001:db8::1", 443, 0, 0), ("0.0.0.0", 80)])
def test_connecting_beyond_loopback_fails(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(AssertionError, match=re.escape(address[0])):
        sock.connect(address)
    conftest.reached_out.clear()


async def test_dns_lookup_is_recorded_though_its_error_is_swallowed() -> None:
    with contextlib.suppress(Exception):
        await asyncio.get_running_loop().getaddrinfo("api.telegram.org", 443)
    assert conftest.reached_out == ["socket.getaddrinfo 'api.telegram.org'"]
    conftest.reached_out.clear()


def test_connecting_to_loopback_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


async def test_blocking_the_loop_from_our_code_fails() -> None:
    ours = compile("import time; time.sleep(0)", str(Path(gateway.__path__[0]) / "sleepy.py"), "exec")
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        exec(ours)


def test_no_setting_of_the_developer_is_seen() -> None:
    assert [name for name in os.environ if name.startswith(conftest.SETTINGS)] == []


@pytest.mark.parametrize(
    ("rows", "why"), [(["RUN-1", "RUN-2", "RUN-3", "RUN-4"], "at most 3"), (["run"], "does not name"), ([], "does not")]
)
def test_a_ledger_mark_names_one_to_three_rows(request: pytest.FixtureRequest, rows: list[str], why: str) -> None:
    request.node.add_marker(pytest.mark.ledger(*rows))
    with pytest.raises(pytest.UsageError, match=why):
        conftest.pytest_collection_modifyitems([request.node])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_holds_only_names_versions_and_hashes(lock: Path) -> None:
    lines = lock.read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.lstrip().startswith("#"))
    assert PINNED.sub("", text) == ""


def test_locks_match_the_requirements_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    run = [
        *project["project"]["dependencies"],
        *(line for name, extra in extras.items() if name != "test" for line in extra),
        *groups["build"],
    ]
    lowest = [*run, *extras["test"], *groups["test"]]
    image = [
        *project["project"]["dependencies"],
        *(line for name, extra in extras.items() if name not in ("test", "dev", "examples", "all") for line in extra),
    ]
    wanted = {
        "run.txt": run,
        "image.txt": [*image, *groups["build"]],
        "test.txt": [*lowest, *groups["docs"]],
        "lowest.txt": lowest,
        "bench.txt": [*run, *groups["bench"]],
        "aiogram.txt": groups["aiogram"],
        "uv.txt": groups["install"],
    }
    assert {lock.name for lock in LOCKS} == set(wanted)
    for lock in LOCKS:
        pins = dict(PINNED.findall(lock.read_text(encoding="utf-8")))
        for requirement in map(Requirement, wanted[lock.name]):
            name = canonicalize_name(requirement.name)
            if name != "askfirst":
                assert name in pins, f"{name} is not in {lock.name}: run `make lock`"
                assert pins[name] in requirement.specifier, f"{name} in {lock.name}: run `make lock`"


def test_tested_versions_are_the_running_versions() -> None:
    """The bench has a separate environment: today's aiogram does not fit beside our newest libraries."""
    pins = {lock.name: dict(PINNED.findall(lock.read_text(encoding="utf-8"))) for lock in LOCKS}
    assert pins["run.txt"].items() <= pins["test.txt"].items()


def test_a_chromium_that_does_not_start_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, status in {"chromium": 127, "chromium-browser": 1, "google-chrome": 0}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find() == tmp_path / "google-chrome"


@pytest.mark.parametrize(("version", "taken"), [("6.0.16", False), ("7.0.15", True), ("10.1.0", True)])
def test_a_redis_server_that_is_too_old_is_passed_over(
    version: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho Redis server v={version} sha=00000000:0 bits=64\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (redis_server.find() == program) == taken


def test_without_a_redis_server_the_command_to_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert redis_server.find().name == "valkey-server"  # of the wheel
    monkeypatch.setattr(redis_server, "files", lambda name: None)
    with pytest.raises(redis_server.NoRedisServer, match="apt-get install redis-server"):
        redis_server.find()


def test_apt_is_run_by_root_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\necho $@ >>{tmp_path}/runs\nexit 1\n", encoding="utf-8")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for source in ("_of_playwright", "_fetched_by_playwright"):
        monkeypatch.setattr(chromium, source, lambda: iter(()))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(chromium.NoChromium, match="playwright install --with-deps chromium"):
        chromium.find()
    assert not (tmp_path / "runs").exists()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(chromium.NoChromium):
        chromium.find()
    assert "apt-get install chromium-headless-shell" in capsys.readouterr().err
    tried = "install --yes chromium-headless-shell\ninstall --yes chromium\n"
    assert (tmp_path / "runs").read_text(encoding="utf-8") == f"update\n{tried}"


@pytest.mark.browser
def test_the_browser_starts(browser_executable: Path) -> None:
    done = subprocess.run([browser_executable, "--version"], capture_output=True, text=True, check=True)
    assert "Chrom" in done.stdout
