"""Both channels behind the real gateway and web server: one URL, one account, one store."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

from channels import Channel, MissingSetting, Parsed
from gateway import Gateway, Settings
from gateway.store.base import StoreUnavailable
from gateway.testing import ScriptedProvider, ToolCall
from gateway.web import receive, serve
from tests.channels.twilio.conftest import ANA
from tests.channels.twilio.forms import request
from tests.e2e.shop import Shop, pdf_of
from tests.fakes.twilio import Answer, FakeTwilio

EMPTY = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
TAKEN = Answer(200, EMPTY, "text/xml")
DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-42"})
BY_CHANNEL = pytest.mark.parametrize("whatsapp", [False, True], ids=["sms", "whatsapp"])


class House:
    def __init__(self, gateway: Gateway, twilio: FakeTwilio, shop: Shop) -> None:
        self.gateway, self.twilio, self.shop = gateway, twilio, shop

    async def idle(self) -> None:
        while not await self.gateway.engine.idle():
            await asyncio.sleep(0.002)

    async def later(self, seconds: float) -> None:
        self.gateway.store.offset_seconds += seconds
        await self.gateway.engine.due()

    async def prompt(self, **how: Any) -> str:
        """Ana asks for INV-42 to be deleted; the code of the prompt, once its arrival is known."""
        assert await self.twilio.person_says(ANA, "delete INV-42", **how) == TAKEN
        prompt = await self.twilio.wait_for(lambda: self.twilio.last(ANA, containing="INV-42"))
        await self.idle()
        codes = {str(word) for word in re.findall(r"\b[A-Z0-9]{4}\b", prompt.body) if re.search(r"\d", word)}
        (code,) = codes
        return code


@contextlib.asynccontextmanager
async def open_house(directory: Path, script: Sequence[Any], twilio: FakeTwilio | None = None) -> AsyncIterator[House]:
    async with contextlib.AsyncExitStack() as stack:
        twilio = await stack.enter_async_context(twilio or FakeTwilio())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shop = Shop()
        settings = _settings(directory, twilio, public_url=f"http://127.0.0.1:{port}")
        bot = shop.bot(ScriptedProvider(script))
        gateway = await stack.enter_async_context(await asyncio.to_thread(Gateway, bot, settings))
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", port)
        stack.push_async_callback(running.cleanup)
        twilio.webhook_url = f"http://127.0.0.1:{port}/webhooks/twilio"
        yield House(gateway, twilio, shop)


def _settings(directory: Path, twilio: FakeTwilio, **values: Any) -> Settings:
    account = {
        "twilio_account_sid": twilio.account_sid,
        "twilio_auth_token": twilio.auth_token,
        "twilio_sms_from": twilio.sms,
        "twilio_whatsapp_from": f"whatsapp:{twilio.whatsapp}",
        "twilio_api_url": twilio.url,
    }
    store = f"sqlite:///{directory / 'askfirst.db'}"
    return Settings(**{"store": store, "secret": "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK", "allow": "*", **account, **values})


@BY_CHANNEL
async def test_what_is_confirmed_by_its_code_is_done_once(tmp_path: Path, whatsapp: bool) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        code = await house.prompt(whatsapp=whatsapp)
        form = house.twilio.form(ANA, f"ok {code.lower()}", whatsapp=whatsapp)
        assert await house.twilio.deliver(form) == TAKEN
        done = await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="is deleted"))
        assert done.to.startswith("whatsapp:") is whatsapp
        await house.later(29 * 86400.0)  # its signature proves it for ever
        assert await house.twilio.deliver(form) == TAKEN
        await house.idle()
        assert house.shop.deleted == ["INV-42"]
        assert house.twilio.last(ANA) is done


async def test_a_reply_to_the_prompt_decides_on_whatsapp(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        await house.prompt(whatsapp=True)
        prompt = house.twilio.last(ANA)
        await house.later(120.0)  # a bare word would count no more
        await house.twilio.person_says(ANA, "yes", whatsapp=True, reply_to=prompt)
        await house.twilio.wait_for(lambda: house.shop.deleted)
        await house.idle()


@BY_CHANNEL
async def test_who_opts_out_withdraws_what_is_open_and_hears_nothing(tmp_path: Path, whatsapp: bool) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        code = await house.prompt(whatsapp=whatsapp)
        before = len(house.twilio.sent)
        assert await house.twilio.person_says(ANA, "STOP", whatsapp=whatsapp) == TAKEN
        await house.idle()
        assert len(house.twilio.sent) == before
        await house.twilio.person_says(ANA, f"ok {code}", whatsapp=whatsapp)
        await house.idle()
        assert house.shop.deleted == []


async def test_a_file_is_fetched_from_our_server_and_its_arrival_reported(tmp_path: Path) -> None:
    script = [ToolCall("send_invoice_pdf", {"invoice_id": "INV-42"}), "Here it is."]
    async with open_house(tmp_path, script, FakeTwilio(reports_first=True)) as house:
        await house.twilio.person_says(ANA, "send INV-42", whatsapp=True)
        sent = await house.twilio.wait_for(lambda: next((s for s in house.twilio.sent if s.media), None))
        assert (sent.media[0].content, sent.media[0].mime_type) == (pdf_of("INV-42"), "application/pdf")
        await house.twilio.wait_for(lambda: len(sent.reports) == 2)
        assert sent.reports == [("sent", 200), ("delivered", 200)]
        await house.idle()


async def test_the_same_file_by_sms_is_a_link(tmp_path: Path) -> None:
    script = [ToolCall("send_invoice_pdf", {"invoice_id": "INV-42"}), "Here it is."]
    async with open_house(tmp_path, script) as house, aiohttp.ClientSession() as http:
        await house.twilio.person_says(ANA, "send INV-42")
        sent = await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="INV-42.pdf: http"))
        async with http.get(sent.body.partition(": ")[2]) as found:
            assert await found.read() == pdf_of("INV-42")
        await house.idle()


async def test_sms_and_whatsapp_are_two_conversations(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE, "Nothing is open here."]) as house:
        code = await house.prompt()
        await house.twilio.person_says(ANA, f"ok {code}", whatsapp=True)
        await house.idle()
        assert house.shop.deleted == []


async def test_only_twilio_is_heard_and_only_where_it_calls(tmp_path: Path) -> None:
    async with open_house(tmp_path, []) as house, aiohttp.ClientSession() as http:
        form = house.twilio.form(ANA, "hello")
        root = house.twilio.webhook_url
        for url, headers, status in (
            (root, {}, 401),
            (root, house.twilio.signed(f"{root}/status", form), 401),
            (f"{root}/other", house.twilio.signed(f"{root}/other", form), 404),
        ):
            async with http.post(url, data=form, headers=headers) as response:
                assert response.status == status
        async with http.post(root, data=b"\xff", headers={"Content-Type": "application/octet-stream"}) as response:
            assert response.status == 401
        assert house.twilio.sent == []


@BY_CHANNEL
async def test_who_was_not_heard_is_asked_to_send_it_again(
    tmp_path: Path, whatsapp: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(channel: Channel, parsed: Parsed) -> None:
        raise StoreUnavailable("gone")

    async with open_house(tmp_path, []) as house:
        form, url = house.twilio.form(ANA, "hello", whatsapp=whatsapp), house.twilio.webhook_url
        headers = {name.lower(): value for name, value in house.twilio.signed(url, form).items()}
        channel = house.gateway.channels["whatsapp" if whatsapp else "sms"]
        response = await receive(channel, request(form, headers=headers, url=url), accept=broken, now=datetime.now(UTC))
    assert (response.status, response.headers["Content-Type"]) == (200, "text/xml; charset=utf-8")
    assert b"<Message>Your message was not received. Please send it again.</Message>" in response.body
    assert "a request was not stored" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", ["twilio", "sms"])
async def test_another_server_hands_requests_over_by_either_name(tmp_path: Path, name: str) -> None:
    async with open_house(tmp_path, ["Hello, Ana."]) as house:
        form, url = house.twilio.form(ANA, "hello"), house.twilio.webhook_url
        headers = {name.lower(): value for name, value in house.twilio.signed(url, form).items()}
        response = await house.gateway.webhook(name, request(form, headers=headers, url=url))
        assert (response.status, response.body.decode()) == (200, EMPTY)
        await house.twilio.wait_for(lambda: house.twilio.last(ANA, containing="Hello, Ana."))
        await house.idle()


# ── settings ──


@pytest.mark.parametrize(
    ("changes", "on"),
    [
        ({}, ("sms", "whatsapp")),
        ({"twilio_whatsapp_from": None}, ("sms",)),
        ({"twilio_sms_from": None}, ("whatsapp",)),
    ],
)
def test_each_number_switches_its_channel_on(tmp_path: Path, changes: dict[str, None], on: tuple[str, ...]) -> None:
    settings = _settings(
        tmp_path, FakeTwilio(), public_url="https://bot.example.com", twilio_api_url="https://x.example"
    )
    settings = settings.model_copy(update=changes)
    assert settings.channels_on("webhook") == on
    assert list(Gateway(Shop().bot(ScriptedProvider([])), settings).channels) == list(on)


@pytest.mark.parametrize(
    ("missing", "way", "named"),
    [
        (["twilio_account_sid"], "webhook", "TWILIO_ACCOUNT_SID"),
        (["twilio_auth_token"], "polling", "TWILIO_AUTH_TOKEN"),
        (["public_url"], "webhook", "ASKFIRST_PUBLIC_URL"),
        (["twilio_sms_from", "twilio_whatsapp_from"], "webhook", "TWILIO_SMS_FROM or TWILIO_WHATSAPP_FROM"),
    ],
)
def test_half_of_the_settings_is_an_error_that_names_the_rest(
    tmp_path: Path, missing: list[str], way: Literal["webhook", "polling"], named: str
) -> None:
    settings = _settings(
        tmp_path, FakeTwilio(), public_url="https://bot.example.com", twilio_api_url="https://x.example"
    )
    settings = settings.model_copy(update=dict.fromkeys(missing))
    with pytest.raises(MissingSetting, match=named):
        settings.channels_on(way)


def test_the_public_url_alone_means_no_channel(tmp_path: Path) -> None:
    settings = Settings(store="sqlite:///x.db", public_url="https://bot.example.com")
    assert settings.channels_on("webhook") == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TWILIO_ACCOUNT_SID", "SK00000000000000000000000000000001"),
        ("TWILIO_SMS_FROM", "Askfirst"),
        ("TWILIO_SMS_FROM", "5551234567x"),
        ("TWILIO_WHATSAPP_FROM", "whatsapp:12345"),
    ],
)
def test_what_cannot_work_is_refused_with_its_mend(tmp_path: Path, variable: str, value: str) -> None:
    settings = _settings(
        tmp_path, FakeTwilio(), public_url="https://bot.example.com", twilio_api_url="https://x.example"
    )
    settings = settings.model_copy(update={variable.lower(): value})
    with pytest.raises(MissingSetting, match=variable):
        Gateway(Shop().bot(ScriptedProvider([])), settings)
