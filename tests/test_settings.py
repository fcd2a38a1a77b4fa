"""Settings: read correctly, refused with the name and the mend, never shown when secret."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from channels import AskfirstError, CanPoll, MissingSetting, Way, catalogue
from gateway.assembly import home_of
from gateway.config.settings import Role, Settings
from gateway.providers import make_provider

SECRET = "Zq3v9XkLw0sTnB7yRc5HdM1pEa8JgU2f"
OTHER = "mW6tKx2QeVb9nYz4LrPs7Dc0HgJf5Ua1"
BOT_TOKEN = "123456789:AAH4nq-canary-Zx81"
VARIABLES = [
    "ASKFIRST_PUBLIC_URL",
    "ASKFIRST_STORE",
    "ASKFIRST_CLEAR",
    "ASKFIRST_ARTIFACTS",
    "ASKFIRST_SECRET",
    "ASKFIRST_ALLOW",
    "ASKFIRST_LIMITS",
    "ASKFIRST_BUDGETS",
    "ASKFIRST_PROVIDER",
    "ASKFIRST_CHAT_ORIGINS",
    "ASKFIRST_CHAT_TITLE",
    "ASKFIRST_CHAT_LOGO",
    "ASKFIRST_CHAT_COLOR",
    "ASKFIRST_ADMIN_TOKEN",
    "ASKFIRST_METRICS_PORT",
    "ASKFIRST_LOG_LEVEL",
    "ASKFIRST_LOG_PEOPLE",
    "ASKFIRST_LOG_CONTENT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "ASKFIRST_TRACES_TTL_SECONDS",
    "ASKFIRST_RETENTION",
    "ASKFIRST_TRANSCRIBE_URL",
    "ASKFIRST_TRANSCRIBE_MODEL",
    "ASKFIRST_TRANSCRIBE_API_KEY",
    "TELEGRAM_BOT_TOKEN",
    "TELEGRAM_WEBHOOK_SECRET",
    "TELEGRAM_API_URL",
    "SLACK_BOT_TOKEN",
    "SLACK_SIGNING_SECRET",
    "SLACK_APP_TOKEN",
    "SLACK_API_URL",
    "TWILIO_ACCOUNT_SID",
    "TWILIO_AUTH_TOKEN",
    "TWILIO_SHARED_KEY",
    "TWILIO_API_KEY",
    "TWILIO_API_SECRET",
    "TWILIO_MESSAGING_SERVICE_SID",
    "TWILIO_SMS_FROM",
    "TWILIO_WHATSAPP_FROM",
    "TWILIO_API_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_COMPAT",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
]


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The process's environment for this test alone."""
    environ = dict(os.environ)
    monkeypatch.setattr(os, "environ", environ)
    return environ


def test_every_variable_is_a_field() -> None:
    fields = Settings.model_fields.items()
    variables = [str(field.validation_alias or f"ASKFIRST_{name.upper()}") for name, field in fields]
    assert sorted(variables) == sorted(VARIABLES)


def test_without_any_variable_the_defaults_serve_a_laptop() -> None:
    settings = Settings()
    assert settings.store == "sqlite:///.askfirst/askfirst.db"
    assert settings.telegram_api_url == "https://api.telegram.org"
    assert (settings.allow, settings.secret, settings.log_level) == (None, (), "INFO")
    assert settings.channels_on() == {}


def test_values_are_read_from_the_environment(environ: dict[str, str]) -> None:
    environ |= {
        "ASKFIRST_PUBLIC_URL": " https://bot.example.org/bots/ ",
        "ASKFIRST_SECRET": f"{SECRET}, {OTHER}",
        "ASKFIRST_ALLOW": "telegram:123:456, telegram:*,*",
        "ASKFIRST_LOG_LEVEL": "debug",
        "ASKFIRST_PROVIDER": "",
        "TELEGRAM_BOT_TOKEN": BOT_TOKEN,
    }
    settings = Settings()
    assert settings.public_url == "https://bot.example.org/bots"
    assert [secret.get_secret_value() for secret in settings.secret] == [SECRET, OTHER]
    assert settings.allow == ("telegram:123:456", "telegram:*", "*")
    assert settings.log_level == "DEBUG"
    assert settings.provider is None
    assert settings.telegram_bot_token is not None
    assert settings.telegram_bot_token.get_secret_value() == BOT_TOKEN


