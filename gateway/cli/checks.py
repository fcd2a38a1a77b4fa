"""Checks of `askfirst doctor`. Each check returns a finding, or raises AskfirstError with a fault and a remedy."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from channels import AskfirstError, CanRegister, Channel, Json, MissingSetting, SendError
from channels.catalogue import load
from gateway.access import AllowList
from gateway.access.approvers import check_approvers
from gateway.access.entries import EVERYBODY, vain_entries
from gateway.agent import AgentConfig
from gateway.app import check_carrier_words, started
from gateway.assembly import in_memory, open_store
from gateway.channel_agent import ChannelAgent
from gateway.cli.control_socket import operate
from gateway.cli.preview import previewed_twice
from gateway.cli.slack import SCOPES
from gateway.cli.tools import in_short, list_sources
from gateway.cli.webhooks import polled, webhook_url
from gateway.config.environment import proxied
from gateway.config.settings import Settings
from gateway.engine.clock import skew_of
from gateway.logs import describe_error
from gateway.operations.control_server import socket_file, store_file
from gateway.providers import (
    KnowsModels,
    ModelMessage,
    Provider,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    ToolCall,
    ToolSpec,
)
from gateway.providers.completing import pieces_of
from gateway.providers.prices import age_text, age_warning
from gateway.store.base import Store
from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.sqlite.files import warn_of_network
from gateway.tools import Tool, ToolContext, ToolError, ToolValidationError, unasked

log = logging.getLogger("askfirst.doctor")

_ANSWER_WITHIN_SECONDS = 20.0
_MOST_TOKENS = 1000
_CLOCK_SECONDS = 30.0
"""Threshold of the warning for a wrong clock. The threshold is far below the tolerance of `serve`, since the clock may
drift further."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check. `says` is the finding, or a fault with a remedy."""

    check: str
    ok: bool
    says: str
    warns: bool = False
    """True if the bot can be served, with a risk of loss."""


def looked(check: str, look: Callable[[], str]) -> Iterator[Finding]:
    """Run a check. Yield the finding, and a warning for each line logged at WARNING during the check."""
    with _warnings_heard() as warnings:
        try:
            found = Finding(check, True, look())
        except AskfirstError as error:
            yield from faults(check, error)
            return
    yield found
    for warning in warnings:
        yield Finding(check, True, warning, warns=True)


def faults(check: str, error: AskfirstError) -> Iterator[Finding]:
    """Yield a finding for each line of an error with a list (as in Settings' errors), else a single finding."""
    listed = [line.removeprefix("- ") for line in str(error).splitlines() if line.startswith("- ")]
    for says in listed or [" ".join(str(error).split())]:
        yield Finding(check, False, says)


def settings(settings: Settings) -> str:
    settings.check_serve()
    return "serve starts with them"


# ── model ──


def model(agent: ChannelAgent, *, asks: bool) -> str:
    """Check that the model is configured. With `asks`, call the model."""
    try:
        provider = agent.agent.provider
    except ProviderConfigurationError as error:
        raise AskfirstError(error.missing) from error
    if provider.name == "demo":
        return "the offline demo answers; ASKFIRST_PROVIDER names another, for example openai:gpt-5-mini"
    try:
        return asyncio.run(_asked(provider, agent.agent.config, asks=asks))
    except ProviderError as error:
        passing = ": it may pass; see that this machine reaches the server" if error.retryable else ""
        raise AskfirstError(f"{error}{passing}") from error


async def _asked(provider: Provider, config: AgentConfig, *, asks: bool) -> str:
    name = config.model
    try:
        if asks:
            return await _called(provider, config)
        if not isinstance(provider, KnowsModels):
            return f"{provider.name} is set up; --model asks it"
        if await provider.knows(name, timeout_seconds=_ANSWER_WITHIN_SECONDS):
            return f"{provider.name} takes the key and has the model; --model asks it"
        return f"{provider.name} is set up, and its server does not say which models it has; --model asks it"
    finally:
        await provider.close()


