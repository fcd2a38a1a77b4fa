"""Twilio's own request validator in a bare aiohttp handler."""

from __future__ import annotations

import sys

from aiohttp import web
from twilio.request_validator import RequestValidator
from twilio.twiml.messaging_response import MessagingResponse

from bench.messages import PATHS, TWILIO_TOKEN, twilio_url

validator = RequestValidator(TWILIO_TOKEN)


async def take(request: web.Request) -> web.Response:
    if not validator.validate(URL, await request.post(), request.headers.get("X-Twilio-Signature", "")):
        return web.Response(status=401)
    return web.Response(text=str(MessagingResponse()), content_type="text/xml")


if __name__ == "__main__":
    port = int(sys.argv[2])
    URL = twilio_url(port)
    app = web.Application()
    app.router.add_post(PATHS["twilio"], take)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)
