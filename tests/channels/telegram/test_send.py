"""Parts through the real library to a real server, and every way to fail."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from channels import (
    Address,
    Ambiguous,
    Button,
    Media,
    MissingSetting,
    OpenMedia,
    Person,
    PlaceRefused,
    RateLimited,
    Receipt,
    Reply,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from channels.telegram import TelegramChannel
from channels.telegram.api import NoAnswer, SessionRequest, send_error
from tests.channels.telegram.conftest import SECRET, group, private
from tests.fakes.telegram import Chat, FakeTelegram, User
from tests.threads import all_threads_hang

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 8, 8) + bytes(16)
CONFIRM = (
    Button(label="Confirm", token="c" * 22, style="confirm"),
    Button(label="Cancel", token="x" * 22, style="cancel"),
)


async def say(channel: TelegramChannel, to: Address, reply: Reply | str) -> list[Receipt]:
    reply = Reply(text=reply) if isinstance(reply, str) else reply
    return [await channel.send(to, part, key=f"k{i}") for i, part in enumerate(channel.render(to, reply))]


def stored(path: Path, content: bytes, mime_type: str, link: str | None = None) -> OpenMedia:
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return OpenMedia(sha256=sha256, mime_type=mime_type, filename=path.name, size=len(content), path=path, link=link)


def closed(media: OpenMedia) -> Media:
    return Media(sha256=media.sha256, mime_type=media.mime_type, filename=media.filename, size=media.size)


@pytest.mark.ledger("PEND-66")
async def test_text_arrives_with_its_buttons(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    text = "**Delete** `INV-42` for good? 🧾 [terms](https://example.com)\n\n> quoted **x**\n\n```py\na<b\n```"
    receipts = await say(channel, private(channel, ana), Reply(text=text, buttons=CONFIRM))
    sent = telegram.sent[-1]
    sent_at = datetime.fromtimestamp(sent.date, UTC)
    assert receipts == [Receipt(message_id=str(sent.message_id), sent_at=sent_at)]
    assert sent.text == "Delete INV-42 for good? 🧾 terms\n\nquoted x\n\na<b"
    assert [(e["type"], e["offset"], e["length"]) for e in sent.entities] == [
        ("bold", 0, 6),
        ("code", 7, 6),
        ("text_link", 27, 5),
        ("blockquote", 34, 8),
        ("bold", 41, 1),
        ("pre", 44, 3),
    ]
    assert sent.keyboard == [
        [{"text": "Confirm", "callback_data": "c" * 22}, {"text": "Cancel", "callback_data": "x" * 22}]
    ]
    assert "parse_mode" not in telegram.called("sendMessage")[0].arguments


@pytest.mark.ledger("CFG-03", "MISC-18")
async def test_a_long_text_arrives_in_order(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    paragraphs = [f"**{n}** " + "word 🙂 " * 60 for n in range(25)]
    await say(channel, private(channel, ana), "\n\n".join(paragraphs))
    assert len(telegram.sent) > 2
    words = " ".join(message.text for message in telegram.sent).split()
    assert words == "\n\n".join(paragraphs).replace("*", "").split()


async def test_message_to_a_topic_arrives_in_the_topic(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    team = telegram.group("Team")
    thread = telegram.topic(team)
    await say(channel, group(channel, team, thread), "hi")
    assert telegram.sent[-1].thread == thread


async def test_edit_without_text_changes_buttons(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    to = private(channel, ana)
    [asked] = await say(channel, to, Reply(text="Delete it?", buttons=CONFIRM))
    await say(channel, to, Reply(edits=asked.message_id))
    assert (telegram.sent[-1].text, telegram.sent[-1].buttons) == ("Delete it?", [])


async def test_a_caption_is_formatted(
    telegram: FakeTelegram, channel: TelegramChannel, ana: User, tmp_path: Path
) -> None:
    media = stored(tmp_path / "voice.ogg", bytes(100), "audio/ogg")
    to = private(channel, ana)
    [part] = channel.render(to, Reply(text="Here *it* is", media=(closed(media),)))
    assert part.call == "sendDocument", "an Ogg file of ours is no voice message"
    await channel.send(to, replace(part, media=media), key="k")
    assert (telegram.sent[-1].text, telegram.sent[-1].entities[0]["type"]) == ("Here it is", "italic")


@contextlib.asynccontextmanager
async def channel_at(
    server: AiohttpServer, answer: Callable[[web.Request], Awaitable[web.Response]]
) -> AsyncIterator[tuple[TelegramChannel, Address]]:
    """A channel with `answer` as its API, except for getMe, and a private chat of the bot."""

    async def handle(request: web.Request) -> web.Response:
        if request.path.endswith("getMe"):
            me = {"id": 7, "is_bot": True, "first_name": "Askfirst", "username": "askfirst_bot"}
            return web.json_response({"ok": True, "result": me})
        return await answer(request)

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/{path:.*}", handle)
    url = str((await server(app)).make_url("/"))
    async with aiohttp.ClientSession() as http:
        channel = TelegramChannel("7:AAtoken", SECRET, url)
        await channel.start(http)
        yield channel, Address(channel="telegram", account=channel.account, place="5001")


async def test_a_file_arrives_while_all_threads_of_the_loop_hang(tmp_path: Path, aiohttp_server: AiohttpServer) -> None:
    """The server needs no thread. The fake needs threads to read a form."""
    received: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.json_response({"ok": True, "result": {"message_id": 1}})

    media = stored(tmp_path / "a.pdf", b"%PDF-1.7" + bytes(range(256)) * 3000, "application/pdf")
    async with channel_at(aiohttp_server, take) as (channel, to):
        [part] = channel.render(to, Reply(media=(closed(media),)))
        with all_threads_hang():
            async with asyncio.timeout(30):
                await channel.send(to, replace(part, media=media), key="k")
    assert media.path.read_bytes() in received[-1]


async def test_a_file_is_closed_when_it_could_not_be_sent(tmp_path: Path) -> None:
    media = stored(tmp_path / "a.pdf", b"%PDF-1.7", "application/pdf")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        async with FakeTelegram() as telegram:
            channel = TelegramChannel(telegram.token, SECRET, telegram.url)
            await channel.start(http)
        to = private(channel, telegram.person("Ana"))
        [part] = channel.render(to, Reply(media=(closed(media),)))
        with pytest.raises(Unavailable):
            await channel.send(to, replace(part, media=media), key="k")
    gc.collect()  # a file left open would be a warning now, and a warning fails


async def test_odd_photo_is_a_document(
    telegram: FakeTelegram, channel: TelegramChannel, ana: User, tmp_path: Path
) -> None:
    media = stored(tmp_path / "strip.png", PNG[:16] + struct.pack(">II", 9000, 10) + bytes(16), "image/png")
    to = private(channel, ana)
    [part] = channel.render(to, Reply(media=(closed(media),)))
    await channel.send(to, replace(part, media=media), key="k")
    assert telegram.sent[-1].file is not None
    assert telegram.sent[-1].file.kind == "document"
    assert telegram.sent[-1].file.content == media.path.read_bytes()


async def test_large_file_without_a_link_is_undeliverable(channel: TelegramChannel, ana: User, tmp_path: Path) -> None:
    film = replace(stored(tmp_path / "film.mp4", b"x", "video/mp4"), size=50_000_001)
    to = private(channel, ana)
    [part] = channel.render(to, Reply(media=(closed(film),)))
    with pytest.raises(Undeliverable, match="file_too_large"):
        await channel.send(to, replace(part, media=film), key="k")


async def test_a_file_that_is_gone_is_undeliverable(channel: TelegramChannel, ana: User, tmp_path: Path) -> None:
    media = stored(tmp_path / "a.pdf", b"x", "application/pdf")
    media.path.unlink()
    to = private(channel, ana)
    [part] = channel.render(to, Reply(media=(closed(media),)))
    with pytest.raises(Undeliverable, match="file_gone"):
        await channel.send(to, replace(part, media=media), key="k")


@pytest.mark.parametrize(
    ("status", "description", "error", "code"),
    [
        (403, "Forbidden: bot was blocked by the user", Unreachable, "blocked"),
        (403, "Forbidden: user is deactivated", Unreachable, "deactivated"),
        (403, "Forbidden: bot was kicked from the supergroup chat", Unreachable, "kicked"),
        (403, "Forbidden: bot can't initiate conversation with a user", Unreachable, "not_started"),
        (403, "Forbidden: something new", Unreachable, "forbidden"),
        (400, "Bad Request: chat not found", Unreachable, "chat_not_found"),
        (400, "Bad Request: message thread not found", PlaceRefused, "thread_not_found"),
        (400, "Bad Request: TOPIC_CLOSED", PlaceRefused, "topic_closed"),
        (400, "Bad Request: TOPIC_DELETED", PlaceRefused, "topic_deleted"),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", PlaceRefused, "no_rights"),
        (400, "Bad Request: CHAT_SEND_PLAIN_FORBIDDEN", PlaceRefused, "no_rights"),
        (400, "Bad Request: not enough rights to send text messages to the chat", PlaceRefused, "no_rights"),
        (400, "Bad Request: have no rights to send a message", PlaceRefused, "no_rights"),
        (400, "Bad Request: message is too long", Undeliverable, "too_long"),
        (400, "Bad Request: something new, said Ana", Undeliverable, "bad_request"),
        (401, "Unauthorized", Unavailable, "unauthorized"),
        (404, "Not Found", Undeliverable, "unknown_method"),
        (413, "Request Entity Too Large", Undeliverable, "too_large"),
        (500, "Internal Server Error", Unavailable, "http_500"),
        (502, "Bad Gateway", Unavailable, "http_502"),
        *((status, None, Unavailable, f"http_{status}") for status in (400, 401, 403, 404, 407, 409, 451, 502)),
        (413, None, Undeliverable, "too_large"),
        (429, None, RateLimited, "too_many_requests"),
    ],
)
async def test_each_telegram_error_raises_its_own_error(
    telegram: FakeTelegram,
    channel: TelegramChannel,
    ana: User,
    status: int,
    description: str | None,
    error: type[SendError],
    code: str,
) -> None:
    """Without a description the answer is a proxy's page, which is no word about the token."""
    telegram.fail_next("sendMessage", status, description or "", html=description is None)
    with pytest.raises(error) as caught:
        await say(channel, private(channel, ana), "hi")
    assert (type(caught.value), caught.value.code) == (error, code)
    assert telegram.sent == []
    mend = getattr(caught.value, "mend", None)
    assert (mend and mend.setting) == ("TELEGRAM_BOT_TOKEN" if code == "unauthorized" else None)
    assert not isinstance(caught.value, RateLimited) or caught.value.retry_after_seconds == 5


