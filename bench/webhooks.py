"""Cost of taking a message in, in requests per second of CPU: ours with the store on, the bare limit, and others.

The run ends when a server takes less than 95 of 100 messages in a round, because other load then disturbs the machine.

    python -m bench.webhooks [telegram|slack|twilio ...] [--rounds 5] [--requests 6000] [--no-peers]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import drive, listening
from bench.messages import SLACK_SECRET, TELEGRAM_SECRET, TWILIO_ACCOUNT, TWILIO_TOKEN, messages
from bench.rounds import interleaved, machine, served, spread, table
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.ports import free_port
from tests.store.redis_server import RedisServer

CONNECTIONS = 64
WARM_UP = 500
PEERS = {
    "telegram": {"python-telegram-bot": "python_telegram_bot", "aiogram": "aiogram_webhook"},
    "slack": {"slack-bolt": "bolt"},
    "twilio": {"twilio's validator": "twilio_validator"},
}


@dataclass(frozen=True, slots=True)
class Round:
    cpu_seconds: float
    """Server CPU per request."""
    p50: float
    p99: float
    rate: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platforms", nargs="*", default=list(PEERS), metavar="platform")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    chosen = parser.parse_args()
    print(f"{CONNECTIONS} connections, {chosen.requests} messages a round, {chosen.rounds} rounds; {machine()}\n")
    for platform in chosen.platforms:
        print(compared(platform, rounds=chosen.rounds, requests=chosen.requests, peers=chosen.peers), "\n")


def compared(platform: str, *, rounds: int, requests: int, peers: bool) -> str:
    """Return a table of each contender's requests per CPU second, relative to the limit's, and of the wait of a
    message."""
    contenders: dict[str, Callable[[], Round]] = {
        "the limit": lambda: measured(platform, "limit", requests),
        "ours, SQLite": lambda: measured(platform, "ours", requests),
        "ours, Redis": lambda: measured(platform, "ours", requests, redis=True),
        "the least that stores, SQLite": lambda: measured(platform, "floor", requests),
        "the least that stores, Redis": lambda: measured(platform, "floor", requests, redis=True),
    }
    for name, module in PEERS[platform].items() if peers else ():
        contenders[name] = lambda module=module: measured(platform, module, requests)  # type: ignore[misc]
    found = interleaved(contenders, rounds)
    limits = found["the limit"]
    lines = []
    for name, results in found.items():
        of_limit = [limit.cpu_seconds / result.cpu_seconds for limit, result in zip(limits, results, strict=True)]
        slower = [result.p99 / limit.p99 for limit, result in zip(limits, results, strict=True)]
        lines.append(
            [
                name,
                f"{statistics.median(r.cpu_seconds for r in results) * 1e6:.0f}",
                spread(of_limit),
                f"{statistics.median(r.rate for r in results):.0f}",
                f"{statistics.median(r.p50 for r in results) * 1e3:.1f}",
                f"{statistics.median(r.p99 for r in results) * 1e3:.1f}",
                spread(slower),
            ]
        )
    head = [
        platform,
        "CPU µs a request",
        "of the limit's rate per CPU second",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "p99 to the limit's",
    ]
    return table(head, lines)


def measured(platform: str, module: str, requests: int, *, redis: bool = False) -> Round:
    """Measure a fresh server: warm up, then load."""
    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as directory:
        return asyncio.run(_measured(platform, module, requests, Path(directory), redis=redis))


async def _measured(platform: str, module: str, requests: int, directory: Path, *, redis: bool) -> Round:
    port = free_port()
    made = messages(platform, port)
    async with _surroundings(platform, port, directory, redis=redis) as environment:
        arguments = [platform, str(port)]
        log = directory / "server.log"
        with served(f"bench.contenders.{module}", *arguments, environment=environment, log=log) as server:
            try:
                await listening(port)
            except TimeoutError:
                raise SystemExit(f"{module} does not listen:\n{log.read_text()[-2000:]}") from None
            await drive(port, list(itertools.islice(made, WARM_UP)), CONNECTIONS)
            batch = list(itertools.islice(made, requests))
            before, began = server.cpu_seconds(), asyncio.get_running_loop().time()
            answers = await drive(port, batch, CONNECTIONS)
            seconds = asyncio.get_running_loop().time() - began
            used = server.cpu_seconds() - before
            if answers.statuses[200] < 0.95 * requests:
                raise SystemExit(f"not every message was taken: {dict(answers.statuses)}\n{log.read_text()[-2000:]}")
            return Round(used / requests, answers.percentile(50), answers.percentile(99), requests / seconds)


@asynccontextmanager
async def _surroundings(platform: str, port: int, directory: Path, *, redis: bool) -> AsyncIterator[Mapping[str, str]]:
    """Run the platform's API and the store. Yields the server's settings."""
    async with AsyncExitStack() as stack:
        settings = {
            "ASKFIRST_ALLOW": "*",
            "ASKFIRST_LIMITS": "messages=1000000/1000000/-",  # above every rate, and still counted
            "ASKFIRST_SECRET": "bench-secret-" + "0" * 32,
            "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
            "ASKFIRST_ARTIFACTS": str(directory / "artifacts"),
            "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
        }
        match platform:
            case "telegram":
                telegram = await stack.enter_async_context(FakeTelegram())
                settings |= {
                    "TELEGRAM_BOT_TOKEN": telegram.token,
                    "TELEGRAM_API_URL": telegram.url,
                    "TELEGRAM_WEBHOOK_SECRET": TELEGRAM_SECRET,
                }
            case "slack":
                slack = await stack.enter_async_context(FakeSlack())
                settings |= {
                    "SLACK_BOT_TOKEN": slack.bot_token,
                    "SLACK_API_URL": slack.api_url,
                    "SLACK_SIGNING_SECRET": SLACK_SECRET,
                }
            case _:
                settings |= {
                    "TWILIO_ACCOUNT_SID": TWILIO_ACCOUNT,
                    "TWILIO_AUTH_TOKEN": TWILIO_TOKEN,
                    "TWILIO_SMS_FROM": "+15550001111",
                }
        if redis:
            server = RedisServer(directory)
            await server.start()
            stack.push_async_callback(server.kill)
            settings["ASKFIRST_STORE"] = server.url
        yield settings


if __name__ == "__main__":
    main()
