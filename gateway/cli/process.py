"""A gateway in a separate process: served until a signal, then drained."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from channels import AskfirstError
from channels.catalogue import names, settings_of
from channels.direct import DirectChannel
from channels.keys import keys
from gateway.app import Gateway
from gateway.config.settings import Settings
from gateway.config.values import LogLevel
from gateway.logs import configure_logging, pseudonyms
from gateway.web import serve

log = logging.getLogger("askfirst.cli")

_UV_THREADS = 32
_GARBAGE = 10_000
"""Threshold of Python's first garbage collection, in allocations. A few ordinary requests reach Python's default of
700, and reference counting frees nearly all objects of these requests."""


@contextlib.contextmanager
def until_signal() -> Iterator[asyncio.Event]:
    """Yield an event, set by SIGTERM, SIGINT or SIGHUP. A second signal ends the process at once.

    An ignored SIGHUP, as under nohup, stays ignored.
    """
    signalled, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if signalled.is_set():
            os._exit(128 + number)
        signalled.set()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield signalled
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's, or asyncio's own on systems without uvloop."""
    # Half of libuv's threads may resolve names (https://docs.libuv.org/en/v1.x/threadpool.html). With the default of
    # four, two names whose DNS servers do not answer would block every platform and the model.
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(_UV_THREADS))
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def run(
    gateway: Gateway,
    host: str,
    port: int,
    *,
    stopped: Callable[[], Awaitable[object]],
    grace_seconds: float,
    announce: Callable[[str], None],
) -> None:
    """Serve until `stopped` returns, then drain for at most `grace_seconds`. `announce` is called with the server's
    URL.

    Raises AskfirstError when the start fails: the port is taken, a platform is out of reach, the store is in use.
    """
    async with gateway:
        try:
            listening = await serve(gateway.aiohttp_app(), host, port)
        except (OSError, UnicodeError) as error:
            reason = _reason(error)
            raise AskfirstError(f"cannot listen on {host}:{port} ({reason}): give another --port or --host") from error
        try:
            _settle_memory()
            with contextlib.suppress(OSError):  # the reader of the output may be gone, or the disk full
                announce(base_url(host, listening.port))
            await stopped()
            await gateway.drain(grace_seconds)
        finally:
            await listening.cleanup()


def _settle_memory() -> None:
    """Exclude the objects of startup from garbage collection. Each collection of these objects would block the event
    loop for a tenth of a second or more while a platform waits."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])


def _reason(error: OSError | UnicodeError) -> str:
    """Return a short reason. asyncio's text for an address in use is long, and an unknown name has a meaningless
    number."""
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else getattr(error, "strerror", None) or "no such name"


def leave_after(seconds: float) -> None:
    """End the process after this many seconds, even with a blocked event loop."""

    def give_up() -> None:
        log.warning("something does not end, and is left as it is")
        leave()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def leave() -> NoReturn:
    """End the process without waiting for threads and tasks. Python and the event loop would wait for a hanging
    tool."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(0)


def base_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def log_to_stderr(settings: Settings, level: LogLevel, *, key: bytes | None = None) -> None:
    """Log to stderr, with the settings' secrets removed. With `key`, people are replaced by pseudonyms."""
    people = str if key is None else pseudonyms(key, (*names(), DirectChannel.name))
    configure_logging(level, secrets=_secrets(settings), people=people)


def _secrets(settings: Settings) -> Iterable[str]:
    own = [settings.admin_token, settings.openai_api_key, settings.anthropic_api_key, *settings.secret]
    yield from (secret.get_secret_value() for secret in own if secret is not None)
    if password := urlsplit(settings.store).password:
        yield unquote(password)
    for channel in names():
        values = settings.channel_settings(channel)
        for known in settings_of(channel):
            if known.secret and known.name in values:
                yield from (values[known.name], *keys(values[known.name]))
