"""A file that cannot be kept, as on a full disk: its action is done, and the person learns that the file is lost."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.house import House
from tests.fakes.openai import Call


async def test_action_is_done_and_told_when_its_file_is_lost(house: House, tmp_path: Path) -> None:
    artifacts = house.gateway.engine.context.artifacts
    artifacts.directory = tmp_path / "in the way"
    artifacts.directory.touch()
    prompt = await house.asks("archive INV-42", Call("archive_invoice", {"invoice_id": "INV-42"}))
    await house.idle()
    await house.presses(prompt)
    told = await house.next(house.ana, 1)
    assert told.text.split("\n\n") == [
        "Invoice INV-42 is archived.",
        "The file that belongs to it is lost: it could not be stored.",
    ]
    await house.idle()
    (action,) = await house.actions()
    assert (action.state, await house.gateway.store.dead_letters()) == ("done", [])


async def test_lost_file_is_told_to_the_model(house: House, tmp_path: Path) -> None:
    artifacts = house.gateway.engine.context.artifacts
    artifacts.directory = tmp_path / "in the way"
    artifacts.directory.touch()
    told = await house.asks("send it", Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Sorry, it is lost.")
    assert told.text == "Sorry, it is lost."
    assert house.model.requests[-1]["messages"][-1]["content"].endswith("nobody gets them. Tell the person.")
