"""SIGKILL while a tool runs under its lock: a call in another process waits for it, and goes on after its lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.openai import Call, Say
from tests.kill.stage import a_store, on_stage

BOT = Path(__file__).with_name("lock_bot.py")


@pytest.mark.ledger("PYG-10")
@pytest.mark.timeout(180)
async def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    async with a_store("redis", tmp_path) as store, on_stage(tmp_path, store) as stage:
        ana, ben, cat = (stage.telegram.person(name) for name in ("Ana", "Ben", "Cat"))
        # It has one turn at a time: that of Ana. All others are run by the other process.
        holder = await stage.start(bot=BOT, ASKFIRST_LIMITS="turns=1/1/1")
        stage.business.hold_after = True
        stage.model.script([Call("reserve", {"item": "A-17"})])
        await stage.telegram.person_says(ana, ana, "reserve A-17")
        await stage.business.reached.wait()

        await stage.start(bot=BOT)
        stage.business.hold_after = False
        stage.model.script([Call("reserve", {"item": "A-17"}), Call("note", {"text": "later"}), Say("Noted.")])
        await stage.telegram.person_says(ben, ben, "reserve A-17 for me")
        await stage.model.wait_for(2)
        await stage.telegram.person_says(cat, cat, "note this")
        await stage.until(lambda: stage.texts(cat) == ["Noted."])
        assert len(stage.business.happened("reserve")) == 1  # Ben's call waits for the lock of Ana's
        stage.model.script([Say("Done."), Say("Done.")])
        await holder.end()
        await stage.until(lambda: stage.texts(ben) == ["Done."])
        assert len(stage.business.happened("reserve")) == 2
        await stage.until(lambda: stage.texts(ana) == ["Done."])
        assert len(stage.business.happened("reserve")) == 2
