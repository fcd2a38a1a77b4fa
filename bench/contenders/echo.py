"""Minimal replying server: a bare aiohttp handler for checking the signature and calling the platform, without
storage."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from bench.messages import ANSWER, PATHS, SLACK_SECRET, TELEGRAM_SECRET

HTTP = web.AppKey("http", aiohttp.ClientSession)


async def telegram(request: web.Request) -> web.Response:
    given = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
    if not hmac.compare_digest(given.encode(), TELEGRAM_SECRET.encode()):
        return web.Response(status=401)
    message = json.loads(await request.read())["message"]
    said = {"chat_id": message["chat"]["id"], "text": ANSWER}
    async with request.app[HTTP].post(f"{TELEGRAM}/bot123456:bench/sendMessage", json=said) as response:
        await response.json()
    return web.Response()


async def slack(request: web.Request) -> web.Response:
    body = await request.read()
    at = request.headers.get("X-Slack-Request-Timestamp", "0")
    signed = hmac.new(SLACK_SECRET.encode(), b"v0:" + at.encode() + b":" + body, hashlib.sha256).hexdigest()
    given = request.headers.get("X-Slack-Signature", "")
    if not hmac.compare_digest(f"v0={signed}".encode(), given.encode()):
        return web.Response(status=401)
    said = {"channel": json.loads(body)["event"]["channel"], "text": ANSWER}
    async with request.app[HTTP].post(f"{SLACK}chat.postMessage", json=said) as response:
        await response.json()
    return web.Response()


async def connected(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as app[HTTP]:
        yield


if __name__ == "__main__":
    platform, port = sys.argv[1:3]
    TELEGRAM, SLACK = os.environ["TELEGRAM_API_URL"], os.environ["SLACK_API_URL"]
    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.router.add_post(PATHS[platform], {"telegram": telegram, "slack": slack}[platform])
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None)
