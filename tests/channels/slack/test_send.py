"""Parts through the real library to a real server, and every way they can fail."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

import aiohttp
import pytest

from channels import (
    Address,
    Ambiguous,
    Button,
    CanAnswer,
    CanEdit,
    CanFetch,
    CanOpen,
    CanPoll,
    Channel,
    Media,
    MissingSetting,
    OpenMedia,
    Person,
    RateLimited,
    Receipt,
    Reply,
    SendError,
    Unavailable,
    Undeliverable,
)
from channels.slack import SlackChannel
from tests.channels.slack.conftest import place
from tests.fakes.slack import FakeSlack

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


async def test_it_has_the_powers_it_says(channel: SlackChannel, slack: FakeSlack) -> None:
    as_channel: Channel = channel
    assert (as_channel.name, channel.account) == ("slack", slack.team)
    for power in (CanAnswer, CanEdit, CanFetch, CanOpen, CanPoll):
        assert isinstance(channel, power), power


@pytest.mark.ledger("PEND-66")
async def test_a_prompt_arrives_with_its_buttons_in_the_thread(slack: FakeSlack, channel: SlackChannel) -> None:
    team = slack.channel()
    [receipt] = await say(channel, place(slack, team, "1.2"), Reply(text="**Delete** it?", buttons=CONFIRM))
    sent = slack.sent[-1]
    assert receipt == Receipt(message_id=sent.ts)
    assert (sent.channel, sent.thread, sent.shown, sent.text) == (team, "1.2", "*Delete* it?", "*Delete* it?")
    assert [(label, e["value"], e.get("style")) for label, e in sent.buttons.items()] == [
        ("Confirm", "c" * 22, "primary"),
        ("Cancel", "x" * 22, None),
    ]


async def test_an_edit_replaces_text_and_takes_the_buttons_away(
    slack: FakeSlack, channel: SlackChannel, ana: str
) -> None:
    to = place(slack, slack.direct(ana))
    [asked] = await say(channel, to, Reply(text="Delete it?", buttons=CONFIRM))
    [edited] = await say(channel, to, Reply(text="Confirmed by **Ana**", edits=asked.message_id))
    assert (slack.sent[-1].shown, slack.sent[-1].buttons, slack.sent[-1].edits) == ("Confirmed by *Ana*", {}, 1)
    assert edited == asked
    assert asked.message_id is not None
    await channel.edit(to, asked.message_id, channel.render(to, Reply(text="later"))[0])
    assert (len(slack.sent), slack.sent[-1].shown) == (1, "later")


@pytest.mark.ledger("CFG-03", "MISC-18")
async def test_a_long_text_arrives_whole_and_in_order(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    paragraphs = [f"**{n}** " + "word & <b> 🙂 " * 60 for n in range(15)]
    await say(channel, place(slack, slack.direct(ana)), "\n\n".join(paragraphs))
    assert len(slack.sent) > 1
    words = " ".join(message.shown for message in slack.sent).replace("*", "").split()
    expected = "\n\n".join(paragraphs).replace("*", "").replace("&", "&amp;").replace("<b>", "&lt;b&gt;")
    assert words == expected.split()


@pytest.mark.ledger("RES-17")
async def test_a_file_arrives_in_its_thread(slack: FakeSlack, channel: SlackChannel, tmp_path: Path) -> None:
    team = slack.channel()
    media = stored(tmp_path / "Rechnung ü 1.pdf", bytes(range(256)) * 5000)
    [receipt] = await say(channel, place(slack, team, "1.2"), Reply(media=(media,)))
    [file] = slack.files
    assert (file.name, file.content) == ("Rechnung ü 1.pdf", media.path.read_bytes())
    assert (file.channel, file.thread, receipt.message_id) == (team, "1.2", None)


@pytest.mark.ledger("RES-17")
async def test_a_file_too_large_goes_as_a_link(slack: FakeSlack, channel: SlackChannel, tmp_path: Path) -> None:
    to = place(slack, slack.channel())
    opened = stored(tmp_path / "a&b.pdf", b"x", link="https://bot.example/artifacts/t?x=1&y=2")
    [part] = channel.render(to, Reply(media=(Media(sha256="0", mime_type="a/b", filename="a&b.pdf", size=2 * 10**9),)))
    with pytest.raises(TypeError):
        await channel.send(to, part, key="k")
    await channel.send(to, type(part)(call=part.call, arguments=part.arguments, media=opened), key="k")
    assert slack.sent[-1].shown == "<https://bot.example/artifacts/t?x=1&amp;y=2|a&amp;b.pdf>"


async def test_until_a_file_is_shown_nothing_is_in_doubt(
    slack: FakeSlack, channel: SlackChannel, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize(
    "error",
    [
        "channel_not_found",
        "not_in_channel",
        "is_archived",
        "token_revoked",
        "invalid_auth",
        "account_inactive",
        "msg_too_long",
        "invalid_blocks",
        "restricted_action",
        "missing_scope",
    ],
)
async def test_what_slack_will_never_take_is_undeliverable(
    slack: FakeSlack, channel: SlackChannel, ana: str, error: str
) -> None:
    slack.fail_next("chat.postMessage", error)
    with pytest.raises(Undeliverable) as caught:
        await say(channel, place(slack, slack.direct(ana)), "hi")
    assert caught.value.code == error


async def test_the_real_refusals(slack: FakeSlack, channel: SlackChannel) -> None:
    team = slack.channel()
    slack.unreachable[team] = "is_archived"
    for where, code in ((team, "is_archived"), ("C404", "channel_not_found")):
        with pytest.raises(Undeliverable, match=code):
            await say(channel, place(slack, where), "hi")
    with pytest.raises(Undeliverable, match="message_not_found"):
        await say(channel, place(slack, slack.channel()), Reply(text="x", edits="1.1"))


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        ({"status": 500}, Unavailable, "http_500"),
        ({"status": 502, "html": True}, Unavailable, "http_502"),
        ({"status": 302, "html": True}, Unavailable, "http_302"),
        ({"error": "service_unavailable"}, Unavailable, "service_unavailable"),
        ({"error": "internal_error", "taken": True}, Ambiguous, "internal_error"),
        ({"error": "fatal_error"}, Ambiguous, "fatal_error"),
        ({"status": 200, "html": True}, Ambiguous, "unreadable_answer"),
        ({"cut": True, "taken": True}, Ambiguous, "no_answer"),
        ({"status": 400, "html": True}, Undeliverable, "http_400"),
        ({"error": "ein Text <script>"}, Ambiguous, "unreadable_answer"),
    ],
)
async def test_what_may_work_later_and_what_is_in_doubt(
    slack: FakeSlack, channel: SlackChannel, ana: str, fault: dict[str, object], error: type[SendError], code: str
) -> None:
    slack.fail_next("chat.postMessage", **fault)  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        await say(channel, place(slack, slack.direct(ana)), "hi")
    assert caught.value.code == code
    assert len(slack.called("chat.postMessage")) == 1, "nothing is repeated by itself"


@pytest.mark.parametrize(("named", "waits"), [(17, 17.0), (None, 30.0)])
async def test_too_many_requests_says_how_long_to_wait(
    slack: FakeSlack, channel: SlackChannel, ana: str, named: int | None, waits: float
) -> None:
    slack.fail_next("chat.postMessage", "ratelimited", status=429, retry_after=named)
    with pytest.raises(RateLimited) as caught:
        await say(channel, place(slack, slack.direct(ana)), "hi")
    assert caught.value.retry_after_seconds == waits
    await say(channel, place(slack, slack.direct(ana)), "hi")


async def test_a_server_that_is_away_took_nothing(ana: str) -> None:
    async with aiohttp.ClientSession() as http:
        channel = SlackChannel("xoxb-1", api_url="http://127.0.0.1:1/api/")
        with pytest.raises(Unavailable, match="no_connection"):
            await channel.start(http)


async def test_a_token_that_slack_does_not_take_is_named(slack: FakeSlack) -> None:
    async with aiohttp.ClientSession() as http:
        channel = SlackChannel("xoxb-wrong", api_url=slack.api_url)
        with pytest.raises(MissingSetting, match="invalid_auth") as caught:
            await channel.start(http)
    assert caught.value.setting == "SLACK_BOT_TOKEN"
    assert "xoxb-wrong" not in str(caught.value)


async def test_a_press_is_answered_for_the_presser_alone(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    team = slack.channel()
    await say(channel, place(slack, team), Reply(text="Delete it?", buttons=CONFIRM))
    press = await slack.press(slack.sent[-1], "Confirm", by=ana)
    handle = f"{slack.url}/actions/{next(iter(slack._presses))}"
    await channel.answer(handle, "Only <@U1> & co. decide", private=True)
    [answer] = press.answers
    assert answer == {
        "response_type": "ephemeral",
        "replace_original": False,
        "text": "Only &lt;@U1&gt; &amp; co. decide",
    }
    await channel.answer(handle, "done", private=False)
    await channel.answer(handle, "", private=True)
    assert len(press.answers) == 1, "the chat is told the same"


async def test_an_answer_that_cannot_be_given_raises_nothing(
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


async def test_a_private_chat_is_opened(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    person = Person(channel="slack", account=slack.team, user_id=ana)
    assert await channel.open(person) == place(slack, slack.direct(ana))
    with pytest.raises(Undeliverable, match="user_not_found"):
        await channel.open(Person(channel="slack", account=slack.team, user_id="U404"))


async def test_no_log_line_has_a_secret_or_a_text(
    slack: FakeSlack, channel: SlackChannel, ana: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await say(channel, place(slack, slack.direct(ana)), "a private word")
    slack.fail_next("chat.postMessage", "invalid_blocks")
    with pytest.raises(Undeliverable):
        await say(channel, place(slack, slack.direct(ana)), "a private word")
    assert slack.bot_token not in caplog.text
    assert "a private word" not in caplog.text


async def test_an_answer_that_never_comes_is_in_doubt(
    slack: FakeSlack, channel: SlackChannel, ana: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.slack.api._ANSWER_SECONDS", 0.1)
    hold = slack.hold("chat.postMessage")
    sending = asyncio.ensure_future(say(channel, place(slack, slack.direct(ana)), "hi"))
    await hold.reached()
    with pytest.raises(Ambiguous, match="no_answer"):
        await sending
    hold.release()
