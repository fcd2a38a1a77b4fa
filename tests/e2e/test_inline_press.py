"""A press that Telegram gives without its chat: under an inline result, or under a message that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.house import House
from tests.fakes.telegram import Press


@pytest.mark.parametrize("more", [{}, {"inline_message_id": "BAAAA"}], ids=["nothing", "inline message"])
async def test_a_press_without_a_chat_decides_nothing(house: House, more: dict[str, Any]) -> None:
    """It has the true token and the true person, and the spinner on the button ends."""
    prompt = await house.prompt()
    press = house.telegram._presses["stray"] = Press("stray")
    query = {"id": "stray", "from": house.ana.to_json(), "chat_instance": "1", "data": prompt.once_shown["Confirm"]}
    await house.telegram.deliver("callback_query", house.ana, query | more)
    await house.until(lambda: press.answered)
    assert (press.text, press.alert) == ("This button belongs to another chat.", True)
    await house.idle()
    assert (house.shop.deleted, prompt.buttons, house.texts()) == ([], ["Confirm", "Cancel", "Change"], [prompt.text])
    await house.presses(prompt)
    await house.until(lambda: not prompt.buttons)
    assert house.shop.deleted == ["INV-42"]
