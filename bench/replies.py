"""Cost of a whole turn, from a webhook to the reply at the platform: ours with the store on, an echo, and others.

python -m bench.replies [telegram|slack|long ...] [--rounds 5] [--turns 30] [--no-peers]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.chats import Chats, platform_of
from bench.load import listening
from bench.messages import SLACK_SECRET, TELEGRAM_SECRET
from bench.rounds import Served, interleaved, machine, served, spread, table
from tests.ports import free_port
from tests.store.redis_server import RedisServer

T = TypeVar("T")

CHATS = 64
WARM_UP = 3
"""Turns of each chat before the measurement."""
PEERS = {
    "telegram": {"python-telegram-bot": "python_telegram_bot", "aiogram": "aiogram_webhook"},
    "slack": {"slack-bolt": "bolt"},
}
EARLY, LATE = 20, 2000
"""Numbers of the compared turns of a conversation."""
AROUND = 10
"""Turns before and after each compared turn, counted as part of this turn's figure."""


@dataclass(frozen=True, slots=True)
class Round:
    p50_alone: float
    """Seconds from a message to the reply, with a single chat."""
    cpu_seconds: float
    """Server CPU per turn, many chats."""
    p50: float
    rate: float
    acknowledged: list[float]
    """Seconds from each message of many chats to the webhook's answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*PEERS, "long"], metavar="part")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=30, help="of each of the chats")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    chosen = parser.parse_args()
    print(f"{CHATS} chats of {chosen.turns} turns, {chosen.rounds} rounds; {machine()}\n")
    for part in chosen.parts:
        if part == "long":
            print(grown(rounds=chosen.rounds), "\n")
        else:
            print(compared(part, rounds=chosen.rounds, turns=chosen.turns, peers=chosen.peers), "\n")


def compared(platform: str, *, rounds: int, turns: int, chats: int = CHATS, peers: bool) -> str:
    """Return a table of the wait of a single person and of replies a second for many, with an echo for comparison."""
    contenders: dict[str, Callable[[], Round]] = {
        "an echo": lambda: measured(platform, "echo", chats, turns),
        "ours, SQLite": lambda: measured(platform, "ours_replying", chats, turns),
        "ours, Redis": lambda: measured(platform, "ours_replying", chats, turns, redis=True),
        "the least that stores, SQLite": lambda: measured(platform, "floor", chats, turns),
        "the least that stores, Redis": lambda: measured(platform, "floor", chats, turns, redis=True),
    }
    for name, module in PEERS[platform].items() if peers else ():
        contenders[name] = lambda module=module: measured(platform, module, chats, turns)  # type: ignore[misc]
    found = interleaved(contenders, rounds)
    echoes = found["an echo"]
    lines = []
    for name, results in found.items():
        pairs = list(zip(echoes, results, strict=True))
        lines.append(
            [
                name,
                f"{statistics.median(r.p50_alone for r in results) * 1e3:.1f}",
                spread([ours.p50_alone / echo.p50_alone for echo, ours in pairs], 1),
                f"{statistics.median(r.cpu_seconds for r in results) * 1e6:.0f}",
                spread([echo.cpu_seconds / ours.cpu_seconds for echo, ours in pairs]),
                f"{statistics.median(r.rate for r in results):.0f}",
                spread([ours.rate / echo.rate for echo, ours in pairs]),
                f"{statistics.median(r.p50 for r in results) * 1e3:.0f}",
                " / ".join(
                    f"{statistics.median(r.acknowledged[int(len(r.acknowledged) * part)] for r in results) * 1e3:.0f}"
                    for part in (0.5, 0.99)
                ),
            ]
        )
    head = [
        platform,
        "one chat: p50 ms",
        "to the echo's",
        f"{chats} chats: CPU µs a reply",
        "of the echo's rate per CPU second",
        "replies/s",
        "of the echo's",
        "p50 ms",
        "its webhook's p50 / p99 ms",
    ]
    return table(head, lines)


def grown(*, rounds: int, chats: int = 8, early: int = EARLY, late: int = LATE) -> str:
    """Return a table of the cost of a turn late in a conversation, with an early turn for comparison."""
    contenders: dict[str, Callable[[], float]] = {
        "SQLite": lambda: lengthened(chats, early, late, redis=False),
        "Redis": lambda: lengthened(chats, early, late, redis=True),
    }
    found = interleaved(contenders, rounds)
    head = ["store", f"CPU of turn {late} to that of turn {early}"]
    return table(head, [[name, spread(ratios)] for name, ratios in found.items()])


def measured(platform: str, module: str, chats: int, turns: int, *, redis: bool = False) -> Round:
    """Measure a fresh server, warmed up: first a single chat, then many."""

    async def measure(people: Chats, server: Served) -> Round:
        await people.talk(chats, WARM_UP)
        alone = await people.talk(1, 3 * turns)
        people.acknowledged.clear()
        before, began = server.cpu_seconds(), asyncio.get_running_loop().time()
        seconds = await people.talk(chats, turns)
        took = asyncio.get_running_loop().time() - began
        used = server.cpu_seconds() - before
        return Round(
            statistics.median(alone),
            used / len(seconds),
            statistics.median(seconds),
            len(seconds) / took,
            sorted(people.acknowledged),
        )

    return with_server(platform, module, measure, redis=redis)


def lengthened(chats: int, early: int, late: int, *, redis: bool) -> float:
    """Return the CPU of a late turn relative to an early turn, with all chats at the same turn."""

    async def measure(people: Chats, server: Served) -> float:
        await people.talk(chats, 2 * early, first=chats)
        used = [server.cpu_seconds()]
        await people.talk(chats, late + AROUND, after_each=lambda: used.append(server.cpu_seconds()))
        return _about(used, late) / _about(used, early)

    return with_server("telegram", "ours_replying", measure, redis=redis)


def _about(used: list[float], turn: int) -> float:
    return used[turn + AROUND] - used[max(0, turn - AROUND)]


def with_server(platform: str, module: str, measure: Callable[[Chats, Served], Awaitable[T]], *, redis: bool) -> T:
    """Run a measurement against a fresh server."""

    async def run(directory: Path) -> T:
        port, log = free_port(), directory / "server.log"
        async with platform_of(platform, port) as people, _stored(directory, redis=redis) as store:
            arguments = [platform, str(port), "reply"]
            settings = {**_settings(port, people.url), **store}
            with served(f"bench.contenders.{module}", *arguments, environment=settings, log=log) as server:
                try:
                    await listening(port)
                    return await measure(people, server)
                except (ConnectionError, TimeoutError, ValueError) as error:
                    raise SystemExit(f"{module} did not answer: {error!r}\n{log.read_text()[-2000:]}") from error

    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as directory:
        return asyncio.run(run(Path(directory)))


def _settings(port: int, api: str) -> Mapping[str, str]:
    return {
        "ASKFIRST_ALLOW": "*",
        "ASKFIRST_LIMITS": "messages=1000000/1000000/-",  # above every rate, and still counted
        "ASKFIRST_SECRET": "bench-secret-" + "0" * 32,
        "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "TELEGRAM_BOT_TOKEN": "123456:bench",
        "TELEGRAM_API_URL": api,
        "TELEGRAM_WEBHOOK_SECRET": TELEGRAM_SECRET,
        "SLACK_BOT_TOKEN": "xoxb-bench",
        "SLACK_API_URL": f"{api}/api/",
        "SLACK_SIGNING_SECRET": SLACK_SECRET,
    }


@asynccontextmanager
async def _stored(directory: Path, *, redis: bool) -> AsyncIterator[Mapping[str, str]]:
    """Yield the settings of a fresh store."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{directory / 'askfirst.db'}"
        if redis:
            server = RedisServer(directory)
            await server.start()
            stack.push_async_callback(server.kill)
            url = server.url
        yield {"ASKFIRST_STORE": url, "ASKFIRST_ARTIFACTS": str(directory / "artifacts")}


if __name__ == "__main__":
    main()