@pytest.mark.parametrize("body", ["", "[1]", "{}", '{"message": "Forbidden"}', '{"ok": false}', "[" * 100_000])
async def test_json_error_of_a_proxy_does_not_count_as_telegrams(body: str, aiohttp_server: AiohttpServer) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=403, text=body, content_type="application/json")

    async with channel_at(aiohttp_server, answer) as (channel, to):
        with pytest.raises(Unavailable, match="http_403"):
            await say(channel, to, "hi")


async def test_a_page_at_the_start_is_no_word_about_the_token(telegram: FakeTelegram) -> None:
    async with aiohttp.ClientSession() as http:
        channel = TelegramChannel(telegram.token, SECRET, telegram.url)
        telegram.fail_next("getMe", 401, html=True)
        with pytest.raises(Unavailable, match="http_401"):
            await channel.start(http)
        await channel.start(http)


async def test_unreadable_success_is_ambiguous(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    telegram.fail_next("sendMessage", 200, html=True, taken=True)
    with pytest.raises(Ambiguous):
        await say(channel, private(channel, ana), "hi")
    telegram.fail_next("sendMessage", 200, "no result in it")
    with pytest.raises(Ambiguous):
        await say(channel, private(channel, ana), "hi")


async def test_an_answer_without_end_is_not_read_to_its_end(telegram: FakeTelegram) -> None:
    async with aiohttp.ClientSession() as http:
        request = SessionRequest(http, f"{telegram.url}/bot{telegram.token}", longest_answer=50)
        with pytest.raises(NoAnswer, match="answer_too_large") as raised:
            await request.post("/getMe")
    assert isinstance(send_error(raised.value), Ambiguous)


@pytest.mark.parametrize("result", [True, None, [], {}, {"chat": {"id": 5001}}])
async def test_answer_without_a_message_is_ambiguous(result: object, aiohttp_server: AiohttpServer) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "result": result})

    async with channel_at(aiohttp_server, answer) as (channel, to):
        with pytest.raises(Ambiguous, match="unreadable_answer"):
            await say(channel, to, "hi")
        assert await say(channel, to, Reply(text="hi", edits="9")) == [Receipt(message_id="9")]


