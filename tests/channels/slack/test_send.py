"""Parts through the real library to a real server, and every way to fail."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime, timedelta
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
from channels.slack import SlackChannel
from channels.slack.api import LibrarySession
from channels.slack.payload import moment
from tests.channels.slack.conftest import place
from tests.fakes.slack import FakeSlack, as_markdown
from tests.threads import all_threads_hang

CONFIRM = (
    Button(label="Confirm", token="c" * 22, style="confirm"),
    Button(label="Cancel", token="x" * 22, style="cancel"),
)


async def say(channel: SlackChannel, to: Address, reply: Reply | str) -> list[Receipt]:
    reply = Reply(text=reply) if isinstance(reply, str) else reply
    return [await channel.send(to, part, key=f"k{i}") for i, part in enumerate(channel.render(to, reply))]


def stored(path: Path, content: bytes, mime_type: str = "application/pdf", link: str | None = None) -> OpenMedia:
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return OpenMedia(sha256=sha256, mime_type=mime_type, filename=path.name, size=len(content), path=path, link=link)


@pytest.mark.ledger("PEND-66")
async def test_a_prompt_arrives_with_its_buttons_in_the_thread(slack: FakeSlack, channel: SlackChannel) -> None:
    team = slack.channel()
    [receipt] = await say(channel, place(slack, team, "1.2"), Reply(text="**Delete** it?", buttons=CONFIRM))
    sent = slack.sent[-1]
    assert (receipt.message_id, receipt.sent_at) == (sent.ts, moment(sent.ts))
    assert receipt.sent_at is not None
    assert (sent.channel, sent.thread, sent.shown, sent.text) == (team, "1.2", "*Delete* it?", "Delete it?")
    assert [(label, e["value"], e.get("style")) for label, e in sent.buttons.items()] == [
        ("Confirm", "c" * 22, "primary"),
        ("Cancel", "x" * 22, None),
    ]


@pytest.mark.ledger("CFG-03", "MISC-18")
async def test_a_long_text_arrives_whole_and_in_order(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    paragraphs = [f"**{n}** " + "word & <b> 🙂 " * 60 for n in range(15)]
    await say(channel, place(slack, slack.direct(ana)), "\n\n".join(paragraphs))
    assert len(slack.sent) > 1
    words = " ".join(message.shown for message in slack.sent).split()
    assert words == "\n\n".join(paragraphs).replace("**", "*").split()


@pytest.mark.ledger("RES-17")
async def test_a_file_arrives_in_its_thread(slack: FakeSlack, channel: SlackChannel, tmp_path: Path) -> None:
    team = slack.channel()
    media = stored(tmp_path / "Rechnung ü 1.pdf", bytes(range(256)) * 5000)
    [receipt] = await say(channel, place(slack, team, "1.2"), Reply(media=(media,)))
    [file] = slack.files
    assert (file.name, file.content) == ("Rechnung ü 1.pdf", media.path.read_bytes())
    assert (file.channel, file.thread, receipt.message_id) == (team, "1.2", None)


async def test_a_file_arrives_while_all_threads_of_the_loop_hang(
    slack: FakeSlack, channel: SlackChannel, tmp_path: Path, aiohttp_server: AiohttpServer
) -> None:
    media = stored(tmp_path / "a.pdf", bytes(range(256)) * 5000)
    with all_threads_hang():
        async with asyncio.timeout(30):
            await say(channel, place(slack, slack.channel(), "1.2"), Reply(media=(media,)))
    assert [file.content for file in slack.files] == [media.path.read_bytes()]


async def test_uncompleted_upload_is_not_in_doubt(slack: FakeSlack, channel: SlackChannel, tmp_path: Path) -> None:
    to = place(slack, slack.channel())
    media = stored(tmp_path / "a.pdf", b"content")
    for method in ("files.getUploadURLExternal", "upload"):
        slack.fail_next(method, cut=True)
        with pytest.raises(Unavailable):
            await say(channel, to, Reply(media=(media,)))
    slack.fail_next("upload", status=503)
    with pytest.raises(Unavailable, match="upload_503"):
        await say(channel, to, Reply(media=(media,)))
    slack.fail_next("files.completeUploadExternal", cut=True, taken=True)
    with pytest.raises(Ambiguous):
        await say(channel, to, Reply(media=(media,)))
    media.path.unlink()
    with pytest.raises(Undeliverable, match="file_gone"):
        await say(channel, to, Reply(media=(media,)))
    assert len(slack.files) == 1


@pytest.mark.parametrize("error", ["invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"])
@pytest.mark.parametrize("status", [200, 401])
async def test_revoked_token_is_unavailable_and_names_its_setting(
    slack: FakeSlack, channel: SlackChannel, ana: str, error: str, status: int
) -> None:
    slack.fail_next("chat.postMessage", error, status=status)
    with pytest.raises(Unavailable, match=r"^unauthorized$") as caught:
        await say(channel, place(slack, slack.direct(ana)), "hi")
    assert caught.value.mend is not None
    assert caught.value.mend.setting == "SLACK_BOT_TOKEN"
    assert error in str(caught.value.mend)


async def test_unreachable_places_and_missing_messages_are_told_apart(slack: FakeSlack, channel: SlackChannel) -> None:
    team = slack.channel()
    slack.unreachable[team] = "is_archived"
    for where, code in ((team, "is_archived"), ("C404", "channel_not_found")):
        with pytest.raises(Unreachable, match=code):
            await say(channel, place(slack, where), "hi")
    with pytest.raises(Undeliverable, match="message_not_found"):
        await say(channel, place(slack, slack.channel()), Reply(text="x", edits="1.1"))


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        *(({"error": code}, Unreachable, code) for code in ("channel_not_found", "not_in_channel", "is_archived")),
        *(
            ({"error": code}, Undeliverable, code)
            for code in ("msg_too_long", "invalid_blocks", "missing_scope", "message_not_found")
        ),
        *(
            ({"error": code}, PlaceRefused, code)
            for code in ("restricted_action", "restricted_action_read_only_channel", "thread_locked")
        ),
        ({"error": "ratelimited", "status": 429}, RateLimited, "ratelimited"),
        ({"status": 500}, Unavailable, "http_500"),
        ({"status": 502, "html": True}, Unavailable, "http_502"),
        ({"status": 302, "html": True}, Unavailable, "http_302"),
        ({"error": "service_unavailable"}, Unavailable, "service_unavailable"),
        ({"error": "internal_error", "taken": True}, Ambiguous, "internal_error"),
        ({"error": "fatal_error"}, Ambiguous, "fatal_error"),
        ({"status": 200, "html": True}, Ambiguous, "unreadable_answer"),
        ({"cut": True, "taken": True}, Ambiguous, "no_answer"),
        *(
            ({"status": status, "html": True}, Unavailable, f"http_{status}")
            for status in (400, 401, 403, 404, 407, 451)
        ),
        ({"status": 413, "html": True}, Undeliverable, "http_413"),
        ({"status": 403, "error": "not_in_channel"}, Unreachable, "not_in_channel"),
        ({"status": 400, "error": "invalid_blocks"}, Undeliverable, "invalid_blocks"),
        ({"error": "ein Text <script>"}, Ambiguous, "unreadable_answer"),
    ],
)
async def test_send_failures_are_told_apart_as_later_or_in_doubt(
    slack: FakeSlack, channel: SlackChannel, ana: str, fault: dict[str, object], error: type[SendError], code: str
) -> None:
    slack.fail_next("chat.postMessage", **fault)  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        await say(channel, place(slack, slack.direct(ana)), "hi")
    assert (type(caught.value), caught.value.code) == (error, code)
    assert not isinstance(caught.value, RateLimited) or caught.value.retry_after_seconds == 30
    assert len(slack.called("chat.postMessage")) == 1, "nothing is repeated by itself"


async def test_an_answer_without_end_is_not_read_to_its_end(slack: FakeSlack) -> None:
    async with aiohttp.ClientSession() as http:
        with pytest.raises(Ambiguous, match="answer_too_large"):
            async with LibrarySession(http, longest_answer=10).request("POST", f"{slack.api_url}auth.test"):
                pass


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, "[" * 100_000, Ambiguous),
        (200, '"ok"', Ambiguous),
        (200, "[1]", Ambiguous),
        (200, "", Ambiguous),
        (201, "", Ambiguous),
        (403, '{"error": "forbidden"}', Unavailable),
        (403, "[1]", Unavailable),
        (503, "[1]", Unavailable),
        (429, "[" * 100_000, RateLimited),
        (307, "", Unavailable),
    ],
)
async def test_response_of_no_slack_shape_is_judged_by_status(
    status: int, body: str, error: type[SendError], aiohttp_server: AiohttpServer
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith(("auth.test", "elsewhere")):
            return web.json_response({"ok": True, "team_id": "T1", "user_id": "U1", "ts": "1.1"})
        headers = {"Location": "/elsewhere"}
        return web.Response(status=status, text=body, content_type="application/json", headers=headers)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    server = await aiohttp_server(app)
    async with aiohttp.ClientSession() as http:
        channel = SlackChannel("xoxb-1", api_url=str(server.make_url("/")))
        await channel.start(http)
        with pytest.raises(error):
            await say(channel, Address(channel="slack", account="T1", place="C1"), "hi")


async def test_a_token_that_slack_does_not_take_is_named(slack: FakeSlack) -> None:
    async with aiohttp.ClientSession() as http:
        channel = SlackChannel("xoxb-wrong", api_url=slack.api_url)
        with pytest.raises(MissingSetting, match="invalid_auth") as caught:
            await channel.start(http)
    assert caught.value.setting == "SLACK_BOT_TOKEN"
    assert "xoxb-wrong" not in str(caught.value)


@pytest.mark.parametrize("thread", [None, "1.2"])
async def test_press_is_answered_to_its_author(
    slack: FakeSlack, channel: SlackChannel, ana: str, thread: str | None
) -> None:
    team = slack.channel()
    await say(channel, place(slack, team, thread), Reply(text="Delete it?", buttons=CONFIRM))
    press = await slack.press(slack.sent[-1], "Confirm", by=ana)
    polling = channel.poll()
    [pressed] = await anext(polling)
    await polling.aclose()
    assert pressed.answer_to is not None
    await channel.answer(pressed.answer_to, "Only <@U1> & *co.* decide", private=True)
    [answer] = press.answers
    assert (answer["response_type"], answer["replace_original"]) == ("ephemeral", False)
    assert answer.get("thread_ts") == thread
    assert answer["text"] == "Only &lt;@U1&gt; &amp; *co.* decide"
    assert as_markdown(answer["blocks"]) == "Only <@U1> & *co.* decide"
    await channel.answer(pressed.answer_to, "done", private=False)
    await channel.answer(pressed.answer_to, "", private=True)
    assert len(press.answers) == 1, "the chat is told the same"


async def test_failed_answer_raises_no_error(
    slack: FakeSlack, channel: SlackChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await channel.answer(f"{slack.url}/actions/none", "x", private=True)
    slack.fail_next("answer", cut=True)
    await channel.answer(f"{slack.url}/actions/none", "x", private=True)
    for odd in ("https://evil.example/x", "https://evilslack.com/x", "http://hooks.slack.com/x", "http://[", ""):
        await channel.answer(odd, "x", private=True)
    assert "http_404" in caplog.text
    assert "/actions/" not in caplog.text


async def test_typing_in_a_private_chat_is_under_the_message(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    to = place(slack, slack.direct(ana))
    await channel.typing_under(to, "1712.000100")
    assert slack.statuses == {(to.place, "1712.000100"): "is typing…"}
    await channel.typing_under(to, "1712.000100", ends=True)
    assert slack.statuses == {(to.place, "1712.000100"): ""}
    thread = place(slack, slack.channel(), "1.2")
    await channel.typing_under(thread, "1712.000100", ends=True)
    assert len(slack.called("assistant.threads.setStatus")) == 2, "in a thread, the bot's message takes it away"


async def test_a_thread_says_that_the_bot_is_typing_until_it_writes(slack: FakeSlack, channel: SlackChannel) -> None:
    to = place(slack, slack.channel(), "1.2")
    await channel.typing(to)
    assert slack.statuses == {(to.place, "1.2"): "is typing…"}
    await say(channel, to, "done")
    assert slack.statuses == {}
    await channel.typing(place(slack, to.place))
    assert len(slack.called("assistant.threads.setStatus")) == 1, "Slack has it for threads alone"


async def test_typing_without_its_scope_is_tried_once(slack: FakeSlack, channel: SlackChannel) -> None:
    to = place(slack, slack.channel(), "1.2")
    slack.fail_next("assistant.threads.setStatus", status=503)
    slack.scope_missing.add("assistant.threads.setStatus")
    for error in (Unavailable, Undeliverable):
        with pytest.raises(error):
            await channel.typing(to)
    await channel.typing(to)
    assert len(slack.called("assistant.threads.setStatus")) == 2


async def test_a_private_chat_is_opened(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    person = Person(channel="slack", account=slack.team, user_id=ana)
    assert await channel.open(person) == place(slack, slack.direct(ana))
    with pytest.raises(Undeliverable, match="user_not_found"):
        await channel.open(Person(channel="slack", account=slack.team, user_id="U404"))


@pytest.mark.parametrize("thread", [None, "1.2"])
async def test_message_in_doubt_is_looked_up_by_key(
    slack: FakeSlack, channel: SlackChannel, thread: str | None
) -> None:
    to = place(slack, slack.channel(), thread)
    [part] = channel.render(to, Reply(text="hi"))
    began = datetime.now(UTC)
    for key in ("before", "after"):
        await channel.send(to, part, key=key)
    slack.fail_next("chat.postMessage", cut=True, taken=True)
    with pytest.raises(Ambiguous):
        await channel.send(to, part, key="in doubt")
    slack.fail_next("chat.postMessage", cut=True)
    with pytest.raises(Ambiguous):
        await channel.send(to, part, key="lost")
    found = await channel.look_up(to, part, key="in doubt", since=began)
    assert found == Receipt(message_id=slack.sent[-1].ts, sent_at=moment(slack.sent[-1].ts))
    assert await channel.look_up(to, part, key="lost", since=began) is None
    assert await channel.look_up(to, part, key="in doubt", since=began + timedelta(hours=1)) is None
    elsewhere = place(slack, to.place, "9.9")
    assert await channel.look_up(elsewhere, part, key="in doubt", since=began) is None


async def test_look_up_of_an_impossible_part_says_why(slack: FakeSlack, channel: SlackChannel) -> None:
    to = place(slack, slack.channel())
    [file] = channel.render(to, Reply(media=(Media(sha256="0", mime_type="a/b", filename="a", size=1),)))
    with pytest.raises(Undeliverable, match="file_has_no_key"):
        await channel.look_up(to, file, key="k", since=datetime.now(UTC))
    assert slack.called("conversations.history") == []
    [part] = channel.render(to, Reply(text="hi"))
    slack.scope_missing.add("conversations.history")
    with pytest.raises(Undeliverable, match="missing_scope"):
        await channel.look_up(to, part, key="k", since=datetime.now(UTC))


# ── A growing text in one message of Slack that is edited ──


async def test_one_message_grows_and_becomes_the_answer(channel: SlackChannel, slack: FakeSlack, ana: str) -> None:
    address = place(slack, slack.direct(ana), thread="1712.000100")
    stream = await channel.stream(address)
    for text in ("One", "One **tw", "One **two** <!channel>"):
        await stream.update(text)
    (message,) = slack.sent
    assert (message.edits, message.thread) == (2, "1712.000100")
    assert "<!channel>" not in message.text
    again = await channel.stream(address, message_ids=stream.message_ids)
    (part,) = channel.render(address, Reply(text="One **two**."))
    (receipt,) = await again.finish([part])
    assert receipt.message_id == message.ts
    assert [each.text for each in slack.sent] == ["One two."]


async def test_a_text_without_an_answer_is_deleted(channel: SlackChannel, slack: FakeSlack, ana: str) -> None:
    stream = await channel.stream(place(slack, slack.direct(ana)))
    await stream.update("Let me look.")
    await stream.finish([])
    await stream.finish([])
    assert slack.sent == []
