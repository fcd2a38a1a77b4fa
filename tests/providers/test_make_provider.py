"""A provider is found by its spec, and what is missing is said with its mend."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from gateway import providers
from gateway.providers import ProviderConfigurationError, make_provider, specs
from gateway.testing.provider import ScriptedProvider


def test_without_any_setting_it_is_the_offline_demo() -> None:
    assert make_provider(environ={}).name == "demo"
    assert make_provider("demo", environ={"ASKFIRST_PROVIDER": "openai:gpt-5-mini"}).name == "demo"


@pytest.mark.ledger("CFG-33")
def test_the_environment_names_it() -> None:
    environ = {"ASKFIRST_PROVIDER": "openai:gpt-5-mini", "OPENAI_API_KEY": "sk-test"}
    assert make_provider(environ=environ).name == "openai"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_PROVIDER", "nosuch")
    with pytest.raises(ProviderConfigurationError, match="nosuch"):
        make_provider()


@pytest.mark.ledger("CFG-32", "ERR-03")
@pytest.mark.parametrize(
    ("spec", "environ", "env_var", "says"),
    [
        ("openai:gpt-5-mini", {}, "OPENAI_API_KEY", "OPENAI_API_KEY is not set"),
        ("openai:gpt-5-mini", {"OPENAI_API_KEY": "  "}, "OPENAI_API_KEY", "OPENAI_API_KEY is not set"),
        (
            "openai:gpt-5-mini",
            {"OPENAI_BASE_URL": "https://api.openai.com/v1/"},
            "OPENAI_API_KEY",
            "OPENAI_API_KEY is not set",
        ),
        ("openai:llama3", {"OPENAI_BASE_URL": "localhost:1"}, "OPENAI_BASE_URL", "not an http or https URL"),
        ("openai", {"OPENAI_API_KEY": "sk-test"}, None, "say which model"),
        ("anthropic:claude-opus-5-5", {}, "ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY is not set"),
        (
            "anthropic:claude-opus-5-5",
            {"OPENAI_API_KEY": "sk-test"},
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_API_KEY is not set",
        ),
        ("anthropic:m", {"ANTHROPIC_BASE_URL": "localhost"}, "ANTHROPIC_BASE_URL", "not an http or https URL"),
        ("anthropic", {"ANTHROPIC_API_KEY": "sk-test"}, None, "say which model"),
        ("demo:tiny", {}, None, "write demo"),
        ("mistral:large", {}, None, "one of: demo, openai:MODEL, anthropic:MODEL"),
        (":x", {}, None, "one of: demo, openai:MODEL, anthropic:MODEL"),
    ],
)
def test_what_is_missing_is_said(spec: str, environ: Mapping[str, str], env_var: str | None, says: str) -> None:
    with pytest.raises(ProviderConfigurationError) as failed:
        make_provider(spec, environ=environ)
    assert says in str(failed.value)
    assert failed.value.env_var == env_var
    assert not failed.value.retryable
    assert "sk-test" not in str(failed.value)


def test_another_server_needs_no_key() -> None:
    assert make_provider("openai:llama3", environ={"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}).name == "openai"
    local = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:11434"}
    assert make_provider("anthropic:llama3", environ=local).name == "anthropic"


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_a_missing_package_gives_the_install_command(monkeypatch: pytest.MonkeyPatch, vendor: str) -> None:
    for module in ("", ".client"):
        monkeypatch.delitem(sys.modules, f"gateway.providers.{vendor}{module}", raising=False)
    monkeypatch.setitem(sys.modules, vendor, None)
    with pytest.raises(ProviderConfigurationError, match=rf"pip install 'askfirst\[{vendor}\]'"):
        make_provider(f"{vendor}:m", environ={f"{vendor.upper()}_API_KEY": "sk-test"})


def scripted(model: str, environ: Mapping[str, str]) -> ScriptedProvider:
    return ScriptedProvider([model, environ["THEIRS"]])


async def test_another_distribution_adds_a_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", f"{__name__}:scripted", "askfirst.providers")
    monkeypatch.setattr(specs, "entry_points", EntryPoints([point]).select)
    made = make_provider("theirs:big", environ={"THEIRS": "setting"})
    assert (await made.complete(providers.Request())).content == "big"
    with pytest.raises(ProviderConfigurationError, match="theirs:MODEL"):
        make_provider("nosuch", environ={})


def test_plugin_provider_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "not_installed_here:make", "askfirst.providers")
    monkeypatch.setattr(specs, "entry_points", EntryPoints([point]).select)
    with pytest.raises(ProviderConfigurationError, match=r"not_installed_here:make cannot be loaded.*install"):
        make_provider("theirs:big", environ={})
