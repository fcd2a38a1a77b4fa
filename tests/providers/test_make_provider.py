"""A provider is found by the spec, and a missing part is reported with the remedy."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from gateway import Agent, AgentConfig, AgentResult, FallbackProvider, StreamChunk, providers
from gateway.config.options import WrongOption
from gateway.observe.events import LlmError, RunError
from gateway.providers import (
    ModelMessage,
    ProviderConfigurationError,
    ProviderError,
    ProviderFault,
    Request,
    Response,
    Usage,
    as_provider,
    make_provider,
    specs,
)
from gateway.testing.doubles import LocalProvider, ScriptedProvider, ToolCall
from tests.agent.scripted import Script, Turn
from tests.providers.vendors import ASKED


def test_provider_without_any_setting_is_the_offline_demo() -> None:
    assert make_provider(environ={}).name == "demo"
    assert make_provider("demo", environ={"ASKFIRST_PROVIDER": "openai:gpt-5-mini"}).name == "demo"


@pytest.mark.ledger("CFG-33")
def test_environment_names_the_provider() -> None:
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
def test_missing_setting_is_named(spec: str, environ: Mapping[str, str], env_var: str | None, says: str) -> None:
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


async def test_scripted_provider_follows_its_script() -> None:
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


async def test_unreached_steps_of_a_script_are_named() -> None:
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


# ── One call to a provider: omitted methods, errors of other types, wrong values, time limits ──


each = pytest.mark.parametrize
either_way = each("stream", [False, True])


class Whole:
    """A provider with the required method alone."""

    name = "whole"

    async def complete(self, request: Request) -> Response:
        return Response(content=f"read {request.messages[-1].content}")


class Sync:
    """The same, for a library without asyncio."""

    name = "sync"

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.closed = False

    def complete(self, request: Request) -> Response:
        self.threads.append(threading.current_thread())
        return Response(content=f"read {request.messages[-1].content}")

    def close(self) -> None:
        self.closed = True


class Raises(Script):
    """A provider raising errors of the library's own types."""

    def __init__(self, error: BaseException, *, after: int = 0) -> None:
        super().__init__([], name="house")
        self.error, self.after, self.asked = error, after, 0

    async def complete(self, request: Request) -> Response:
        self.asked += 1
        raise self.error

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        for _ in range(self.after):
            yield "a piece "
        yield await self.complete(request)


class HouseError(Exception):
    pass


async def ends(agent: Agent, *, stream: bool) -> AgentResult:
    if not stream:
        return await agent.run("hello")
    last = [piece async for piece in agent.stream("hello")][-1]
    assert isinstance(last, AgentResult)
    return last


# ── methods omitted by an author ──


@pytest.mark.ledger("RUN-13")
@each("provider", [Whole(), Sync()])
async def test_without_stream_the_answer_streams_as_one_chunk(provider: Any) -> None:
    *chunks, result = [piece async for piece in Agent(provider=provider).stream("hello")]
    assert chunks == [StreamChunk("read hello")]
    assert isinstance(result, AgentResult)
    assert (result.content, result.provider_used) == ("read hello", provider.name)


@pytest.mark.ledger("RUN-05")
async def test_a_sync_provider_runs_in_a_thread_and_is_closed() -> None:
    provider = Sync()
    agent = Agent(provider=provider)
    assert (await agent.run("hello")).content == "read hello"
    assert (await agent.run("hello")).content == "read hello"
    assert all(thread.name.startswith("asyncio_") for thread in provider.threads)  # the loop's own pool, for all calls
    await agent.provider.close()
    assert provider.closed


async def test_without_close_a_stream_is_still_one() -> None:
    class Streams(Whole):
        async def stream(self, request: Request) -> AsyncIterator[str | Response]:
            yield "in "
            yield "pieces"
            yield Response(content="in pieces")

    *chunks, _ = [piece async for piece in Agent(provider=Streams()).stream("hello")]
    assert chunks == [StreamChunk("in "), StreamChunk("pieces")]


async def test_a_chain_takes_providers_without_stream() -> None:
    chain = FallbackProvider([Raises(ConnectionResetError()), Whole()])
    assert (await ends(Agent(provider=chain), stream=True)).provider_used == "whole"
    await chain.close()


def test_a_provider_with_all_methods_stays_itself() -> None:
    assert as_provider(whole := Script([])) is whole
    assert Agent().using(whole).provider is whole


def test_object_without_complete_is_refused() -> None:
    with pytest.raises(WrongOption, match="provider"):
        Agent(provider=object())  # type: ignore[arg-type]


# ── errors of other types ──


@either_way
async def test_an_error_of_another_type_is_a_told_reason(stream: bool) -> None:
    error = HouseError("Ana's words")
    result = await ends(Agent(provider=Raises(error)), stream=stream)
    assert (result.stop_reason, result.content) == ("provider_error", "")
    assert result.error == "house: raised HouseError, which is no ProviderError"


@either_way
async def test_error_of_another_type_is_told_once_and_not_retried(stream: bool) -> None:
    error = HouseError("Ana's words")
    turn = Turn(model := Raises(error), [])
    with pytest.raises(ProviderFault) as failed:
        await turn.run(on_text=(lambda text: None) if stream else None)
    assert failed.value.__cause__ is error
    assert (model.asked, turn.waits) == (1, [])
    assert [type(event.error) for event in turn.told.of_kind(LlmError)] == [ProviderFault]
    assert [type(event.error) for event in turn.told.of_kind(RunError)] == [ProviderFault]


