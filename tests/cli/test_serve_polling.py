"""``askfirst serve`` works without a public address: by polling, with takeover, and through a proxy."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from channels import WebhookRequest
from channels.slack.parse import PayloadReader
from gateway.bot.commands import BUILT_IN
from gateway.cli import main
from gateway.store.sqlite import SqliteStore
from gateway.wording import say
from tests.cli.processes import askfirst, forked
from tests.e2e.house import SIGNING
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.store.redis_server import RedisServer

SERVE = ("serve", "bot.py", "--host", "127.0.0.1", "--port", "0")
OURS = r"telegram is polled by this process"


def polled(telegram: FakeTelegram, **more: str) -> dict[str, str]:
    return {
        "ASKFIRST_ALLOW": "*",
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "TELEGRAM_API_URL": telegram.url,
        **more,
    }


async def answer(telegram: FakeTelegram, text: str) -> str:
    ana = telegram.person("Ana")
    await telegram.person_says(ana, ana, text, wait=False)
    found = await telegram.wait_for(lambda: [sent for sent in telegram.sent if sent.chat.id == ana.id])
    return found[0].text


async def test_telegram_with_a_secret_uses_a_webhook_unless_told(here: Path, telegram: FakeTelegram) -> None:
    env = polled(telegram, TELEGRAM_WEBHOOK_SECRET="kQ7vX2mB9tR4wZ8nL5cJ")
    async with forked(*SERVE, cwd=here, env=env) as process:
        await process.says("telegram: http://127.0.0.1:.*/webhooks/telegram")
    async with forked(*SERVE, "--way", "polling", cwd=here, env=env) as process:
        await process.says("telegram: by long polling")
        assert "INV-7" in await answer(telegram, "list the invoices")


async def test_one_process_polls_and_another_takes_over(
    here: Path, telegram: FakeTelegram, server: RedisServer
) -> None:
    env = polled(
        telegram,
        ASKFIRST_STORE=server.url,
        ASKFIRST_SECRET=SIGNING,
        ASKFIRST_ARTIFACTS=str(here / "artifacts"),
    )
    async with forked(*SERVE, cwd=here, env=env, lease_seconds=0.6) as first:
        await first.says(OURS)
        async with forked(*SERVE, cwd=here, env=env, lease_seconds=0.6) as second:
            await second.says("telegram is polled by another process")
            first.signal(signal.SIGKILL)
            await second.says(OURS)
            assert "INV-7" in await answer(telegram, "list the invoices")


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        (
            {"SLACK_BOT_TOKEN": "xoxb-1-a"},
            (),
            "SLACK_APP_TOKEN: set it to an App-Level Token with connections:write, of the app's page Basic "
            "Information, or SLACK_SIGNING_SECRET for webhooks (slack is set up by half)",
        ),
        (
            {"TELEGRAM_BOT_TOKEN": "7:AA"},
            ("--way", "webhook"),
            "TELEGRAM_WEBHOOK_SECRET: set it to a random value",
        ),
        (
            {"TWILIO_ACCOUNT_SID": f"AC{1:032x}", "TWILIO_AUTH_TOKEN": "t" * 32, "TWILIO_SMS_FROM": "+15550001111"},
            ("--way", "polling"),
            "TWILIO_SMS_FROM: sms cannot be polled, its platform calls a webhook: unset it, or serve with --way auto",
        ),
    ],
)
async def test_wrong_way_is_refused(here: Path, env: dict[str, str], options: tuple[str, ...], said: str) -> None:
    code, _, err = await askfirst(*SERVE, *options, cwd=here, env={"ASKFIRST_ALLOW": "*", **env})
    assert code == 78
    assert said in err


async def test_the_port_is_that_of_the_environment(here: Path) -> None:
    async with aiohttp.ClientSession() as http, Proxy() as taken:  # the port is in use, so the port is named
        code, _, err = await askfirst(
            "serve", "bot.py", "--host", "127.0.0.1", cwd=here, env={"ASKFIRST_ALLOW": "*", "PORT": str(taken.port)}
        )
        assert not http.closed
    assert (code, f"cannot listen on 127.0.0.1:{taken.port}" in err) == (1, True)


Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _copy(come_from: Socket, to: Socket) -> None:
    async for frame in come_from:
        await to.send_str(frame.data)


class Proxy:
    """A forward proxy for http:// with a record of the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.connected = 0
        """WebSockets."""
        self.port = 0

    async def __aenter__(self) -> Proxy:
        self._http = aiohttp.ClientSession(auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._pass_on), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()
        await self._http.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        upgrades = request.headers.get("Upgrade", "").lower() == "websocket"
        if upgrades:
            self.connected += 1
            ours = web.WebSocketResponse()
            await ours.prepare(request)
            async with self._http.ws_connect(request.url) as theirs:
                await asyncio.wait(
                    [asyncio.create_task(_copy(*ends)) for ends in ((ours, theirs), (theirs, ours))],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            return ours
        kept = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with self._http.request(
            request.method, request.url, headers=kept, data=await request.read(), allow_redirects=False
        ) as said:
            return web.Response(status=said.status, body=await said.read(), content_type=said.content_type)


async def test_socket_mode_goes_through_the_proxy(here: Path) -> None:
    async with FakeSlack() as slack, Proxy() as proxy:
        env = {
            "ASKFIRST_ALLOW": "*",
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_API_URL": slack.api_url,
            "HTTP_PROXY": f"http://127.0.0.1:{proxy.port}",
            "NO_PROXY": "",
        }
        async with forked(*SERVE, cwd=here, env=env) as process:
            await process.says("slack: over Socket Mode")
            ana = slack.person("ana")
            await slack.says(ana, slack.direct(ana), "list the invoices")
            await slack.wait_for(lambda: slack.sent)
        assert proxy.connected == 1


@pytest.mark.parametrize("around", [False, True])
async def test_a_proxy_of_the_environment_is_obeyed(here: Path, telegram: FakeTelegram, *, around: bool) -> None:
    async with Proxy() as proxy:
        env = polled(telegram, HTTP_PROXY=f"http://127.0.0.1:{proxy.port}", NO_PROXY="127.0.0.1" if around else "")
        async with forked(*SERVE, cwd=here, env=env) as process:
            await process.says("telegram: by long polling")
            assert "INV-7" in await answer(telegram, "list the invoices")
        assert bool(proxy.asked) is not around


# ── the webhooks of Twilio's channels ──


URL = "https://bot.example.com/webhooks/twilio"
BY_HAND = f"whatsapp: enter {URL} in the platform's console\n"


@pytest.fixture
async def twilio() -> AsyncIterator[FakeTwilio]:
    async with FakeTwilio() as fake:
        yield fake


def twilio_env(twilio: FakeTwilio, *numbers: str) -> dict[str, str]:
    senders = {"sms": twilio.sms, "whatsapp": f"whatsapp:{twilio.whatsapp}"}
    return {
        "ASKFIRST_PUBLIC_URL": "https://bot.example.com",
        "TWILIO_ACCOUNT_SID": twilio.account_sid,
        "TWILIO_AUTH_TOKEN": twilio.auth_token,
        "TWILIO_API_URL": twilio.url,
        **{f"TWILIO_{name.upper()}_FROM": senders[name] for name in numbers},
    }


async def test_sms_webhook_is_set_and_whatsapps_is_left_to_the_person(here: Path, twilio: FakeTwilio) -> None:
    both = twilio_env(twilio, "sms", "whatsapp")
    assert await askfirst("webhooks", "set", "bot.py", cwd=here, env=both) == (0, f"sms: {URL}\n", BY_HAND)
    assert twilio.webhook_url == f"{URL}#rc=3&rp=all"
    code, out, _ = await askfirst("webhooks", "show", "--json", cwd=here, env=both)
    assert (code, json.loads(out)) == (0, {"sms": URL})
    assert await askfirst("webhooks", "delete", cwd=here, env=both) == (0, "sms: deleted\n", BY_HAND)
    assert twilio.webhook_url == ""


async def test_whatsapp_alone_is_no_error(here: Path, twilio: FakeTwilio) -> None:
    alone = twilio_env(twilio, "whatsapp")
    assert await askfirst("webhooks", "set", cwd=here, env=alone) == (0, "", BY_HAND)


async def test_a_number_of_another_account_is_named(here: Path, twilio: FakeTwilio) -> None:
    settings = twilio_env(twilio, "sms") | {"TWILIO_SMS_FROM": "+15559990000"}
    code, _, err = await askfirst("webhooks", "set", cwd=here, env=settings)
    assert code == 1 and "+15559990000 is no number of this account" in err
    assert twilio.auth_token not in err


async def test_webhook_commands_ignore_channels_set_up_another_way(here: Path, twilio: FakeTwilio) -> None:
    """Slack is set up for a server, Telegram for a laptop: the commands still work."""
    async with FakeTelegram() as telegram:
        settings = twilio_env(twilio, "sms") | {
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_API_URL": telegram.url,
            "SLACK_BOT_TOKEN": "xoxb-1234567890-abcdefghij",
            "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99yyyzzz85a5",
        }
        code, out, _ = await askfirst("webhooks", "show", "--json", cwd=here, env=settings)
        assert (code, json.loads(out)) == (0, {"sms": None, "telegram": None})
        code, out, _ = await askfirst("webhooks", "delete", cwd=here, env=settings)
        assert (code, set(out.splitlines())) == (0, {"sms: deleted", "telegram: deleted"})
        store = SqliteStore(here / ".askfirst" / "askfirst.db")
        await store.open()
        await store.close()
        code, out, _ = await askfirst("pending", "list", "--json", "--bot", "bot.py", cwd=here, env=settings)
        assert (code, json.loads(out)) == (0, [])
        code, _, err = await askfirst("webhooks", "show", cwd=here, env={"SLACK_SIGNING_SECRET": "8" * 32})
        assert code == 78 and "SLACK_BOT_TOKEN: set it" in err


# ── The manifest printed by `askfirst slack manifest`, checked against Slack's documentation ──


SLACK_URL = "https://bot.example.com/webhooks/slack"
FIELDS = {
    "": {"display_information", "features", "oauth_config", "settings"},
    "/display_information": {"name", "description"},
    "/features": {"app_home", "bot_user", "slash_commands"},
    "/features/app_home": {"home_tab_enabled", "messages_tab_enabled", "messages_tab_read_only_enabled"},
    "/features/bot_user": {"display_name", "always_online"},
    "/features/slash_commands/*": {"command", "url", "description", "usage_hint", "should_escape"},
    "/oauth_config": {"scopes"},
    "/oauth_config/scopes": {"bot"},
    "/settings": {"event_subscriptions", "interactivity", "socket_mode_enabled", "org_deploy_enabled"},
    "/settings/event_subscriptions": {"request_url", "bot_events"},
    "/settings/interactivity": {"is_enabled", "request_url"},
}
"""The fields of Slack's own schema (https://github.com/slackapi/manifest-schema). The schema takes no unknown field."""
NEEDS = {"app_mention": "app_mentions:read", "message.im": "im:history"}
"""Event -> scope: https://docs.slack.dev/reference/events."""
CALLS = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "assistant.threads.setStatus": "chat:write",
    "conversations.open": "im:write",
    "conversations.history": "im:history",
    "conversations.replies": "im:history",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "a file's SLACK_URL": "files:read",
    "a slash command": "commands",
}
"""Method -> scope: https://docs.slack.dev/reference/methods."""


