"""A gateway in other people's servers: uvicorn, FastAPI, Starlette, Django and aiohttp, under a prefix."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import django
import pytest
import uvicorn
from aiohttp import web
from click.testing import CliRunner
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from yarl import URL

from channels import AskfirstError
from channels.webchat import COOKIE
from gateway import ChatUser, Gateway, Settings
from gateway.cli import main
from gateway.testing import ScriptedProvider, ToolCall
from gateway.web import ASGIApp, Bridge, asgi, serve
from gateway.web.limits import MAX_BODY_BYTES
from tests.channels.twilio.conftest import ANA
from tests.e2e.house import Shop, env_of
from tests.fakes.twilio import FakeTwilio
from tests.ports import free_port

SECRET = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-42"})
SEND = ToolCall("send_invoice_pdf", {"invoice_id": "INV-7"})


@contextlib.asynccontextmanager
async def running(app: Any, port: int, lifespan: str = "on") -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan=lifespan, log_level="error"))  # type: ignore[arg-type]
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        if serving.done():
            raise RuntimeError("uvicorn did not start")
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


def session() -> aiohttp.ClientSession:
    """A browser that keeps cookies of an address without a name."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


def hello(request: object) -> HttpResponse:
    return HttpResponse("hello from Django")


urlpatterns = [path("", hello)]


def in_fastapi(gateway: Gateway) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with gateway:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/bot", gateway.asgi_app())
    return app


def in_starlette(gateway: Gateway) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gateway:
            yield

    return Starlette(routes=[Mount("/bot", gateway.asgi_app())], lifespan=lifespan)


def around_django(gateway: Gateway) -> Any:
    if not django_settings.configured:
        django_settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY=SECRET)
        django.setup()
    return gateway.asgi_app(prefix="/bot/", otherwise=get_asgi_application())


def alone(gateway: Gateway) -> Any:
    return gateway.asgi_app(prefix="/bot")


EACH = pytest.mark.parametrize("put", [in_fastapi, in_starlette, around_django, alone], ids=lambda put: put.__name__)


def a_gateway(directory: Path, twilio: FakeTwilio | None, port: int, script: list[Any], **options: Any) -> Gateway:
    account: dict[str, Any] = {}
    if twilio is not None:
        account = {name.lower(): value for name, value in env_of(directory, twilio).items() if "TWILIO" in name}
        twilio.webhook_url = f"http://127.0.0.1:{port}/bot/webhooks/twilio"
    settings = Settings(
        store=f"sqlite:///{directory / 'askfirst.db'}",
        secret=SECRET,
        allow="*",
        public_url=f"http://127.0.0.1:{port}/bot",
        **account,
    )
    return Gateway(Shop().bot(ScriptedProvider(script)), settings, **options)


@contextlib.asynccontextmanager
async def embedded(
    directory: Path, put: Callable[[Gateway], Any], script: list[Any], *, lifespan: str = "on", **options: Any
) -> AsyncIterator[tuple[str, Gateway]]:
    """Serve a gateway as a part of another application; yield the application's URL and the gateway."""
    port = free_port()
    gateway = await asyncio.to_thread(a_gateway, directory, None, port, script, **options)
    async with running(put(gateway), port, lifespan=lifespan) as url:
        yield url, gateway


async def lifecycle(gateway: Gateway, *events: str, error: type[Exception], match: str) -> list[Any]:
    """Send these failing events of the lifespan. Returns the messages to the server."""
    told: list[Any] = []
    heard = iter([{"type": f"lifespan.{event}"} for event in events])

    async def receive() -> Any:
        return next(heard)

    async def send(message: Any) -> None:
        told.append(message)

    with pytest.raises(error, match=match):
        await gateway.asgi_app()({"type": "lifespan"}, receive, send)
    return told


@EACH
async def test_twilio_and_its_file_links_work_behind_a_prefix(tmp_path: Path, put: Callable[[Gateway], Any]) -> None:
    async with FakeTwilio() as twilio:
        port = free_port()
        gateway = await asyncio.to_thread(a_gateway, tmp_path, twilio, port, [SEND, "There."])
        async with running(put(gateway), port) as url, aiohttp.ClientSession() as http:
            answer = await twilio.person_says(ANA, "send INV-7", whatsapp=True)
            assert answer.status == 200  # its signature holds
            sent = await twilio.wait_for(lambda: next((each for each in twilio.sent if each.media_urls), None))
            link = sent.media_urls[0]
            assert link.startswith(f"{url}/bot/artifacts/")
            async with http.get(link) as whole:
                body = await whole.read()
                assert (whole.status, whole.headers["content-disposition"].split(";")[0]) == (200, "attachment")
            async with http.get(link, headers={"Range": "bytes=0-3"}) as part:
                assert (part.status, await part.read()) == (206, body[:4])
            async with http.head(link) as head:
                assert (head.status, await head.read()) == (200, b"")
                assert int(head.headers["content-length"]) == len(body)


