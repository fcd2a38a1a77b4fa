"""Cost of an ask and its yes: by the rules alone, by the bot's own code, on Telegram; and its growth with the history.

    python -m bench.confirm [desk|channel|telegram|growth ...] [--rounds 7] [--alone 60] [--together 128]
                            [--beside PATH]

`--beside` measures the gateway of another checkout too, in turn with this one's. All other code is this checkout's. The
rules alone (`desk`) are measured only if the other checkout has a `bench/contenders/desk.py` of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench.contenders.confirming import AT_ONCE, CONFIRMED, Figures
from bench.load import listening
from bench.messages import TELEGRAM_SECRET
from bench.rounds import ROOT, SERVER_CORE, Served, interleaved, machine, served, spread, table
from tests.fakes.telegram import FakeTelegram
from tests.ports import free_port
from tests.store.redis_server import RedisServer

__all__ = ["compared", "growth", "in_a_process", "on_telegram", "stored"]

PARTS: Mapping[str, tuple[str, ...]] = {
    "desk": ("memory", "redis"),
    "channel": ("sqlite", "redis"),
    "telegram": ("sqlite", "redis"),
    "growth": ("memory",),
}
"""The measurements, with the stores of each."""
WHAT = ("alone cpu", "alone wall", "together cpu", "together wall")
CPU = ("alone cpu", "together cpu")
LEAST = "a bare stash and pop"
BESIDE = "beside"
_GROWTH = (20, 6)
"""Plain replies, and pairs of an ask and a yes."""
_WARM_UP = 8
_RULES = Path("bench/contenders/desk.py")
"""File dependent on the internal rules of a release."""
_SECRET = "bench-secret-" + "0" * 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="part")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", type=int, default=60, help="asks one after the other")
    parser.add_argument("--together", type=int, default=2 * AT_ONCE, help=f"asks of which {AT_ONCE} run at once")
    parser.add_argument("--beside", type=Path, help="another checkout")
    chosen = parser.parse_args()
    print(f"{chosen.rounds} rounds, {chosen.alone} asks alone, {chosen.together} at once; {machine()}\n")
    with contextlib.ExitStack() as stack:
        roots = {"": ROOT}
        if chosen.beside is not None:
            roots[BESIDE] = stack.enter_context(_mixed(chosen.beside.resolve()))
        for part in chosen.parts:
            if part == "growth":
                print(growth(roots, chosen.rounds), "\n")
            else:
                print(compared(part, roots, chosen.rounds, alone=chosen.alone, together=chosen.together), "\n")


def compared(part: str, roots: Mapping[str, Path], rounds: int, *, alone: int, together: int) -> str:
    """Return a table of the CPU and time of an ask and a yes, with a minimal store of questions for comparison."""
    contenders: dict[str, Callable[[], Figures]] = {}
    for store in PARTS[part]:
        contenders[f"{LEAST}, {store}"] = partial(in_a_process, ROOT, "stash", store, 10 * alone, 10 * together)
        for name, root in roots.items():
            if part == "telegram":
                measure = partial(on_telegram, root, store, alone, together)
            elif part != "desk" or (root / _RULES).exists():
                measure = partial(in_a_process, root, part, store, alone, together)
            else:
                continue
            contenders[_named(part, store, name)] = measure
    found = interleaved(contenders, rounds)
    lines = []
    for name, figures in found.items():
        store = name.split(", ")[1]
        columns = [_milliseconds([each[what] for each in figures]) for what in WHAT]
        columns += [_ratios(figures, found[f"{LEAST}, {store}"], what, digits=0) for what in CPU]
        if len(roots) > 1:
            columns += [_ratios(figures, found[_named(part, store, "")], what) for what in CPU]
        lines.append([name, *columns])
    head = [part, "alone: CPU ms", "ms", f"{AT_ONCE} at once: CPU ms", "ms", f"CPU to {LEAST}'s", "at once"]
    return table([*head, *(["CPU to ours", "at once"] if len(roots) > 1 else [])], lines)


def growth(roots: Mapping[str, Path], rounds: int) -> str:
    """Return a table of the cost of a turn after many confirmations, with a fresh conversation for comparison."""
    turns, asks = _GROWTH
    contenders: dict[str, Callable[[], Figures]] = {
        _named("growth", store, name): partial(in_a_process, root, "growth", store, turns, asks)
        for store in PARTS["growth"]
        for name, root in roots.items()
    }
    lines = []
    for name, figures in interleaved(contenders, rounds).items():
        for what in ("reply", "ask"):
            fresh, grown = ([each[f"{where} {what} cpu"] for each in figures] for where in ("fresh", "grown"))
            grows = spread([late / early for early, late in zip(fresh, grown, strict=True)])
            lines.append([f"{name}: {what}", _milliseconds(fresh), _milliseconds(grown), grows])
    return table(["growth", "fresh: CPU ms", f"after {CONFIRMED} were confirmed: CPU ms", "grows by"], lines)


def _named(part: str, store: str, name: str) -> str:
    return ", ".join(filter(None, [part, store, name]))


def _milliseconds(seconds: list[float]) -> str:
    return spread([1e3 * each for each in seconds])


def _ratios(figures: list[Figures], others: list[Figures], what: str, *, digits: int = 2) -> str:
    return spread([one[what] / other[what] for one, other in zip(figures, others, strict=True)], digits)


# ───────────── one round ─────────────


def in_a_process(root: Path, part: str, store: str, alone: int, together: int) -> Figures:
    """Run a round in a fresh process, with the code under `root`, on a fresh store."""
    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as name:
        return asyncio.run(_in_a_process(root, Path(name), part, store, alone, together))


async def _in_a_process(root: Path, directory: Path, part: str, store: str, alone: int, together: int) -> Figures:
    async with stored(directory, store) as settings:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.contenders.confirming", part, str(alone), str(together)),
            cwd=directory,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(root), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.sched_setaffinity(process.pid, {SERVER_CORE % (os.cpu_count() or 1)})
        told, errors = await process.communicate()
        if process.returncode:
            raise SystemExit(f"{part} on {store} failed:\n{errors.decode()[-2000:]}")
        figures: Figures = json.loads(told)
        return figures


def on_telegram(root: Path, store: str, alone: int, together: int) -> Figures:
    """Run a round with a fresh ``askfirst serve``. Measures the CPU of the server, and the time from a message to the
    settled prompt."""
    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as name:
        return asyncio.run(_on_telegram(root, Path(name), store, alone, together))


async def _on_telegram(root: Path, directory: Path, store: str, alone: int, together: int) -> Figures:
    port, log = free_port(), directory / "server.log"
    bot = root / "bench" / "contenders" / "shop.py"
    async with FakeTelegram() as telegram, stored(directory, store) as settings:
        environment = {
            **settings,
            "PYTHONPATH": str(root),
            "ASKFIRST_ALLOW": "*",
            "ASKFIRST_LIMITS": "messages=1000000/1000000/-",  # above every rate, and still counted
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_API_URL": telegram.url,
            "TELEGRAM_WEBHOOK_SECRET": TELEGRAM_SECRET,
        }
        arguments = ["serve", str(bot), "--host", "127.0.0.1", "--port", str(port)]
        with served("gateway", *arguments, environment=environment, log=log) as server:
            try:
                await listening(port)
                telegram.webhook = {
                    "url": f"http://127.0.0.1:{port}/webhooks/telegram",
                    "secret": TELEGRAM_SECRET,
                    "allowed_updates": None,
                }
                chats = _Chats(telegram, server)
                await chats.one_by_one(_WARM_UP)
                figures = await chats.timed("alone", alone, chats.one_by_one(alone))
                lines = min(AT_ONCE, together)
                at_once = asyncio.gather(*(chats.one_by_one(together // lines) for _ in range(lines)))
                return figures | await chats.timed("together", together // lines * lines, at_once)
            except (AssertionError, ConnectionError, TimeoutError) as error:
                raise SystemExit(f"serve did not answer: {error!r}\n{log.read_text()[-2000:]}") from error


class _Chats:
    """People with an invoice to delete each."""

    def __init__(self, telegram: FakeTelegram, server: Served) -> None:
        self._telegram, self._server, self._number = telegram, server, 0

    async def one_by_one(self, count: int) -> None:
        for _ in range(count):
            await self._ask_and_yes()

    async def _ask_and_yes(self) -> None:
        telegram, ana = self._telegram, self._telegram.person("Ana")
        self._number += 1
        told = f"Invoice {self._number} is deleted."
        await telegram.person_says(ana, ana, f"delete {self._number}")
        prompt = await telegram.wait_for(lambda: telegram.last(ana, button="Confirm"))
        press = await telegram.press(prompt, "Confirm", by=ana)
        await telegram.wait_for(
            lambda: press.answered and not prompt.buttons and getattr(telegram.last(ana), "text", "") == told
        )

    async def timed(self, name: str, count: int, work: Awaitable[object]) -> Figures:
        cpu, wall = self._server.cpu_seconds(), time.perf_counter()
        await work
        used, took = self._server.cpu_seconds() - cpu, time.perf_counter() - wall
        return {f"{name} cpu": used / count, f"{name} wall": took / count}


@asynccontextmanager
async def stored(directory: Path, store: str) -> AsyncIterator[Mapping[str, str]]:
    """Yield the settings of a fresh store."""
    async with contextlib.AsyncExitStack() as stack:
        url = "sqlite:///:memory:" if store == "memory" else f"sqlite:///{directory / 'askfirst.db'}"
        if store == "redis":
            server = RedisServer(directory)
            await server.start()
            stack.push_async_callback(server.kill)
            url = server.url
        files = str(directory / "artifacts")
        yield {
            "ASKFIRST_STORE": url,
            "ASKFIRST_SECRET": _SECRET,
            "ASKFIRST_ARTIFACTS": files,
            "ASKFIRST_LOG_LEVEL": "ERROR",
        }


@contextlib.contextmanager
def _mixed(checkout: Path) -> Iterator[Path]:
    """Create a root with the gateway of another checkout and this checkout's bench, except for the rules alone."""
    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as name:
        root = Path(name)
        for package in (checkout / "gateway", checkout / "channels", ROOT / "bench"):
            shutil.copytree(package, root / package.name)
        (root / _RULES).unlink()
        if (checkout / _RULES).exists():
            shutil.copy(checkout / _RULES, root / _RULES)
        yield root


if __name__ == "__main__":
    main()
