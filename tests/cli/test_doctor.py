"""``askfirst doctor`` names each fault with its mend, and finds none where a bot can be served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.cli.processes import askfirst, running
from tests.fakes.anthropic import Fail, FakeAnthropic
from tests.fakes.telegram import FakeTelegram

PUBLIC = "https://bot.example.com"
WEBHOOK = f"{PUBLIC}/webhooks/telegram"


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        yield telegram


@pytest.fixture
def env(telegram: FakeTelegram) -> dict[str, str]:
    return {
        "ASKFIRST_ALLOW": "telegram:*",
        "ASKFIRST_PUBLIC_URL": PUBLIC,
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "TELEGRAM_WEBHOOK_SECRET": "kQ7vX2mB9tR4wZ8nL5cJ",
        "TELEGRAM_API_URL": telegram.url,
    }


async def command(*arguments: str, env: dict[str, str]) -> Result:
    """A command in this process, in the current directory."""
    return await asyncio.to_thread(CliRunner().invoke, main, [*arguments], env=env)


async def examined(*options: str, env: dict[str, str]) -> dict[str, str]:
    """What was found to be wrong; the exit code agrees."""
    result = await command("doctor", "bot.py", "--json", *options, env=env)
    assert "Traceback" not in result.output
    faults = [finding for finding in json.loads(result.stdout) if not finding["ok"]]
    assert result.exit_code == (1 if faults else 0)
    assert all("\n" not in finding["says"] for finding in faults)
    return {finding["check"]: finding["says"] for finding in faults}


async def test_a_bot_that_can_be_served_has_no_fault(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    telegram.webhook = {"url": WEBHOOK}
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.output.splitlines()] == [
        "ok    settings",
        "ok    bot",
        "ok    model",
        "ok    telegram",
        "ok    telegram webhook",
        "ok    store",
        "ok    artifacts",
    ]
    assert WEBHOOK in result.output
    assert not (here / ".askfirst").exists(), "it changes nothing"


async def test_with_nothing_set_each_setting_is_named(here: Path) -> None:
    faults = await examined(env={})
    assert faults.keys() == {"settings", "channels"}
    assert faults["settings"].startswith("ASKFIRST_ALLOW: say who may talk to the bot")
    assert "set TELEGRAM_BOT_TOKEN" in faults["channels"]


async def test_several_wrong_settings_are_a_line_each(here: Path, env: dict[str, str]) -> None:
    wrong = {"ASKFIRST_LOG_LEVEL": "loud", "ASKFIRST_SECRET": "canary"}
    result = await command("doctor", "bot.py", env=env | wrong)
    assert result.exit_code == 1
    assert [line.split(" ")[:3] for line in result.output.splitlines()] == [
        ["FAULT", "settings:", "ASKFIRST_SECRET:"],
        ["FAULT", "settings:", "ASKFIRST_LOG_LEVEL:"],
    ]
    assert "canary" not in result.output


async def test_half_a_channel_is_a_setting_that_is_missing(here: Path, env: dict[str, str]) -> None:
    del env["TELEGRAM_WEBHOOK_SECRET"]
    assert (await examined(env=env)).keys() == {"settings"}


async def test_a_token_that_the_platform_does_not_know(here: Path, env: dict[str, str]) -> None:
    faults = await examined(env=env | {"TELEGRAM_BOT_TOKEN": "7000001:AAAnotherTokenThatNobodyMade_0123456"})
    assert faults.keys() == {"telegram"}
    assert "copy it again from @BotFather" in faults["telegram"]
    assert "AAAnother" not in faults["telegram"]


async def test_a_platform_that_is_out_of_reach(here: Path, env: dict[str, str]) -> None:
    faults = await examined(env=env | {"TELEGRAM_API_URL": "http://127.0.0.1:1"})
    assert faults.keys() == {"telegram"}
    assert "cannot be reached" in faults["telegram"]


async def test_a_webhook_that_is_not_ours(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    mend = "askfirst webhooks set bot.py"
    assert await examined(env=env) == {"telegram webhook": f"none is registered: {mend}"}
    telegram.webhook = {"url": WEBHOOK}
    moved = env | {"ASKFIRST_PUBLIC_URL": "https://new.example.com"}
    assert await examined(env=moved) == {
        "telegram webhook": f"{WEBHOOK} is registered, not https://new.example.com/webhooks/telegram: {mend}"
    }
    del env["ASKFIRST_PUBLIC_URL"]
    assert "ASKFIRST_PUBLIC_URL is not set" in (await examined(env=env))["telegram webhook"]


async def test_a_bot_file_that_does_not_load(here: Path, env: dict[str, str]) -> None:
    (here / "bot.py").write_text("def make():\n    return invoices\n\n\nbot = make()\n")
    says = (await examined(env=env))["bot"]
    assert says == "bot.py cannot be loaded: NameError: name 'invoices' is not defined"
    (here / "bot.py").unlink()
    assert (await examined(env=env))["bot"] == "there is no file bot.py"


async def test_the_model_is_asked_only_when_one_says_so(here: Path, env: dict[str, str]) -> None:
    env["ASKFIRST_PROVIDER"] = "anthropic:claude-test"
    assert "ANTHROPIC_API_KEY is not set" in (await examined(env=env))["model"]
    async with FakeAnthropic() as model:
        env |= {"ANTHROPIC_API_KEY": model.key, "ANTHROPIC_BASE_URL": model.url}
        assert "model" not in await examined(env=env)
        assert model.requests == []
        model.script(["OK.", Fail(529)])
        assert "model" not in await examined("--model", env=env)
        assert model.requests[0]["max_tokens"] <= 16 + 8000
        assert (await examined("--model", env=env))["model"].startswith("anthropic: 529 overloaded_error")
        env["ANTHROPIC_API_KEY"] = "sk-ant-canary"
        says = (await examined("--model", env=env))["model"]
        assert "the key in ANTHROPIC_API_KEY was refused" in says
        assert "canary" not in says


async def test_a_store_in_use_is_well_while_its_server_answers(here: Path, env: dict[str, str]) -> None:
    async with running("serve", "bot.py", "--host", "127.0.0.1", "--port", "0", cwd=here, env=env) as process:
        await process.url()
        _, out, _ = await askfirst("doctor", "bot.py", cwd=here, env=env)
        assert "askfirst.db is in use by a server, which answers" in out
    assert (here / ".askfirst" / "askfirst.db.sock").exists(), "it was killed"
    assert "askfirst.db can be opened" in (await command("doctor", "bot.py", env=env)).output


async def test_a_store_that_cannot_be_opened(here: Path, env: dict[str, str]) -> None:
    (here / "bot.db").write_text("not a database, by far")
    (here / "bot.db.sock").touch()
    says = (await examined(env=env | {"ASKFIRST_STORE": f"sqlite:///{here}/bot.db"}))["store"]
    assert str(here / "bot.db") in says
    assert (await examined(env=env | {"ASKFIRST_STORE": f"sqlite:///{here}/bot.py/a/b.db"}))["store"].endswith(
        "let the user that serves write there, or name another place in ASKFIRST_STORE"
    )


async def test_artifacts_that_cannot_be_written(here: Path, env: dict[str, str]) -> None:
    says = (await examined(env=env | {"ASKFIRST_ARTIFACTS": str(here / "bot.py")}))["artifacts"]
    assert says.startswith(f"no file can be made in {here}/bot.py (")
    assert says.endswith("name another place in ASKFIRST_ARTIFACTS")
