"""``askfirst doctor`` names each fault with the mend, and finds none for a bot fit to serve."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.cli.checks import prices
from tests.cli.counting import write_counting_bot
from tests.cli.processes import askfirst, command, forked
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import Call, Fail, ModelServer
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.providers.vendors import ANTHROPIC, OPENAI, Vendor
from tests.store.redis_server import RedisServer

PUBLIC = "https://bot.example.com"
WEBHOOK = f"{PUBLIC}/webhooks/telegram"


@pytest.fixture
def env(telegram: FakeTelegram) -> dict[str, str]:
    return {
        "ASKFIRST_ALLOW": "telegram:*",
        "ASKFIRST_PUBLIC_URL": PUBLIC,
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "TELEGRAM_WEBHOOK_SECRET": "kQ7vX2mB9tR4wZ8nL5cJ",
        "TELEGRAM_API_URL": telegram.url,
    }


async def examined(*options: str, env: dict[str, str]) -> dict[str, str]:
    """Return the faults. Checks the exit code."""
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
        "ok    tools",
        "ok    model",
        "ok    prices",
        "ok    previews",
        "ok    telegram",
        "ok    telegram webhook",
        "ok    store",
        "ok    artifacts",
    ]
    assert WEBHOOK in result.output
    assert not (here / ".askfirst").exists(), "it changes nothing"


def test_old_prices_are_warned_of() -> None:
    found, old = prices(datetime(2026, 11, 20, tzinfo=UTC)), prices(datetime(2027, 11, 20, tzinfo=UTC))
    assert found is not None and old is not None
    assert (found.ok, found.warns, old.ok, old.warns) == (True, False, True, True)
    assert re.fullmatch(r"genai-prices \S+, at most \d+ days old", found.says)
    assert old.says.endswith("costs may be wrong: pip install --upgrade genai-prices")


@pytest.mark.parametrize(("ahead", "told"), [(25, None), (45, "behind"), (-45, "ahead of")])
async def test_clock_that_is_half_a_minute_off_is_warned_of(
    here: Path, env: dict[str, str], telegram: FakeTelegram, ahead: int, told: str | None
) -> None:
    telegram.webhook, telegram.ahead_seconds = {"url": WEBHOOK}, ahead
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 0
    found = re.findall(
        r"warn  clock: this machine's clock is 4\d seconds (.*) that of 127.0.0.1: set it", result.output
    )
    assert found == ([told] if told else [])
    assert ("clock:" in result.output) == bool(told)


async def test_allow_entries_that_match_no_person_are_warnings(
    here: Path, env: dict[str, str], telegram: FakeTelegram
) -> None:
    telegram.webhook = {"url": WEBHOOK}
    env["ASKFIRST_ALLOW"] = "telegram:8:7,sms:*,*"
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 0
    account = telegram.token.partition(":")[0]
    assert f"warn  allow: ASKFIRST_ALLOW: telegram:8:7 admits nobody: our account is {account}; write" in result.output
    assert "warn  allow: ASKFIRST_ALLOW: sms:* admits nobody: sms is not on" in result.output
    assert "ok    allow: ASKFIRST_ALLOW has *: whoever finds the bot may talk to it" in result.output
    env["ASKFIRST_ALLOW"] = f"telegram:{account}:@ana"
    assert "FAULT settings: ASKFIRST_ALLOW: " in (await command("doctor", "bot.py", env=env)).output


APPROVED = """
from gateway import Agent, Approvers, Confirm, tool

@tool(confirm=Confirm("Pay?", approvers=Approvers(people=["telegram:1:7", "slack:T1:U7"], need=2)))
async def pay() -> None:
    "Pay."

bot = Agent([pay], provider="demo")
"""


async def test_a_tool_that_no_person_could_confirm_is_a_fault(here: Path, env: dict[str, str]) -> None:
    (here / "bot.py").write_text(APPROVED)
    faults = await examined(env=env)
    assert faults.keys() == {"approvers", "telegram webhook"}
    assert "tool pay: its approver slack:T1:U7 can never answer: slack is not on" in faults["approvers"]


WORDED = """
from gateway import Agent, ChannelAgent