def test_a_named_argument_wins_over_the_environment(environ: dict[str, str]) -> None:
    environ["ASKFIRST_PROVIDER"] = "openai:gpt-5-mini"
    assert Settings(provider="demo", telegram_bot_token=BOT_TOKEN).provider == "demo"


@pytest.mark.parametrize("content", ["ASKFIRST_ALLOW=*".encode("utf-16"), b"A=\xff"])
def test_a_file_beside_the_bot_that_is_not_text_is_said(
    environ: dict[str, str], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(MissingSetting, match=r"\.env: it cannot be read: write it in UTF-8"):
        Settings.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("A=1\n\n# a comment\n\nthis is no setting\nB=2\n", 5),
        ("A='never closed\nB=2\n", 1),
        ("A=1\nTELEGRAM_BOT_TOKEN\n", 2),
    ],
)
def test_a_line_of_the_file_that_is_no_setting_is_named(
    environ: dict[str, str], tmp_path: Path, content: str, line: int
) -> None:
    (tmp_path / ".env").write_text(content)
    with pytest.raises(MissingSetting, match=rf"\.env, line {line}: it is not NAME=value: write it so"):
        Settings.load(tmp_path)
    assert "A" not in environ, "nothing of it is read"


def test_env_file_beside_the_bot_is_read_and_environment_wins(environ: dict[str, str], tmp_path: Path) -> None:
    environ["ASKFIRST_PROVIDER"] = "demo"
    (tmp_path / ".env").write_text(
        "ASKFIRST_PROVIDER=openai:gpt-5-mini\nASKFIRST_ALLOW='telegram:*'\nINVOICES_PASSWORD='pa${HOME}'\n",
        encoding="utf-8",
    )
    settings = Settings.load(tmp_path)
    assert (settings.provider, settings.allow) == ("demo", ("telegram:*",))
    assert environ["INVOICES_PASSWORD"] == "pa${HOME}", "the bot's own tools find their variables"
    assert Settings.load(tmp_path / "nowhere") == settings


