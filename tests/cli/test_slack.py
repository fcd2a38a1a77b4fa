"""The manifest that `askfirst slack manifest` prints, against what Slack documents of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from channels import WebhookRequest
from channels.slack.parse import PayloadReader
from gateway.cli import main
from gateway.commands import BUILT_IN
from gateway.wording import say

URL = "https://bot.example.com/webhooks/slack"
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
"""Of Slack's own schema (https://github.com/slackapi/manifest-schema), which takes no field that it does not know."""
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
    "a file's URL": "files:read",
    "a slash command": "commands",
}
"""Method -> scope: https://docs.slack.dev/reference/methods."""


def printed(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["slack", "manifest", *arguments], env=env)


def manifest(*arguments: str, **env: str) -> dict[str, Any]:
    """What is printed, and nothing but that, checked against the schema."""
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
    # https://docs.slack.dev/reference/methods/apps.manifest.validate: a request URL, or Socket Mode.
    assert len(addresses) == 1
    assert settings["socket_mode_enabled"] is (addresses == {None})


def test_a_server_is_called_at_one_address(here: Path) -> None:
    found = manifest("bot.py", ASKFIRST_PUBLIC_URL="https://bot.example.com/")
    assert found["display_information"]["name"] == "Invoices"
    assert found["settings"]["event_subscriptions"]["request_url"] == URL
    assert found["settings"]["interactivity"] == {"is_enabled": True, "request_url": URL}
    assert {"command": "/stop", "description": "Stop what I am doing", "url": URL} in found["features"][
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


def test_without_a_bot_it_has_the_commands_of_every_bot(here: Path) -> None:
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


def test_what_it_subscribes_to_and_registers_is_understood(here: Path) -> None:
    """A command comes in under its name in the manifest and is the bot's own."""
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
        parsed = reader.read(WebhookRequest("POST", URL, {}, json.dumps(body).encode()))
        assert len(parsed.events) == 1, name
