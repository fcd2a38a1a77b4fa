"""A rolling deployment on Redis: real processes of two releases with different tools, beside each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Process
from tests.fakes.openai import Call
from tests.fakes.telegram import Press
from tests.kill.stage import Stage, on_stage
from tests.store.conftest import server
from tests.store.redis_server import RedisServer

__all__ = ["server"]

pytestmark = pytest.mark.timeout(180)
"""A confirmed action waits for a process of the right release, seconds at a time."""

BOT = Path(__file__).with_name("rolling_bot.py")


@pytest.fixture
async def stage(tmp_path: Path, server: RedisServer) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, server.url) as stage:
        yield stage


async def asks(stage: Stage, person: Any, invoice: str) -> Any:
    """Have the bot ask a question in this person's chat."""
    stage.model.script([Call("pay_invoice", {"invoice_id": invoice})])
    await stage.telegram.person_says(person, person, f"pay {invoice}")
    return await stage.until(lambda: stage.telegram.last(person, button="Confirm"))


async def is_confirmed(stage: Stage, press: Press) -> None:
    """A yes counts in any process."""
    await stage.until(lambda: press.answered)
    assert press.text == "Confirmed."


async def is_told(stage: Stage, person: Any, what: str) -> None:
    await stage.until(lambda: any(text.startswith(what) for text in stage.texts(person)))
    assert stage.texts(person).count("One moment, please.") <= 1


async def test_rolling_release_runs_each_action_in_the_one_that_asked(stage: Stage) -> None:
    """Finding 26: 6 of 6 drifted in any process. Each release asks, and each hears half of the yes answers."""
    releases: dict[str, Process] = {}
    prompts: dict[tuple[str, str], Any] = {}
    people = {(asked, heard): stage.telegram.person(f"Ana {asked}{heard}") for asked in "12" for heard in "12"}
    for asked in "12":  # alone each time, or either might ask
        releases[asked] = await stage.start(bot=BOT, RELEASE=asked)
        for heard in "12":
            prompts[asked, heard] = await asks(stage, people[asked, heard], f"INV-{asked}{heard}")
        if asked == "1":
            await releases.pop("1").end()
    releases["1"] = await stage.start(bot=BOT, RELEASE="1")
    presses: list[Press] = []
    for (asked, heard), prompt in prompts.items():
        await stage.webhook_to(releases[heard])
        presses.append(await stage.telegram.press(prompt, "Confirm", people[asked, heard]))
    for press in presses:
        await is_confirmed(stage, press)
    await stage.until(lambda: len(stage.business.done) == 4)
    assert sorted((release, invoice) for release, invoice, _ in stage.business.done) == [
        (asked, f"INV-{asked}{heard}") for asked in "12" for heard in "12"
    ]
    for (asked, _), person in people.items():
        await is_told(stage, person, f"paid by {asked}")


async def test_yes_of_a_stopped_release_waits_for_it_and_then_ends(stage: Stage) -> None:
    """The real wait is a minute; see `tests.engine.test_action_of_other_release`. Here the wait is shorter."""
    stage.constants = {"gateway.engine.context._OTHER_RELEASE_SECONDS": 3.0}
    ana = stage.telegram.person("Ana")
    old = await stage.start(bot=BOT, RELEASE="1")
    prompt = await asks(stage, ana, "INV-1")
    await old.end()
    await stage.start(bot=BOT, RELEASE="2")
    press = await stage.telegram.press(prompt, "Confirm", ana)
    await is_confirmed(stage, press)
    await is_told(stage, ana, "The bot has been changed since")
    patience, ended = stage.texts(ana)[-2:]
    assert patience == "One moment, please." and ended.startswith("The bot has been changed since")
    assert stage.business.done == []
