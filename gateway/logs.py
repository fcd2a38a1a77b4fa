"""Logs: lines without secrets, pseudonyms of people, errors without their text, and a limit for repeated lines."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import os
import re
import select
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import filterfalse
from pathlib import PurePath
from typing import TextIO
from urllib.parse import quote

_LEAST_SECRET = 8
_LIBRARIES = (
    "aiohttp", "anthropic", "asyncio", "filelock", "httpcore", "httpx", "httpx2", "markdown_it", "openai", "redis",
    "slack_sdk", "telegram", "twilio", "urllib3", "watchfiles",
)  # fmt: skip
"""Libraries with log lines of whole requests below a warning: people's texts, and addresses with tokens."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(
    level: str,
    *,
    secrets: Iterable[str] = (),
    people: Callable[[str], str] = str,
    stream: TextIO = sys.stderr,
) -> None:
    """Send the records of all loggers to `stream`: plain lines on a terminal, JSON lines elsewhere.

    The `extra` of a record becomes fields. An exception is logged with type and place, never with the text: the text
    may quote a person. `secrets` are replaced everywhere. `people` returns the replacement of a text (see
    `pseudonyms`). Libraries log from a warning on. Raises ValueError for an unknown level.
    """
    without = redact(secrets)
    handler = _Together(stream, lambda text: people(without(text)))
    handler.setFormatter(_Line(_plain if stream.isatty() else _json))
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers = [handler]
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(max(root.level, logging.WARNING))
    # The lines name neither source nor thread nor process, and looking these up takes as long as the rest of a line
    # (https://docs.python.org/3/howto/logging.html#optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def redact(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function to replace these secrets in a text, also percent-encoded or escaped as in JSON.

    Secrets under eight characters stay: replacing them would blot out ordinary words.
    """
    known = {secret for secret in secrets if len(secret) >= _LEAST_SECRET}
    known |= {quote(secret, safe="") for secret in known}
    known |= {json.dumps(secret)[1:-1] for secret in known}
    # The longest first: a secret may be a part of another one.
    forms = sorted(known, key=len, reverse=True)

    def replace(text: str) -> str:
        for form in forms:
            text = text.replace(form, "***")
        return text

    return replace


GATHER_SECONDS = 0.02
"""Seconds of gathering lines after a write, because each write blocks the event loop.

