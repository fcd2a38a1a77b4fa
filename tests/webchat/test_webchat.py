"""The chat page as a channel: settings, proofs, events and parts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Address,
    AnswerStopped,
    Button,
    ButtonPress,
    Feedback,
    Forged,
    Malformed,
    Media,
    Message,
    MissingSetting,
    Part,
    Receipt,
    Reply,
    Stale,
    WebhookRequest,
)
from channels.webchat import COOKIE, SECURE_COOKIE, SessionCookies, WebChatChannel
from channels.webchat.verify import SESSION_SECONDS
from gateway import Agent, ChannelAgent
from gateway.assembly import in_memory
from gateway.stored import keys

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = "o" * 32, "n" * 32
ADDRESS = Address(channel="webchat", account="local", place="s1")
MEDIA = Media(sha256="0" * 64, mime_type="application/pdf", filename="a.pdf", size=1)


def made(key: str = NEW, hosts: str = "localhost,127.0.0.1,::1") -> WebChatChannel:
    return WebChatChannel.from_settings({"WEBCHAT_KEY": key, "WEBCHAT_HOSTS": hosts}, way="webhook")


def request(body: str | bytes = b"{}", *, key: str = NEW, at: datetime = NOW, **changed: str) -> WebhookRequest:
    session = SessionCookies([key.encode()]).begin(at, lambda size: b"s" * size)
    headers = {
        "host": "localhost:8000",
        "origin": "http://localhost:8000",
        "sec-fetch-site": "same-origin",
        "cookie": f"other=1; {COOKIE}={session.cookie}",
        "accept-language": "pt-BR,pt;q=0.9",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return WebhookRequest(
        "POST", "http://localhost:8000/chat/messages", headers, body.encode() if isinstance(body, str) else body
    )


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "WEBCHAT_KEY"),
        ({"WEBCHAT_KEY": "short", "WEBCHAT_HOSTS": "localhost"}, "WEBCHAT_KEY"),
        ({"WEBCHAT_KEY": f"{NEW},short", "WEBCHAT_HOSTS": "localhost"}, "WEBCHAT_KEY"),
        ({"WEBCHAT_KEY": NEW}, "WEBCHAT_HOSTS"),
        ({"WEBCHAT_KEY": NEW, "WEBCHAT_HOSTS": " , "}, "WEBCHAT_HOSTS"),
    ],
)
def test_a_missing_setting_is_named(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(MissingSetting) as caught:
        WebChatChannel.from_settings(settings, way="webhook")
    assert caught.value.setting == missing


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.0.0.1:9", "[::1]:8000", "LOCALHOST:8000"])
def test_our_own_page_is_believed_under_every_name_of_ours(host: str) -> None:
    made().verify(request(host=host, origin=f"http://{host}".lower()), NOW)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example@localhost", "localhost@evil.example", "localhost."]
)
def test_no_other_name_is_ours(host: str) -> None:
    with pytest.raises(Forged):
        made().verify(request(host=host, origin=f"http://{host}"), NOW)


def test_both_keys_verify_and_the_first_one_signs() -> None:
    channel = made(f"{NEW},{OLD}")
    channel.verify(request(key=OLD), NOW)
    channel.verify(request(key=NEW), NOW)
    with pytest.raises(Forged):
        made(NEW).verify(request(key=OLD), NOW)


def test_a_session_ends_and_does_not_begin_in_the_future() -> None:
    end = NOW + timedelta(seconds=SESSION_SECONDS)
    made().verify(request(), end)
    with pytest.raises(Stale):
        made().verify(request(), end + timedelta(seconds=1))
    with pytest.raises(Stale):
        made().verify(request(at=NOW + timedelta(hours=1)), NOW)


def test_a_cookie_with_any_bit_flipped_is_forged() -> None:
    channel = made()
    name, _, value = request().headers["cookie"].rpartition("=")
    for position in range(len(value) * 8):
        flipped = bytearray(value.encode())
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(Forged):
            channel.verify(request(cookie=f"{name}={flipped.decode('latin-1')}"), NOW)


def test_a_second_cookie_of_our_name_is_forged() -> None:
    cookie = request().headers["cookie"]
    with pytest.raises(Forged):
        made().verify(request(cookie=f"{cookie}; {COOKIE}=planted"), NOW)


ODD = st.text(max_size=60)


@given(host=ODD, origin=ODD, site=ODD, cookie=ODD | ODD.map(lambda text: f"{COOKIE}={text}"), body=st.binary())
def test_any_unproven_request_raises_forged_only(host: str, origin: str, site: str, cookie: str, body: bytes) -> None:
    forged = request(body, host=host, origin=origin, sec_fetch_site=site, cookie=cookie)
    with pytest.raises(Forged):
        made().verify(forged, NOW)
    with pytest.raises(Forged):
        made().verify(request(body, cookie=cookie), NOW)


@given(st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_a_body_that_is_no_json_of_ours_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        made().parse(request(body))


def test_a_message_is_read_with_person_and_address() -> None:
    parsed = made().parse(request('{"client_id": "abcdefgh", "text": " apaga a fatura\\u0000 "}'))

    session = "c3Nzc3Nzc3Nzc3Nzc3Nzcw"
    [event] = parsed.events
    assert isinstance(event, Message)
    assert (event.text, event.command, event.message_id) == ("apaga a fatura", None, "abcdefgh")
    assert event.event_ids == (f"{session}:abcdefgh",)
    assert str(event.person) == str(event.address) == f"webchat:local:{session}"
    assert event.person is not None
    assert (event.person.name, event.person.language) == (None, "pt-BR")
    assert (parsed.response.status, parsed.response.body) == (200, b'{"status": "accepted"}')


@pytest.mark.parametrize(
    ("text", "command", "rest"),
    [
        ("/start", "start", ""),
        ("/Remind me\\ntomorrow", "remind", "me\\ntomorrow"),
        ("/etc/passwd", None, "/etc/passwd"),
        ("/ hello", None, "/ hello"),
        ("say /start", None, "say /start"),
    ],
)
def test_a_command_is_a_slash_and_a_word(text: str, command: str | None, rest: str) -> None:
    [event] = made().parse(request(f'{{"client_id": "abcdefgh", "text": "{text}"}}')).events
    assert isinstance(event, Message)
    assert (event.command, event.text) == (command, rest.replace("\\n", "\n"))


def test_a_press_is_read() -> None:
    [event] = made().parse(request('{"client_id": "abcdefgh", "token": "00abc", "message_id": "m1"}')).events
    assert isinstance(event, ButtonPress)
    assert (event.token, event.message_id) == ("00abc", "m1")


def test_a_stop_is_an_event_of_the_session() -> None:
    [event] = made().parse(request('{"client_id": "abcdefgh", "stop": true}')).events
    assert isinstance(event, AnswerStopped) and event.person is not None
    assert (event.address.place, event.event_ids) == (event.person.user_id, (f"{event.person.user_id}:abcdefgh",))


@pytest.mark.parametrize(("written", "value"), [('"up"', "up"), ('"down"', "down"), ("null", None)])
def test_a_thumb_is_feedback_of_the_session(written: str, value: str | None) -> None:
    body = f'{{"client_id": "abcdefgh", "message_id": "m1", "feedback": {written}}}'
    [event] = made().parse(request(body)).events
    assert isinstance(event, Feedback) and event.person is not None
    assert (event.message_id, event.value) == ("m1", value)


@pytest.mark.parametrize(
    "body",
    [
        '{"client_id": "abcdefgh", "message_id": "m1", "feedback": "best"}',
        '{"client_id": "abcdefgh", "message_id": "m1", "feedback": true}',
        '{"client_id": "abcdefgh", "feedback": "up"}',
        '{"client_id": "abcdefgh", "text": ""}',
        '{"client_id": "abcdefgh", "text": "  "}',
        '{"client_id": "abcdefgh", "text": 5}',
        '{"client_id": "abcdefgh", "text": "\\ud800"}',
        '{"client_id": "abcdefgh"}',
        '{"client_id": "short", "text": "x"}',
        '{"client_id": "with space", "text": "x"}',
        '{"client_id": "abcdefgh", "text": "x", "person": "webchat:local:somebody"}',
        '{"client_id": "abcdefgh", "text": "x", "token": "t", "message_id": "m"}',
        '{"client_id": "abcdefgh", "text": "x", "after": ""}',
        '{"client_id": "abcdefgh", "text": "x", "after": 7}',
        '{"client_id": "abcdefgh", "text": "x", "after": "' + "7" * 201 + '"}',
        '{"client_id": "abcdefgh", "token": "t", "message_id": "m", "after": "m"}',
        '{"client_id": "abcdefgh", "stop": false}',
        '{"client_id": "abcdefgh", "stop": true, "text": "x"}',
        '{"client_id": "abcdefgh", "text": "' + "x" * 16_001 + '"}',
        "[" * 5000,
        "null",
    ],
)
def test_a_body_that_the_page_never_sends_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        made().parse(request(body))


def test_reply_shows_words_then_files_and_a_question_last() -> None:
    yes = Button(label="Yes", token="t", style="confirm")
    file = Part(call="show", arguments={"text": "", "edits": None}, media=MEDIA)
    words = Part(call="show", arguments={"text": "*sure?*", "edits": None})
    assert made().render(ADDRESS, Reply(text="*sure?*", media=(MEDIA,))) == (words, file)
    asked = made().render(ADDRESS, Reply(text="*sure?*", buttons=(yes,), media=(MEDIA,)))
    assert asked == (file, replace(words, buttons=(yes,)))
    assert made().render(ADDRESS, Reply(media=(MEDIA,))) == (
        Part(call="show", arguments={"text": "", "edits": None}, media=MEDIA),
    )
    assert made().render(ADDRESS, Reply(edits="m1")) == (Part(call="show", arguments={"text": "", "edits": "m1"}),)


async def test_sending_gives_the_parts_own_id_and_typing_is_told() -> None:
    channel, told = made(), list[Address]()
    channel.on_typing.add(told.append)

    assert await channel.send(ADDRESS, Part(call="show", arguments={}), key="k1") == Receipt(message_id="k1")
    await channel.typing(ADDRESS)
    assert told == [ADDRESS]


def secured(body: str = "{}", **changed: str) -> WebhookRequest:
    """As `request`, but from a page over https."""
    cookie = request().headers["cookie"].replace(COOKIE, SECURE_COOKIE)
    page = {"origin": "https://localhost:8000", "content_type": "application/json; charset=utf-8", "cookie": cookie}
    sent = request(body)
    new = {name.replace("_", "-"): value for name, value in {**page, **changed}.items()}
    return replace(sent, headers={**sent.headers, **new}, url="https://localhost:8000/chat/messages")


def test_over_https_a_session_is_of_this_very_host() -> None:
    made().verify(secured(), NOW)
    message = secured(body='{"client_id": "12345678", "text": "hello"}')
    (event,) = made().parse(message).events
    assert event.address.place and event.address.place in message.headers["cookie"]


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": "http://localhost:8000"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": ""},
        {"cookie": request().headers["cookie"]},
    ],
    ids=str,
)
def test_https_request_another_page_could_make_is_forged(changed: dict[str, str]) -> None:
    """A sibling domain can plant a cookie without the prefix."""
    with pytest.raises(Forged):
        made().verify(secured(**changed), NOW)


# ── The page names a shown entry by the id of the delivery's receipt ──


SESSION = Address(channel="webchat", account="local", place="s" * 22)


class Page(WebChatChannel):
    def __init__(self) -> None:
        super().__init__(keys=[b"k" * 32], hosts=["localhost"])
        self.receipts: list[Receipt] = []

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        self.receipts.append(await super().send(address, part, key=key))
        return self.receipts[-1]


async def test_the_log_has_the_ids_of_the_receipts() -> None:
    page = Page()
    async with in_memory(ChannelAgent(Agent([])), {"webchat": page}) as engine:
        engine.start()
        for text in ("one", "two"):
            await engine.runtime.notify(SESSION, Reply(text=text))
            while not await engine.idle():
                await asyncio.sleep(0.001)
        shared = engine.context
        log = await shared.store.read(keys.key(shared.store, shared.conversation(SESSION), keys.visible_log))
        await engine.stop()
    seen: list[Any] = [entry.value for entry in log]
    assert [(entry["text"], entry["message_id"]) for entry in seen] == [
        (text, receipt.message_id) for text, receipt in zip(("one", "two"), page.receipts, strict=True)
    ]
    yes = Message(event_ids=("1",), address=SESSION, person=None, text="yes", after=seen[0]["message_id"])
    assert [page.follows(yes, receipt) for receipt in page.receipts] == [True, False]
