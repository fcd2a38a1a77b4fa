"""A browser's side of the chat page, without the browser."""

from __future__ import annotations

import json
import secrets
from typing import Any

import aiohttp

__all__ = ["Page"]


class Page:
    """One session of ``/chat``; `http` keeps its cookie."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url
        self._after = 0

    async def open(self) -> None:
        async with self._http.get(f"{self._url}/chat") as page:
            assert page.status == 200

    async def uploads(self, name: str, content: bytes) -> dict[str, Any]:
        """Send a small file, and return it as a message names it."""
        query = {"upload": secrets.token_hex(8), "at": "0", "size": str(len(content)), "name": name}
        headers = {"Origin": self._url, "Content-Type": "application/octet-stream"}
        async with self._http.post(f"{self._url}/chat/files", params=query, data=content, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            file: dict[str, Any] = (await answer.json())["file"]
            return file

    async def says(self, text: str, *files: dict[str, Any]) -> None:
        said = {"client_id": secrets.token_hex(8), "text": text, "files": files}
        async with self._http.post(f"{self._url}/chat/messages", json=said, headers={"Origin": self._url}) as answer:
            assert answer.status == 200, await answer.text()

    async def sees(self, text: str) -> dict[str, Any]:
        """The next message of the bot, new or edited, that has this text in it."""
        async with self._http.get(f"{self._url}/chat/events", params={"after": str(self._after)}) as stream:
            async for line in stream.content:
                if line.startswith(b"id: "):
                    self._after = int(line[4:])
                elif line.startswith(b"data: "):
                    shown: dict[str, Any] = json.loads(line[6:])
                    if shown.get("from") == "bot" and text in shown["html"]:
                        return shown
        raise AssertionError(f"the stream ended without {text!r}")
