"""Settings, webhook registration, long polling and files, against a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from channels import Attachment, Forged, Message, MissingSetting, Unavailable, Undeliverable, WebhookRequest
from channels.telegram import PollingRefused, TelegramChannel
from tests.channels.telegram.conftest import SECRET, Pauses
from tests.fakes.telegram import FakeTelegram, File, User

TOKEN = "123456:AAabc-DEF_1"


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"TELEGRAM_BOT_TOKEN": "not a token"}, "TELEGRAM_BOT_TOKEN"),
        ({"TELEGRAM_WEBHOOK_SECRET": "short"}, "TELEGRAM_WEBHOOK_SECRET"),
        ({"TELEGRAM_WEBHOOK_SECRET": "with spaces and more"}, "TELEGRAM_WEBHOOK_SECRET"),
        ({"TELEGRAM_API_URL": "ftp://x"}, "TELEGRAM_API_URL"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_its_mend(change: dict[str, str], setting: str) -> None:
    settings = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_WEBHOOK_SECRET": SECRET} | change
    with pytest.raises(MissingSetting) as caught:
        TelegramChannel.from_settings(settings, way="webhook")
    assert caught.value.setting == setting
    assert caught.value.mend
    assert all(value not in str(caught.value) for value in change.values() if value)


async def test_the_webhook_is_set_shown_and_removed(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    assert await channel.registered() is None
    await channel.register("https://bot.example/webhooks/telegram")
    assert await channel.registered() == "https://bot.example/webhooks/telegram"
    assert telegram.webhook["secret"] == SECRET
    assert telegram.webhook["allowed_updates"] == ["message", "edited_message", "callback_query", "my_chat_member"]
    await channel.unregister()
    assert await channel.registered() is None


async def test_telegrams_words_about_a_bad_url_reach_the_operator(channel: TelegramChannel) -> None:
    with pytest.raises(Undeliverable, match="https url must be provided"):
        await channel.register("http://bot.example/webhooks/telegram")


async def test_the_menu_of_commands_is_set_for_each_language(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    await channel.set_commands({"": {"help": "What I can do"}, "es": {"help": "Qué puedo hacer"}})
    assert telegram.commands == {
        "": [{"command": "help", "description": "What I can do"}],
        "es": [{"command": "help", "description": "Qué puedo hacer"}],
    }


async def test_a_command_with_other_letters_is_left_out_of_the_menu(
    telegram: FakeTelegram, channel: TelegramChannel, caplog: pytest.LogCaptureFixture
) -> None:
    await channel.set_commands({"": {"help": "What I can do", "año": "This year"}})
    assert telegram.commands == {"": [{"command": "help", "description": "What I can do"}]}
    assert "no command with other letters than a-z: año" in caplog.text


async def test_polling_goes_on_after_outages(telegram: FakeTelegram, channel: TelegramChannel, pauses: Pauses) -> None:
    telegram.fail_next("getUpdates", 502, html=True, times=2)
    telegram.fail_next("getUpdates", 429, "Too Many Requests", retry_after=17)
    telegram.fail_next("getUpdates", cut=True)
    ana = telegram.person("Ana")
    await telegram.person_says(ana, ana, "one")
    polling = channel.poll()
    [event] = await anext(polling)
    assert isinstance(event, Message)
    assert pauses.seconds == [1.0, 2.0, 17.0, 8.0]
    await polling.aclose()


async def test_an_update_that_is_not_understood_holds_none_back(
    telegram: FakeTelegram, channel: TelegramChannel, caplog: pytest.LogCaptureFixture
) -> None:
    ana = telegram.person("Ana")
    await telegram.deliver("message", ana, {"text": "without an id"})
    await telegram.person_says(ana, ana, "one")
    polling = channel.poll()
    [event] = await anext(polling)
    assert isinstance(event, Message)
    assert "not understood" in caplog.text
    assert "without an id" not in caplog.text
    await polling.aclose()


async def test_polling_beside_a_webhook_says_the_mend(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    await channel.register("https://bot.example/webhooks/telegram")
    with pytest.raises(PollingRefused, match="askfirst webhooks delete"):
        await anext(channel.poll())


async def test_second_poller_with_the_same_token_is_refused(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    first = asyncio.ensure_future(anext(channel.poll()))
    await telegram.wait_for(lambda: telegram.called("getUpdates"))
    second = asyncio.ensure_future(anext(channel.poll()))
    with pytest.raises(PollingRefused, match="another program"):
        await first
    ana = telegram.person("Ana")
    await telegram.person_says(ana, ana, "one")
    assert len(await second) == 1


async def fetched(channel: TelegramChannel, file: File) -> bytes:
    attachment = Attachment(kind="document", ref=file.file_id)
    return b"".join([piece async for piece in channel.fetch(attachment)])


@pytest.mark.parametrize("kind", ["location", "contact"])
async def test_attachment_that_is_no_file_cannot_be_fetched(channel: TelegramChannel, kind: str) -> None:
    with pytest.raises(Undeliverable, match="not_a_file"):
        await anext(channel.fetch(Attachment(kind=kind, ref="geo:1,2")))  # type: ignore[arg-type]


async def test_a_file_that_cannot_be_had_says_why(telegram: FakeTelegram, channel: TelegramChannel) -> None:
    with pytest.raises(Undeliverable, match="file_unknown"):
        await anext(channel.fetch(Attachment(kind="document", ref="unknown")))
    large = telegram.upload("document", bytes(20_000_001), "a.bin", "application/octet-stream")
    with pytest.raises(Undeliverable, match="file_too_large"):
        await fetched(channel, large)
    grown = telegram.upload("document", b"x", "a.bin", "application/octet-stream")
    hold = telegram.hold("getFile")
    fetching = asyncio.ensure_future(fetched(channel, grown))
    await hold.reached()
    grown.content = bytes(20_000_001)
    hold.release()
    with pytest.raises(Undeliverable, match="file_too_large"):
        await fetching
    small = telegram.upload("document", b"x", "a.bin", "application/octet-stream")
    telegram.fail_next("download", 500)
    with pytest.raises(Unavailable) as caught:
        await fetched(channel, small)
    assert telegram.token not in repr(caught.value)


@pytest.fixture
async def webhook(channel: TelegramChannel, aiohttp_server: AiohttpServer) -> tuple[list[WebhookRequest], list[int]]:
    """A server of ours. `requests` gets each request; the answers have the statuses of the list, then 200."""
    requests: list[WebhookRequest] = []
    statuses: list[int] = []

    async def take(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        requests.append(WebhookRequest("POST", str(request.url), headers, await request.read()))
        return web.Response(status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_post("/webhooks/telegram", take)
    server = await aiohttp_server(app)
    await channel.register(str(server.make_url("/webhooks/telegram")))
    return requests, statuses


async def test_webhook_gets_updates_in_order_and_again_until_taken(
    telegram: FakeTelegram, channel: TelegramChannel, webhook: tuple[list[WebhookRequest], list[int]]
) -> None:
    requests, statuses = webhook
    statuses += [503, 500]
    ana = telegram.person("Ana")
    await telegram.person_says(ana, ana, "one", wait=False)
    await telegram.person_says(ana, ana, "two")
    texts = []
    for request in requests:
        channel.verify(request, now=None)  # type: ignore[arg-type]
        [event] = channel.parse(request).events
        assert isinstance(event, Message)
        texts.append(event.text)
    assert texts == ["one", "one", "one", "two"]
    assert [status for _, status in telegram.deliveries] == [503, 500, 200, 200]


async def test_blocking_the_bot_opts_out_and_makes_unreachable(
    telegram: FakeTelegram, channel: TelegramChannel
) -> None:
    ana: User = telegram.person("Ana")
    await telegram.person_says(ana, ana, "/start")
    await telegram.person_blocks(ana)
    polling = channel.poll()
    kinds = [type(event).__name__ for event in await anext(polling)]
    assert kinds == ["Message", "OptOut"]
    await polling.aclose()


# ── no request gets in without a secret ──


@pytest.mark.parametrize("headers", [{}, {"x-telegram-bot-api-secret-token": ""}])
def test_channel_without_a_secret_refuses_every_request(headers: dict[str, str]) -> None:
    request = WebhookRequest("POST", "https://bot.example/webhooks/telegram", headers, b"{}")
    with pytest.raises(Forged):
        TelegramChannel("123:abc").verify(request, datetime(2026, 1, 1, tzinfo=UTC))
