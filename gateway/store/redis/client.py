"""Calls to the server, and the meaning of failures.

No call is repeated here: a call with a lost answer may have taken effect, and only the caller can find out. redis-py by
itself would repeat it ten times. A silent server is tried once a second, and all other calls fail at once.

Pipelining is automatic: calls made during a round trip are sent together in the next. A process with many turns at once
spends a third of the time on its calls this way. A failed call is an error for its own caller alone.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, cast

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as NotThere
from redis.exceptions import TimeoutError as NoAnswer
from redis.maint_notifications import MaintNotificationsConfig

from gateway.store.errors import NotPrimary, StoreUnavailable
from gateway.store.form import other_form
from gateway.store.redis.scripts import Script
from gateway.timing.deadlines import MOST_MORE_SECONDS, Deadline

_SILENT_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 1.0
_CANCEL_AGAIN_SECONDS: Final = 0.05

REPLICA: Final = "it is a replica and takes no writes: point ASKFIRST_STORE at the primary"

Value = str | bytes | int | float
Call = tuple[Script, str, Sequence[Value]]
"""A script, the base of the partition's keys, and its arguments."""


def connecting(timeout_seconds: float) -> dict[str, Any]:
    """Return the options of a connection."""
    return {
        "socket_timeout": timeout_seconds + MOST_MORE_SECONDS,  # `Client` has the exact limit
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,  # looking up its own version reads files in the event loop
        # with these notifications, which only Redis Cloud sends, redis-py does not check if a connection was closed
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


class _Packed:
    """Mixin of a redis-py connection, packing commands in C like the blocking connection of redis-py."""

    def pack_command(self, *words: Value) -> list[bytes]:
        name, *rest = words
        return [hiredis.pack_command((*str(name).split(), *rest))]  # type: ignore[arg-type]  # its stub takes one word


class Client:
    """A pool of connections to a server. No call takes longer than `timeout_seconds`."""

    def __init__(self, url: str, *, timeout_seconds: float, connections: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=None,  # the timeout of the call includes the wait for a connection
            # and for each answer: a timer for each would take as long as reading it
            **connecting(timeout_seconds) | {"socket_timeout": None},
        )
        connection: Any = self._pool.connection_class
        self._pool.connection_class = type(connection.__name__, (_Packed, connection), {})
        self.redis = Redis(connection_pool=self._pool)
        self._silent_since: float | None = None
        self._ask_at = self._answered_at = 0.0

    async def close(self) -> None:
        await self.redis.aclose()
        await self._pool.disconnect()

    async def command(self, *words: Value) -> Any:
        """Run a command, and return the answer. Raises StoreUnavailable."""
        [answer] = await self._execute([words])
        if isinstance(answer, RedisError):
            raise unavailable(answer) from answer
        return answer

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in a single round trip, each separately. Raises StoreUnavailable when any script failed."""
        return whole(await self.each(calls))

    async def each(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts like `run`, and return the error of a failed script in place of its answer."""
        answers = await self._execute([("EVALSHA", script.sha, 1, base, *rest) for script, base, rest in calls])
        unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # the server was restarted or its scripts were flushed: these did not run
            texts = {calls[number][0].text for number in unknown}
            await self._execute([("SCRIPT", "LOAD", text) for text in texts])
            again = await self._execute(
                [("EVALSHA", script.sha, 1, base, *rest) for script, base, rest in (calls[n] for n in unknown)]
            )
            for number, answer in zip(unknown, again, strict=True):
                answers[number] = answer
        return answers

    async def _execute(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        began = time.monotonic()
        if self._silent_since is not None and began - self._silent_since > _SILENT_SECONDS:
            if began < self._ask_at:
                raise unavailable(NoAnswer())
            self._ask_at = began + _ASK_AGAIN_SECONDS
        try:
            with Deadline(self._timeout_seconds, answered=lambda: self._answered_at):
                pipe = self.redis.pipeline(transaction=False)
                for words in commands:
                    pipe.execute_command(*words)
                answers: list[Any] = await pipe.execute(raise_on_error=False)
        except (TimeoutError, NoAnswer) as error:
            self._silent_since = self._silent_since or began
            raise unavailable(error) from error
        except (RedisError, OSError) as error:
            self._silent_since = None
            raise unavailable(error) from error
        self._silent_since, self._answered_at = None, time.monotonic()
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            await self._pool.disconnect(inuse_connections=False)  # the next call resolves the address again
        return answers


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait for the end. redis-py may lose a cancellation, so cancelling is repeated."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()  # marks the error as retrieved


def whole(answers: list[Any]) -> list[Any]:
    """Return these answers. Raises StoreUnavailable for any error among the answers."""
    for answer in answers:
        if isinstance(answer, RedisError):
            raise unavailable(answer) from answer
    return answers


def unavailable(error: Exception) -> StoreUnavailable:
    """Return the error for the caller of a failed call, without the server's text: it may quote sent data."""
    match error:
        case OutOfMemoryError():
            why = "its memory is full: raise maxmemory, or let work finish"
        case ReadOnlyError() | MasterDownError():
            return NotPrimary(f"Redis cannot be used now: {REPLICA}")
        case BusyLoadingError():
            why = "it is still loading its data"
        case AuthenticationError() | AuthorizationError() | NoPermissionError():
            why = "it refuses the user or password, or does not let that user do this: check ASKFIRST_STORE"
        case TimeoutError() | NoAnswer():
            why = "it did not answer in time"
        case NotThere() | OSError():
            why = _unreached(error.__cause__ or error.__context__)
        case _ if str(error).startswith("OTHERFORM "):
            why = f"what is stored there {other_form(str(error).removeprefix('OTHERFORM '))}"
        case _ if str(error).startswith("WRONGTYPE"):
            why = "a key there holds another kind of value: another program writes to it, give it one of its own"
        case _ if str(error).startswith("MISCONF"):
            why = "it cannot write to its disk: make room there, and see its log"
        case _ if str(error).startswith("NOREPLICAS"):
            why = "too few replicas follow it, and it was told (min-replicas-to-write) to take no writes then"
        case _ if "DB index" in str(error):
            why = "it has no database of that number: mend the number at the end of ASKFIRST_STORE"
        case _:
            why = type(error).__name__
    return StoreUnavailable(f"Redis cannot be used now: {why}")


def is_lasting(error: Exception | None) -> bool:
    """Return True for a failure of the first call not mended by a restart: an operator has to change something."""
    below = error and (error.__cause__ or error.__context__)
    match error:
        case AuthenticationError() | AuthorizationError() | NoPermissionError() | InvalidResponse():
            return True
        case NotThere() | OSError():
            if isinstance(below, ssl.SSLError):
                return not isinstance(below, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
            return _is_bad_file(below)
        case _:
            return str(error).startswith(("OTHERFORM ", "WRONGTYPE")) or "DB index" in str(error)


def _is_bad_file(below: BaseException | None) -> bool:
    return isinstance(below, OSError) and below.errno in (errno.ENOENT, errno.EACCES, errno.EISDIR)


def _unreached(below: BaseException | None) -> str:
    """Return why there is no connection, by the error below the error of redis-py."""
    match below:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted ({below.verify_message}): name the host that it is for in "
                "ASKFIRST_STORE, and the CA that signed it (rediss://host:6379?ssl_ca_certs=/path/to/ca.pem)"
            )
        case ssl.SSLError():
            mend = "see that its port takes TLS, and the files that ASKFIRST_STORE names"
            return f"TLS with it fails ({below.reason}): {mend}"
        case _ if _is_bad_file(below):
            return "a file that ASKFIRST_STORE names for TLS cannot be read: see that it is there, for this user"
        case _:
            return "it cannot be reached: see whether it runs, and whether ASKFIRST_STORE names it"


_AT_ONCE: Final = 2
"""The most round trips at the same time. With more, each would carry fewer calls."""
_MOST: Final = 128
"""The most callers of a round trip, to keep round trips short."""

_Request = tuple[Sequence[Call], "asyncio.Future[list[Any]]"]


class AutoPipeline:
    """Runs the scripts of many callers in shared round trips."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[_Request] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run these calls, and return the answers. Raises StoreUnavailable when any call failed.

        The calls are completed even if the caller is cancelled.
        """
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, answer))
        if len(self._running) < _AT_ONCE:
            self._running.add(asyncio.create_task(self._run()))
        return await answer

    async def drain(self) -> None:
        """Wait until no round trip is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run(self) -> None:
        try:
            await self._carry()
        finally:
            self._running.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _carry(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
            try:
                answers = await self._client.each([call for calls, _ in batch for call in calls])
            except Exception as error:  # noqa: BLE001 - every caller gets an answer
                for _, answer in batch:
                    _settle(answer, error)
            else:
                rest = iter(answers)
                for calls, answer in batch:
                    _settle(answer, list(islice(rest, len(calls))))


def _settle(answer: asyncio.Future[list[Any]], result: list[Any] | Exception) -> None:
    if answer.done():  # its caller was cancelled
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        return
    try:
        answer.set_result(whole(result))
    except StoreUnavailable as error:
        answer.set_exception(error)
