"""MCP servers behind a URL: the `mcp` package's own, and one that answers as no server should."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gateway import NothingDone, OutcomeUnknown
from gateway.mcp import sending
from tests.mcp.conftest import Servers, called, over_http, until
from tests.ports import free_port


async def test_calls_pass_and_changes_of_the_list_are_heard(servers: Servers) -> None:
    async with over_http(servers.state) as url:
        server = servers.at(url, prefix="web_")
        assert (await called(server, "look", place="home")).value == "home is flat"
        assert len((await called(server, "media")).artifacts) == 2
        large = (await called(server, "flood", size=5_000_000)).value
        assert large.endswith("(cut: it has 5000000 characters)")
        await called(server, "change")
        (link,) = server._links.values()
        await until(lambda: link.stale)
        await server.refresh()
        assert (await called(server, "look", place="home", depth=2)).value == "home 2"
        await server.close()


async def test_server_that_went_away_is_nothing_done_and_comes_back(servers: Servers) -> None:
    port = free_port()
    async with over_http(servers.state, port) as url:
        server = servers.at(url)
        await called(server, "look", place="home")
    with pytest.raises(NothingDone, match=r"cannot be reached|could not be asked"):
        await called(server, "pay", amount=1)
    assert len(server.listed()) == 9  # they stay as they were listed last
    async with over_http(servers.state, port):
        (link,) = server._links.values()
        link._backoff.worked()  # as after its pause
        assert (await called(server, "pay", amount=2)).value == '{\n  "paid": 2\n}'
    assert servers.done == ["pay 2"]


async def test_server_that_dies_in_a_call_leaves_it_unknown(servers: Servers) -> None:
    async with over_http(servers.state) as url:
        server = servers.at(url)
        with pytest.raises(OutcomeUnknown, match=r"the call was sent to MCP server 127\.0\.0\.1"):
            await called(server, "die")
    assert servers.done == ["die"]


async def test_hung_call_is_unknown_in_time(servers: Servers) -> None:
    async with over_http(servers.state) as url:
        server = servers.at(url, timeout_seconds=2.0)
        with pytest.raises(OutcomeUnknown, match="it has not answered in time"):
            await called(server, "hang")
        assert (await called(server, "look", place="home")).value == "home is flat"


async def test_address_where_nobody_listens_is_told(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    server = servers.at(f"http://127.0.0.1:{free_port()}/mcp?key=hush-hush")
    await server.refresh()
    assert server.listed() == () and "MCP server 127.0.0.1:" in caplog.text and "hush" not in caplog.text


@asynccontextmanager
async def rude(answer: Any) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server in this process whose calls of tools are answered by the test."""
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                info = {"name": "rude", "version": "1"}
                capabilities: dict[str, Any] = {"tools": {}}
                body["result"] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": capabilities,
                    "serverInfo": info,
                }
            case "tools/list":
                body["result"] = {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                told: web.StreamResponse = await answer(request, body)
                return told
            case _:
                body["error"] = {"code": -32601, "message": "no"}
        return web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    try:
        yield f"http://127.0.0.1:{port}/mcp", seen
    finally:
        await runner.cleanup()


OK = {"content": [{"type": "text", "text": "ok"}]}


async def forbidden(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=403)


async def broken(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=500, text="hush-hush")


async def packed(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(
        body=gzip.compress(b" " * 1_000), headers={"Content-Encoding": "gzip"}, content_type="application/json"
    )


async def elsewhere(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/steal")


async def no_json(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(text="{", content_type="application/json")


async def large(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({**body, "result": {"content": [{"type": "text", "text": "x" * 200_000}]}})


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (forbidden, NothingDone, "refused the call with HTTP status 403"),
        (broken, OutcomeUnknown, "the call was sent"),
        (packed, OutcomeUnknown, "the call was sent"),
        (elsewhere, NothingDone, "refused the call with HTTP status 307"),
        (no_json, OutcomeUnknown, "the call was sent"),
        (large, OutcomeUnknown, "the call was sent"),
    ],
)
async def test_wrong_answer_is_an_error(
    servers: Servers, answer: Any, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.mcp.http.LARGEST", 100_000)
    assert sending.LARGEST > 50_000_000
    async with rude(answer) as (url, _):
        server = servers.at(url, headers={"Authorization": "Bearer hush-hush"})
        with pytest.raises(error, match=says) as caught:
            await called(server, "act")
        assert "hush" not in str(caught.value)
        await server.close()


async def test_headers_go_with_each_request(servers: Servers) -> None:
    async def ok(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({**body, "result": OK})

    async with rude(ok) as (url, seen):
        server = servers.at(url, headers={"Authorization": "Bearer hush-hush"})
        assert (await called(server, "act")).value == "ok"
        await server.close()
    assert {request.headers.get("Authorization") for request in seen} == {"Bearer hush-hush"}


async def test_forgotten_session_is_opened_again_and_called_once(servers: Servers) -> None:
    calls: list[str] = []

    async def forgetful(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        calls.append(request.method)
        if len(calls) == 1:
            return web.Response(status=404)
        return web.json_response({**body, "result": OK})

    async with rude(forgetful) as (url, seen):
        server = servers.at(url)
        assert (await called(server, "act")).value == "ok"
        await server.close()
    assert calls == ["POST", "POST"]
    assert sum([b'"initialize"' in await request.read() for request in seen]) == 2


async def test_call_while_another_one_hangs_passes(servers: Servers) -> None:
    async with over_http(servers.state) as url:
        server = servers.at(url)
        await server.refresh()
        hanging = asyncio.create_task(called(server, "hang"))
        await until(lambda: servers.done == ["hang"])
        assert (await called(server, "look", place="home")).value == "home is flat"
        hanging.cancel()
        await asyncio.wait({hanging})
        await server.close()
