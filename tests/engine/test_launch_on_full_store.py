"""A store that is nearly full launches nothing, because the end of a launch must be written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.bots import Invoices
from tests.engine.rig import rig

pytestmark = pytest.mark.both_stores


async def test_what_was_approved_waits_for_room_and_then_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Invoices()
    async with rig(made.bot(), tmp_path) as chat:
        room = False

        async def has_headroom(*store: Any) -> bool:
            return room

        monkeypatch.setattr(type(chat.store), "has_headroom", has_headroom)
        await chat.hears("ana", "delete INV-1")
        code = chat.platform.texts()[-1].partition("**OK ")[2][:4]
        await chat.says("ana", f"ok {code}")
        actions = chat.worker.engine._actions
        await actions.run(await chat.worker.lease("action"))
        assert made.deleted == []
        assert await chat.store.lease("w", ["action"]) is None
        room = True
        await chat.advance(5.0)
        await actions.run(await chat.worker.lease("action"))
        assert made.deleted == ["INV-1"]
        assert await chat.store.lease("w", ["action"]) is None