_LOOK = ToolSpec(
    name="look_up",
    description="Look up the price of a thing.",
    parameters={"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
)


async def _called(provider: Provider, config: AgentConfig) -> str:
    """Ask the model to call a tool, in a conversation with an earlier call and result.

    A provider logs omitted parts of the request at WARNING. Raises ProviderError.
    """
    call = ToolCall(call_id="call_1", name=_LOOK.name, args={"thing": "bolts"})
    request = Request(
        messages=[
            ModelMessage(role="user", content="What do bolts cost?"),
            ModelMessage(role="assistant", tool_calls=(call,)),
            ModelMessage(role="tool", content="2 dollars", call_id=call.call_id, tool_name=call.name),
            ModelMessage(role="user", content="And nuts? Call look_up."),
        ],
        tools=[_LOOK],
        model=config.model,
        temperature=config.temperature,
        max_tokens=_MOST_TOKENS,
        timeout_seconds=_ANSWER_WITHIN_SECONDS,
    )
    async with aclosing(pieces_of(provider, request, _ANSWER_WITHIN_SECONDS)) as pieces:
        response = [piece async for piece in pieces if isinstance(piece, Response)][-1]
    called = [each for each in response.tool_calls if each.name == _LOOK.name and "thing" in each.args]
    if not called:
        log.warning("the model did not call the tool as it was told to: a bot with tools needs one that does")
    return f"{provider.name} answers as {response.model}" + (", and calls a tool" if called else "")


def prices(now: datetime) -> Finding | None:
    """Return how old the prices of models may be, with a warning for old prices. None without installed prices."""
    age, warning = age_text(now), age_warning(now)
    return None if age is None else Finding("prices", True, warning or age, warns=warning is not None)


# ── previews ──


def previews(agent: ChannelAgent, written: str) -> Iterator[Finding]:
    """Yield a finding for each tool with examples of its arguments: are two previews of a call equal?"""
    found = [
        (tool, _example(tool))
        for tool, _ in agent.agent.reach.values()
        if tool.confirm is not None and callable(tool.confirm.ask) and not tool.volatile
    ]
    if calls := [(tool, args) for tool, args in found if args is not None]:
        yield from asyncio.run(_previewed(agent, calls))
    if untried := [tool.name for tool, args in found if args is None]:
        how = f"askfirst preview {written} TOOL JSON compares two previews of a call"
        yield Finding("previews", True, f"not compared, for want of arguments: {', '.join(untried)}; {how}")


def _example(tool: Tool) -> dict[str, Json] | None:
    """Return example arguments from the tool's defaults and ``Field(examples=[...])``, or None."""
    fields = tool.parameters["properties"]
    named = {name: field["examples"][0] for name, field in fields.items() if field.get("examples")}
    try:
        return tool.validate(named)
    except ToolValidationError:
        return None


async def _previewed(agent: ChannelAgent, calls: Sequence[tuple[Tool, dict[str, Json]]]) -> list[Finding]:
    found: list[Finding] = []
    try:
        async with in_memory(agent) as engine:
            for tool, args in calls:
                context = ToolContext(
                    person="app:-:doctor",
                    language=agent.language or "en",
                    deps=agent.deps,
                    now=engine.context.wall_clock,
                )
                try:
                    _, warning = await previewed_twice(tool, args, context)
                except (ToolError, ValueError) as error:
                    warning = f"{tool.name} could not be previewed with its own example: {describe_error(error)}"
                says = warning or f"two previews of {tool.name} are the same"
                found.append(Finding("previews", True, says, warns=bool(warning)))
    except AskfirstError as error:
        found.append(Finding("previews", True, f"none could be made: {error}", warns=True))
    return found


# ── tools and approvers ──


def tools(agent: ChannelAgent) -> Iterator[Finding]:
    """Yield the tools that run, ask or never run, and a warning for tools without any confirmation."""
    list_sources(agent)
    yield Finding("tools", True, in_short(agent))
    if (alone := unasked(agent.agent.reach.values())) is not None:
        yield Finding("tools", True, alone, warns=True)


def approvers(agent: ChannelAgent, settings: Settings) -> Iterator[Finding]:
    """Check that the approvers of the tools can answer."""
    tools = [tool for tool, _ in agent.agent.reach.values() if tool.approvers is not None]
    try:
        channels = settings.channels_on()
    except MissingSetting:
        return  # reported among the settings
    if not tools or settings.allow is None:
        return

    def look() -> str:
        check_approvers(tools, channels, AllowList(settings.allow or ()))
        return f"those of {', '.join(tool.name for tool in tools)} can answer"

    yield from looked("approvers", look)


def wording(agent: ChannelAgent, settings: Settings) -> Iterator[Finding]:
    """Check the author's own sentences for words acted on by carriers."""
    many = sum(map(len, agent.wording.own.values()))
    try:
        channels = settings.channels_on()
    except MissingSetting:
        return  # reported among the settings

    def look() -> str:
        check_carrier_words(agent, channels)
        return f"{many} sentences of the bot's own"

    if many:
        yield from looked("wording", look)


# ── platforms ──


def platforms(settings: Settings, written: str) -> Iterator[Finding]:
    """Check each configured platform: the token, the token's permissions, and the registered URL."""
    try:
        ways = settings.channels_on()
    except MissingSetting:
        return  # reported among the settings
    if not ways:
        says = "none is on: set TELEGRAM_BOT_TOKEN, for example"
        yield Finding("channels", False, says)
    accounts: dict[str, str | None] = dict.fromkeys(ways)
    dates: dict[str, float] = {}
    for name, way in ways.items():
        try:
            channel: Channel = load(name).from_settings(settings.channel_settings(name), way=way)
            registers, registered = asyncio.run(_tried(channel, dates))
        except AskfirstError as error:
            yield from faults(name, error)
            continue
        accounts[name] = getattr(channel, "account", None)
        yield Finding(name, True, "it takes the settings")
        if name == "slack":
            yield from looked("slack scopes", lambda: _scopes(settings))
        if way == "polling":
            yield _unregistered(name, registered)
        elif registers:
            expected = webhook_url(settings.public_url, name, channel) if settings.public_url else None
            yield _compared(f"{name} webhook", registered, expected, f"askfirst webhooks set {written}")
    for host, seconds in sorted(dates.items()):
        if abs(seconds) >= _CLOCK_SECONDS:
            side = "ahead of" if seconds > 0 else "behind"
            says = f"this machine's clock is {abs(seconds):.0f} seconds {side} that of {host}: set it by NTP"
            yield Finding("clock", True, says, warns=True)
    for says in vain_entries(settings.allow or (), accounts):
        yield Finding("allow", True, says, warns=True)
    if "*" in (settings.allow or ()):
        yield Finding("allow", True, EVERYBODY)


async def _tried(channel: Channel, dates: dict[str, float]) -> tuple[bool, str | None]:
    """Return whether the channel can register a webhook, and the registered webhook. Raises AskfirstError when refused.

    `dates` receives this machine's clock skew in seconds, by the host of the answer. Positive: this clock is ahead.
    """
    timeout = aiohttp.ClientTimeout(total=_ANSWER_WITHIN_SECONDS)
    async with aiohttp.ClientSession(trust_env=proxied(), timeout=timeout, trace_configs=[_comparing(dates)]) as http:
        await started(channel, http)
        try:
            return (True, await channel.registered()) if isinstance(channel, CanRegister) else (False, None)
        except SendError as error:
            raise AskfirstError(f"it did not say what is registered ({error.code}): try again") from error
        finally:
            await channel.close()


def _comparing(dates: dict[str, float]) -> aiohttp.TraceConfig:
    async def compare(session: object, context: object, end: aiohttp.TraceRequestEndParams) -> None:
        seconds = skew_of(end.response.headers.get("Date", ""), datetime.now(UTC))
        if seconds is not None:
            dates[end.url.host or ""] = seconds

    config = aiohttp.TraceConfig()
    config.on_request_end.append(compare)
    return config


def _scopes(settings: Settings) -> str:
    from channels.slack.api import WebApi  # Slack's library may not be installed

    slack = settings.channel_settings("slack")

    async def read_scopes() -> frozenset[str] | None:
        async with aiohttp.ClientSession(trust_env=proxied()) as http:
            url = slack["SLACK_API_URL"].rstrip("/") + "/"
            return await WebApi(http, url, slack["SLACK_BOT_TOKEN"]).scopes()

    try:
        given = asyncio.run(read_scopes())
    except SendError as error:
        raise AskfirstError(f"Slack did not say them ({error.code}): try again") from error
    if given is None:
        return "Slack does not say which the token has"
    if missing := [scope for scope in SCOPES if scope not in given]:
        raise AskfirstError(
            f"the bot's token lacks {', '.join(missing)}: add them on the app's page OAuth & Permissions "
            "and install the app again"
        )
    return "the bot's token has all it needs"


def _unregistered(name: str, registered: str | None) -> Finding:
    """Check that a channel can be polled. Telegram refuses polling while a webhook is set."""
    if registered is None:
        return Finding(f"{name} polling", True, f"it comes in {polled(name)}")
    says = f"{registered} is registered, so nothing can be polled: askfirst webhooks delete"
    return Finding(f"{name} polling", False, says)


def _compared(check: str, registered: str | None, expected: str | None, mend: str) -> Finding:
    if expected is None:
        return Finding(check, False, "ASKFIRST_PUBLIC_URL is not set: set it to how the platforms reach the server")
    if registered is None:
        return Finding(check, False, f"none is registered: {mend}")
    if registered != expected:
        return Finding(check, False, f"{registered} is registered, not {expected}: {mend}")
    return Finding(check, True, registered)


# ── store and files ──


def store(settings: Settings) -> str:
    """Open the store. If a server holds the store, ask the server instead."""
    file = store_file(settings.store)
    if file is not None and not file.exists():
        _write_into(file.parent, "ASKFIRST_STORE")
        warn_of_network(file)
        return f"{file} will be made"
    try:
        asyncio.run(_opened(open_store(settings.store)))
    except StoreRefused:
        if file is None or not socket_file(file).exists():
            raise
        operate(settings, "dead")
        return f"{file} is in use by a server, which answers"
    except StoreUnavailable as error:
        raise AskfirstError(f"{error}; see that it runs at {_place(settings.store)}, as ASKFIRST_STORE says") from error
    return f"{file or _place(settings.store)} can be opened"


def seals(settings: Settings) -> Iterator[Finding]:
    """Count the seals of an older key of ASKFIRST_SECRET in the store."""
    try:
        found = operate(settings, "old_seals")
    except (AskfirstError, StoreUnavailable):
        return  # the check of the store has said why
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.items())
    if kinds:
        says = f"{kinds} hang on an older key of ASKFIRST_SECRET: askfirst people reseal, before you take it out"
        yield Finding("seals", True, says, warns=True)
    else:
        yield Finding("seals", True, "none hangs on an older key of ASKFIRST_SECRET: set the first one alone")


def _place(url: str) -> str:
    """Return the URL of a Redis without the password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"


async def _opened(store: Store) -> None:
    await store.open()
    try:
        await store.ping()
    finally:
        await store.close()


def artifacts(settings: Settings) -> str:
    file = store_file(settings.store)
    if settings.artifacts is None and file is None:
        raise MissingSetting("ASKFIRST_ARTIFACTS", "set it to a directory that every instance shares")
    directory = settings.artifacts or Path(file or "").with_name("artifacts")
    _write_into(directory, "ASKFIRST_ARTIFACTS")
    return f"{directory} can be written"


def _write_into(directory: Path, variable: str) -> None:
    """Check that the directory, or the nearest existing parent, accepts new files. Raises AskfirstError."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise AskfirstError(
            f"no file can be made in {existing} ({error.strerror}): "
            f"let the user that serves write there, or name another place in {variable}"
        ) from error


@contextmanager
def _warnings_heard() -> Iterator[list[str]]:
    """Collect the messages logged by Askfirst at WARNING during the block."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    log, collector = logging.getLogger("askfirst"), Collector(logging.WARNING)
    log.addHandler(collector)
    try:
        yield messages
    finally:
        log.removeHandler(collector)
