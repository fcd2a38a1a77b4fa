"""The server of the soak test: the bot on three platforms, and the chat page beside them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from gateway import Gateway, Settings
from gateway.cli.process import event_loop, run, until_signal
from tests.chaos.bot import make_bot
from tests.chaos.record import Record

GRACE_SECONDS = 20.0


async def main(port: int) -> None:
    """Serve until SIGTERM, as `askfirst serve` does."""
    bot = make_bot(Record(Path(os.environ["SOAK_RECORD"])))
    gateway = Gateway(bot, Settings.load(Path.cwd()), chat=True, chat_hosts=["127.0.0.1"])
    with until_signal() as signalled:
        await run(gateway, "127.0.0.1", port, stopped=signalled.wait, grace_seconds=GRACE_SECONDS, announce=announce)


def announce(url: str) -> None:
    """Print the URL of the server at once."""
    print(url, flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
