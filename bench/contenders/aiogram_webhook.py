"""aiogram's own aiohttp webhook handler. The message handler ignores the message, or replies."""

from __future__ import annotations

import os
import sys

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import Message
from aiogram.webhook.aiohttp_server import SimpleRequestHandler, setup_application
from aiohttp import web

from bench.messages import ANSWER, PATHS, TELEGRAM_SECRET


async def nothing(message: Message) -> None:
    return None


async def reply(message: Message) -> None:
    await message.answer(ANSWER)


if __name__ == "__main__":
    app = web.Application()
    server = TelegramAPIServer.from_base(os.environ["TELEGRAM_API_URL"])
    bot = Bot("123456:bench", session=AiohttpSession(api=server))
    dispatcher = Dispatcher()
    dispatcher.message.register(reply if sys.argv[3:] else nothing)
    handler = SimpleRequestHandler(dispatcher, bot, handle_in_background=False, secret_token=TELEGRAM_SECRET)
    handler.register(app, path=PATHS["telegram"])
    setup_application(app, dispatcher, bot=bot)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=None, print=None)