own = {"say_code": "Answer with {code}, and never with STOP.", "greeting": "Hi."}
bot = ChannelAgent(Agent(provider="demo"), wording={"en": own})
"""


async def test_own_sentences_unfit_for_sms_are_a_fault(here: Path, env: dict[str, str]) -> None:
    (here / "bot.py").write_text(WORDED)
    shown = (await command("doctor", "bot.py", env=env)).output
    assert "ok    wording: 2 sentences of the bot's own\n" in shown
    account = {"TWILIO_ACCOUNT_SID": f"AC{'0' * 32}", "TWILIO_AUTH_TOKEN": "x" * 32, "TWILIO_SMS_FROM": "+15550001111"}
    account["TWILIO_API_URL"] = "http://127.0.0.1:1"
    shown = (await command("doctor", "bot.py", env=env | account)).output
    assert "FAULT wording: ChannelAgent: wording.en.say_code says STOP: carriers act on it" in shown


async def test_without_settings_each_required_setting_is_named(here: Path) -> None:
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
    del env["TELEGRAM_BOT_TOKEN"]
    assert (await examined(env=env)).keys() == {"settings"}


async def test_a_polled_channel_must_have_no_webhook(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    del env["TELEGRAM_WEBHOOK_SECRET"]
    del env["ASKFIRST_PUBLIC_URL"]
    assert await examined(env=env) == {}
    telegram.webhook["url"] = "https://other.example.com/telegram"
    faults = await examined(env=env)
    assert faults == {
        "telegram polling": "https://other.example.com/telegram is registered, so nothing can be polled: "
        "askfirst webhooks delete"
    }


async def test_unknown_token_is_a_fault_and_not_shown(here: Path, env: dict[str, str]) -> None:
    faults = await examined(env=env | {"TELEGRAM_BOT_TOKEN": "7000001:AAAnotherTokenThatNobodyMade_0123456"})
    assert faults.keys() == {"telegram"}
    assert "copy it again from @BotFather" in faults["telegram"]
    assert "AAAnother" not in faults["telegram"]


async def test_unreachable_platform_is_a_fault(here: Path, env: dict[str, str]) -> None:
    faults = await examined(env=env | {"TELEGRAM_API_URL": "http://127.0.0.1:1"})
    assert faults.keys() == {"telegram"}
    assert "cannot be reached" in faults["telegram"]


async def test_missing_or_foreign_webhook_is_a_fault(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    mend = "askfirst webhooks set bot.py"
    assert await examined(env=env) == {"telegram webhook": f"none is registered: {mend}"}
    telegram.webhook = {"url": WEBHOOK}
    moved = env | {"ASKFIRST_PUBLIC_URL": "https://new.example.com"}
    assert await examined(env=moved) == {
        "telegram webhook": f"{WEBHOOK} is registered, not https://new.example.com/webhooks/telegram: {mend}"
    }
    del env["ASKFIRST_PUBLIC_URL"]
    assert "ASKFIRST_PUBLIC_URL is not set" in (await examined(env=env))["telegram webhook"]


async def test_bot_file_that_does_not_load_is_a_fault(here: Path, env: dict[str, str]) -> None:
    (here / "bot.py").write_text("def make():\n    return invoices\n\n\nbot = make()\n")
    says = (await examined(env=env))["bot"]
    assert says == "bot.py cannot be loaded: NameError: name 'invoices' is not defined"
    (here / "bot.py").unlink()
    result = await command("doctor", "bot.py", env=env)
    assert (result.exit_code, "there is no file bot.py" in result.stderr) == (2, True)


async def test_no_secret_is_shown_by_any_fault(here: Path, telegram: FakeTelegram) -> None:
    nowhere = "http://127.0.0.1:1"
    hidden = {
        "ASKFIRST_SECRET": "canary0-8kQ5rW1xZ6vC9mL2pD7sF4gH0jK",
        "ASKFIRST_ADMIN_TOKEN": "canary1-8kQ5rW1xZ6vC9mL2pD7sF4gH0jK",
        "ASKFIRST_STORE": "redis://ana:canary2@127.0.0.1:1/3",
        "TELEGRAM_BOT_TOKEN": "7000001:AAcanary3_TokenThatNobodyMade_01234",
        "TELEGRAM_WEBHOOK_SECRET": "canary4-mB9tR4wZ8nL5cJ",
        "SLACK_BOT_TOKEN": "xoxb-1-2-canary5",
        "SLACK_SIGNING_SECRET": "canary6-0e8888abcd99yyyzzz85a5",
        "TWILIO_AUTH_TOKEN": "canary7-a5968778695a4b3c2d1e0f",
        "OPENAI_API_KEY": "sk-canary8",
    }
    shown = {
        "ASKFIRST_ALLOW": "*",
        "ASKFIRST_PUBLIC_URL": PUBLIC,
        "ASKFIRST_ARTIFACTS": str(here),
        "ASKFIRST_PROVIDER": "openai:gpt-test",
        "OPENAI_BASE_URL": nowhere,
        "TELEGRAM_API_URL": telegram.url,
        "SLACK_API_URL": nowhere,
        "TWILIO_ACCOUNT_SID": f"AC{0:032}",
        "TWILIO_SMS_FROM": "+15550001111",
        "TWILIO_API_URL": nowhere,
    }
    for options in ((), ("--json", "--model")):
        result = await command("doctor", "bot.py", *options, env=hidden | shown)
        assert result.exit_code == 1
        assert all(check in result.output for check in ("model", "telegram", "slack", "sms", "store"))
        assert "canary" not in result.output


# ── the model ──


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    vendor: Vendor = request.param
    return vendor


@pytest.fixture
async def asked(vendor: Vendor, env: dict[str, str]) -> AsyncIterator[ModelServer]:
    async with vendor.fake() as model:
        prefix = vendor.name.upper()
        env["ASKFIRST_PROVIDER"] = f"{vendor.name}:{vendor.model}"
        env |= {f"{prefix}_API_KEY": model.key, f"{prefix}_BASE_URL": model.url}
        model.models = {vendor.model}
        yield model


async def test_model_without_its_key_is_a_fault(here: Path, env: dict[str, str], vendor: Vendor) -> None:
    env["ASKFIRST_PROVIDER"] = f"{vendor.name}:{vendor.model}"
    assert f"{vendor.name.upper()}_API_KEY is not set" in (await examined(env=env))["model"]


async def test_model_check_looks_up_without_a_request(here: Path, env: dict[str, str], asked: ModelServer) -> None:
    assert "takes the key and has the model" in (await command("doctor", "bot.py", env=env)).output
    assert asked.requests == []


@pytest.mark.parametrize("options", [(), ("--model",)])
async def test_unknown_model_and_refused_key_are_faults(
    here: Path, env: dict[str, str], vendor: Vendor, asked: ModelServer, options: tuple[str, ...]
) -> None:
    prefix = vendor.name.upper()
    gone = env | {"ASKFIRST_PROVIDER": f"{vendor.name}:gone"}
    assert f"no such model, or {prefix}_BASE_URL" in (await examined(*options, env=gone))["model"]
    says = (await examined(*options, env=env | {f"{prefix}_API_KEY": "sk-ant-canary"}))["model"]
    assert f"the key in {prefix}_API_KEY was refused" in says
    assert "canary" not in says
    nobody = env | {f"{prefix}_BASE_URL": "http://127.0.0.1:1"}
    assert "see that this machine reaches the server" in (await examined(*options, env=nobody))["model"]


async def test_server_without_a_model_list_is_well(
    here: Path, env: dict[str, str], vendor: Vendor, asked: ModelServer
) -> None:
    env[f"{vendor.name.upper()}_BASE_URL"] = f"{asked.url}/elsewhere"
    result = await command("doctor", "bot.py", env=env)
    assert "does not say which models it has; --model asks it" in result.output


async def test_model_is_called_only_with_the_model_option(here: Path, env: dict[str, str], asked: ModelServer) -> None:
    asked.script([Call("look_up", {"thing": "nuts"}), "2 dollars.", Fail(529), Fail(402)])
    result = await command("doctor", "bot.py", "--model", env=env)
    assert f"answers as {env['ASKFIRST_PROVIDER'].partition(':')[2]}, and calls a tool" in result.output
    (sent,) = asked.requests
    assert max(sent.get(name, 0) for name in ("max_tokens", "max_completion_tokens")) <= 1000 + 8000
    assert "did not call the tool as it was told to" in (await command("doctor", "bot.py", "--model", env=env)).output
    assert "529" in (await examined("--model", env=env))["model"]
    assert "has no credit left" in (await examined("--model", env=env))["model"]


async def test_the_model_check_names_the_refusals_of_the_server(here: Path, env: dict[str, str]) -> None:
    async with Dialect("vllm", "stream_options", "max_tokens", rules=True) as server:
        server.script([Call("look_up", {"thing": "nuts"})])
        environ = {"ASKFIRST_PROVIDER": "openai:m", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": server.key}
        result = await command("doctor", "bot.py", "--model", env=env | environ)
    assert "OPENAI_COMPAT=call_ids,max_tokens,stream_options,user_after_tool keeps it so" in result.output
    assert "calls a tool" in result.output


# ── the previews ──


async def previews(env: dict[str, str]) -> list[tuple[str, bool]]:
    """Return the findings about previews, with True for a warning. None is a fault."""
    findings = json.loads((await command("doctor", "bot.py", "--json", env=env)).stdout)
    found = [finding for finding in findings if finding["check"] == "previews"]
    assert all(finding["ok"] for finding in found)
    return [(finding["says"], finding["warns"]) for finding in found]


async def test_previews_that_differ_from_call_to_call_are_warned_of(here: Path, env: dict[str, str]) -> None:
    write_counting_bot(here)
    said = await previews(env)
    differs = [says.partition(", so ")[0] for says, warns in said if warns and "differ" in says]
    assert differs == [
        "two previews of text differ in their text",
        "two previews of table differ in their text and table",
        "two previews of clock differ in their precondition",
    ]
    same = [says for says, warns in said if not warns]
    assert same == [
        "two previews of etag are the same",
        "two previews of steady are the same",
        "not compared, for want of arguments: unnamed; "
        "askfirst preview bot.py TOOL JSON compares two previews of a call",
    ]
    refused, broken = [says for says, warns in said if warns and "differ" not in says]
    assert refused.startswith("gone could not be previewed with its own example: ValueError (bot.py:")
    assert broken.startswith("broken could not be previewed with its own example: ")
    assert "KeyError (bot.py:" in broken
    assert "canary" not in broken


async def test_previews_of_a_bot_that_does_not_start_are_warned_of(here: Path, env: dict[str, str]) -> None:
    bot = write_counting_bot(here)
    bot.write_text(bot.read_text().replace('yield ["old"]', 'raise OSError("canary")\n    yield'))
    (none, warns), (unnamed, _) = await previews(env)
    assert warns
    assert none.startswith("none could be made: the bot's lifespan failed: OSError (bot.py:")
    assert "unnamed" in unnamed


async def test_a_bot_without_preview_functions_is_not_started(here: Path, env: dict[str, str]) -> None:
    bot = write_counting_bot(here)
    without = 'Agent([deleting("template", "Delete {folder}?")])'
    bot.write_text(
        bot.read_text().replace("Agent(tools)", without).replace('yield ["old"]', "raise OSError\n    yield")
    )
    assert await previews(env) == []


# ── the platforms ──


async def test_slack_token_and_its_scopes_are_checked(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    telegram.webhook = {"url": WEBHOOK}
    async with FakeSlack() as slack:
        env |= {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_SIGNING_SECRET": slack.signing_secret}
        env["SLACK_API_URL"] = slack.api_url
        assert await examined(env=env) == {}
        slack.scopes = {"chat:write", "im:history", "im:write", "commands", "files:read"}
        assert await examined(env=env) == {
            "slack scopes": "the bot's token lacks app_mentions:read, files:write: add them on the app's page "
            "OAuth & Permissions and install the app again"
        }
        slack.scopes = None
        assert await examined(env=env) == {}
        faults = await examined(env=env | {"SLACK_BOT_TOKEN": "xoxb-1-2-canary"})
        assert faults.keys() == {"slack"}
        assert "SLACK_BOT_TOKEN" in faults["slack"]
        assert "canary" not in faults["slack"]


async def test_wrong_url_of_a_twilio_number_is_a_fault(here: Path, env: dict[str, str], telegram: FakeTelegram) -> None:
    telegram.webhook = {"url": WEBHOOK}
    mend = "askfirst webhooks set bot.py"
    async with FakeTwilio() as twilio:
        env |= {"TWILIO_ACCOUNT_SID": twilio.account_sid, "TWILIO_AUTH_TOKEN": twilio.auth_token}
        env |= {"TWILIO_SMS_FROM": twilio.sms, "TWILIO_API_URL": twilio.url}
        assert await examined(env=env) == {"sms webhook": f"none is registered: {mend}"}
        twilio.webhook_url = "https://old.example.com/webhooks/twilio"
        faults = await examined(env=env)
        assert faults["sms webhook"].endswith(f"is registered, not {PUBLIC}/webhooks/twilio: {mend}")
        twilio.webhook_url = f"{PUBLIC}/webhooks/twilio"
        assert await examined(env=env) == {}
        faults = await examined(env=env | {"TWILIO_AUTH_TOKEN": "c" * 32})
        assert faults.keys() == {"sms"}
        assert "TWILIO_AUTH_TOKEN" in faults["sms"]


# ── the store and the files ──


@pytest.fixture
async def redis(tmp_path: Path, env: dict[str, str], telegram: FakeTelegram) -> AsyncIterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    telegram.webhook = {"url": WEBHOOK}
    env |= {"ASKFIRST_STORE": server.url, "ASKFIRST_ARTIFACTS": str(tmp_path / "files")}
    env["ASKFIRST_SECRET"] = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
    await server.start()
    yield server
    await server.kill()


async def test_trustworthy_redis_has_no_warning(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 0
    assert f"ok    store: {redis.url} can be opened" in result.output
    assert "warn" not in result.output


async def test_redis_that_forgets_is_warned_of(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    await redis.command("CONFIG", "SET", "appendonly", "no")
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 0
    (warning,) = [line for line in result.output.splitlines() if line.startswith("warn")]
    assert warning.startswith("warn  store: Redis keeps no append-only file")
    assert warning.endswith("Set appendonly to yes.")
    findings = json.loads((await command("doctor", "bot.py", "--json", env=env)).stdout)
    assert [finding["check"] for finding in findings if finding["warns"]] == ["store"]


async def test_redis_that_evicts_keys_is_a_fault(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    await redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    (says,) = (await examined(env=env)).values()
    assert says.endswith("(maxmemory-policy allkeys-lru). Set maxmemory-policy to noeviction.")


async def test_redis_with_a_wrong_password_is_a_fault(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    await redis.command("CONFIG", "SET", "requirepass", "open-sesame")
    wrong = redis.url.replace("redis://", "redis://:canary@")
    for url in (redis.url, wrong):
        (says,) = (await examined(env=env | {"ASKFIRST_STORE": url})).values()
        assert "it refuses the user or password" in says
        assert "ASKFIRST_STORE" in says
        assert "canary" not in says
    right = redis.url.replace("redis://", "redis://:open-sesame@")
    result = await command("doctor", "bot.py", env=env | {"ASKFIRST_STORE": right})
    assert result.exit_code == 0
    assert "sesame" not in result.output


async def test_missing_redis_is_a_fault(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    await redis.kill()
    faults = await examined(env=env)
    assert faults.keys() == {"store"}
    assert f"see that it runs at {redis.url}, as ASKFIRST_STORE says" in faults["store"]


async def test_redis_without_shared_settings_is_a_fault(here: Path, env: dict[str, str], redis: RedisServer) -> None:
    del env["ASKFIRST_SECRET"], env["ASKFIRST_ARTIFACTS"]
    result = await command("doctor", "bot.py", env=env)
    assert result.exit_code == 1
    assert [line.split()[:3] for line in result.output.splitlines() if line.startswith("FAULT")] == [
        ["FAULT", "settings:", "ASKFIRST_SECRET:"],
        ["FAULT", "settings:", "ASKFIRST_ARTIFACTS:"],
        ["FAULT", "artifacts:", "ASKFIRST_ARTIFACTS:"],
    ]


async def test_a_store_in_use_is_well_while_its_server_answers(here: Path, env: dict[str, str]) -> None:
    async with forked("serve", "bot.py", "--host", "127.0.0.1", "--port", "0", cwd=here, env=env) as process:
        await process.url()
        _, out, _ = await askfirst("doctor", "bot.py", cwd=here, env=env)
        assert "askfirst.db is in use by a server, which answers" in out
    assert (here / ".askfirst" / "askfirst.db.sock").exists(), "it was killed"
    assert "askfirst.db can be opened" in (await command("doctor", "bot.py", env=env)).output


async def test_store_that_cannot_be_opened_is_a_fault(here: Path, env: dict[str, str]) -> None:
    (here / "bot.db").write_text("not a database, by far")
    (here / "bot.db.sock").touch()
    says = (await examined(env=env | {"ASKFIRST_STORE": f"sqlite:///{here}/bot.db"}))["store"]
    assert str(here / "bot.db") in says
    assert (await examined(env=env | {"ASKFIRST_STORE": f"sqlite:///{here}/bot.py/a/b.db"}))["store"].endswith(
        "let the user that serves write there, or name another place in ASKFIRST_STORE"
    )


async def test_unwritable_artifacts_are_a_fault(here: Path, env: dict[str, str]) -> None:
    says = (await examined(env=env | {"ASKFIRST_ARTIFACTS": str(here / "bot.py")}))["artifacts"]
    assert says.startswith(f"no file can be made in {here}/bot.py (")
    assert says.endswith("name another place in ASKFIRST_ARTIFACTS")