@pytest.mark.parametrize(
    ("variable", "value", "mend"),
    [
        ("ASKFIRST_SECRET", SECRET[:31], "at least 32 characters"),
        ("ASKFIRST_SECRET", f"{SECRET},{OTHER[:31]}", "at least 32 characters"),
        ("ASKFIRST_SECRET", "a" * 40, "random"),
        ("ASKFIRST_SECRET", "please-change-me-before-you-go-live-123", "random"),
        ("ASKFIRST_ADMIN_TOKEN", SECRET[:31], "at least 32 characters"),
        ("ASKFIRST_PUBLIC_URL", "http://bot.example.org", "https://"),
        ("ASKFIRST_PUBLIC_URL", "bot.example.org", "https://"),
        ("ASKFIRST_PUBLIC_URL", "https://", "https://"),
        ("ASKFIRST_PUBLIC_URL", "https://user:pw@bot.example.org", "https://"),
        ("ASKFIRST_PUBLIC_URL", "https://bot.example.org/?a=1", "https://"),
        ("ASKFIRST_PUBLIC_URL", "https://bot.example.org:port", "https://"),
        ("ASKFIRST_PUBLIC_URL", "https://[::1", "https://"),
        ("ASKFIRST_STORE", "postgres://host/db", "sqlite:///"),
        ("ASKFIRST_STORE", "sqlite:///", "sqlite:///"),
        ("ASKFIRST_STORE", "askfirst.db", "sqlite:///"),
        ("ASKFIRST_ALLOW", ",", "telegram:*"),
        ("ASKFIRST_ALLOW", "ana", "telegram:*"),
        ("ASKFIRST_ALLOW", "telegram:456", "telegram:*"),
        ("ASKFIRST_ALLOW", "telegram:123:*", "telegram:*"),
        ("ASKFIRST_ALLOW", "telegram:123:456 telegram:123:457", "telegram:*"),
        ("ASKFIRST_LOG_LEVEL", "loud", "DEBUG, INFO, WARNING, ERROR"),
        ("TELEGRAM_WEBHOOK_SECRET", SECRET[:15], "16 to 256"),
        ("TELEGRAM_WEBHOOK_SECRET", f"{SECRET} {OTHER}", "16 to 256"),
        ("TELEGRAM_WEBHOOK_SECRET", f"{SECRET},{OTHER[:15]}", "16 to 256"),
        ("TELEGRAM_WEBHOOK_SECRET", "your-secret-token-here", "random"),
        ("TELEGRAM_WEBHOOK_SECRET", "x" * 20, "random"),
        ("TELEGRAM_API_URL", "localhost:8081", "https://"),
        ("TELEGRAM_API_URL", "http://bot-api.internal:8081", "show the token on the way"),
        ("SLACK_API_URL", "http://192.0.2.7/api/", "show the token on the way"),
        ("TWILIO_API_URL", "http://127.0.0.1.example.org", "show the token on the way"),
        ("OPENAI_BASE_URL", "ftp://models.example.org", "https://"),
    ],
)
def test_an_unsafe_value_is_refused_with_its_name_and_mend(
    environ: dict[str, str], variable: str, value: str, mend: str
) -> None:
    environ[variable] = value
    with pytest.raises(MissingSetting) as refused:
        Settings()
    assert refused.value.setting == variable
    assert mend in refused.value.mend


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ASKFIRST_SECRET", "canary"),
        ("ASKFIRST_ADMIN_TOKEN", "canary"),
        ("ASKFIRST_STORE", "postgres://:canary@host"),
        ("ASKFIRST_PUBLIC_URL", "https://canary@bot.example.org"),
        ("TELEGRAM_WEBHOOK_SECRET", "canary"),
        ("OPENAI_BASE_URL", "https://canary@models.example.org"),
    ],
)
def test_a_refusal_does_not_show_the_refused_value(environ: dict[str, str], variable: str, value: str) -> None:
    environ[variable] = value
    with pytest.raises(MissingSetting) as refused:
        Settings()
    assert "canary" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        "https://bot.example.org",
        "https://bot.example.org:8443",
        "http://localhost:8000",
        "http://127.0.0.1",
        "http://[::1]:80",
    ],
)
def test_a_public_url_is_secure_or_on_this_machine(url: str) -> None:
    assert Settings(public_url=url).public_url == url


@pytest.mark.parametrize(
    "store",
    [
        "sqlite:///bot.db",
        "sqlite:////data/askfirst.db",
        "sqlite:///:memory:",
        "redis://localhost:6379/0",
        "rediss://:pw@host",
    ],
)
def test_a_store_is_sqlite_or_redis(store: str) -> None:
    assert Settings(store=store).store == store


@pytest.mark.parametrize(
    ("variable", "kind", "url"),
    [
        ("ASKFIRST_STORE", "redis", "redis://:pw@redis.internal:6379"),
        ("OPENAI_BASE_URL", "models", "http://10.0.0.7:8000/v1"),
        ("ANTHROPIC_BASE_URL", "models", "http://[fd00::7]:8000"),
        ("ASKFIRST_TRANSCRIBE_URL", "models", "http://localhost.example/v1"),
    ],
)
def test_clear_text_to_another_host_has_to_be_allowed(
    environ: dict[str, str], variable: str, kind: str, url: str
) -> None:
    environ |= {variable: url, "ASKFIRST_CLEAR": "mcp"}
    with pytest.raises(MissingSetting, match=f"or ASKFIRST_CLEAR={kind} if that network is your own") as refused:
        Settings()
    assert refused.value.setting == variable and "pw" not in str(refused.value)
    environ["ASKFIRST_CLEAR"] = f"mcp, {kind}"
    assert Settings().clear == ("mcp", kind)
    environ |= {variable: url.replace("://", "s://", 1), "ASKFIRST_CLEAR": ""}
    Settings()


