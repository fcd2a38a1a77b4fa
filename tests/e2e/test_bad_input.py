"""Forged, malformed, oversized and nonsensical requests at the real server, and secrets kept inside."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from channels import WebhookRequest
from gateway.engine.intake.inbox import shape_of
from gateway.stored.keys import SHAPES
from gateway.web.limits import MAX_BODY_BYTES
from tests.e2e.house import SECRET, SIGNED, SIGNING, House, open_house
from tests.fakes.openai import Call, Fail
from tests.fakes.telegram import Message

HI = {"message_id": 1, "date": 1, "chat": {"id": 1001, "type": "private"}, "text": "hi"}
UPDATE = {"update_id": 7, "message": HI}
WORDS = "the-canary-words-of-Ana"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Telegram-Bot-Api-Secret-Token": ""},
        {"X-Telegram-Bot-Api-Secret-Token": SECRET[:-1]},
        {"X-Telegram-Bot-Api-Secret-Token": SECRET + "x"},
        {"X-Telegram-Bot-Api-Secret-Token": SECRET.swapcase()},
        {"X-Telegram-Bot-Api-Secret-Token": "é" * 16},
        {"Authorization": f"Bearer {SECRET}"},
    ],
)
@pytest.mark.ledger("MISC-18")
async def test_an_unproven_request_is_refused(house: House, headers: dict[str, str]) -> None:
    assert await house.post(json.dumps(UPDATE).encode(), headers) == (401, "not proven to come from the platform")
    assert await house.post(b"\xff not even JSON", headers) == (401, "not proven to come from the platform")
    assert (await house.gateway.store.stats()).waiting == 0


async def test_a_secret_that_comes_twice_is_refused(house: House) -> None:
    body = json.dumps(UPDATE).encode()
    async with aiohttp.ClientSession() as http:
        headers = [(name, value) for name, value in SIGNED.items() for _ in range(2)]
        async with http.post(house.webhook, data=body, headers=headers) as answer:
            assert answer.status == 401


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"update_id": "seven"},
        {"update_id": 7},
        {"update_id": 7, "message": {}},
        {"update_id": 7, "message": {"message_id": 1, "chat": {"id": "x", "type": "private"}}},
        {"update_id": 7, "callback_query": {"id": "1", "from": {"id": 1, "is_bot": False}}},
        {"update_id": 7, "business_message": {"text": "hi"}},
    ],
)
async def test_authentic_nonsense_is_taken_and_its_shape_is_kept(house: House, update: dict[str, Any]) -> None:
    body = json.dumps(update).encode()
    assert await house.post(body) == (200, "")
    assert await house.post(body) == (200, "")
    assert await house.gateway.store.dead_letters() == []
    ((_, record),) = await house.gateway.store.scan(SHAPES)
    assert isinstance(record.value, dict) and record.value["shape"] == shape_of(body)
    assert (await house.asks("hi", "Hello.")).text == "Hello."


async def test_other_paths_and_methods_are_404_or_405(house: House) -> None:
    async with aiohttp.ClientSession() as http:
        for method, path, status in [
            ("GET", "/webhooks/telegram", 405),
            ("PUT", "/webhooks/telegram", 405),
            ("POST", "/webhooks/slack", 404),
            ("POST", "/webhooks/webchat", 404),
            ("POST", "/webhooks/app", 404),
            ("POST", "/webhooks/telegram/", 404),
            ("POST", "/webhooks/../webhooks/telegram%2f", 404),
            ("GET", "/", 404),
            ("GET", "/chat", 404),
            ("GET", "/admin", 404),
            ("GET", "/artifacts/x.y", 404),
            ("GET", "/livez", 200),
            ("GET", "/readyz", 200),
        ]:
            async with http.request(method, house.url + path, headers=SIGNED) as answer:
                assert (method, path, answer.status) == (method, path, status)
                assert "Server" not in answer.headers


async def test_gateway_webhook_answers_as_the_own_server_does(house: House) -> None:
    async def sent(channel: str, body: bytes, headers: dict[str, str]) -> int:
        url = f"https://bot.example.com/webhooks/{channel}"
        request = WebhookRequest(method="POST", url=url, headers=headers, body=body)
        return (await house.gateway.webhook(channel, request)).status

    signed = {name.lower(): value for name, value in SIGNED.items()}
    update = json.dumps({"update_id": 7, "message": HI | {"from": house.ana.to_json()}}).encode()
    await house.says("/start")
    house.model.script(["Hello."])
    assert [await sent("telegram", update, headers) for headers in (signed, signed, {})] == [200, 200, 401]
    assert [await sent(name, update, signed) for name in ("slack", "webchat", "app", "")] == [404] * 4
    assert await sent("telegram", b"hi", signed) == 400
    await house.until(lambda: house.texts()[1:] == ["Hello."])


async def test_no_secret_and_no_words_of_a_person_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house(tmp_path, allow="telegram:7000001:1001") as house:
        key, token = house.model.key, house.telegram.token
        await house.asks(f"list {WORDS}", Call("list_invoices", {}), f"Here: {WORDS}")
        prompt = await house.prompt(WORDS)
        await house.says(f"yes {WORDS}", by=house.telegram.person("Bob"))
        await house.presses(Message(prompt.chat, 1, house.telegram.bot, once_shown={"Confirm": WORDS}))
        house.shop.error = RuntimeError(f"{WORDS} {SECRET} {SIGNING} {key}")
        await house.presses(prompt)
        await house.until(lambda: "Confirm" not in prompt.buttons)
        faults: list[dict[str, Any]] = [
            {"status": 400, "description": f"Bad Request: {WORDS}"},
            {"status": 502, "html": True},
            {"cut": True},
        ]
        for fault in faults:
            house.telegram.fail_next("sendMessage", **fault)
            await house.says(f"/total {WORDS}")
            await house.idle()
            await house.later(60)
        await house.telegram.deliver("message", house.ana, {"message_id": 1, "text": WORDS})
        refused = Fail(400, message=f"do not say {WORDS} {key}")
        house.model.script([refused] * 2)  # the turn runs again if a decision has just changed its records
        await house.says(f"break {WORDS}")
        await house.until(lambda: house.model.requests[3:])
        await house.idle()
        forged = {"X-Telegram-Bot-Api-Secret-Token": WORDS}
        bodies = (WORDS.encode(), json.dumps({"update_id": 1, WORDS: WORDS}).encode(), b"x" * MAX_BODY_BYTES + b"x")
        answers = [await house.post(body, headers) for body in bodies for headers in (SIGNED, forged)]
    assert [status for status, _ in answers] == [400, 401, 200, 401, 413, 413]
    # The fake servers of the platform and the model log their requests.
    records = [record for record in caplog.records if record.name != "aiohttp.access"]
    assert len(records) > 50
    form = logging.Formatter()
    seen = [text for _, text in answers] + [form.format(record) + str(vars(record)) for record in records]
    hidden = {
        "the token": token.partition(":")[2],
        "the webhook's secret": SECRET,
        "ASKFIRST_SECRET": SIGNING,
        "the model's key": key,
        "a person's words": WORDS,
    }
    for what, secret in hidden.items():
        assert [line for line in seen if secret in line] == [], what


@pytest.mark.parametrize("size", [-1, 10**19, 10**400], ids=["none", "no 64 bits", "no float"])
async def test_file_of_an_impossible_size_is_an_ordinary_message(house: House, size: int) -> None:
    file = {"file_id": "f", "file_unique_id": "u", "file_name": "bill.pdf", "file_size": size}
    await house.asks("hi", "Hello.")
    house.model.script(["I see a file."])
    update = json.dumps({"update_id": 8, "message": HI | {"from": house.ana.to_json(), "document": file}})
    assert await house.post(update.encode()) == (200, "")
    await house.until(lambda: house.texts()[1:] == ["I see a file."])
