"""Assembly of a bot's store, keys, files and engine: for a Gateway, for a bot on its own, and in memory."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from channels import AskfirstError, Channel, MissingSetting
from channels.catalogue import lacking
from channels.direct import DirectChannel
from gateway.access import AllowList
from gateway.artifacts import ArtifactStore
from gateway.bot.turn import Runtime
from gateway.cache.stored import StoreCache
from gateway.channel_agent import ChannelAgent
from gateway.config.clear import clear_mend, in_clear
from gateway.config.limits import Budget, Limits, Retention
from gateway.config.settings import Settings
from gateway.engine.context import TRACES_TTL_SECONDS, EngineContext
from gateway.engine.engine import Engine
from gateway.engine.turns.language import prepare_detection
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.pending.seal import Keyring
from gateway.pending.words import prepare as prepare_words
from gateway.providers.base import Transcriber
from gateway.store.base import Store
from gateway.store.secret import kept_secret, keys_of, new_secret
from gateway.store.sqlite import SqliteStore
from gateway.wording import prepare

if TYPE_CHECKING:
    from gateway.providers.openai.transcription import OpenAITranscriber


MEMORY = ":memory:"
"""Name of an in-memory database (https://sqlite.org/inmemorydb.html)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of a gateway: its store, its keys and the directory of its files."""

    store: Store
    keys: Sequence[bytes]
    artifacts: Path


def open_store(url: str) -> Store:
    """Return the store of a URL, not opened yet. Raises AskfirstError for a URL of no built-in store."""
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("redis://", "rediss://")):
        try:
            from gateway.store.redis import RedisStore
        except ImportError as error:
            raise AskfirstError(lacking("ASKFIRST_STORE", error, "redis")) from error
        return RedisStore(url)
    scheme = url.partition("://")[0]
    raise AskfirstError(
        f"no such store is built in: {scheme} (write sqlite:///path or redis://host:6379 in ASKFIRST_STORE or store=)"
    )


def home_of(settings: Settings, url: str | None = None) -> Storage:
    """Return the store, keys and directory of files that the settings name. A missing secret is created beside the
    file.

    `url`: the bot's own store, which overrides the settings'. Raises MissingSetting for a Redis in clear on another
    host that ASKFIRST_CLEAR does not allow, and AskfirstError for an unknown store, and for one on Redis without the
    secret and directory that its instances share.
    """
    url = url or settings.store
    if "redis" not in settings.clear and in_clear(url):
        raise MissingSetting("ChannelAgent(store=)", clear_mend("redis"))
    if url.startswith("redis") and not (settings.secret and settings.artifacts):
        raise AskfirstError("On Redis set ASKFIRST_SECRET and ASKFIRST_ARTIFACTS: every instance needs the same ones.")
    store, path = open_store(url), Path(url.removeprefix("sqlite:///"))
    keys = settings.keys or [new_secret() if path.name == MEMORY else kept_secret(path)]
    return Storage(store, keys, settings.artifacts or path.with_name("artifacts"))


def assemble(
    bot: ChannelAgent,
    home: Storage,
    channels: Mapping[str, Channel],
    *,
    allowed: AllowList,
    events: Teller,
    public_url: str | None = None,
    limits: Limits | None = None,
    budgets: Sequence[Budget] = (),
    traces_ttl_seconds: float = TRACES_TTL_SECONDS,
    retention: Retention | None = None,
    transcriber: Transcriber | None = None,
) -> Engine:
    """Return this process's engine, not started yet."""
    context = EngineContext(
        store=home.store,
        channels={DirectChannel.name: DirectChannel(), **channels},
        bot=bot,
        allowed=allowed,
        keyring=Keyring(home.keys),
        artifacts=ArtifactStore(home.artifacts, home.keys, public_url=public_url, now=utc_now),
        events=events,
        worker=secrets.token_hex(8),
        limits=limits or Limits(),
        budgets=budgets,
        traces_ttl_seconds=traces_ttl_seconds,
        retention=retention or Retention(),
        transcriber=transcriber,
    )
    for cache in bot.agent.caches():
        if isinstance(cache, StoreCache):
            cache.use(home.store, context)
    return Engine(context)


@contextlib.asynccontextmanager
async def in_memory(bot: ChannelAgent, channels: Mapping[str, Channel] | None = None) -> AsyncIterator[Engine]:
    """Run the bot on a temporary store and directory, whatever store it has. Every person may talk to it."""
    async with _temporary_files() as files:
        home = Storage(SqliteStore(MEMORY), [new_secret()], files)
        async with _unserved(bot, home, channels or {}) as engine:
            yield engine


@contextlib.asynccontextmanager
async def embedded(bot: ChannelAgent) -> AsyncIterator[Runtime]:
    """Run a bot without a Gateway: on its own store, with an engine that works inside the bot's calls."""
    async with contextlib.AsyncExitStack() as stack:
        if bot.store is None:
            yield (await stack.enter_async_context(in_memory(bot))).runtime
            return
        if isinstance(bot.store, str):
            home = await asyncio.to_thread(home_of, Settings(), bot.store)
        else:
            files = await stack.enter_async_context(_temporary_files())
            home = await asyncio.to_thread(_home_at, Settings(), bot.store, files)
        yield (await stack.enter_async_context(_unserved(bot, home, {}))).runtime


def _home_at(settings: Settings, store: Store, files: Path) -> Storage:
    """Return the home of a store that the author made. `files` is the directory used when the settings name none.

    Sealed records outlive the process, so the key must too: it is kept beside the store's file or set. Raises
    MissingSetting for a missing key, and AskfirstError when the kept key cannot be read.
    """
    return Storage(store, keys_of(settings, store), settings.artifacts or files)


def transcriber_of(settings: Settings) -> OpenAITranscriber | None:
    """Return what writes down voice messages by the settings. Raises MissingSetting."""
    settings.check_transcription()
    if settings.transcribe_url is None or settings.transcribe_model is None:
        return None
    try:
        from gateway.providers.openai.transcription import OpenAITranscriber
    except ImportError:
        raise MissingSetting("ASKFIRST_TRANSCRIBE_URL", "needs the extra: pip install 'askfirst[openai]'") from None
    key = settings.transcribe_api_key
    return OpenAITranscriber(
        settings.transcribe_url, settings.transcribe_model, key.get_secret_value() if key is not None else None
    )


def load_language(language: str | None) -> None:
    """Load the texts and words of a language. Blocks. `language`: the bot's fixed language, or None."""
    prepare()
    prepare_words("en", language or "en")


@contextlib.asynccontextmanager
async def _unserved(bot: ChannelAgent, home: Storage, channels: Mapping[str, Channel]) -> AsyncIterator[Engine]:
    """Run the bot's lifespan on an open store, with an engine that is not started."""
    engine = assemble(
        bot, home, channels, allowed=AllowList(["*"]), events=Teller(readers=[EventLog()], observers=bot.observers)
    )
    await asyncio.to_thread(load_language, bot.language)
    if bot.language is None:
        await asyncio.to_thread(prepare_detection)
    async with contextlib.AsyncExitStack() as stack:
        await home.store.open()
        stack.push_async_callback(home.store.close)
        home.store.trust_clock()  # there is no platform to compare the clock with
        await engine.context.clock.now()
        await stack.enter_async_context(bot.attached(engine.runtime))
        stack.push_async_callback(engine.stop)
        yield engine


@contextlib.asynccontextmanager
async def _temporary_files() -> AsyncIterator[Path]:
    """Yield a directory for kept files that is removed at the end of the block."""
    directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="askfirst-")
    try:
        yield Path(directory)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
