"""Latency of a decision across chats, on Telegram: of the question to the approver, and of their yes back.

    python -m bench.approvals [--rounds 5] [--asks 60]

The first hop begins when the commit of the question begins in the requester's conversation, and ends when the platform
has the prompt for the approver. The second hop begins with the approver's press, and ends when the platform has the
outcome for the requester. With two processes, one hears the requester and the other the approver.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.confirm import stored
from bench.load import Answers, listening
from bench.messages import TELEGRAM_SECRET
from bench.rounds import ROOT, Served, interleaved, machine, served, table
from tests.fakes.telegram import FakeTelegram, User
from tests.ports import free_port

__all__ = ["hops", "measured"]

CONTENDERS = {"SQLite": ("sqlite", 1), "Redis": ("redis", 1), "Redis, two processes": ("redis", 2)}
"""The store, and the number of processes."""
_WARM_UP = 5

Hops = tuple[list[float], list[float]]
"""The seconds of each first and of each second hop."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asks", type=int, default=60, help="one after the other, in each round")
    chosen = parser.parse_args()
    print(f"{chosen.rounds} rounds, {chosen.asks} asks each; {machine()}\n")
    print(hops(chosen.rounds, chosen.asks))


def hops(rounds: int, asks: int) -> str:
    """Return a table of both hops: each percentile over all rounds."""
    found = interleaved({name: partial(measured, *how, asks) for name, how in CONTENDERS.items()}, rounds)
    lines = []
    for name, results in found.items():
        columns = []
        for hop in range(2):
            answers = Answers(seconds=[seconds for result in results for seconds in result[hop]])
            columns += [f"{1e3 * answers.percentile(percent):.0f}" for percent in (50, 99)]
        lines.append([name, *columns])
    return table(["ms", "question, p50", "p99", "yes, p50", "p99"], lines)


def measured(store: str, processes: int, asks: int) -> Hops:
    """Run a round with fresh processes on a fresh store."""
    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as name:
        return asyncio.run(_measured(Path(name), store, processes, asks))


async def _measured(directory: Path, store: str, processes: int, asks: int) -> Hops:
    async with FakeTelegram() as telegram, stored(directory, store) as settings:
        ben = telegram.person("Ben")
        environment = {
            **settings,
            "APPROVERS": f"telegram:{telegram.bot.id}:{ben.id}",
            "ASKFIRST_ALLOW": "*",
            "ASKFIRST_LIMITS": "messages=1000000/1000000/-",  # above every rate, and still counted
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_API_URL": telegram.url,
            "TELEGRAM_WEBHOOK_SECRET": TELEGRAM_SECRET,
        }
        ports = [free_port() for _ in range(processes)]
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(_serve(directory, port, environment)) for port in ports]
            try:
                for port in ports:
                    await listening(port)
                chats = _Chats(telegram, ben, ports)
                await chats.begin()
                for _ in range(_WARM_UP + asks):
                    await chats.ask_and_approve()
            except (AssertionError, ConnectionError, TimeoutError) as error:
                said = "".join(server.log.read_text()[-2000:] for server in servers)
                raise SystemExit(f"serve did not answer: {error!r}\n{said}") from error
            asked = sorted(moment for server in servers for moment in _asked(server))
        first = [shown - at for at, shown in zip(asked, chats.shown, strict=True)]
        return first[_WARM_UP:], chats.seconds[_WARM_UP:]


def _serve(directory: Path, port: int, environment: Mapping[str, str]) -> contextlib.AbstractContextManager[Served]:
    bot = ROOT / "bench" / "contenders" / "approved.py"
    arguments = ["serve", str(bot), "--host", "127.0.0.1", "--port", str(port)]
    return served("gateway", *arguments, environment=environment, log=directory / f"{port}.log")


def _asked(server: Served) -> Sequence[float]:
    """Return the moments of this process's commits of questions."""
    return [float(found) for found in re.findall(r"^asked at (\S+)$", server.log.read_text(), re.MULTILINE)]


class _Chats:
    """People asking for the deletion of an invoice each, and Ben as the approver. The first server receives the
    people's messages, the last server Ben's."""

    def __init__(self, telegram: FakeTelegram, ben: User, ports: Sequence[int]) -> None:
        self._telegram, self._ben, self._ports, self._number = telegram, ben, ports, 0
        self.shown: list[float] = []
        """The moments of the prompts to Ben."""
        self.seconds: list[float] = []
        """From each press to the outcome message for the requester."""

    async def begin(self) -> None:
        """Have Ben write first. The bot cannot do so."""
        self._heard_by(self._ports[-1])
        await self._telegram.person_says(self._ben, self._ben, "/start")
        await self._telegram.wait_for(lambda: self._telegram.last(self._ben))

    async def ask_and_approve(self) -> None:
        telegram, ben, ana = self._telegram, self._ben, self._telegram.person("Ana")
        self._number += 1
        told = f"Invoice {self._number} is deleted."
        self._heard_by(self._ports[0])
        await telegram.person_says(ana, ana, f"delete {self._number}")
        prompt = await telegram.wait_for(lambda: telegram.last(ben, button="Confirm"))
        self.shown.append(time.monotonic())
        await telegram.wait_for(lambda: telegram.last(ana))  # the requester's own prompt
        self._heard_by(self._ports[-1])
        pressed = time.monotonic()
        press = await telegram.press(prompt, "Confirm", by=ben, wait=False)
        await telegram.wait_for(lambda: getattr(telegram.last(ana), "text", "") == told)
        self.seconds.append(time.monotonic() - pressed)
        await telegram.wait_for(
            lambda: press.answered and not prompt.buttons and "Confirmed by" in getattr(telegram.last(ben), "text", "")
        )

    def _heard_by(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}/webhooks/telegram"
        self._telegram.webhook = {"url": url, "secret": TELEGRAM_SECRET, "allowed_updates": None}


if __name__ == "__main__":
    main()
