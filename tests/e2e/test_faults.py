"""Telegram refuses, delays and repeats; a stranger is not let in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Unreachable
from tests.e2e.house import House, delete, open_house
from tests.e2e.test_confirming import DONE, code_of
from tests.fakes.openai import Fail


async def dead(house: House) -> list[str]:
    return [letter.reason for letter in await house.gateway.store.dead_letters()]


# ── what Telegram refuses ──


async def test_who_blocks_the_bot_has_withdrawn_what_they_asked(house: House) -> None:
    prompt = await house.prompt()
    await house.telegram.person_blocks(house.ana)
    await house.idle()
    (action,) = await house.actions()
    assert (action.state, action.reason) == ("closed", "withdrawn")
    sent = len(house.telegram.called("sendMessage"))
    address = f"telegram:{house.telegram.token.partition(':')[0]}:{house.ana.id}"
    with pytest.raises(Unreachable, match="blocked"):
        await house.gateway.bot.notify(address, "news")
    await house.telegram.person_unblocks(house.ana)
    late = await house.presses(prompt)
    assert late.text == "This is already cancelled."
    assert (house.shop.deleted, len(house.telegram.called("sendMessage"))) == ([], sent)
    assert (await house.asks("hello again", "Welcome back.")).text == "Welcome back."
    await house.gateway.bot.notify(address, "news")
    await house.until(lambda: house.texts()[-1] == "news")


async def test_answer_to_a_person_who_blocked_the_bot_is_not_retried(house: House) -> None:
    await house.asks("hi", "Hello.")
    house.telegram.fail_next("sendMessage", 403, "Forbidden: bot was blocked by the user")
    house.model.script(["Are you there?"])
    await house.says("hm")
    await house.until(lambda: len(house.telegram.called("sendMessage")) == 2)
    await house.idle()
    await house.later(3600)
    await house.idle()
    assert len(house.telegram.called("sendMessage")) == 2
    assert await dead(house) == ["not deliverable: blocked"]
    assert (await house.asks("back", "Good.")).text == "Good."


async def test_a_prompt_that_cannot_be_delivered_asks_nothing(house: House) -> None:
    house.telegram.fail_next("sendMessage", 403, "Forbidden: bot was blocked by the user")
    house.model.script(delete("INV-42"))
    await house.says("delete INV-42")
    await house.until(lambda: house.telegram.called("sendMessage"))
    await house.idle()
    (action,) = await house.actions()
    assert (action.state, action.reason) == ("closed", "undelivered")


async def test_a_flood_wait_is_obeyed(house: House) -> None:
    house.telegram.fail_next("sendMessage", 429, "Too Many Requests: retry after 30", retry_after=30)
    house.model.script(["Slowly."])
    await house.says("hi")
    await house.until(lambda: house.telegram.called("sendMessage"))
    await house.idle()
    await house.later(28)
    await house.idle()
    assert len(house.telegram.called("sendMessage")) == 1
    await house.later(3)
    await house.until(lambda: house.texts() == ["Slowly."])


@pytest.mark.parametrize("html", [False, True])
async def test_a_server_error_is_tried_again(house: House, html: bool) -> None:
    house.telegram.fail_next("sendMessage", 502, "Bad Gateway", html=html, times=2)
    house.model.script(["At last."])
    await house.says("hi")
    for tries in (1, 2):
        await house.until(lambda tries=tries: len(house.telegram.called("sendMessage")) == tries)  # type: ignore[misc]
        await house.idle()
        await house.later(3)
    await house.until(lambda: house.texts() == ["At last."])
    assert await dead(house) == []


async def test_text_that_telegram_cannot_format_comes_plain(house: House) -> None:
    house.telegram.fail_next("sendMessage", 400, "Bad Request: can't parse entities: unsupported")
    answer = await house.asks("hi", "It is **bold**.")
    assert (answer.text, answer.entities) == ("It is bold.", [])


async def test_prompt_repeated_after_a_lost_answer_keeps_old_buttons(house: House) -> None:
    house.telegram.fail_next("sendMessage", cut=True, taken=True)
    house.model.script(delete("INV-42"))
    await house.says("delete INV-42")
    await house.until(lambda: len(house.messages()) == 1)
    await house.idle()
    await house.later(3)
    await house.until(lambda: len(house.messages()) == 2)
    await house.idle()
    first, _second = house.messages()
    await house.presses(first)
    await house.until(lambda: house.shop.deleted == ["INV-42"])


async def test_a_settled_prompt_that_is_gone_leaves_no_dead_letter(house: House) -> None:
    prompt = await house.prompt()
    house.telegram.fail_next("editMessageText", 400, "Bad Request: message to edit not found")
    await house.presses(prompt)
    await house.until(lambda: house.telegram.called("editMessageText"))
    await house.until(lambda: DONE in house.texts())
    await house.idle()
    assert await dead(house) == []


async def test_the_model_is_down_and_comes_back(house: House) -> None:
    house.model.script([Fail(503, type="server_error")] * 3)
    await house.says("hi")
    told = await house.next(house.ana, 0)
    assert told.text == "I cannot reach the model just now. I keep your message and try again by myself."
    await house.idle()
    house.model.script(["Here I am."])
    await house.later(6)
    await house.until(lambda: house.texts()[1:] == ["Here I am."])


# ── what Telegram repeats and renames ──


@pytest.mark.ledger("PEND-19")
async def test_redelivered_update_has_no_second_effect(house: House) -> None:
    update = {
        "update_id": 5,
        "message": {
            "message_id": 9,
            "date": 1,
            "chat": {"id": house.ana.id, "type": "private"},
            "from": house.ana.to_json(),
            "text": "hi",
        },
    }
    await house.says("/start")
    house.model.script(["Hello."])
    for _ in range(3):
        assert await house.post(json.dumps(update).encode()) == (200, "")
    await house.until(lambda: "Hello." in house.texts())
    await house.idle()
    assert (len(house.model.requests), house.texts().count("Hello.")) == (1, 1)


async def test_group_that_moves_keeps_its_history_and_its_asks(house: House) -> None:
    team = house.telegram.group("Team")
    await house.asks("my cat is called Felix", "Nice.", to=team, by=house.ana)
    prompt = await house.prompt(to=team, by=house.ana)
    new = await moves(house, team)
    await house.asks("what is its name?", "Felix.", to=new, by=house.ana)
    assert "called Felix" in str(house.model.requests[-1]["messages"])
    again = await house.until(lambda: house.telegram.last(new, button="Confirm"))
    assert again is not None
    await house.says(f"OK {code_of(prompt)}", to=new, by=house.ana)
    await house.until(lambda: DONE in house.texts(new))
    await house.until(lambda: not again.buttons)
    assert house.shop.deleted == ["INV-42"]
    assert prompt.buttons  # nothing can be changed in the old place, but the truth is told there
    assert (await house.presses(prompt)).text == "This is already done."
    assert await dead(house) == []


async def test_a_button_in_the_old_place_of_a_group_still_decides(house: House) -> None:
    team = house.telegram.group("Team")
    prompt = await house.prompt(to=team, by=house.ana)
    new = await moves(house, team)
    await house.until(lambda: house.telegram.last(new, button="Confirm"))
    await house.idle()
    await house.presses(prompt)
    await house.until(lambda: DONE in house.texts(new))
    await house.until(lambda: not house.telegram.last(new, button="Confirm"))
    assert house.shop.deleted == ["INV-42"]


async def test_an_outcome_reaches_a_group_that_moved_while_it_ran(house: House) -> None:
    team = house.telegram.group("Team")
    prompt = await house.prompt(to=team, by=house.ana)
    await house.telegram.press(prompt, "Confirm", house.ana, wait=False)
    new = house.telegram.group_moves(team)
    await house.until(lambda: DONE in house.texts(new))
    assert house.shop.deleted == ["INV-42"]


async def moves(house: House, team: Any) -> Any:
    """As Telegram tells it: in the old group where it went, in the new one where it came from."""
    new = house.telegram.group_moves(team)
    said = {"message_id": 1, "date": 1, "from": house.ana.to_json()}
    await house.telegram.deliver("message", team, {**said, "chat": team.to_json(), "migrate_to_chat_id": new.id})
    await house.telegram.deliver("message", new, {**said, "chat": new.to_json(), "migrate_from_chat_id": team.id})
    return new


async def test_unknown_update_is_accepted_and_its_shape_is_kept(house: House) -> None:
    for number in (1, 2):
        news = {"message_id": number, "date": 1, "chat": {"id": house.ana.id, "type": "private"}, "hologram": "✨"}
        await house.telegram.deliver("message", house.ana, news)
    assert [status for _, status in house.telegram.deliveries] == [200, 200]
    assert await house.gateway.store.dead_letters() == []
    ((_, record),) = await house.gateway.store.scan("shape/")
    assert isinstance(record.value, dict)
    assert cast("Any", record.value["shape"])["message"]["hologram"] == "text"
    assert (await house.asks("hi", "Hello.")).text == "Hello."


# ── who is let in ──


async def test_a_stranger_is_told_once_a_day_and_nothing_is_kept(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1") as house:
        canary = "my-very-private-words"
        told = await house.asks(canary)
        assert told.text == "Sorry, this bot talks only to people it knows."
        await house.says(f"/start {canary}")
        await house.later(3600)
        await house.says(f"yes {canary}")
        await house.idle()
        assert len(house.texts()) == 1
        await house.later(24 * 3600)
        await house.says("hello?")
        await house.until(lambda: len(house.texts()) == 2)
        await house.idle()
        assert house.model.requests == []
    assert not any(canary.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_a_stranger_in_a_group_is_passed_over(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1") as house:
        team = house.telegram.group("Team")
        await house.says("hello", to=team)
        await house.idle()
        assert (house.telegram.sent, house.model.requests) == ([], [])


async def test_press_of_a_stranger_is_refused_and_logged(tmp_path: Path) -> None:
    async with open_house(tmp_path, allow="telegram:7000001:1001") as house:
        assert house.ana.id == 1001
        team, bob = house.telegram.group("Team"), house.telegram.person("Bob")
        prompt = await house.prompt(to=team, by=house.ana)
        press = await house.presses(prompt, by=bob)
        assert (press.text, press.alert) == ("This is not yours to answer.", True)
        assert house.shop.deleted == []
        await house.idle()
        (line,) = await house.log("security")
        assert (line["what"], line["person"]) == ("stranger", f"telegram:{house.telegram.bot.id}:{bob.id}")