async def test_twilio_works_behind_the_prefix_of_an_aiohttp_app(tmp_path: Path) -> None:
    async with FakeTwilio() as twilio:
        port = free_port()
        gateway = await asyncio.to_thread(a_gateway, tmp_path, twilio, port, ["Hello!"])
        around = web.Application()
        around.add_subapp("/bot/", gateway.aiohttp_app())
        listening = await serve(around, "127.0.0.1", port)
        try:
            assert (await twilio.person_says(ANA, "hi")).status == 200
            await twilio.wait_for(lambda: twilio.last(ANA, containing="Hello!"))
        finally:
            await listening.cleanup()


@EACH
async def test_the_chat_page_streams_and_its_files_are_its_own(tmp_path: Path, put: Callable[[Gateway], Any]) -> None:
    async with embedded(tmp_path, put, ["Hello, you."], chat=True) as (url, gateway), session() as http:
        async with http.get(f"{url}/bot/chat") as page:
            assert page.status == 200 and "Set-Cookie" in page.headers
            assert re.search(r'src="chat/chat\.js"', await page.text())
        async with http.get(f"{url}/bot/chat/chat.css") as style:
            assert (style.status, style.content_type) == (200, "text/css")
        async with http.get(f"{url}/bot/chat/events") as events:
            said = {"client_id": "c" * 32, "text": "hi"}
            async with http.post(f"{url}/bot/chat/messages", json=said, headers={"Origin": url}) as taken:
                assert taken.status < 300, await taken.text()
            async with asyncio.timeout(10):
                async for line in events.content:
                    if b"Hello, you." in line:
                        break
    assert gateway._stack is None, "it ended with its server"


@EACH
async def test_health_is_answered_and_unknown_paths_are_404(tmp_path: Path, put: Callable[[Gateway], Any]) -> None:
    async with embedded(tmp_path, put, []) as (url, _), aiohttp.ClientSession() as http:
        async with http.get(f"{url}/bot/readyz?verbose=1") as ready:
            assert (ready.status, (await ready.json())["store"]) == (200, True)
        async with http.get(f"{url}/bot/nothing") as missing:
            assert missing.status == 404
            assert "aiohttp" not in str(missing.headers).lower()
        async with http.get(f"{url}/bottom") as outside:
            assert outside.status == 404


async def test_bodies_are_bounded_as_under_serve(tmp_path: Path) -> None:
    async with FakeTwilio() as twilio:
        port = free_port()
        gateway = await asyncio.to_thread(a_gateway, tmp_path, twilio, port, [])
        async with running(alone(gateway), port) as url, aiohttp.ClientSession() as http:
            hook = f"{url}/bot/webhooks/twilio"
            async with http.post(hook, data=b"x" * (MAX_BODY_BYTES + 1)) as large:
                assert large.status == 413

            async def pieces() -> AsyncIterator[bytes]:
                yield b"a=1"
                yield b"&b=2"

            async with http.post(hook, data=pieces()) as chunked:
                assert chunked.status == 401
            async with http.post(hook, data=b"a=1", headers={"Content-Encoding": "gzip"}) as packed:
                assert packed.status == 415


async def test_django_answers_the_rest(tmp_path: Path) -> None:
    async with (
        embedded(tmp_path, around_django, []) as (url, _),
        aiohttp.ClientSession() as http,
        http.get(url) as home,
    ):
        assert await home.text() == "hello from Django"


async def test_gateway_that_cannot_start_says_why_to_the_server(tmp_path: Path) -> None:
    (tmp_path / "askfirst.db").write_bytes(b"this is no database" * 100)
    gateway = await asyncio.to_thread(a_gateway, tmp_path, None, free_port(), [])
    told = await lifecycle(gateway, "startup", error=Exception, match=r"askfirst\.db")
    assert told[0]["type"] == "lifespan.startup.failed" and "askfirst.db" in told[0]["message"]


async def test_a_gateway_that_ends_badly_tells_the_server_so(tmp_path: Path) -> None:
    @contextlib.asynccontextmanager
    async def books() -> AsyncIterator[None]:
        yield
        raise OSError("postgres://user:hunter2@db")

    settings = Settings(store=f"sqlite:///{tmp_path / 'askfirst.db'}", secret=SECRET, allow="*")
    bot = Shop().bot(ScriptedProvider([]), lifespan=books)
    gateway = await asyncio.to_thread(Gateway, bot, settings)
    told = await lifecycle(gateway, "startup", "shutdown", error=AskfirstError, match="lifespan failed")
    assert [each["type"] for each in told] == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    assert re.fullmatch(r"the bot's lifespan failed: OSError \(test_asgi\.py:\d+ books\)", told[1]["message"])


async def test_a_gateway_that_is_not_entered_takes_no_webhook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with embedded(tmp_path, alone, [], lifespan="off") as (url, _), aiohttp.ClientSession() as http:
        answer = await http.get(f"{url}/bot/readyz")
        assert (answer.status, await answer.text()) == (503, "the gateway does not run")
    assert "enter it with `async with gateway`" in caplog.text


