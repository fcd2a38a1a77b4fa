"""Serves tests/kill/bot.py until it is killed; prints the port."""

from __future__ import annotations

import asyncio

from gateway import Gateway, Settings
from gateway.web import serve
from tests.kill.bot import bot


async def main(gateway: Gateway) -> None:
    async with gateway:
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
        print(running.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Gateway(bot, Settings())))
