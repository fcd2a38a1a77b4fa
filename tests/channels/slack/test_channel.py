"""Settings, files, Socket Mode and signed deliveries, against a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from channels import (
    Attachment,
    ButtonPress,
    Event,
    Forged,
    Message,
    MissingSetting,
    RateLimited,
    Reply,
    Unavailable,
    Undeliverable,
    WebhookRequest,
)
from channels.replies import Button
from channels.slack import PollingRefused, SlackChannel
from tests.channels.slack.conftest import place
from tests.fakes.slack import FakeSlack

SETTINGS = {
    "SLACK_BOT_TOKEN": "xoxb-12-34-Abc",
    "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99yyyzzz85a5",
    "SLACK_APP_TOKEN": "xapp-1-A1-2-abc",
    "SLACK_API_URL": "",
}


@pytest.mark.parametrize(
    ("way", "setting", "value"),
    [
        ("webhook", "SLACK_BOT_TOKEN", "xoxp-a-person's"),
        ("polling", "SLACK_BOT_TOKEN", "xapp-1-A1-2-abc"),
        ("webhook", "SLACK_SIGNING_SECRET", "short"),
        ("polling", "SLACK_APP_TOKEN", "xoxb-12-34-Abc"),
        ("webhook", "SLACK_API_URL", "ftp://x"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_its_mend(way: str, setting: str, value: str) -> None:
    with pytest.raises(MissingSetting) as caught:
        SlackChannel.from_settings(SETTINGS | {setting: value}, way=way)  # type: ignore[arg-type]
    assert caught.value.setting == setting
    assert not value or value not in str(caught.value)


# ── files ──


async def fetched(channel: SlackChannel, ref: str) -> bytes:
    return b"".join([piece async for piece in channel.fetch(Attachment(kind="document", ref=ref))])


async def test_a_file_that_cannot_be_had_says_why(slack: FakeSlack, channel: SlackChannel) -> None:
    large = slack.upload("a.bin", bytes(20_000_001), "application/octet-stream")
    with pytest.raises(Undeliverable, match="file_too_large"):
        await fetched(channel, large["url_private"])
    small = slack.upload("a.txt", b"x", "text/plain")["url_private"]
    for status, error in ((302, Undeliverable), (404, Undeliverable), (500, Unavailable), (429, Unavailable)):
        slack.fail_next("download", status=status)
        with pytest.raises(error):
            await fetched(channel, small)
    slack.bot_token = "xoxb-another"
    with pytest.raises(Undeliverable, match="file_unknown"):  # the page for signing in is no file
        await fetched(channel, small)


@pytest.mark.parametrize(
    "ref",
    ["F0123", "", "geo:1,2", "http://[", "http://files.slack.com/x", "https://slack.com.evil.example/x", "file:///etc"],
)
async def test_the_token_goes_to_slack_alone(channel: SlackChannel, ref: str) -> None:
    with pytest.raises(Undeliverable, match="not_a_file"):
        await fetched(channel, ref)


# ── Socket Mode ──


async def polled(polling: object) -> Event:
    [event] = await anext(polling)  # type: ignore[call-overload]
    assert isinstance(event, Event)
    return event


async def test_presses_and_commands_come_over_the_connection(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    to = place(slack, slack.direct(ana))
    [part] = channel.render(to, Reply(text="Delete it?", buttons=(Button(label="Confirm", token="c" * 22),)))
    await channel.send(to, part, key="k")
    press = await slack.press(slack.sent[-1], "Confirm", by=ana)
    await slack.command(ana, slack.direct(ana), "/stop", "now")
    polling = channel.poll()
    pressed = await polled(polling)
    assert isinstance(pressed, ButtonPress)
    assert (pressed.token, pressed.message_id, pressed.address) == ("c" * 22, slack.sent[-1].ts, to)
    assert pressed.answer_to is not None
    await channel.answer(pressed.answer_to, "Not yours", private=True)
    assert [answer["text"] for answer in press.answers] == ["Not yours"]
    command = await polled(polling)
    assert isinstance(command, Message)
    assert (command.command, command.text) == ("stop", "now")
    await polling.aclose()


@pytest.mark.parametrize("how", ["refresh_requested", "drop"])
async def test_an_ended_connection_is_replaced(slack: FakeSlack, channel: SlackChannel, ana: str, how: str) -> None:
    polling = channel.poll()
    waiting = asyncio.ensure_future(polled(polling))
    await slack.wait_for(lambda: slack.connected)
    await (slack.drop() if how == "drop" else slack.disconnect(how))
    await slack.wait_for(lambda: len(slack.called("apps.connections.open")) == 2)
    await slack.says(ana, slack.direct(ana), "still there?")
    assert isinstance(await waiting, Message)
    await polling.aclose()


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_old_connection_speaks_to_its_end(slack: FakeSlack, channel: SlackChannel, ana: str, reason: str) -> None:
    """A press during the change of connections must not be lost: Slack delivers a press once."""
    polling = channel.poll()
    told: asyncio.Queue[Event] = asyncio.Queue()

    async def take() -> None:
        async for events in polling:
            for event in events:
                await told.put(event)

    taking = asyncio.ensure_future(take())
    await slack.wait_for(lambda: slack.connected)
    [old] = slack.connected
    await slack.disconnect(reason)
    await slack.wait_for(lambda: len(slack.connected) == 2)
    for text in ("over the one", "over the other"):
        await slack.says(ana, slack.direct(ana), text)
    assert {getattr(await told.get(), "text", "") for _ in range(2)} == {"over the one", "over the other"}
    await slack.wait_for(lambda: len(slack.acknowledged) == 2)
    await old.close()
    await slack.says(ana, slack.direct(ana), "alone")
    assert getattr(await told.get(), "text", "") == "alone"
    assert len(slack.called("apps.connections.open")) == 2, "that the old one ends is no reason for a third"
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await polling.aclose()
    await slack.wait_for(lambda: not slack.connected)


async def test_an_unacknowledged_event_comes_again_as_a_twin(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    await slack.says(ana, slack.direct(ana), "one")
    polling = channel.poll()
    first = await polled(polling)
    await slack.drop()
    async with asyncio.timeout(60):
        while any(task.get_name() == "slack socket mode" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)  # until our side knows it, too
    assert (await polled(polling)).event_ids == first.event_ids
    await polling.aclose()


async def test_each_connection_acknowledges_its_own_events(slack: FakeSlack, channel: SlackChannel, ana: str) -> None:
    """Two processes have the same tokens: Slack delivers each event to one of them."""
    polls = [channel.poll(), channel.poll()]
    waiting = [asyncio.ensure_future(polled(polling)) for polling in polls]
    await slack.wait_for(lambda: len(slack.connected) == 2)
    for text in ("one", "two"):
        await slack.says(ana, slack.direct(ana), text)
    events = await asyncio.gather(*waiting)
    assert {getattr(event, "text", "") for event in events} == {"one", "two"}
    assert slack.acknowledged == []
    more = [asyncio.ensure_future(polled(polling)) for polling in polls]
    await slack.wait_for(lambda: len(slack.acknowledged) == 2)
    for task in more:
        task.cancel()
    await asyncio.gather(*more, return_exceptions=True)


async def test_too_many_connections_asked_for_says_how_long_to_wait(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.fail_next("apps.connections.open", "ratelimited", status=429, retry_after=17)
    with pytest.raises(RateLimited) as caught:
        await anext(channel.poll())
    assert caught.value.retry_after_seconds == 17.0
    assert len(slack.called("apps.connections.open")) == 1


async def test_unknown_event_does_not_hold_back_later_events(
    slack: FakeSlack, channel: SlackChannel, ana: str, caplog: pytest.LogCaptureFixture
) -> None:
    await slack.event({"type": "team_join", "user": {"id": "U1", "name": "a private name"}})
    await slack.says(ana, slack.direct(ana), "one")
    polling = channel.poll()
    assert isinstance(await polled(polling), Message)
    assert len(slack.acknowledged) <= 1
    assert "not understood" in caplog.text
    assert "a private name" not in caplog.text
    await polling.aclose()


async def test_a_connection_that_slack_does_not_give_says_the_mend(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.fail_next("apps.connections.open", "not_allowed_token_type")
    with pytest.raises(PollingRefused, match=r"SLACK_APP_TOKEN.*not_allowed_token_type"):
        await anext(channel.poll())
    slack.fail_next("apps.connections.open", "invalid_auth")
    with pytest.raises(PollingRefused, match=r"SLACK_APP_TOKEN.*unauthorized"):
        await anext(channel.poll())
    polling = channel.poll()
    waiting = asyncio.ensure_future(anext(polling))
    await slack.wait_for(lambda: slack.connected)
    await slack.disconnect("link_disabled")
    with pytest.raises(PollingRefused, match="switched off"):
        await waiting


async def test_poll_raises_when_slack_is_out_of_reach(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.fail_next("apps.connections.open", status=503)
    with pytest.raises(Unavailable, match="http_503"):
        await anext(channel.poll())
    hold = slack.hold("apps.connections.open")
    waiting = asyncio.ensure_future(anext(channel.poll()))
    await hold.reached()
    slack._tickets.clear()
    hold.release()
    with pytest.raises(Unavailable, match="no_connection") as caught:
        await waiting
    assert "ticket" not in repr(caught.value)


# ── the webhook ──


async def test_signed_events_are_delivered_again_until_taken(
    slack: FakeSlack, channel: SlackChannel, ana: str, aiohttp_server: AiohttpServer
) -> None:
    requests: list[WebhookRequest] = []
    statuses = [503, 500]

    async def take(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        requests.append(WebhookRequest("POST", str(request.url), headers, await request.read()))
        return web.Response(status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_post("/webhooks/slack", take)
    server = await aiohttp_server(app)
    slack.webhook = str(server.make_url("/webhooks/slack"))
    team = slack.channel()
    await slack.says(ana, team, f"<@{slack.bot_user}> delete INV-42")
    await slack.command(ana, team, "/stop")
    now = datetime.now(UTC)
    ids = []
    for request in requests:
        channel.verify(request, now)
        [event] = channel.parse(request).events
        ids.append(event.event_ids)
    assert [d.status for d in slack.deliveries] == [503, 500, 200, 200, 200]
    assert [request.headers.get("x-slack-retry-num") for request in requests] == [None, "1", "2", None, None]
    assert ids[0] == ids[1] == ids[2]
    assert set(ids[2]) & set(ids[3]), "the message and its mention"
    with pytest.raises(Forged):
        channel.verify(WebhookRequest("POST", "", requests[0].headers, requests[0].body + b" "), now)
