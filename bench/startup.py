"""Cost of starting: the time and memory of an import, and the memory of a process that serves four channels.

python -m bench.startup [--rounds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.chats import platform_of
from bench.load import listening
from bench.messages import SLACK_SECRET, TELEGRAM_SECRET, TWILIO_ACCOUNT, TWILIO_TOKEN
from bench.rounds import ROOT, interleaved, machine, served, spread, table
from tests.ports import free_port

VENDORS = (
    "import aiohttp.web, telegram, slack_sdk.web.async_client, twilio.rest, twilio.rest.api, twilio.rest.messaging"
)
"""Imports of the platforms' own libraries, with a web server."""
PACKAGES = "import aiohttp.web, channels.telegram, channels.slack, channels.twilio"
"""Imports of the four channels: the vendors' libraries and Askfirst's code around the libraries."""
_MEGABYTE = 1_000_000
_MEASURE = """
import time
began = time.process_time()
{program}
print(time.process_time() - began, open("/proc/self/statm").read().split()[1])
"""


@dataclass(frozen=True, slots=True)
class Begun:
    seconds: float
    """CPU seconds."""
    megabytes: float
    """Resident megabytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    print(f"{chosen.rounds} rounds of fresh processes; {machine()}\n")
    print(imports(chosen.rounds), "\n")
    print(serving(chosen.rounds))


def imports(rounds: int) -> str:
    """Return a table of each import's cost, with aiohttp's for comparison."""
    programs = {
        "import aiohttp": "import aiohttp",
        "import gateway": "import gateway",
        "from gateway import Gateway (the server)": "from gateway import Gateway",
    }
    begun: dict[str, Callable[[], Begun]] = {
        name: lambda program=program: imported(program)  # type: ignore[misc]
        for name, program in programs.items()
    }
    found = interleaved(begun, rounds)
    lines = []
    for name, results in found.items():
        ratios = [ours.seconds / base.seconds for base, ours in zip(found["import aiohttp"], results, strict=True)]
        milliseconds = statistics.median(result.seconds for result in results) * 1e3
        lines.append(
            [name, f"{milliseconds:.0f}", spread(ratios), f"{statistics.median(r.megabytes for r in results):.0f}"]
        )
    return table(["", "CPU ms", "to aiohttp's", "MB"], lines)


def serving(rounds: int) -> str:
    """Return a table of the memory of a server with four channels, with a process importing the channels for
    comparison."""
    begun: dict[str, Callable[[], float]] = {
        "the four channels imported": lambda: imported(PACKAGES).megabytes,
        "of that, the vendors' libraries": lambda: imported(VENDORS).megabytes,
        "serving Telegram, Slack, SMS and WhatsApp": four_channels,
    }
    found = interleaved(begun, rounds)
    bases = found["the four channels imported"]
    lines = [
        [name, spread(results, 0), spread([ours / base for base, ours in zip(bases, results, strict=True)])]
        for name, results in found.items()
    ]
    return table(["", "MB", "ratio"], lines)


def imported(program: str) -> Begun:
    """Import a module in a fresh process."""
    command = [sys.executable, "-c", _MEASURE.format(program=program)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, capture_output=True, check=True, text=True, env=variables).stdout.split()
    return Begun(float(said[0]), int(said[1]) * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE)


def four_channels() -> float:
    """Return the megabytes of a fresh, ready server with four channels and the embedded store."""

    async def serve(directory: Path) -> float:
        port, log = free_port(), directory / "server.log"
        async with platform_of("telegram", port) as telegram, platform_of("slack", port) as slack:
            settings = _settings(directory, port, telegram.url, slack.url)
            with served("bench.contenders.ours", "all", str(port), environment=settings, log=log) as server:
                await listening(port)
                return _resident(server.pid)

    with tempfile.TemporaryDirectory(prefix="askfirst-bench-") as directory:
        return asyncio.run(serve(Path(directory)))


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE


def _settings(directory: Path, port: int, telegram: str, slack: str) -> Mapping[str, str]:
    return {
        "ASKFIRST_ALLOW": "*",
        "ASKFIRST_SECRET": "bench-secret-" + "0" * 32,
        "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
        "ASKFIRST_ARTIFACTS": str(directory / "artifacts"),
        "TELEGRAM_BOT_TOKEN": "123456:bench",
        "TELEGRAM_API_URL": telegram,
        "TELEGRAM_WEBHOOK_SECRET": TELEGRAM_SECRET,
        "SLACK_BOT_TOKEN": "xoxb-bench",
        "SLACK_API_URL": f"{slack}/api/",
        "SLACK_SIGNING_SECRET": SLACK_SECRET,
        "TWILIO_ACCOUNT_SID": TWILIO_ACCOUNT,
        "TWILIO_AUTH_TOKEN": TWILIO_TOKEN,
        "TWILIO_SMS_FROM": "+15550001111",
        "TWILIO_WHATSAPP_FROM": "whatsapp:+15550001111",
    }


if __name__ == "__main__":
    main()