async def test_refused_format_is_resent_as_plain(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    refusal = "Bad Request: can't parse entities: Ana's secret"
    telegram.fail_next("sendMessage", 400, refusal)
    await say(channel, private(channel, ana), "**hi**")
    assert (telegram.sent[-1].text, telegram.sent[-1].entities) == ("hi", [])
    telegram.fail_next("sendMessage", 400, refusal, times=2)
    with pytest.raises(Undeliverable, match=r"^entities$"):
        await say(channel, private(channel, ana), "**hi**")


async def test_text_to_a_moved_group_arrives_in_the_new_group(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    old = telegram.group("Team")
    new = telegram.group_moves(old)
    await say(channel, group(channel, old), "one")
    await say(channel, group(channel, old), "two")
    assert [(m.chat.id, m.text) for m in telegram.sent] == [(new.id, "one"), (new.id, "two")]
    assert channel.moved == {str(old.id): str(new.id)}
    assert len(telegram.called("sendMessage")) == 3, "once it is known, the old place is not tried again"


async def test_edit_in_a_moved_group_changes_no_other_message(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    old = telegram.group("Team")
    [asked] = await say(channel, group(channel, old), "one")
    telegram.group_moves(old)
    for _ in range(2):
        with pytest.raises(Undeliverable, match="message_not_found"):
            await say(channel, group(channel, old), Reply(text="two", edits=asked.message_id))
    assert [message.text for message in telegram.sent] == ["one"]


async def test_press_is_answered_privately_or_not(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    await say(channel, private(channel, ana), Reply(text="Delete it?", buttons=CONFIRM))
    press = await telegram.press(telegram.sent[-1], "Confirm", by=ana)
    await channel.answer(press.query_id, "Not yours. " * 50, private=True)
    assert (press.answered, press.alert, len(press.text)) == (True, True, 200)
    await channel.answer(press.query_id, "again", private=False)
    assert press.text.startswith("Not yours"), "a second answer raises nothing and changes nothing"


async def test_typing_is_shown_and_never_raises(telegram: FakeTelegram, channel: TelegramChannel, ana: User) -> None:
    await channel.typing(private(channel, ana))
    telegram.fail_next("sendChatAction", 500)
    await channel.typing(private(channel, ana))
    shown = {"chat_id": str(ana.id), "action": "typing"}
    assert [call.arguments for call in telegram.called("sendChatAction")] == [shown, shown]


async def test_private_chat_opens_with_known_people(
    telegram: FakeTelegram, channel: TelegramChannel, ana: User
) -> None:
    person = Person(channel="telegram", account=channel.account, user_id=str(ana.id))
    assert await channel.open(person) == private(channel, ana)
    with pytest.raises(Undeliverable, match="chat_not_found"):
        await channel.open(Person(channel="telegram", account=channel.account, user_id="42"))


async def test_library_never_logs_the_token(telegram: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="telegram")
    async with aiohttp.ClientSession() as http:
        await TelegramChannel(telegram.token, SECRET, telegram.url).start(http)
    assert "getMe" in caplog.text
    assert telegram.token.partition(":")[2] not in caplog.text


async def test_a_token_that_telegram_does_not_know_is_said_at_start(telegram: FakeTelegram) -> None:
    async with aiohttp.ClientSession() as http:
        channel = TelegramChannel("7000001:AAwrong", "", telegram.url)
        with pytest.raises(MissingSetting, match=r"TELEGRAM_BOT_TOKEN.*BotFather") as caught:
            await channel.start(http)
        assert "AAwrong" not in str(caught.value)


# ── A growing text: drafts in private chats, and edited messages elsewhere or where the server knows no drafts ──


@pytest.fixture
async def team(telegram: FakeTelegram, ana: User) -> Chat:
    chat = telegram.group("Team")
    await telegram.person_says(chat, ana, "hello")
    return chat


async def test_a_private_chat_shows_a_draft(channel: TelegramChannel, telegram: FakeTelegram, ana: User) -> None:
    stream = await channel.stream(private(channel, ana))
    await stream.update("Hello")
    await stream.update("Hello **An")
    (first, second) = telegram.drafts
    assert (first.text, second.text, second.entities) == (
        "Hello",
        "Hello An",
        [{"type": "bold", "offset": 6, "length": 2}],
    )
    assert first.draft_id == second.draft_id != 0
    assert not telegram.sent
    assert not stream.message_ids
    assert (await channel.stream(private(channel, ana))) is not stream


async def test_draft_of_a_long_text_shows_its_end(channel: TelegramChannel, telegram: FakeTelegram, ana: User) -> None:
    stream = await channel.stream(private(channel, ana))
    await stream.update("word " * 1000 + "end")
    assert telegram.drafts[-1].text.endswith("end")


async def test_server_without_drafts_asked_once(channel: TelegramChannel, telegram: FakeTelegram, ana: User) -> None:
    telegram.fail_next("sendMessageDraft", 404, "Not Found")
    with pytest.raises(Undeliverable):
        await (await channel.stream(private(channel, ana))).update("Hello")
    stream = await channel.stream(private(channel, ana))
    await stream.update("Hello")
    await stream.update("Hello Ana")
    assert [message.text for message in telegram.sent] == ["Hello Ana"]
    assert [*stream.message_ids] == [str(telegram.sent[0].message_id)]


async def test_a_group_sees_one_message_grow(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    stream = await channel.stream(group(channel, team))
    for text in ("One", "One two", "One two", "One two three"):
        await stream.update(text)
    (message,) = telegram.sent
    assert (message.text, message.edits) == ("One two three", 2)
    assert not telegram.drafts


async def test_long_text_goes_on_in_a_new_message(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    stream = await channel.stream(group(channel, team))
    await stream.update("a " * 1500)
    await stream.update("a " * 2500)
    assert [len(message.text) <= 4096 for message in telegram.sent] == [True, True]
    assert len(stream.message_ids) == 2
    await stream.update("b")  # another reply begins
    assert [message.text for message in telegram.sent] == ["b"]
    await stream.finish([])
    assert not telegram.sent


async def test_rate_limit_is_raised_with_seconds(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    stream = await channel.stream(group(channel, team))
    await stream.update("One")
    telegram.fail_next("editMessageText", 429, "Too Many Requests", retry_after=17)
    with pytest.raises(RateLimited) as limited:
        await stream.update("One two")
    assert limited.value.retry_after_seconds == 17
    await stream.update("One two")
    assert [message.text for message in telegram.sent] == ["One two"]


async def test_the_answer_replaces_the_text(channel: TelegramChannel, telegram: FakeTelegram, team: Chat) -> None:
    begun = await channel.stream(group(channel, team))
    await begun.update("One tw")
    again = await channel.stream(group(channel, team), message_ids=begun.message_ids)
    (part,) = channel.render(group(channel, team), Reply(text="One two."))
    for _ in range(2):
        (receipt,) = await again.finish([part])
        assert receipt.message_id == str(telegram.sent[0].message_id)
    assert [message.text for message in telegram.sent] == ["One two."]
