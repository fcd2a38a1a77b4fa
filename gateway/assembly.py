"""Assembly of a bot's store, keys, files and engine: for a Gateway, for a bot alone, and in memory."""

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
from gateway.config.settings import EngineRules, Settings
from gateway.engine.context import EngineContext
from gateway.engine.engine import Engine
from gateway.observe.event_log import EventLog
from gateway.observe.teller import Teller
from gateway.pending.seal import Keyring
from gateway.providers.base import Transcriber
from gateway.store.base import Store
from gateway.store.secret import kept_secret, keys_of, new_secret
from gateway.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from gateway.providers.openai.transcription import OpenAITranscriber


MEMORY = ":memory:"
"""Name of an in-memory database (https://sqlite.org/inmemorydb.html)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of a gateway: the store, the keys and the directory of files."""

    store: Store
    keys: Sequence[bytes]
    artifacts: Path


def open_store(url: str) -> Store:
    """Return the store of a URL, not opened yet. Raises AskfirstError for a URL without a built-in store."""
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
    """Return the store, keys and directory of files from the settings. A missing secret is created beside the file.

    `url`: the bot's own store, in place of the settings' store. Raises MissingSetting for a Redis in clear on another
    host not allowed by ASKFIRST_CLEAR. Raises AskfirstError for an unknown store, and for Redis without the secret and
    the directory shared by all instances.
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
    rules: EngineRules = EngineRules(),  # noqa: B008 - it is frozen
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
        rules=rules,
        transcriber=transcriber,
    )
    for cache in bot.agent.caches():
        if isinstance(cache, StoreCache):
            cache.use(home.store, context)
    return Engine(context)


@contextlib.asynccontextmanager
async def in_memory(bot: ChannelAgent, channels: Mapping[str, Channel] | None = None) -> AsyncIterator[Engine]:
    """Run the bot on a temporary store and directory, in place of the bot's own store. Every person may talk to it."""
    async with _temporary_files() as files:
        home = Storage(SqliteStore(MEMORY), [new_secret()], files)
        async with _unserved(bot, home, channels or {}) as engine:
            yield engine


@contextlib.asynccontextmanager
async def embedded(bot: ChannelAgent) -> AsyncIterator[Runtime]:
    """Run a bot without a Gateway: on the bot's own store, with an engine working inside the bot's calls."""
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
    """Return the home of a store made by the author. `files` is the directory if the settings name none.

    Sealed records outlive the process, so the key must too: the key is kept beside the store's file or set. Raises
    MissingSetting for a missing key, and AskfirstError if the kept key cannot be read.
    """
    return Storage(store, keys_of(settings, store), settings.artifacts or files)


def transcriber_of(settings: Settings) -> OpenAITranscriber | None:
    """Return the transcriber of voice messages from the settings, or None. Raises MissingSetting."""
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


@contextlib.asynccontextmanager
async def _unserved(bot: ChannelAgent, home: Storage, channels: Mapping[str, Channel]) -> AsyncIterator[Engine]:
    """Run the bot's lifespan on an open store, with an engine not started."""
    engine = assemble(
        bot, home, channels, allowed=AllowList(["*"]), events=Teller(readers=[EventLog()], observers=bot.observers)
    )
    await engine.context.load_languages(None)
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
    """Yield a directory for kept files, removed at the end of the block."""
    directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="askfirst-")
    try:
        yield Path(directory)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
