"""python-telegram-bot's own webhook server (tornado), with a handler for ignoring the message, or for replying."""

from __future__ import annotations

import os
import sys
from typing import Any

from telegram import Bot, Update
from telegram.ext import Application, ApplicationBuilder, ContextTypes, MessageHandler, filters

from bench.messages import ANSWER, PATHS, TELEGRAM_SECRET


async def nothing(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    return None


async def reply(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    assert update.message is not None
    await update.message.reply_text(ANSWER)


if __name__ == "__main__":
    bot = Bot(os.environ["TELEGRAM_BOT_TOKEN"], base_url=os.environ["TELEGRAM_API_URL"] + "/bot")
    application: Application[Any, Any, Any, Any, Any, Any] = ApplicationBuilder().bot(bot).build()
    application.add_handler(MessageHandler(filters.TEXT, reply if sys.argv[3:] else nothing))
    application.run_webhook(
        "127.0.0.1",
        int(sys.argv[2]),
        url_path=PATHS["telegram"].lstrip("/"),
        webhook_url=f"https://127.0.0.1{PATHS['telegram']}",
        secret_token=TELEGRAM_SECRET,
    )