@either_way
@each("error", [ConnectionRefusedError("x"), ConnectionResetError("x"), TimeoutError("x")])
async def test_a_lost_connection_may_pass(error: Exception, stream: bool) -> None:
    agent = Agent(provider=FallbackProvider([Raises(error), Script(["ok"])]))
    assert (await ends(agent, stream=stream)).content == "ok"


async def test_a_chain_raises_the_mistake_of_a_provider_at_once() -> None:
    second = Script(["ok"])
    with pytest.raises(ProviderFault, match="house: raised HouseError"):
        await FallbackProvider([Raises(HouseError()), second]).complete(ASKED)
    assert second.requests == []


async def test_a_failed_assertion_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="asked too often"):
        await Agent(provider=Raises(AssertionError("asked too often"))).run("hello")


@either_way
@each("value", [None, "text only", b"bytes", {"content": "x"}])
async def test_a_value_that_is_no_response_is_told(value: Any, stream: bool) -> None:
    class Wrong(Script):
        async def complete(self, request: Request) -> Any:
            return value

        async def stream(self, request: Request) -> AsyncIterator[Any]:
            yield b"a piece of bytes" if value == "text only" else value

    result = await ends(Agent(provider=Wrong([]), config=AgentConfig(max_retries=0)), stream=stream)
    assert result.stop_reason == "provider_error"
    assert result.error.startswith("script: ")


async def test_a_stream_that_is_none_is_told() -> None:
    class Wrong(Script):
        def stream(self, request: Request) -> Any:
            return None

    result = await ends(Agent(provider=Wrong([])), stream=True)
    assert result.error == "script: raised TypeError, which is no ProviderError"


async def test_a_stream_that_is_not_implemented_comes_whole() -> None:
    class Whole(Script):
        def stream(self, request: Request) -> Any:
            raise NotImplementedError

    class WholeLater(Script):
        async def stream(self, request: Request) -> AsyncIterator[str | Response]:
            raise NotImplementedError
            yield ""

    for provider in (Whole(["hello"]), WholeLater(["hello"])):
        heard: list[str] = []
        result = await Agent(provider=provider).run("hi", on_text=heard.append)
        assert (result.content, heard, len(provider.requests)) == ("hello", ["hello"], 1)


async def test_an_error_of_the_listener_is_not_the_providers() -> None:
    def on_text(text: str) -> None:
        raise HouseError("the listener's")

    with pytest.raises(HouseError):
        await Agent(provider=Script([["hello"]])).run("hello", on_text=on_text)


async def test_stream_broken_after_some_text_is_not_retried() -> None:
    heard: list[str] = []
    turn = Turn(model := Raises(ConnectionResetError(), after=2), [])
    with pytest.raises(ProviderError, match="not reached: ConnectionResetError"):
        await turn.run(on_text=heard.append)
    assert (heard, model.asked, turn.waits) == (["a piece "] * 2, 1, [])


async def test_a_stream_that_is_left_is_closed() -> None:
    closed = asyncio.Event()

    class Endless(Script):
        def stream(self, request: Request) -> AsyncIterator[str | Response]:
            self.kept = self.endless()  # so that the garbage collector does not close it
            return self.kept

        async def endless(self) -> AsyncIterator[str | Response]:
            try:
                while True:
                    yield "more "
                    await asyncio.sleep(0)
            finally:
                closed.set()

    model = Endless([])
    stream = FallbackProvider([model]).stream(ASKED)
    await anext(aiter(stream))
    await stream.aclose()  # type: ignore[attr-defined]
    assert closed.is_set()


@either_way
@each(
    ("given", "counted"),
    [
        (Usage(prompt_tokens=-500, completion_tokens=7, cost_usd=-3.0), Usage(completion_tokens=7)),
        (Usage(prompt_tokens=10**400, completion_tokens=7), Usage(completion_tokens=7)),
        (Usage(prompt_tokens=5.5, completion_tokens=7), Usage(completion_tokens=7)),  # type: ignore[arg-type]
        (Usage(completion_tokens=7, cost_usd=float("nan")), Usage(completion_tokens=7)),
        (Usage(completion_tokens=7, cost_usd=float("inf"), saved_usd=-1.0), Usage(completion_tokens=7)),
        (Usage(completion_tokens=7, unpriced_calls=1, unpriced_tokens=-493), Usage(completion_tokens=7)),
        (Usage(completion_tokens=7, cost_usd=0.25), Usage(completion_tokens=7, cost_usd=0.25)),
        (None, Usage()),
    ],
)
async def test_a_usage_that_cannot_be_loses_no_answer(given: Any, counted: Usage, stream: bool) -> None:
    model = Script([Response(content="Fine.", usage=given)])
    result = await Turn(model, []).run(on_text=(lambda _: None) if stream else None)
    assert result.content == "Fine."
    assert result.usage.total_tokens == counted.total_tokens
    assert (result.usage.cost_usd, result.usage.counted_usd) == (counted.cost_usd, counted.counted_usd)
