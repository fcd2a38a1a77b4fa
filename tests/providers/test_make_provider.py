"""A provider is found by its spec, and what is missing is said with its mend."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from gateway import Agent, AgentConfig, StreamChunk, providers
from gateway.providers import (
    ModelMessage,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    make_provider,
    specs,
)
from gateway.testing.provider import LocalProvider, ScriptedProvider, ToolCall


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


# ── The scripted provider of the test kit ──


def asks(text: str) -> Request:
    return Request(messages=[ModelMessage(role="user", content=text)])


async def test_it_says_calls_and_raises_what_was_written() -> None:
    script = ScriptedProvider(
        [
            "Hello, Ana.",
            ToolCall("find", {"name": "x"}),
            [ToolCall("find", {}), ToolCall("find", {})],
            ProviderError("scripted", "down", retryable=True),
        ]
    )
    assert await script.complete(asks("hi")) == Response(content="Hello, Ana.", model="scripted")
    found = await script.complete(asks("find x"))
    assert found.finish == "tools"
    assert [(call.name, call.args) for call in found.tool_calls] == [("find", {"name": "x"})]
    both = await script.complete(asks("twice"))
    assert len({call.call_id for call in (*found.tool_calls, *both.tool_calls)}) == 3
    with pytest.raises(ProviderError):
        await script.complete(asks("again"))
    script.assert_used_up()
    assert [request.messages[0].content for request in script.requests] == ["hi", "find x", "twice", "again"]


async def test_a_stream_has_the_text_in_pieces_and_the_response_last() -> None:
    *pieces, last = [item async for item in ScriptedProvider(["One\n two three."]).stream(asks("hi"))]
    assert pieces == ["One\n ", "two ", "three."]
    assert isinstance(last, Response)


async def test_leaving_the_script_is_loud_and_kept() -> None:
    script = ScriptedProvider(["only this"])
    await script.complete(asks("one"))
    with pytest.raises(AssertionError, match=r"script of 1 steps is used up.*user: 'two'"):
        await script.complete(asks("two"))
    with pytest.raises(AssertionError, match="user: 'two'"):
        script.assert_used_up()


async def test_what_was_never_reached_is_named() -> None:
    with pytest.raises(AssertionError, match=r"never reached: .*only this"):
        ScriptedProvider(["only this"]).assert_used_up()


async def test_an_event_holds_the_next_step_back() -> None:
    gate = asyncio.Event()
    script = ScriptedProvider([gate, "late"])
    answer = asyncio.ensure_future(script.complete(asks("hi")))
    while not script.requests:
        await asyncio.sleep(0)
    assert not answer.done()
    gate.set()
    assert (await answer).content == "late"


@pytest.mark.ledger("TEST-01", "TEST-02")
async def test_local_provider_repeats_the_last_message_without_usage() -> None:
    agent = Agent(provider=LocalProvider(), config=AgentConfig(max_iterations=2, model="local"))
    result = await agent.run("Hello")
    assert (result.content, result.usage.total_tokens) == ("[local provider: local] Hello", 0)
    chunks = [each async for each in agent.stream("Hello, Ana")]
    assert (
        "".join(each.text for each in chunks if isinstance(each, StreamChunk)) == "[local provider: local] Hello, Ana"
    )
