"""Telegram by long polling, as in ``askfirst dev``: without a public address, and nothing is lost."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.house import House, open_house
from tests.e2e.test_confirming import DONE


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "askfirst.platforms"]


def offsets(house: House) -> list[int]:
    return [int(call.arguments["offset"]) for call in house.telegram.called("getUpdates")]


async def test_the_story_without_a_public_address(tmp_path: Path) -> None:
    async with open_house(tmp_path, way="polling") as house:
        prompt = await house.prompt()
        press = await house.presses(prompt)
        assert press.text == "Confirmed."
        await house.until(lambda: DONE in house.texts())
        await house.until(lambda: not prompt.buttons)
        assert (house.shop.deleted, house.telegram.deliveries) == (["INV-42"], [])


async def test_what_is_not_stored_is_asked_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_house(tmp_path, way="polling") as house:
        house.model.script(["Hello."])
        await house.until(lambda: offsets(house) == [0])
        with closing(sqlite3.connect(tmp_path / "askfirst.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody can write now
            await house.telegram.person_says(house.ana, house.ana, "hi")
            await house.until(lambda: warnings(caplog))
            other.execute("ROLLBACK")
        assert [warning.partition(":")[0] for warning in warnings(caplog)] == ["telegram"]
        await house.until(lambda: house.texts() == ["Hello."])
        await house.until(lambda: offsets(house)[-1] > 0)
        assert offsets(house)[:2] == [0, 0]
        await house.idle()
        assert len(house.model.requests) == 1


async def test_a_webhook_in_the_way_is_said_once_and_its_end_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with open_house(tmp_path, way="polling") as house:
        await house.until(lambda: offsets(house))
        channel = house.gateway.channels["telegram"]
        await channel.register("http://127.0.0.1:9/webhooks/telegram")  # type: ignore[attr-defined]
        house.model.script(["One.", "Two."])
        await house.telegram.person_says(house.ana, house.ana, "first", wait=False)  # ends the poll that is under way
        await house.until(lambda: len(offsets(house)) > 2 and warnings(caplog))
        assert warnings(caplog) == [
            "telegram: a webhook is set, so nothing can be polled: remove it (askfirst webhooks delete)"
        ]
        await channel.unregister()  # type: ignore[attr-defined]
        await house.telegram.person_says(house.ana, house.ana, "second")
        await house.until(lambda: house.texts() == ["One.", "Two."])
