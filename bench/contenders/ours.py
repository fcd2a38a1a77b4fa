"""Askfirst as a receiver: messages are verified, parsed, stored durably, logged, and then answered. No turns run."""

from __future__ import annotations

import asyncio
import sys

from gateway import Agent, Gateway
from gateway.cli.process import event_loop, log_to_stderr, run


def nobody(url: str) -> None:
    """Ignore the URL: the benchmark polls the port."""


async def main(port: int) -> None:
    gateway = Gateway(Agent(), role="web")
    log_to_stderr(gateway.settings, gateway.settings.log_level)
    await run(gateway, "127.0.0.1", port, stopped=asyncio.Event().wait, grace_seconds=0, announce=nobody)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main(int(sys.argv[2])))