def test_only_kinds_of_servers_can_be_spoken_to_in_clear(environ: dict[str, str]) -> None:
    environ["ASKFIRST_CLEAR"] = "redis,slack"
    with pytest.raises(MissingSetting, match="ASKFIRST_CLEAR: write some of redis, mcp, models"):
        Settings()


def test_a_bots_own_store_in_clear_has_to_be_allowed(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"secret": SECRET, "artifacts": tmp_path}
    with pytest.raises(MissingSetting, match="ASKFIRST_CLEAR=redis"):
        home_of(Settings(**shared), "redis://redis.internal")
    home_of(Settings(clear="redis", **shared), "redis://redis.internal")


def test_a_provider_in_clear_has_to_be_allowed(environ: dict[str, str]) -> None:
    told = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://model.internal/v1"}
    with pytest.raises(MissingSetting, match="OPENAI_BASE_URL: it names another host without TLS"):
        make_provider("openai:m", environ=told)
    environ["ASKFIRST_CLEAR"] = "models"
    make_provider("openai:m", environ=told)


def test_all_that_is_wrong_is_told_at_once(environ: dict[str, str]) -> None:
    environ |= {"ASKFIRST_SECRET": "short", "ASKFIRST_LOG_LEVEL": "loud", "TELEGRAM_WEBHOOK_SECRET": "short"}
    with pytest.raises(MissingSetting) as refused:
        Settings()
    assert refused.value.setting == "ASKFIRST_SECRET, ASKFIRST_LOG_LEVEL, TELEGRAM_WEBHOOK_SECRET"
    assert [line.partition(":")[0] for line in refused.value.mend.splitlines()] == [
        "",
        "- ASKFIRST_SECRET",
        "- ASKFIRST_LOG_LEVEL",
        "- TELEGRAM_WEBHOOK_SECRET",
    ]


def test_a_name_that_is_no_setting_is_refused() -> None:
    with pytest.raises(MissingSetting, match="telegram_tokn"):
        Settings(telegram_tokn=BOT_TOKEN)


def test_secrets_are_never_shown() -> None:
    settings = Settings(
        secret=SECRET,
        admin_token=OTHER,
        telegram_bot_token=BOT_TOKEN,
        telegram_webhook_secret=SECRET,
        openai_api_key="sk-canary",
        store="rediss://:canary-password@host:6379",
    )
    shown = f"{settings!r} {settings}"
    assert not [secret for secret in (SECRET, OTHER, BOT_TOKEN, "canary") if secret in shown]


@pytest.mark.parametrize(
    ("given", "way", "missing"),
    [
        ({"TELEGRAM_BOT_TOKEN": BOT_TOKEN}, "webhook", "TELEGRAM_WEBHOOK_SECRET"),
        ({"TELEGRAM_WEBHOOK_SECRET": SECRET}, "webhook", "TELEGRAM_BOT_TOKEN"),
        ({"TELEGRAM_WEBHOOK_SECRET": SECRET}, "polling", "TELEGRAM_BOT_TOKEN"),
    ],
)
def test_half_a_channel_is_refused_by_the_name_of_the_other_half(
    environ: dict[str, str], given: dict[str, str], way: Way, missing: str
) -> None:
    environ |= given
    with pytest.raises(MissingSetting) as refused:
        Settings().channels_on(way)
    assert refused.value.setting == missing


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({"TELEGRAM_BOT_TOKEN": BOT_TOKEN}, "polling"),
        ({"TELEGRAM_BOT_TOKEN": BOT_TOKEN, "TELEGRAM_WEBHOOK_SECRET": SECRET}, "webhook"),
    ],
)
def test_a_channel_with_its_settings_is_on(environ: dict[str, str], given: dict[str, str], way: Way) -> None:
    environ |= given
    assert Settings().channels_on(way) == {"telegram": way}


