"""One chat's flood starves nobody: its own messages are put off, and whatever else comes is taken, on either store."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path

import aiohttp
import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from tests.e2e.house import SIGNED, House, open_house
from tests.fakes.openai import Say
from tests.fakes.telegram import User
from tests.store.conftest import prefix, redis_url

__all__ = ["prefix", "redis_url"]

IN_ONE = 5
"""So many wait in one conversation when it is full."""


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(str(tmp_path / "askfirst.db"), max_waiting=10 * IN_ONE)
    url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return RedisStore(url, prefix=prefix, max_waiting=10 * IN_ONE, ack_seconds=5)


numbers = itertools.count(5000)


async def writes(house: House, who: User, text: str) -> aiohttp.ClientResponse:
    """What one delivery of it to the webhook is answered."""
    sender = {"id": who.id, "is_bot": False, "first_name": "Eve", "language_code": "en"}
    chat = {"id": who.id, "type": "private", "first_name": "Eve"}
    number = next(numbers)
    message = {"message_id": number, "from": sender, "chat": chat, "date": int(time.time()), "text": text}
    if text.startswith("/"):
        message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    update = json.dumps({"update_id": number, "message": message})
    async with aiohttp.ClientSession() as http, http.post(house.webhook, data=update, headers=SIGNED) as answer:
        return answer


async def thinks(house: House, who: User) -> asyncio.Event:
    """Somebody's turn hangs until the event is set."""
    hold, before = asyncio.Event(), len(house.model.requests)
    house.model.script([Say("I am done.", hold=hold)])
    await house.telegram.person_says(who, who, "think")
    await house.model.wait_for(before + 1)
    return hold


@pytest.mark.ledger("PYG-27")
async def test_a_flooded_chat_has_its_messages_put_off_and_nobody_else(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_house(tmp_path, options={"store": store}) as house:
        eve, ben = house.telegram.person("Eve"), house.telegram.person("Ben")
        prompt = await house.prompt()
        hold = await thinks(house, eve)
        begun = time.monotonic()
        answers = [await writes(house, eve, f"and of {number}") for number in range(4 * IN_ONE)]
        statuses = [answer.status for answer in answers]
        refused = len(statuses) - (IN_ONE - 1)  # what she thinks of waits, too
        assert statuses == [200] * (IN_ONE - 1) + [503] * refused
        assert {answer.headers["Retry-After"] for answer in answers[-refused:]} == {"5"}
        lines = [record for record in caplog.records if record.getMessage() == "a request was not stored"]
        assert 1 <= len(lines) <= 1 + (time.monotonic() - begun)
        assert f"{IN_ONE} events wait in " in vars(lines[0])["why"]

        deliveries = len(house.telegram.deliveries)
        house.model.script(["Hello Ben."])
        await house.telegram.person_says(ben, ben, "hello")
        await house.until(lambda: house.texts(ben) == ["Hello Ben."])
        assert (await house.presses(prompt)).text == "Confirmed."
        assert {status for _, status in house.telegram.deliveries[deliveries:]} == {200}

        house.model.script(["Enough."])
        assert (await writes(house, eve, "/stop")).status == 200
        await house.until(lambda: house.texts(eve)[-1:] == ["Enough."])
        hold.set()
        await house.idle()
        house.model.script(["I am back."])
        assert (await writes(house, eve, "and now")).status == 200
        await house.until(lambda: house.texts(eve)[-1:] == ["I am back."])


async def test_flooded_chat_under_polling_delays_nobody_else(tmp_path: Path, store: Store) -> None:
    async with open_house(tmp_path, way="polling", options={"store": store}) as house:
        eve, ben = house.telegram.person("Eve"), house.telegram.person("Ben")
        hold = await thinks(house, eve)
        for number in range(2 * IN_ONE):
            await house.telegram.person_says(eve, eve, f"and of {number}", wait=False)
        house.model.script(["Hello Ben."])
        await house.telegram.person_says(ben, ben, "hello")
        await house.until(lambda: house.texts(ben) == ["Hello Ben."])
        house.model.script(["Enough."])
        hold.set()
        await house.until(lambda: house.texts(eve)[-1:] == ["Enough."])
