"""slack-bolt on aiohttp, with a message handler for ignoring the message, or for replying."""

from __future__ import annotations

import os
import sys
from typing import Any

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.context.say.async_say import AsyncSay
from slack_sdk.web.async_client import AsyncWebClient

from bench.messages import ANSWER, PATHS, SLACK_SECRET


async def authorize(enterprise_id: str | None, team_id: str | None, user_id: str | None) -> AuthorizeResult:
    return AuthorizeResult(
        enterprise_id=enterprise_id, team_id=team_id, bot_token="xoxb-bench", bot_id="B0BOT", bot_user_id="U0BOT"
    )


async def nothing(event: dict[str, Any]) -> None:
    return None


async def reply(say: AsyncSay) -> None:
    await say(ANSWER)


async def take(request: web.Request) -> web.Response:
    return await to_aiohttp_response(await bolt.async_dispatch(await to_bolt_request(request)))


if __name__ == "__main__":
    client = AsyncWebClient(base_url=os.environ["SLACK_API_URL"])
    bolt = AsyncApp(signing_secret=SLACK_SECRET, authorize=authorize, client=client)
    bolt.event("message")(reply if sys.argv[3:] else nothing)
    app = web.Application()
    app.router.add_post(PATHS["slack"], take)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=None, print=None)