SLACK = {"SLACK_BOT_TOKEN": "xoxb-1-a"}
SMS = {
    "TWILIO_ACCOUNT_SID": "AC",
    "TWILIO_AUTH_TOKEN": "t",
    "TWILIO_SMS_FROM": "+1",
    "ASKFIRST_PUBLIC_URL": "https://b.ex",
}


@pytest.mark.parametrize(
    ("given", "ways"),
    [
        ({"TELEGRAM_BOT_TOKEN": BOT_TOKEN}, {"telegram": "polling"}),
        ({"TELEGRAM_BOT_TOKEN": BOT_TOKEN, "TELEGRAM_WEBHOOK_SECRET": SECRET}, {"telegram": "webhook"}),
        (SLACK | {"SLACK_APP_TOKEN": "xapp-1"}, {"slack": "polling"}),
        (SLACK | {"SLACK_SIGNING_SECRET": "s"}, {"slack": "webhook"}),
        (SLACK | {"SLACK_SIGNING_SECRET": "s", "SLACK_APP_TOKEN": "xapp-1"}, {"slack": "webhook"}),
        (SMS | {"TELEGRAM_BOT_TOKEN": BOT_TOKEN}, {"telegram": "polling", "sms": "webhook"}),
    ],
)
def test_each_channel_comes_in_as_its_settings_say(
    environ: dict[str, str], given: dict[str, str], ways: dict[str, Way]
) -> None:
    environ |= given
    assert Settings().channels_on() == ways


def test_polling_in_the_catalogue_is_true() -> None:
    for name in catalogue.BUILT_IN:
        assert catalogue.polls(name) == issubclass(catalogue.load(name), CanPoll)


def test_an_address_alone_switches_no_channel_on(environ: dict[str, str]) -> None:
    environ["TELEGRAM_API_URL"] = "http://localhost:8081"
    assert Settings().channels_on() == {}


def test_a_channel_gets_its_own_variables_and_no_others(environ: dict[str, str]) -> None:
    environ |= {"TELEGRAM_BOT_TOKEN": BOT_TOKEN, "ASKFIRST_SECRET": SECRET, "OPENAI_API_KEY": "sk-canary"}
    settings = Settings()
    assert settings.channel_settings("telegram") == {
        "TELEGRAM_BOT_TOKEN": BOT_TOKEN,
        "TELEGRAM_API_URL": "https://api.telegram.org",
    }
    assert settings.channel_settings("webchat") == {}


def test_serve_without_an_allow_setting_is_refused() -> None:
    with pytest.raises(MissingSetting) as refused:
        Settings().check_serve()
    assert refused.value.setting == "ASKFIRST_ALLOW"
    for choice in ("telegram:123456:789", "telegram:*", "* (everybody)"):
        assert choice in refused.value.mend


def test_serve_refuses_an_unknown_channel() -> None:
    with pytest.raises(MissingSetting, match=r"there is no channel telegrm, only app, .*telegram.*webchat"):
        Settings(allow="telegrm:*,app:-:ana,*").check_serve()


@pytest.mark.parametrize(
    "entry",
    ["telegram:8123456789:@ana", "telegram:ana:7", "slack:T1:ana", "slack:acme:U7", "sms:+15551234567:ana", "sms:1:2"],
)
def test_serve_refuses_an_entry_that_matches_no_person(entry: str) -> None:
    channel = entry.partition(":")[0]
    with pytest.raises(MissingSetting, match=f"{entry.replace('+', '.')} is nobody's: .* as in {channel}:"):
        Settings(allow=f"{entry},*").check_serve()


