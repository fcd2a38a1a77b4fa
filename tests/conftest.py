"""The rules for every test: no other machine, no blocked event loop, no setting of the developer."""

from __future__ import annotations

import gc
import ipaddress
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from gateway import wording
from gateway.config import environment
from gateway.pending.words import prepare
from gateway.web import webhooks
from gateway.web.metrics import Metrics  # noqa: F401 - its import reads files, which no event loop may do
from scripts import chromium
from tests import children
from tests.properties import register

register()

SETTINGS = ("ASKFIRST_", "TELEGRAM_", "SLACK_", "TWILIO_", "OPENAI_", "ANTHROPIC_")
LEDGER_ID = re.compile(r"[A-Z]+-\d+")
MOST_ROWS = 3
"""The most ledger rows of one test."""

reached_out: list[str] = []


def stay_home(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: sees calls of C code too. An attempt counts even if the tested code swallows the error."""
    match event, arguments:
        case (("socket.connect" | "socket.sendto" | "socket.sendmsg"), (_, (str(host), *_))):
            home = is_loopback(host)
        case (("socket.getaddrinfo" | "socket.gethostbyname"), (str() | bytes() as host, *_)):
            home = is_address(os.fsdecode(host)) or os.fsdecode(host) in {"", "localhost"}
        case _:
            return
    if not home:
        reached_out.append(f"{event} {host!r}")
        raise AssertionError(f"a test tried to leave this machine: {reached_out[-1]}")


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def pytest_configure() -> None:
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    sys.addaudithook(stay_home)
    if "PYTEST_XDIST_WORKER" in os.environ:
        children.begin()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collection. Later collections skip the tests and all imported objects."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # nearly all of it goes without a look
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marks = list(item.iter_markers("ledger"))
        rows = [row for mark in marks for row in mark.args]
        if not all(mark.args for mark in marks) or not all(isinstance(r, str) and LEDGER_ID.fullmatch(r) for r in rows):
            raise pytest.UsageError(f"{item.nodeid}: ledger{(*rows,)} does not name rows such as 'PEND-19'")
        if len(rows) > MOST_ROWS:
            raise pytest.UsageError(f"{item.nodeid}: names {len(rows)} rows, at most {MOST_ROWS} are shown by one test")


@pytest.fixture(autouse=True, scope="session")
def nothing_blocks_the_loop() -> Iterator[None]:
    prepare("en", "es", "pt")
    wording.prepare()  # as on entering a bot; some tests work an engine by hand
    with blockbuster_ctx(["gateway", "channels"]) as blocking:
        # It writes no more than the pipe or terminal takes at once.
        blocking.functions["os.write"].can_block_in("gateway/logs.py", "_written")
        yield


@pytest.fixture(autouse=True)
def no_secret_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_hidden", {})


@pytest.fixture(autouse=True)
def nothing_leaves_this_machine() -> Iterator[None]:
    reached_out.clear()
    yield
    assert reached_out == []


@pytest.fixture(autouse=True)
def a_slow_machine_is_no_silent_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform gets the refusal of a silent store in a quarter of a second; here the store may only be slow."""
    monkeypatch.setattr(webhooks, "ACCEPT_SECONDS", 15.0)
    monkeypatch.setattr(webhooks, "INSIST_SECONDS", 0.3)


@pytest.fixture(scope="session")
def browser_executable() -> Path:
    """A working Chromium. What a page shows is waited for as long as a busy machine needs."""
    from playwright.async_api import expect  # takes 0.2 s, and few tests have a page

    expect.set_options(timeout=60_000)
    return chromium.find()
