"""The real ``askfirst serve`` runs a channel of another distribution: the one that the documents build."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.cli.processes import running
from tests.fakes.waiting import listen
from tests.test_docs import python_files

ROOT = Path(__file__).parents[2]
KEY = "the key of the tests"


def install(site: Path) -> None:
    """What pip leaves behind of a distribution."""
    (site / "pager.py").write_text(python_files("channels.md")["pager.py"], encoding="utf-8")
    about = site / "askfirst_pager-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: askfirst-pager\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[askfirst.channels]\npager = pager:PagerChannel\n", encoding="utf-8")


class Service:
    def __init__(self) -> None:
        self.pages: list[str] = []
        self.url = ""
        self._changed = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if text := (await request.json()).get("text"):
            self.pages.append(text)
            self._changed.set()
        return web.json_response({"id": f"page-{len(self.pages)}"})

    async def page(self, number: int) -> str:
        async with asyncio.timeout(20):
            while len(self.pages) <= number:
                self._changed.clear()
                await self._changed.wait()
        return self.pages[number]


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    fake, app = Service(), web.Application()
    app.router.add_post("/{path}", fake.take)
    runner, fake.url = await listen(app)
    yield fake
    await runner.cleanup()


def signed(body: bytes) -> dict[str, str]:
    stamp = str(int(time.time()))
    signature = hmac.new(KEY.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Pager-Time": stamp, "X-Pager-Signature": signature}


async def test_a_question_is_asked_and_answered_on_a_strangers_channel(tmp_path: Path) -> None:
    install(tmp_path)
    async with service() as pager, aiohttp.ClientSession() as http:
        env = {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path))),
            "ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}",
            "ASKFIRST_ALLOW": "pager:service:4711",
            "ASKFIRST_PROVIDER": "demo",
            "PAGER_KEY": KEY,
            "PAGER_API_URL": pager.url,
        }
        example = ROOT / "examples" / "invoices.py"
        async with running("serve", example, "--host", "127.0.0.1", "--port", "0", cwd=tmp_path, env=env) as server:
            webhook = f"{await server.url()}/webhooks/pager"

            async def says(page_id: str, text: str, *, proven: bool = True) -> int:
                body = json.dumps({"id": page_id, "sender": "4711", "text": text}).encode()
                async with http.post(webhook, data=body, headers=signed(body) if proven else {}) as response:
                    return response.status

            assert await says("p-0", "delete invoice INV-42", proven=False) == 401
            assert await says("p-1", "delete invoice INV-42") == 200
            asked = await pager.page(0)
            assert "Delete invoice INV-42" in asked
            code = re.search(r"\bOK ([A-Z0-9]{4})\b", asked)
            assert code is not None, asked
            for _ in range(2):  # the second time as a twin
                assert await says("p-2", f"ok {code[1]}") == 200
            assert "is deleted" in await pager.page(1)
            assert await says("p-3", f"ok {code[1]}") == 200
            assert "already" in await pager.page(2)
            assert KEY not in server.said
