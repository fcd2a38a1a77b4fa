"""The network errors leaving open the arrival of a request, as raised by the clients themselves."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import httpx
import pytest
import requests
import urllib3

from gateway.tools import leaves_open


async def by_aiohttp(url: str) -> None:
    times = aiohttp.ClientTimeout(total=None, sock_connect=0.1, sock_read=0.1)
    async with (
        aiohttp.ClientSession(timeout=times, raise_for_status=True) as session,
        session.post(url, data=b"x") as answer,
    ):
        await answer.read()


async def by_aiohttp_in_all(url: str) -> None:
    times = aiohttp.ClientTimeout(total=0.1)
    async with (
        aiohttp.ClientSession(timeout=times, raise_for_status=True) as session,
        session.post(url, data=b"x") as answer,
    ):
        await answer.read()


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(timeout=0.1) as client:
        (await client.post(url, content=b"x")).raise_for_status()


async def by_requests(url: str) -> None:
    await asyncio.to_thread(lambda: requests.post(url, data=b"x", timeout=0.1).raise_for_status())


async def by_urllib3(url: str) -> None:
    with urllib3.PoolManager() as pool:
        answer = await asyncio.to_thread(pool.request, "POST", url, body=b"x", timeout=0.1, retries=0)
        if answer.status >= 400:
            raise RuntimeError(answer.status)


async def by_urllib3_with_retries(url: str) -> None:
    with urllib3.PoolManager() as pool:
        answer = await asyncio.to_thread(pool.request, "POST", url, body=b"x", timeout=0.1)
        if answer.status >= 400:
            raise RuntimeError(answer.status)


async def by_urllib(url: str) -> None:
    def post() -> None:
        try:
            with urllib.request.urlopen(url, data=b"x", timeout=0.1) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            raise

    await asyncio.to_thread(post)


async def by_asyncio(url: str) -> None:
    where = url.removeprefix("http://").removeprefix("https://").rstrip("/")
    async with asyncio.timeout(0.1):
        reader, writer = await asyncio.open_connection(*where.split(":"))
        try:
            writer.write(b"POST / HTTP/1.1\r\n\r\n")
            if b" 200 " not in await reader.readuntil(b"\r\n\r\n"):
                raise ValueError
            await reader.readexactly(100)
        finally:
            writer.close()


CLIENTS = [by_aiohttp, by_httpx, by_requests, by_urllib3, by_urllib3_with_retries, by_urllib, by_asyncio]


@asynccontextmanager
async def server(answer: bytes | None, *, resets: bool = False) -> AsyncIterator[str]:
    """Answer any request with these bytes and close; None: send no answer."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await over.wait()
        else:
            writer.write(answer)
            if resets:
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    finally:
        over.set()
        listening.close()


async def raised(client: Callable[[str], Awaitable[None]], url: str) -> BaseException:
    with pytest.raises(Exception) as caught:
        await client(url)
    return caught.value


@pytest.mark.parametrize("client", [*CLIENTS, by_aiohttp_in_all])
async def test_an_answer_that_does_not_come_in_time_leaves_it_open(client: Callable[[str], Awaitable[None]]) -> None:
    async with server(None) as url:
        assert leaves_open(await raised(client, url))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("resets", [False, True])
async def test_connection_broken_before_the_answer_leaves_it_open(
    client: Callable[[str], Awaitable[None]], resets: bool
) -> None:
    async with server(b"", resets=resets) as url:
        assert leaves_open(await raised(client, url))


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_that_is_cut_off_leaves_it_open(client: Callable[[str], Awaitable[None]]) -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as url:
        assert leaves_open(await raised(client, url))


@pytest.mark.parametrize("client", CLIENTS)
async def test_refused_connection_sent_no_request(client: Callable[[str], Awaitable[None]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not leaves_open(await raised(client, f"http://127.0.0.1:{free.getsockname()[1]}/"))


@pytest.mark.parametrize("client", CLIENTS)
async def test_unknown_host_name_sent_no_request(
    client: Callable[[str], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not leaves_open(await raised(client, "http://nowhere.invalid:80/"))


@pytest.mark.parametrize("client", [by_aiohttp, by_httpx, by_requests, by_urllib3, by_urllib3_with_retries])
async def test_connection_not_made_in_time_sent_no_request(client: Callable[[str], Awaitable[None]]) -> None:
    """A listener with a full backlog answers no connection."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        assert not leaves_open(await raised(client, f"http://127.0.0.1:{full.getsockname()[1]}/"))


@pytest.mark.parametrize("client", [by_aiohttp, by_httpx, by_requests, by_urllib3, by_urllib])
async def test_an_answer_that_refuses_is_no_doubt(client: Callable[[str], Awaitable[None]]) -> None:
    async with server(b"HTTP/1.1 402 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as url:
        assert not leaves_open(await raised(client, url))


def of_another(error: BaseException, how: str) -> Exception:
    try:
        try:
            raise error
        except type(error) as caught:
            if how == "from it":
                raise RuntimeError("no answer") from caught
            if how == "from nothing":
                raise RuntimeError("no answer") from None
            raise RuntimeError("no answer")  # noqa: B904 - as authors do
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(("how", "is_open"), [("from it", True), ("while handling it", True), ("from nothing", False)])
def test_authors_error_is_judged_by_its_cause(how: str, is_open: bool) -> None:
    assert leaves_open(of_another(httpx.ReadTimeout("slow"), how)) is is_open
    assert not leaves_open(of_another(httpx.ConnectError("refused"), how))


def test_refused_certificate_sent_no_request() -> None:
    refused = ssl.SSLCertVerificationError("self-signed certificate")
    within = urllib3.exceptions.MaxRetryError(
        urllib3.HTTPSConnectionPool("x"), "/", urllib3.exceptions.SSLError(refused)
    )
    assert not any(map(leaves_open, (refused, within, requests.exceptions.SSLError(within))))


def test_one_error_of_a_group_is_enough() -> None:
    assert leaves_open(ExceptionGroup("both", [ValueError(), TimeoutError()]))
    assert not leaves_open(ExceptionGroup("both", [ValueError(), ConnectionRefusedError()]))


def test_other_errors_are_no_doubt() -> None:
    assert not any(map(leaves_open, (ValueError(), OSError(2, "no such file"), FileNotFoundError(), KeyError("x"))))
    assert leaves_open(ssl.SSLError("broken"))
    assert leaves_open(requests.ConnectionError("of an adapter that says no more"))
