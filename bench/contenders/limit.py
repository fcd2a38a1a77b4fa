"""Limit of the machine: a bare aiohttp handler for checking the signature and reading the message. The message is
dropped."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import time
from urllib.parse import parse_qsl

from aiohttp import web

from bench.messages import PATHS, SLACK_SECRET, TELEGRAM_SECRET, TWILIO_TOKEN, twilio_url


async def telegram(request: web.Request) -> web.Response:
    given = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
    if not hmac.compare_digest(given.encode(), TELEGRAM_SECRET.encode()):
        return web.Response(status=401)
    json.loads(await request.read())
    return web.Response()


async def slack(request: web.Request) -> web.Response:
    body = await request.read()
    at = request.headers.get("X-Slack-Request-Timestamp", "0")
    signed = hmac.new(SLACK_SECRET.encode(), b"v0:" + at.encode() + b":" + body, hashlib.sha256).hexdigest()
    given = request.headers.get("X-Slack-Signature", "")
    if abs(time.time() - int(at)) > 300 or not hmac.compare_digest(f"v0={signed}".encode(), given.encode()):
        return web.Response(status=401)
    json.loads(body)
    return web.Response()


async def twilio(request: web.Request) -> web.Response:
    fields = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
    signed = twilio_url(int(sys.argv[2])) + "".join(name + fields[name] for name in sorted(fields))
    signature = base64.b64encode(hmac.new(TWILIO_TOKEN.encode(), signed.encode(), hashlib.sha1).digest())
    if not hmac.compare_digest(signature, request.headers.get("X-Twilio-Signature", "").encode()):
        return web.Response(status=401)
    return web.Response(text="<Response/>", content_type="text/xml")


HANDLERS = {"telegram": telegram, "slack": slack, "twilio": twilio}

if __name__ == "__main__":
    platform, port = sys.argv[1], int(sys.argv[2])
    app = web.Application()
    app.router.add_post(PATHS[platform], HANDLERS[platform])
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)