def printed(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["slack", "manifest", *arguments], env=env)


def manifest(*arguments: str, **env: str) -> dict[str, Any]:
    """Return the printed manifest, checked against the schema. stdout has only the manifest."""
    result = printed(*arguments, **env)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    check(found)
    return found


def check(found: dict[str, Any], at: str = "") -> None:
    assert set(found) <= FIELDS[at], at
    for name, value in found.items():
        if isinstance(value, dict):
            check(value, f"{at}/{name}")
        for item in value if isinstance(value, list) else []:
            if isinstance(item, dict):
                check(item, f"{at}/{name}/*")
    if at:
        return
    features, settings = found["features"], found["settings"]
    assert 1 <= len(found["display_information"]["name"]) <= 35
    assert 1 <= len(features["bot_user"]["display_name"]) <= 80
    commands = [entry["command"] for entry in features["slash_commands"]]
    assert 1 <= len(commands) <= 50
    assert len(set(commands)) == len(commands)
    for entry in features["slash_commands"]:
        assert entry["command"].startswith("/")
        assert 2 <= len(entry["command"]) <= 32
        assert 1 <= len(entry["description"]) <= 2000
    scopes = set(found["oauth_config"]["scopes"]["bot"])
    assert {NEEDS[event] for event in settings["event_subscriptions"]["bot_events"]} | set(CALLS.values()) == scopes
    addresses = {
        settings["event_subscriptions"].get("request_url"),
        settings["interactivity"].get("request_url"),
        *(entry.get("url") for entry in features["slash_commands"]),
    }
    # https://docs.slack.dev/reference/methods/apps.manifest.validate: a request SLACK_URL, or Socket Mode.
    assert len(addresses) == 1
    assert settings["socket_mode_enabled"] is (addresses == {None})


