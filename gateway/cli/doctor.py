"""``askfirst doctor``: what would keep a bot from being served, each fault in a line with its mend."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import click

from channels import AskfirstError, CanRegister, Channel, MissingSetting, SendError
from channels.catalogue import load
from gateway.app import open_store, started
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.control import operate, socket_file, store_file
from gateway.cli.webhooks import webhook_url
from gateway.providers import ModelMessage, ProviderConfigurationError, Request
from gateway.settings import Settings
from gateway.store.base import Store, StoreRefused

__all__ = ["doctor"]

_ANSWER_WITHIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check came to: `says` is a fault with its mend, or what was found."""

    check: str
    ok: bool
    says: str


@click.command()
@bot_argument
@click.option("--model", "asks_model", is_flag=True, help="Ask the model too: one tiny request.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def doctor(bot: BotRef, *, asks_model: bool, as_json: bool) -> None:
    """Look for what would keep BOT from being served. The exit code is 1 when anything would.

    It looks at the settings, the bot file, the model's key, the platforms and the URL they have registered, the store
    and the directory of files. It changes nothing, and a running server goes on.
    """
    findings: list[Finding] = []
    for finding in _findings(bot, asks_model=asks_model):
        findings.append(finding)
        if not as_json:
            click.echo(f"{'ok   ' if finding.ok else 'FAULT'} {finding.check}: {finding.says}")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


def _findings(bot: BotRef, *, asks_model: bool) -> Iterator[Finding]:
    try:
        settings = load_settings(bot.directory)
    except MissingSetting as error:
        yield from _faults("settings", error)
        return
    yield from _looked("settings", lambda: _settings(settings))
    agent: ChannelAgent | None = None
    try:
        agent = bot.load()
    except AskfirstError as error:
        # The first line says which file, the last one, of the author's traceback, what is wrong with it.
        yield Finding("bot", False, " ".join(dict.fromkeys([str(error).splitlines()[0], str(error).splitlines()[-1]])))
    else:
        yield Finding("bot", True, f"{bot.written} is loaded")
        yield from _looked("model", lambda: _model(agent, asks=asks_model))
    yield from _platforms(settings, bot.written)
    own = agent.store if agent is not None else None
    placed = settings.model_copy(update={"store": own}) if isinstance(own, str) else settings
    yield from _looked("store", lambda: _store(placed))
    yield from _looked("artifacts", lambda: _artifacts(placed))


def _looked(check: str, look: Callable[[], str]) -> Iterator[Finding]:
    try:
        yield Finding(check, True, look())
    except AskfirstError as error:
        yield from _faults(check, error)


def _faults(check: str, error: AskfirstError) -> Iterator[Finding]:
    """One for each line of an error that lists several (as Settings' do), else one."""
    listed = [line.removeprefix("- ") for line in str(error).splitlines() if line.startswith("- ")]
    for says in listed or [" ".join(str(error).split())]:
        yield Finding(check, False, says)


def _settings(settings: Settings) -> str:
    settings.check_serve()
    return "serve starts with them"


def _model(agent: ChannelAgent, *, asks: bool) -> str:
    try:
        provider = agent.agent.provider
    except ProviderConfigurationError as error:
        raise AskfirstError(error.missing) from error
    if provider.name == "demo":
        return "the offline demo answers; ASKFIRST_PROVIDER names another, for example openai:gpt-5-mini"
    if not asks:
        return f"{provider.name} is set up; --model asks it"

    async def asked() -> str:
        hello = ModelMessage(role="user", content="Say OK.")
        model = agent.agent.config.model
        request = Request(messages=[hello], model=model, max_tokens=16, timeout_seconds=_ANSWER_WITHIN_SECONDS)
        try:
            response = await provider.complete(request)
        finally:
            await provider.close()
        return f"{provider.name} answers as {response.model}"

    return asyncio.run(asked())


def _platforms(settings: Settings, written: str) -> Iterator[Finding]:
    try:
        names = settings.channels_on("webhook")
    except MissingSetting:
        return  # said among the settings
    if not names:
        says = "none is on: set TELEGRAM_BOT_TOKEN and TELEGRAM_WEBHOOK_SECRET, for example"
        yield Finding("channels", False, says)
    for name in names:
        try:
            channel: Channel = load(name).from_settings(settings.channel_settings(name), way="webhook")
            registers, registered = asyncio.run(_tried(channel))
        except AskfirstError as error:
            yield from _faults(name, error)
            continue
        yield Finding(name, True, "it takes the settings")
        if registers:
            expected = webhook_url(settings.public_url, name, channel) if settings.public_url else None
            yield _compared(f"{name} webhook", registered, expected, f"askfirst webhooks set {written}")


async def _tried(channel: Channel) -> tuple[bool, str | None]:
    """Whether it can register a webhook, and which one it has. Raises AskfirstError when the platform refuses us."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_WITHIN_SECONDS)) as http:
        await started(channel, http)
        try:
            return (True, await channel.registered()) if isinstance(channel, CanRegister) else (False, None)
        except SendError as error:
            raise AskfirstError(f"it did not say what is registered ({error.code}): try again") from error
        finally:
            await channel.close()


def _compared(check: str, registered: str | None, expected: str | None, mend: str) -> Finding:
    if expected is None:
        return Finding(check, False, "ASKFIRST_PUBLIC_URL is not set: set it to how the platforms reach the server")
    if registered is None:
        return Finding(check, False, f"none is registered: {mend}")
    if registered != expected:
        return Finding(check, False, f"{registered} is registered, not {expected}: {mend}")
    return Finding(check, True, registered)


def _store(settings: Settings) -> str:
    """A store that nobody has is opened; of one that a server has, the server is asked."""
    file = store_file(settings.store)
    if file is not None and not file.exists():
        _write_into(file.parent, "ASKFIRST_STORE")
        return f"{file} will be made"
    try:
        asyncio.run(_opened(open_store(settings.store)))
    except StoreRefused:
        if file is None or not socket_file(file).exists():
            raise
        operate(settings, "dead")
        return f"{file} is in use by a server, which answers"
    return f"{file or 'Redis'} can be opened"


async def _opened(store: Store) -> None:
    await store.open()
    try:
        await store.ping()
    finally:
        await store.close()


def _artifacts(settings: Settings) -> str:
    file = store_file(settings.store)
    if settings.artifacts is None and file is None:
        raise MissingSetting("ASKFIRST_ARTIFACTS", "set it to a directory that every instance shares")
    directory = settings.artifacts or Path(file or "").with_name("artifacts")
    _write_into(directory, "ASKFIRST_ARTIFACTS")
    return f"{directory} can be written"


def _write_into(directory: Path, variable: str) -> None:
    """Raises AskfirstError when no file can be made there, or in what of the path exists already."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise AskfirstError(
            f"no file can be made in {existing} ({error.strerror}): "
            f"let the user that serves write there, or name another place in {variable}"
        ) from error
