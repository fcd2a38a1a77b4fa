"""Parts sent to Twilio, and the reading of each answer."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from channels import (
    Ambiguous,
    MissingSetting,
    OpenMedia,
    OptedOut,
    Part,
    RateLimited,
    Receipt,
    SendError,
    Unavailable,
    Undeliverable,
)
from channels.events import Attachment
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.twilio.api import API_URL, LARGEST_DOWNLOAD, Login, Patience, SessionClient, refusal
from tests.channels.twilio.conftest import ANA, Moment, place
from tests.fakes.twilio import FakeTwilio, Media, sid

TEXT = Part(call="message", arguments={"body": "Delete INV-42?"})
FILE = OpenMedia(
    sha256="0" * 64,
    mime_type="application/pdf",
    filename="INV-42.pdf",
    size=4,
    path=Path("/nowhere"),
    link="https://bot.example.com/artifacts/abc",
)


async def test_a_text_goes_from_our_number_to_theirs(sms: SmsChannel, twilio: FakeTwilio) -> None:
    receipt = await sms.send(place(sms), TEXT, key="1")
    (sent,) = twilio.sent
    assert (sent.sid, sent.to, sent.from_, sent.body) == (receipt.message_id, ANA, twilio.sms, "Delete INV-42?")
    assert not sent.status_callback


async def test_whatsapp_is_named_in_both_numbers(whatsapp: WhatsAppChannel, twilio: FakeTwilio) -> None:
    await whatsapp.send(place(whatsapp), TEXT, key="1")
    (sent,) = twilio.sent
    assert (sent.to, sent.from_) == (f"whatsapp:{ANA}", f"whatsapp:{twilio.whatsapp}")


async def test_status_callback_is_the_public_url_with_the_parts_key(sms: SmsChannel, twilio: FakeTwilio) -> None:
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel(
            twilio.account_sid, twilio.auth_token, twilio.sms, public_url="http://127.0.0.1:9/", api_url=twilio.url
        )
        await channel.start(http)
        await channel.send(place(channel), TEXT, key="0a1b&c")
    assert twilio.sent[0].status_callback == "http://127.0.0.1:9/webhooks/twilio/status?part=0a1b%26c#rc=3&rp=all"
    assert (channel.capabilities.reports, sms.capabilities.reports) == (True, False)


async def test_message_in_doubt_is_looked_up_by_text(
    sms: SmsChannel, whatsapp: WhatsAppChannel, twilio: FakeTwilio
) -> None:
    began = datetime.now(UTC)
    await sms.send(place(sms), TEXT, key="1")
    await whatsapp.send(place(whatsapp), TEXT, key="2")
    twilio.fail_next(cut=True, taken=True)
    with pytest.raises(Ambiguous):
        await sms.send(place(sms), TEXT, key="3")
    newest = Receipt(message_id=twilio.sent[-1].sid)
    assert await sms.look_up(place(sms), TEXT, key="3", since=began) == newest
    assert await sms.look_up(place(sms), TEXT, key="3", since=began + timedelta(hours=1)) is None
    assert await sms.look_up(place(sms, "+15550001111"), TEXT, key="3", since=began) is None
    other = Part(call="message", arguments={"body": "Delete INV-43?"})
    assert await sms.look_up(place(sms), other, key="3", since=began) is None
    with pytest.raises(Undeliverable, match="file_has_no_text"):
        await sms.look_up(place(sms), Part(call="link", arguments={"body": "x"}, media=FILE), key="3", since=began)


@pytest.mark.ledger("RES-17")
async def test_a_file_is_fetched_by_twilio_or_linked(
    sms: SmsChannel, whatsapp: WhatsAppChannel, twilio: FakeTwilio
) -> None:
    link = await _serving(twilio)
    shown = replace(FILE, link=link)
    await whatsapp.send(place(whatsapp), Part(call="media", arguments={"body": "INV-42.pdf"}, media=shown), key="1")
    await sms.send(place(sms), Part(call="link", arguments={"body": "INV-42.pdf"}, media=shown), key="2")
    fetched = await twilio.wait_for(lambda: twilio.sent[0].media)
    assert (twilio.sent[0].media_urls, fetched) == ((link,), [Media(b"%PDF", "application/pdf")])
    assert twilio.sent[0].body == ""
    assert twilio.sent[1].body == f"INV-42.pdf: {link}"


@pytest.mark.ledger("RES-17")
async def test_a_file_that_twilio_does_not_take_here_goes_as_a_link(sms: SmsChannel, twilio: FakeTwilio) -> None:
    picture = Part(call="media", arguments={"body": "photo.png"}, media=replace(FILE, link=await _serving(twilio)))
    twilio.fail_next(400, 21612)  # this number can send no MMS there
    receipt = await sms.send(place(sms), picture, key="1")
    (sent,) = twilio.sent
    assert (sent.sid, sent.media_urls, sent.body) == (receipt.message_id, (), f"photo.png: {_link(picture)}")


@pytest.mark.parametrize(
    ("answer", "error"), [({"code": 21610}, OptedOut), ({"status": 503}, Unavailable), ({"cut": True}, Ambiguous)]
)
async def test_failed_file_is_not_sent_another_way_without_a_reason(
    sms: SmsChannel, twilio: FakeTwilio, answer: dict[str, Any], error: type[Exception]
) -> None:
    picture = Part(call="media", arguments={"body": "photo.png"}, media=FILE)
    twilio.fail_next(**{"status": 400, **answer})
    with pytest.raises(error):
        await sms.send(place(sms), picture, key="1")
    assert sum(call.method == "POST" for call in twilio.calls) == 1


async def test_a_file_without_a_link_cannot_go(sms: SmsChannel, twilio: FakeTwilio) -> None:
    part = Part(call="link", arguments={"body": "INV-42.pdf"}, media=replace(FILE, link=None))
    with pytest.raises(Undeliverable, match="no_public_url"):
        await sms.send(place(sms), part, key="1")
    assert not twilio.sent


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        ({"status": 429, "code": 20429, "retry_after": 7}, RateLimited, "20429"),
        ({"status": 429, "html": True}, RateLimited, "429"),
        ({"status": 400, "code": 14107}, RateLimited, "14107"),
        ({"status": 400, "code": 63018}, RateLimited, "63018"),
        ({"status": 400, "code": 21611}, Unavailable, "21611"),
        ({"status": 400, "code": 30001}, Unavailable, "30001"),
        ({"status": 400, "code": 21610}, OptedOut, "21610"),
        ({"status": 400, "code": 21211}, Undeliverable, "21211"),
        ({"status": 400, "code": 21614}, Undeliverable, "21614"),
        ({"status": 400, "code": 21408}, Undeliverable, "21408"),
        ({"status": 400, "code": 21617}, Undeliverable, "21617"),
        ({"status": 400, "code": 63016}, Undeliverable, "63016"),
        ({"status": 400, "code": 63024}, Undeliverable, "63024"),
        *(({"status": 400, "code": code}, Undeliverable, str(code)) for code in range(30003, 30009)),
        ({"status": 401, "code": 20003}, Unavailable, "unauthorized"),
        ({"status": 403, "code": 20003}, Unavailable, "unauthorized"),
        *(
            ({"status": status, "html": True}, Unavailable, f"http_{status}")
            for status in (400, 401, 403, 404, 407, 451)
        ),
        ({"status": 403}, Unavailable, "http_403"),  # JSON, and not Twilio's
        ({"status": 413, "html": True}, Undeliverable, "http_413"),
        ({"status": 301, "html": True}, Unavailable, "http_301"),
        ({"status": 500, "code": 20500}, Unavailable, "20500"),
        ({"status": 502, "html": True}, Unavailable, "http_502"),
        ({"status": 503}, Unavailable, "http_503"),
        ({"cut": True, "taken": True}, Ambiguous, "no_answer"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
async def test_each_error_answer_raises_its_own_error(
    sms: SmsChannel, twilio: FakeTwilio, answer: dict[str, Any], error: type[SendError], code: str
) -> None:
    twilio.fail_next(**answer)
    with pytest.raises(error) as raised:
        await sms.send(place(sms), TEXT, key="1")
    assert (type(raised.value), str(raised.value)) == (error, code)
    mend = getattr(raised.value, "mend", None)
    assert (mend and mend.setting) == ("TWILIO_AUTH_TOKEN" if code == "unauthorized" else None)
    assert sum(call.method == "POST" for call in twilio.calls) == 1  # the library makes no retries of its own


@pytest.mark.parametrize(
    ("status", "error", "code"), [(400, Undeliverable, "http_400"), (401, Unavailable, "unauthorized")]
)
def test_a_refusal_of_twilios_without_a_code_is_its_own(status: int, error: type[Exception], code: str) -> None:
    raised = refusal(status, {}, json.dumps({"status": status, "message": "no"}))
    assert (type(raised), raised.code) == (error, code)


async def test_an_answer_without_end_is_not_read_to_its_end(twilio: FakeTwilio) -> None:
    login = Login(twilio.account_sid, twilio.auth_token, "TWILIO_AUTH_TOKEN")
    path = f"{API_URL}/2010-04-01/Accounts/{twilio.account_sid}/Messages.json"
    async with aiohttp.ClientSession() as http:
        with pytest.raises(Ambiguous, match="answer_too_large"):
            await SessionClient(http, twilio.url, login, longest_answer=10).request("GET", path)


@pytest.mark.parametrize("said", ["", "{}", "[]", "true", "no JSON"])
async def test_a_success_that_names_no_message_is_in_doubt(said: str, aiohttp_server: AiohttpServer) -> None:
    async def answer(request: web.Request) -> web.Response:
        asked = request.method == "GET"
        return web.Response(
            status=200 if asked else 201, text='{"messages": []}' if asked else said, content_type="application/json"
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = await aiohttp_server(app)
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel("AC" + "0" * 32, "token", "+15551230000", api_url=str(server.make_url("")))
        await channel.start(http)
        with pytest.raises(Ambiguous, match="unreadable_answer"):
            await channel.send(place(channel), TEXT, key="1")


async def test_wait_named_by_twilio_is_kept_and_an_unnamed_one_grows(
    sms: SmsChannel, twilio: FakeTwilio, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    monkeypatch.setattr(sms._started, "_patience", Patience(moment))

    async def wait(named: int | None = None) -> float:
        twilio.fail_next(429, 20429, retry_after=named)
        with pytest.raises(RateLimited) as raised:
            await sms.send(place(sms), TEXT, key="1")
        return raised.value.retry_after_seconds

    assert [await wait(7), await wait()] == [7.0, 2.0]
    assert await wait() == 2.0  # of calls that were under way together
    waits = []
    for _ in range(6):
        moment.seconds += 60.0
        waits.append(await wait())
    assert waits == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    await sms.send(place(sms), TEXT, key="1")
    assert await wait() == 2.0


async def test_a_token_that_twilio_does_not_know_is_found_at_start(twilio: FakeTwilio) -> None:
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel(twilio.account_sid, "another", twilio.sms, api_url=twilio.url)
        with pytest.raises(MissingSetting) as raised:
            await channel.start(http)
    assert raised.value.setting == "TWILIO_AUTH_TOKEN"
    assert "another" not in str(raised.value)


async def test_the_log_has_no_secrets(sms: SmsChannel, twilio: FakeTwilio, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await sms.send(place(sms), TEXT, key="1")
    twilio.fail_next(400, 21610)
    with pytest.raises(Undeliverable) as raised:
        await sms.send(place(sms), TEXT, key="1")
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith(("aiohttp", "asyncio"))]
    assert not any(
        secret in text for text in (*ours, str(raised.value)) for secret in (ANA, "INV-42", twilio.auth_token)
    )


async def test_typing_is_shown_until_answered(whatsapp: WhatsAppChannel, twilio: FakeTwilio, moment: Moment) -> None:
    first, second = (twilio.form(ANA, text, whatsapp=True) for text in ("hello", "are you there?"))
    twilio._inbound += [first, second]
    await whatsapp.typing(place(whatsapp))
    moment.seconds = 19.0  # it is still to be seen
    await whatsapp.typing(place(whatsapp))
    assert twilio.typing == [second["MessageSid"]]
    moment.seconds = 20.0
    await whatsapp.typing(place(whatsapp))
    await whatsapp.send(place(whatsapp), TEXT, key="1")
    await whatsapp.typing(place(whatsapp))
    assert twilio.typing == [second["MessageSid"]] * 3


async def test_typing_that_cannot_be_shown_raises_no_error(whatsapp: WhatsAppChannel, twilio: FakeTwilio) -> None:
    await whatsapp.typing(place(whatsapp, "+15550000000"))  # no message came from there
    await twilio._runner.cleanup()
    await whatsapp.typing(place(whatsapp))
    assert twilio.typing == []


# ── files that people sent ──


async def test_a_file_is_fetched_with_the_password_for_the_api_alone(sms: SmsChannel, twilio: FakeTwilio) -> None:
    form = twilio.form(ANA, "", files=[Media(b"\x89PNG", "image/png")])
    found = b"".join([piece async for piece in sms.fetch(Attachment(kind="image", ref=form["MediaUrl0"]))])
    api, cdn = twilio.calls[-2:]
    assert found == b"\x89PNG"
    assert (api.path.startswith("/2010-04-01/"), api.authorization is not None) == (True, True)
    assert (cdn.path.startswith("/cdn/"), cdn.authorization) == (True, None)


async def test_a_file_that_is_too_large_is_left(sms: SmsChannel, twilio: FakeTwilio) -> None:
    form = twilio.form(ANA, "", files=[Media(bytes(LARGEST_DOWNLOAD + 1), "image/png")])
    with pytest.raises(Undeliverable, match="file_too_large"):
        [piece async for piece in sms.fetch(Attachment(kind="image", ref=form["MediaUrl0"]))]


async def test_a_file_that_is_gone_is_said_to_be(sms: SmsChannel, twilio: FakeTwilio) -> None:
    url = f"https://api.twilio.com/2010-04-01/Accounts/{twilio.account_sid}/Messages/MM1/Media/ME1"
    with pytest.raises(Undeliverable, match="file_unknown"):
        [piece async for piece in sms.fetch(Attachment(kind="image", ref=url))]


@pytest.mark.parametrize(
    "ref",
    ["geo:48.1,16.2", "http://169.254.169.254/latest", "https://evil.example/x", "http://[x", "mailto:ana", "", "file"],
)
async def test_fetch_calls_no_other_address(sms: SmsChannel, twilio: FakeTwilio, ref: str) -> None:
    calls = len(twilio.calls)
    with pytest.raises(Undeliverable, match="not_a_file"):
        [piece async for piece in sms.fetch(Attachment(kind="document", ref=ref))]
    assert len(twilio.calls) == calls


async def test_a_redirect_into_the_house_is_not_followed(sms: SmsChannel, twilio: FakeTwilio) -> None:
    async with FakeTwilio() as inside:
        media = twilio.form(ANA, "", files=[Media(b"", "image/png")])["MediaUrl0"]
        twilio.media_location = f"{inside.url}/cdn/secret"
        with pytest.raises(Undeliverable, match="file_elsewhere"):
            [piece async for piece in sms.fetch(Attachment(kind="image", ref=media))]
        assert inside.calls == []


def _link(part: Part) -> str | None:
    assert isinstance(part.media, OpenMedia)
    return part.media.link


async def _serving(twilio: FakeTwilio) -> str:
    """A public address of a file."""
    form = twilio.form(ANA, "", files=[Media(b"%PDF", "application/pdf")])
    return f"{twilio.url}/cdn/{form['MediaUrl0'].rpartition('/')[2]}"


# ── How Twilio is called: with the account's token or an API key, and by a number or a messaging service ──


KEY, SECRET = sid("SK", 1), "a-secret-of-a-key"
SERVICE = sid("MG", 1)


def settings(twilio: FakeTwilio, **more: str) -> dict[str, str]:
    return {
        "TWILIO_ACCOUNT_SID": twilio.account_sid,
        "TWILIO_AUTH_TOKEN": twilio.auth_token,
        "TWILIO_SMS_FROM": twilio.sms,
        "TWILIO_WHATSAPP_FROM": twilio.whatsapp,
        "TWILIO_API_URL": twilio.url,
        **more,
    }


async def test_with_a_standard_key_the_token_is_not_shown_to_twilio(twilio: FakeTwilio) -> None:
    twilio.api_keys[KEY] = SECRET
    given = settings(twilio, TWILIO_API_KEY=KEY, TWILIO_API_SECRET=SECRET)
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel.from_settings(given, way="polling")
        await channel.start(http)
        await channel.send(place(channel), TEXT, key="1")
    assert [sent.body for sent in twilio.sent] == ["Delete INV-42?"]
    assert {call.authorization for call in twilio.calls} == {aiohttp.encode_basic_auth(KEY, SECRET)}


async def test_a_key_that_is_not_taken_is_named(twilio: FakeTwilio) -> None:
    given = settings(twilio, TWILIO_API_KEY=KEY, TWILIO_API_SECRET=SECRET)
    async with aiohttp.ClientSession() as http:
        with pytest.raises(MissingSetting, match="with TWILIO_API_KEY") as refused:
            await SmsChannel.from_settings(given, way="polling").start(http)
    assert refused.value.setting == "TWILIO_API_SECRET"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"TWILIO_API_KEY": KEY}, "TWILIO_API_SECRET"),
        ({"TWILIO_API_SECRET": SECRET}, "TWILIO_API_KEY"),
        ({"TWILIO_API_KEY": "AC1", "TWILIO_API_SECRET": SECRET}, "TWILIO_API_KEY"),
    ],
)
def test_half_a_key_is_refused(twilio: FakeTwilio, given: dict[str, str], setting: str) -> None:
    with pytest.raises(MissingSetting) as refused:
        SmsChannel.from_settings(settings(twilio, **given), way="polling")
    assert refused.value.setting == setting


async def test_messaging_service_sends_sms_and_not_whatsapp(twilio: FakeTwilio) -> None:
    twilio.service = SERVICE
    given = settings(twilio, TWILIO_MESSAGING_SERVICE_SID=SERVICE)
    async with aiohttp.ClientSession() as http:
        for kind in (SmsChannel, WhatsAppChannel):
            channel = kind.from_settings(given, way="polling")
            await channel.start(http)
            await channel.send(place(channel), TEXT, key="1")
    assert [(sent.from_, sent.service) for sent in twilio.sent] == [
        (twilio.sms, SERVICE),
        (f"whatsapp:{twilio.whatsapp}", ""),
    ]


async def test_number_outside_the_service_is_refused_with_its_code(twilio: FakeTwilio) -> None:
    given = settings(twilio, TWILIO_MESSAGING_SERVICE_SID=SERVICE)
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel.from_settings(given, way="polling")
        await channel.start(http)
        with pytest.raises(Undeliverable, match="21712"):
            await channel.send(place(channel), TEXT, key="1")