def test_a_server_is_called_at_one_address(here: Path) -> None:
    found = manifest("bot.py", ASKFIRST_PUBLIC_URL="https://bot.example.com/")
    assert found["display_information"]["name"] == "Invoices"
    assert found["settings"]["event_subscriptions"]["request_url"] == SLACK_URL
    assert found["settings"]["interactivity"] == {"is_enabled": True, "request_url": SLACK_URL}
    assert {"command": "/stop", "description": "Stop what I am doing", "url": SLACK_URL} in found["features"][
        "slash_commands"
    ]
    assert found["features"]["app_home"]["messages_tab_read_only_enabled"] is False
    assert printed("bot.py", ASKFIRST_PUBLIC_URL="https://bot.example.com").stderr == ""


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "ASKFIRST_PUBLIC_URL is not set"),
        (
            {"SLACK_APP_TOKEN": "xapp-1-A1-2-abc", "ASKFIRST_PUBLIC_URL": "https://bot.example.com"},
            "SLACK_APP_TOKEN is",
        ),
    ],
)
def test_manifest_without_url_or_with_app_token_is_socket_mode(here: Path, env: dict[str, str], why: str) -> None:
    assert manifest("bot.py", **env)["settings"]["socket_mode_enabled"] is True
    said = printed("bot.py", **env).stderr
    assert why in said and "`askfirst dev` and `askfirst serve --way polling` hear this app" in said