async def test_a_client_that_leaves_ends_its_stream(tmp_path: Path) -> None:
    async with embedded(tmp_path, alone, [], chat=True) as (url, gateway), session() as http:
        await (await http.get(f"{url}/bot/chat")).read()
        stream = await http.get(f"{url}/bot/chat/events")
        await stream.content.readline()
        pages = gateway.channels["webchat"].on_typing  # type: ignore[attr-defined]
        while not pages:
            await asyncio.sleep(0.01)
        stream.close()
        while pages:
            await asyncio.sleep(0.01)


@EACH
async def test_the_login_hook_gets_a_request_of_aiohttp(tmp_path: Path, put: Callable[[Gateway], Any]) -> None:
    seen: list[tuple[str, str, str]] = []

    async def chat_user(request: web.Request) -> ChatUser | None:
        seen.append((request.path, request.cookies.get("login", ""), request.headers.get("X-Askfirst-User", "")))
        return ChatUser(request.cookies["login"]) if "login" in request.cookies else None

    async with embedded(tmp_path, put, ["Hello."], chat_user=chat_user) as (url, gateway), session() as http:
        http.cookie_jar.update_cookies({"login": "ana"}, URL(url))
        page = {"Origin": url, "X-Askfirst-User": "token"}
        async with http.get(f"{url}/bot/chat", headers=page) as opened:
            assert opened.status == 200
        body = {"client_id": "a" * 32, "text": "hello"}
        async with http.post(f"{url}/bot/chat/messages", json=body, headers=page) as taken:
            assert taken.status == 200
        async with http.get(f"{url}/bot/chat/events", headers=page) as stream:
            while not (line := await stream.content.readline()).startswith(b"data: "):
                pass
        assert await gateway.bot.conversations.list(person="webchat:site:ana") == ["Shop/webchat:site:ana"]
    assert json.loads(line[6:])["text"] == "hello"
    assert seen == [(path, "ana", "token") for path in ("/chat", "/chat/messages", "/chat/events")]


async def test_operator_ends_sessions_and_reads_a_reached_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKFIRST_STORE", f"sqlite:///{tmp_path / 'askfirst.db'}")

    async def run(*words: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    monkeypatch.setenv("ASKFIRST_LIMITS", "sessions=-/-/2")
    async with embedded(tmp_path, alone, [], chat=True) as (url, _), session() as http:

        async def said(client_id: str) -> int:
            body, page = {"client_id": client_id * 32, "text": "/help"}, {"Origin": url}
            async with http.post(f"{url}/bot/chat/messages", json=body, headers=page) as taken:
                return taken.status

        begun = []
        for _ in range(2):
            http.cookie_jar.clear()
            async with http.get(f"{url}/bot/chat") as page:
                begun.append(page.cookies[COOKIE].value.partition(".")[0])
        other = begun[0]
        assert await run("people", "end-sessions", f"webchat:local:{other}") == (
            f"Ended: the sessions of webchat:local:{other}\n"
        )
        assert await said("a") == 200
        await run("people", "end-sessions", "--all")
        assert await said("b") == 401
        async with http.get(f"{url}/bot/chat") as page:
            assert page.status == 429
        reached: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while not reached:
                async with http.get(f"{url}/bot/readyz") as ready:
                    reached = (await ready.json()).get("limits_reached", {})
                    assert ready.status == 200
        assert reached["new sessions of the web chat"]["limit"] == "sessions=-/-/2"
    told = await run("waiting")
    assert re.search(r"\nnew sessions of the web chat +sessions=-/-/2 +\d+s\n", told)


async def test_operators_commands_reach_an_embedded_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKFIRST_STORE", f"sqlite:///{tmp_path / 'askfirst.db'}")
    gateway = await asyncio.to_thread(a_gateway, tmp_path, None, free_port(), [])
    async with gateway:
        result = await asyncio.to_thread(CliRunner().invoke, main, ["waiting", "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["waiting"] == 0
    assert not (tmp_path / "askfirst.db.sock").exists()


async def statuses(app: ASGIApp, times: int) -> list[int]:
    told: list[int] = []

    async def one() -> None:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        heard.put_nowait({"type": "http.request", "body": b""})

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                told.append(message["status"])

        scope = {"type": "http", "method": "GET", "path": "/livez", "raw_path": b"/livez", "headers": []}
        await app(scope, heard.get, send)

    await asyncio.gather(*(one() for _ in range(times)))
    return told


async def test_a_thousand_requests_at_once_are_answered(tmp_path: Path) -> None:
    gateway = await asyncio.to_thread(a_gateway, tmp_path, None, free_port(), [])
    async with gateway:
        assert await statuses(gateway.asgi_app(), 1000) == [200] * 1000


async def test_request_without_a_bridge_to_the_gateway_gets_503(tmp_path: Path) -> None:
    async def nothing() -> None:
        """No lifespan."""

    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "gone"))) as http:

        async def bridge() -> Bridge:
            return Bridge(http)

        assert await statuses(asgi(nothing, nothing, bridge), 1) == [503]