@pytest.mark.parametrize(
    "entry",
    ["telegram:123:456", "slack:E1:W7", "sms:+15551234567:+15557654321", "whatsapp:+1555123:+1555765", "sms:*"],
)
def test_serve_starts_with_entries_in_the_form_of_their_channel(entry: str) -> None:
    Settings(allow=entry).check_serve()


@pytest.mark.parametrize(
    ("given", "role", "missing"),
    [
        ({"store": "rediss://host"}, "all", "ASKFIRST_SECRET, ASKFIRST_ARTIFACTS"),
        ({"store": "rediss://host", "secret": SECRET}, "worker", "ASKFIRST_ARTIFACTS"),
        ({}, "web", "ASKFIRST_STORE"),
        ({}, "worker", "ASKFIRST_STORE"),
    ],
)
def test_serve_refuses_settings_unfit_for_several_instances(given: dict[str, str], role: Role, missing: str) -> None:
    with pytest.raises(MissingSetting) as refused:
        Settings(allow="*", **given).check_serve(role)
    assert refused.value.setting == missing


def test_serve_starts_with_all_it_needs(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"TELEGRAM_BOT_TOKEN": BOT_TOKEN, "TELEGRAM_WEBHOOK_SECRET": SECRET}
    Settings(allow="telegram:*").check_serve()
    Settings(allow="*", store="rediss://host", secret=SECRET, artifacts=tmp_path).check_serve("worker")


# ── the catalogue ──


def run(program: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate interpreter with the distributions in `path`."""
    root = Path(__file__).parent.parent
    environ = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, [root, path or root]))}
    return subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)


def test_the_catalogue_imports_no_channel() -> None:
    done = run(
        "import sys, channels.catalogue; print(*{'telegram', 'channels.telegram', 'aiohttp'} & sys.modules.keys())"
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("name", catalogue.BUILT_IN)
def test_every_own_channel_loads_and_its_settings_are_fields(name: str) -> None:
    assert catalogue.load(name).name == name
    assert {setting.name for setting in catalogue.settings_of(name)} <= set(VARIABLES)


def test_missing_library_is_named_with_its_install_command() -> None:
    done = run("import sys; sys.modules['telegram'] = None\nfrom channels.catalogue import load; load('telegram')")
    assert "needs the package telegram, which is not installed: pip install 'askfirst[telegram]'" in done.stderr


def test_an_unknown_channel_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AskfirstError, match=r"there is no channel 'fax', only telegram, .*webchat"):
        catalogue.load("fax")
    with pytest.raises(AskfirstError, match="fax"):
        Settings().channel_settings("fax")


def test_another_distribution_adds_a_channel_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "fax_channel.py").write_text(
        "from channels.catalogue import Setting\n"
        "class FaxChannel:\n"
        "    name = 'fax'\n"
        "    settings = (Setting(name='FAX_NUMBER', needed_for=frozenset({'webhook'})), Setting(name='STORE'))\n",
        encoding="utf-8",
    )
    about = tmp_path / "fax_channel-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fax-channel\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[askfirst.channels]\nfax = fax_channel:FaxChannel\n", encoding="utf-8")
    program = """
from gateway.config.settings import Settings
settings = Settings(allow="fax:1:2")
settings.check_serve()
print(settings.channels_on(), settings.channel_settings("fax"))
"""
    done = run(program, tmp_path, FAX_NUMBER="555")
    assert (done.stdout.strip(), done.stderr) == ("{'fax': 'webhook'} {'FAX_NUMBER': '555'}", "")


def test_plugin_channel_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("fax", "not_installed_here:FaxChannel", "askfirst.channels")
    monkeypatch.setitem(catalogue.THEIRS, "fax", point)
    with pytest.raises(AskfirstError, match=r"the channel fax \(not_installed_here:FaxChannel\) cannot be loaded"):
        Settings().channels_on("webhook")