BOT = """
from gateway import Agent, AgentConfig, ChannelAgent
bot = ChannelAgent(Agent(config=AgentConfig(name="Zoë's <Books> & Söhne " + "x" * 40)), language="es")
for name in ("total", "status", "a" * 31, "b" * 32, "año"):
    bot.command(name, description=f"What {name} is" + "\\n" + "x" * 3000)(None)
"""


def test_names_that_slack_would_refuse_are_changed_or_said(here: Path) -> None:
    (here / "bot.py").write_text(BOT)
    found = manifest("bot.py", ASKFIRST_PUBLIC_URL="https://bot.example.com")
    assert found["display_information"]["name"] == "Zoë's Books Söhne xxxxxxxxxxxxxxxxx"
    commands = {entry["command"]: entry["description"] for entry in found["features"]["slash_commands"]}
    assert commands["/stop"] == say("cmd_stop", "es")
    assert list(commands)[9:] == ["/total", "/zo_s_books_s_hne_xxxxxxx-status", "/" + "a" * 31]
    said = printed("bot.py", ASKFIRST_PUBLIC_URL="https://bot.example.com").stderr
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        f"Slack takes no command /{'b' * 32}",
        "Slack takes no command /año",
    ]


def test_manifest_without_a_bot_has_the_common_commands(here: Path) -> None:
    found = manifest(ASKFIRST_PUBLIC_URL="https://bot.example.com")
    assert found["display_information"]["name"] == "Askfirst"
    assert [entry["command"] for entry in found["features"]["slash_commands"]] == [
        "/start",
        "/askfirst-help",
        "/new",
        "/stop",
        "/pending",
        "/receipts",
        "/usage",
        "/export",
        "/forget",
    ]


def test_subscribed_events_and_commands_are_understood(here: Path) -> None:
    """A command arrives under the manifest's name and is the bot's own."""
    reader = PayloadReader("slack", "T1", "U0BOT")
    for entry in manifest("bot.py")["features"]["slash_commands"]:
        fields = {"command": entry["command"], "channel_id": "D1", "user_id": "U1", "trigger_id": "1", "team_id": "T1"}
        [event] = reader.read_command(fields).events
        assert getattr(event, "command", "") in BUILT_IN
    for name in manifest("bot.py")["settings"]["event_subscriptions"]["bot_events"]:
        body = {
            "type": "event_callback",
            "event_id": "Ev1",
            "team_id": "T1",
            "event": {"type": name.partition(".")[0], "channel": "D1", "user": "U1", "ts": "1.2", "text": "hello"},
        }
        parsed = reader.read(WebhookRequest("POST", SLACK_URL, {}, json.dumps(body).encode()))
        assert len(parsed.events) == 1, name
