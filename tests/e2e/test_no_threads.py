"""No more threads can be started while a file is on its way: nothing is lost, and nothing is said that is not so."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from channels.telegram import channel as telegram
from gateway.artifacts import keep
from tests.e2e.house import House
from tests.fakes.openai import Call
from tests.threads import no_more_threads


async def logged(words: str, log: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(15):
        while words not in log.text:
            await asyncio.sleep(0.002)


def none_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads for files are all to be started."""
    monkeypatch.setattr(keep, "FILES", ThreadPoolExecutor(4))
    monkeypatch.setattr(telegram, "FILES", ThreadPoolExecutor(4))


async def arrived(house: House) -> None:
    """The file is there, and what is told of it once."""
    while len(house.messages()) < 3:
        await house.later(60)
        await house.idle()
    assert house.texts() == ["Hello.", "Here it is.", ""]
    assert await house.gateway.store.dead_letters() == []


async def test_a_turn_whose_file_cannot_be_kept_is_tried_again(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.asks("hi", "Hello.")
    house.model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is."])
    none_started(monkeypatch)
    with no_more_threads():
        await house.says("send it")
        await logged("failed: RuntimeError", caplog)
        await house.idle()
    await arrived(house)


async def test_a_file_that_cannot_be_opened_waits_and_is_no_duplicate(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.asks("hi", "Hello.")
    house.model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is."])
    hold = house.telegram.hold("sendMessage", "after")
    await house.says("send it")
    await hold.reached()
    none_started(monkeypatch)
    with no_more_threads():
        hold.release()
        await logged("not delivered yet: Unavailable: no_thread", caplog)
        await house.idle()
    await arrived(house)
