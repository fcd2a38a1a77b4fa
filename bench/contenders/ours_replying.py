"""Askfirst with an instant model: store a message, run a turn, queue the reply, send the reply and store the
receipt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

from bench.messages import ANSWER
from channels import Pace
from gateway import Agent, ChannelAgent, Gateway
from gateway.cli.process import event_loop, log_to_stderr, run
from gateway.providers import Request, Response

UNPACED = Pace(account_per_second=1e6, place_per_second=1e6)
"""Rates above every platform's limit. Pacing still counts, and never waits."""


def nobody(url: str) -> None:
    """Ignore the URL: the benchmark polls the port."""


class Instant:
    """Model with immediate answers."""

    name = "instant"

    async def complete(self, request: Request) -> Response:
        return Response(content=ANSWER)

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield Response(content=ANSWER)

    async def close(self) -> None:
        """Do nothing: there are no connections to close."""


async def main(port: int) -> None:
    gateway = Gateway(ChannelAgent(Agent(provider=Instant())))
    log_to_stderr(gateway.settings, gateway.settings.log_level)
    for channel in gateway.channels.values():
        channel.capabilities = replace(channel.capabilities, pace=UNPACED)
    await run(gateway, "127.0.0.1", port, stopped=asyncio.Event().wait, grace_seconds=0, announce=nobody)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main(int(sys.argv[2])))
