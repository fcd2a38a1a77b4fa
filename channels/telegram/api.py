"""The client of the Bot API: the vendor's library over the process's HTTP session, with translated errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import aiohttp
from telegram import Bot
from telegram.error import BadRequest, Conflict, InvalidToken, TelegramError

from channels.channel import Ambiguous, PollingRefused, Undeliverable
from channels.telegram.errors import send_error
from channels.telegram.media import download
from channels.telegram.transport import SessionRequest

__all__ = ["UPDATES", "BotApi"]

UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
"""The kinds of update that the bot subscribes to."""
_POLL_SECONDS = 50


class BotApi:
    """The Bot API for one bot."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        self._http = http
        self._files = f"{api_url}/file/bot{token}"
        self._request = SessionRequest(http, f"{api_url}/bot{token}")
        # The library gets the bot's id in place of its token, so that it cannot log the token.
        self._bot = Bot(
            token.partition(":")[0],
            base_url=lambda _: "",
            base_file_url=lambda _: "",
            request=self._request,
            get_updates_request=self._request,
        )

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Call a method of the Bot API and return the object that it answers, or an empty one. Raises SendError.

        An argument that is None is left out.
        """
        try:
            answer = await self._post(method, arguments)
        except TelegramError as error:
            raise send_error(error) from None
        return answer if isinstance(answer, dict) else {}

    async def set_webhook(self, url: str, secret: str) -> None:
        """Register a webhook. Raises Undeliverable with Telegram's own text about the URL, else SendError."""
        try:
            await self._post("setWebhook", {"url": url, "secret_token": secret, "allowed_updates": UPDATES})
        except BadRequest as error:
            raise Undeliverable(f"Telegram does not take this webhook: {error.message}") from None
        except TelegramError as error:
            raise send_error(error) from None

    async def updates(self, offset: int) -> Sequence[Mapping[str, Any]]:
        """Wait up to 50 seconds for updates from `offset` on, and return them.

        They stay dictionaries, so that an update that the library cannot read does not hold up the others. Raises
        PollingRefused, else SendError.
        """
        query = {"offset": offset, "timeout": _POLL_SECONDS, "allowed_updates": json.dumps(UPDATES)}
        try:
            answer: Any = await self._request.post(f"/getUpdates?{urlencode(query)}", read_timeout=_POLL_SECONDS + 10.0)
        except Conflict as error:
            raise PollingRefused(
                "a webhook is set, so nothing can be polled: remove it (askfirst webhooks delete)"
                if "webhook" in error.message
                else "another program polls with this token: stop it, or make a second bot at @BotFather"
            ) from None
        except InvalidToken:
            raise PollingRefused("TELEGRAM_BOT_TOKEN: Telegram does not know it (any more)") from None
        except TelegramError as error:
            raise send_error(error) from None
        except LookupError:
            raise Ambiguous("unreadable_answer") from None
        listed = answer if isinstance(answer, list) else []
        return [update for update in listed if isinstance(update, dict) and isinstance(update.get("update_id"), int)]

    async def file(self, file_id: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, at most 20 MB. Raises Undeliverable or Unavailable."""
        file = await self.call("getFile", file_id=file_id)
        async for piece in download(self._http, f"{self._files}/{file.get('file_path')}"):
            yield piece

    async def _post(self, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method and return its answer. Raises TelegramError or Ambiguous.

        The library's own methods build objects from the whole answer, which takes longer than everything else.
        """
        try:
            # The library drops the underscore. Without it the library would warn that it has a method of that name.
            return await self._bot.do_api_request(f"{method}_", arguments)
        except InvalidToken as error:
            cause = error.__cause__  # tells a refused token from an unknown method
            raise cause if isinstance(cause, InvalidToken) else error from None
        except (LookupError, ValueError):
            # The answer differs from the documentation of the Bot API.
            raise Ambiguous("unreadable_answer") from None
