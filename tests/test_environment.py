"""Secrets: given in files, and removed from the environment of a tool's child processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from channels import MissingSetting
from gateway.config.environment import SECRETS, environment, hide_secrets, proxied
from gateway.config.settings import Settings
from gateway.providers import make_provider
from tests.cli.processes import running
from tests.fakes.telegram import FakeTelegram

SECRET = "Zq3v9XkLw0sTnB7yRc5HdM1pEa8JgU2f"
BOT_TOKEN = "123456789:AAH4nq-canary-Zx81"


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The process's environment for this test alone."""
    environ = dict(os.environ)
    monkeypatch.setattr(os, "environ", environ)
    return environ


def test_every_secret_setting_is_a_secret_of_the_environment() -> None:
    fields = Settings.model_fields.items()
    secret = {
        str(field.validation_alias or f"ASKFIRST_{name.upper()}")
        for name, field in fields
        if SecretStr.__name__ in str(field.annotation)
    }
    assert set(SECRETS) == secret | {"ASKFIRST_STORE"}, "the address of a Redis holds its password"


def test_each_secret_may_stand_in_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    values = {name: f"{number:02}-{SECRET}" for number, name in enumerate(SECRETS)}
    values |= {"ASKFIRST_STORE": "redis://:canary@127.0.0.1:6379/7", "TELEGRAM_BOT_TOKEN": BOT_TOKEN}
    for name, value in values.items():
        (tmp_path / name).write_text(f"{value}\n", encoding="utf-8")
        environ[f"{name}_FILE"] = str(tmp_path / name)
    settings = Settings()
    assert [secret.get_secret_value() for secret in settings.secret] == [values["ASKFIRST_SECRET"]]
    assert settings.store == values["ASKFIRST_STORE"]
    assert settings.channel_settings("telegram")["TELEGRAM_BOT_TOKEN"] == BOT_TOKEN
    assert {name: environment()[name] for name in SECRETS} == values
    assert Settings(store="sqlite:///mine.db").store == "sqlite:///mine.db", "what is given by name wins"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"TELEGRAM_BOT_TOKEN_FILE: .* cannot be read \(No such file or directory\)"),
        (b"", "TELEGRAM_BOT_TOKEN_FILE: .* is empty"),
        (b"\xff\xfe", r"TELEGRAM_BOT_TOKEN_FILE: .* \(it is no text in UTF-8\)"),
    ],
)
def test_a_file_without_a_secret_is_named(
    environ: dict[str, str], tmp_path: Path, content: bytes | None, said: str
) -> None:
    environ["TELEGRAM_BOT_TOKEN_FILE"] = str(tmp_path / "token")
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(MissingSetting, match=said):
        Settings()


def test_a_secret_in_two_places_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"TELEGRAM_BOT_TOKEN": BOT_TOKEN, "TELEGRAM_BOT_TOKEN_FILE": str(tmp_path / "token")}
    with pytest.raises(MissingSetting, match="TELEGRAM_BOT_TOKEN_FILE: TELEGRAM_BOT_TOKEN is set too") as refused:
        Settings()
    assert "canary" not in str(refused.value)


def test_hidden_secrets_are_still_found_by_askfirst(environ: dict[str, str]) -> None:
    environ |= {"ASKFIRST_SECRET": SECRET, "OPENAI_API_KEY": "sk-canary", "INVOICES_PASSWORD": "the bot's own"}
    before = Settings()
    hide_secrets()
    assert "canary" not in str(environ)
    assert not {*SECRETS} & {*environ}
    assert environ["INVOICES_PASSWORD"] == "the bot's own"
    assert Settings() == before
    assert make_provider("openai:gpt-5-mini").name == "openai", "an agent that a tool makes later finds its key"


BOT = """
import asyncio, os, sys
from contextlib import asynccontextmanager
from gateway import Agent, ChannelAgent

AT_IMPORT = os.environ["TELEGRAM_BOT_TOKEN"]  # as a bot file may: it is there while the file is read

@asynccontextmanager
async def child():
    '''What a tool would do.'''
    print("INHERITED", flush=True)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import os; print(dict(os.environ))")
    await process.wait()
    yield

bot = ChannelAgent(Agent([], provider="demo"), lifespan=child)
"""


async def test_a_child_process_of_a_tool_inherits_no_secret(tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(BOT, encoding="utf-8")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-canary-3\nINVOICES_PASSWORD=own\n", encoding="utf-8")
    (tmp_path / "secret").write_text("canary-4-Zq3v9XkLw0sTnB7yRc5H\n", encoding="utf-8")
    async with FakeTelegram() as telegram:
        env = {
            "ASKFIRST_ALLOW": "telegram:*",
            "ASKFIRST_SECRET": f"canary-1-{SECRET}",
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_API_URL": telegram.url,
            "TELEGRAM_WEBHOOK_SECRET_FILE": str(tmp_path / "secret"),
        }
        arguments = ("serve", "bot.py", "--host", "127.0.0.1", "--port", "0")
        async with asyncio.timeout(90), running(*arguments, cwd=tmp_path, env=env) as server:
            await server.url()
    inherited = server.said.partition("INHERITED")[2]
    assert "'INVOICES_PASSWORD': 'own'" in inherited
    assert "canary" not in inherited
    assert telegram.token not in inherited


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://joe:hunter2@proxy:3128", False), ("proxy:3128", True), ("socks5://joe:hunter2@p:1", True)],
)
def test_unusable_proxy_is_named_without_its_password(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture, url: str, *, warned: bool
) -> None:
    for name in [name for name in environ if name.lower() in ("http_proxy", "https_proxy")]:
        del environ[name]
    assert not proxied()
    environ["HTTPS_PROXY"] = url
    assert proxied()
    assert ("HTTPS_PROXY is no http:// proxy" in caplog.text) is warned
    assert "hunter2" not in caplog.text