A single line is written without delay. Lines gathered in this time are lost if the process is killed (SIGKILL) or the
loop hangs.
"""
_MOST = 500
"""The most gathered lines."""
_AGAIN_SECONDS = 0.25
_MOST_UNREAD = 2**20
"""Bytes waiting for the reader at most: a stalled pipe or terminal must not block the event loop."""


class _Together(logging.StreamHandler[TextIO]):
    """A stream handler with one write for the lines of one round of the event loop.

    Lines within GATHER_SECONDS after a write are gathered too. A line from a warning on, or outside a loop, is written
    at once, after the waiting lines.
    """

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        super().__init__(stream)
        self._clean = clean
        self._lines: list[str] = []
        self._unread = b""
        self._lost = 0
        self._not_before = -math.inf
        self._scheduled: asyncio.AbstractEventLoop | None = None
        os.register_at_fork(after_in_child=partial(_forget, weakref.ref(self)))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 - the caller that logs must not fail for any error of the handler
            self.handleError(record)
            return
        at_once = record.levelno >= logging.WARNING or len(self._lines) >= _MOST
        loop = None if at_once else asyncio._get_running_loop()
        if loop is None:
            self.flush()
        elif self._scheduled is not loop:
            self._scheduled = loop
            if (wait := self._not_before - time.monotonic()) > 0:
                loop.call_later(wait, self._due)
            else:
                loop.call_soon(self._due)

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            if lines or self._unread:
                self._not_before = time.monotonic() + GATHER_SECONDS
                self._write(self._clean("".join(lines)), len(lines))
        except (OSError, ValueError):  # the reader is gone, or the stream is closed
            self._unread = b""
        finally:
            self.release()

    def _write(self, text: str, lines: int) -> None:
        try:
            number = self.stream.fileno()
        except OSError:  # it is in memory
            self.stream.write(text)
            return
        if len(self._unread) > _MOST_UNREAD:
            self._lost += lines
        else:
            self._unread += text.encode(self.stream.encoding, "backslashreplace")
        self._unread = _written(number, self._unread)
        if self._lost and not self._unread:
            lost, self._lost = self._lost, 0
            logging.getLogger("askfirst.logs").warning("%s lines are lost: nobody read them", lost)
        if self._unread:
            self._again()

    def _again(self) -> None:
        """Try the write again later, also without a further line: the reader may read again."""
        loop = asyncio._get_running_loop()
        if loop is not None and self._scheduled is not loop:
            self._scheduled = loop
            loop.call_later(_AGAIN_SECONDS, self._due)

    def _due(self) -> None:
        self._scheduled = None
        self.flush()


def _written(number: int, text: bytes) -> bytes:
    """Write as much as possible without blocking; return the rest.

    A pipe ready for writing takes PIPE_BUF bytes (https://man7.org/linux/man-pages/man7/pipe.7.html).
    """
    ready, left = select.poll(), memoryview(text)
    ready.register(number, select.POLLOUT)
    while left and ready.poll(0):
        left = left[os.write(number, left[: select.PIPE_BUF]) :]
    return bytes(left)


def _forget(handler: weakref.ref[_Together]) -> None:
    """Drop the waiting lines in a forked child: the parent process writes these lines."""
    if (together := handler()) is not None:
        together._lines.clear()
        together._unread = b""


@lru_cache(maxsize=2)  # thousands of lines may fall in one second
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _Line(logging.Formatter):
    """A formatter with one line for each record: time, message, fields and error."""

    def __init__(self, written: Callable[[dict[str, object]], str]) -> None:
        super().__init__()
        self._written = written

    def format(self, record: logging.LogRecord) -> str:
        second, millisecond = divmod(int(record.created * 1000), 1000)
        facts: dict[str, object] = {
            "at": f"{_second(second)}.{millisecond:03}+00:00",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = vars(record)
        for key in filterfalse(_STANDARD.__contains__, known):
            facts[key] = known[key]
        if record.exc_info and record.exc_info[1]:
            facts["error"] = describe_error(record.exc_info[1])
            if record.name == "asyncio":
                facts["message"] = _HELD.split(record.getMessage(), maxsplit=1)[0]
        return self._written(facts)


_HELD = re.compile(r"[\n(]")
"""The end of the safe part of asyncio's message. After it, a task, future or callback may show the error's text."""


_json = json.JSONEncoder(ensure_ascii=True, default=str).encode
"""ASCII only, so every control, direction and line separator character is escaped."""


def _plain(facts: dict[str, object]) -> str:
    at, level, name, message = (str(facts.pop(key)) for key in ("at", "level", "logger", "message"))
    fields = "".join(f" {key}={value}" for key, value in facts.items())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in f"{at[11:19]} {level:<7} {name}: {message}{fields}"
    )


def describe_error(error: BaseException) -> str:
    """Return the type and place of an error and of the causes: ``ValueError (invoices.py:42 delete_invoice)``.

    The text of the error is left out, because the text may quote a person.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name})" if frames else ""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{type(error).__name__}{place}" + (f" from {describe_error(cause)}" if cause else "")


_DIGITS = 12
"""Hex digits of a pseudonym, 48 bits: among a million people, a collision has a chance of one in 500."""


def pseudonyms(key: bytes, channels: Iterable[str]) -> Callable[[str], str]:
    """Return a function to replace each person and conversation in a text with a keyed pseudonym.

    ``telegram:123:456`` becomes ``telegram:123:~3f9a0c51d2e7``. The channel, the bot's account, a thread and the ids of
    messages and actions stay. On Telegram, SMS and WhatsApp, a private chat and the person have the same pseudonym. In
    Slack's id of a press, ``U7/C1/1712.0001/...``, the first part is a person.
    """
    written = "|".join(re.escape(name) for name in channels)
    found = re.compile(
        rf"(?<![\w:])((?:{written}):[^\s:\"/,]*:)([^\s\"/,\\]+)|(?<![\w/:])()([UW][A-Z0-9]{{2,}})(?=/[A-Z0-9]+/\d)"
    )

    def pseudonym(match: re.Match[str]) -> str:
        before, person = (match[1], match[2]) if match[2] else (match[3], match[4])
        # A sentence may end with a punctuation mark, and no id does.
        rest = person[len(bare := person.rstrip(".:;)!?'")) :]
        mac = hmac.digest(key, (before + bare).encode("utf-8", "backslashreplace"), "sha256").hex()
        return f"{before}~{mac[:_DIGITS]}{rest}"

    return lambda text: found.sub(pseudonym, text)


class RateLimitFilter(logging.Filter):
    """A logging filter to pass one record a second of each kind.

    `kind` returns the kind of a record, or None to always pass the record. A passed record gets `left_out`: the number
    of records of the same kind dropped since the last passed record. `now` returns seconds.
    """

    def __init__(
        self, kind: Callable[[logging.LogRecord], Hashable | None], now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._kind, self._now = kind, now
        self._next: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = self._kind(record), self._now()
        if kind is None:
            return True
        if now < self._next.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._next[kind] = now + 1.0
        record.left_out = self._left_out.pop(kind, 0)
        return True
