"""A faulty ASKFIRST_STORE: refused at the start, with the remedy, and without a secret in the message."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import RedisTimings
from gateway.store.types import Incoming
from tests.store.redis_server import RedisServer, tls_front

SECRET = "very-secret"
MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost -keyout key.pem -out ca.pem"
)


@dataclass(frozen=True)
class Tls:
    """A port for TLS in front of a server's plain port. The certificate is for localhost and self-signed."""

    plain: RedisServer
    port: int
    ca: Path
    context: ssl.SSLContext

    def url(self, host: str = "localhost", *, scheme: str = "rediss", path: str = "", **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{scheme}://:{SECRET}@{host}:{self.port}{path}{'?' if query else ''}{query}"


async def ran(*command: str | Path, cwd: Path) -> int:
    """Return the exit code."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=quiet, stderr=quiet, stdin=quiet)
    return await process.wait()


@pytest.fixture
async def tls(server: RedisServer, tmp_path: Path) -> AsyncIterator[Tls]:
    assert shutil.which("openssl"), "there is no openssl, which makes the certificate: install it"
    assert await ran(*MAKE.split(), cwd=tmp_path) == 0
    ca = tmp_path / "ca.pem"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    context.load_cert_chain(ca, tmp_path / "key.pem")
    async with tls_front(server.url, context) as port:
        yield Tls(server, port, ca, context)


async def refusal(url: str, timings: RedisTimings | None = None) -> str:
    """Return the reason against opening."""
    with pytest.raises((StoreRefused, StoreUnavailable)) as caught:
        await asyncio.wait_for(RedisStore(url, timings=timings).open(), 15)
    assert SECRET not in str(caught.value)
    assert "ASKFIRST_STORE" in str(caught.value)
    return str(caught.value)


# ───────────── invalid addresses ─────────────


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@127.0.0.1:6379/one",  # redis-py would take database 0
        f"redis://:{SECRET}@127.0.0.1:6379/-1",
        f"redis://:{SECRET}@127.0.0.1:6379/0/1",
        f"redis://:{SECRET}@127.0.0.1:6379/9999999999",
        f"redis://:{SECRET}@127.0.0.1:6379/0#1",
        f"redis://:{SECRET}@127.0.0.1:0",
        f"redis://:{SECRET}@127.0.0.1:65536",
        f"redis://:1/{SECRET}@127.0.0.1:6379",  # a password with a slash
        f"redis://:1#{SECRET}@127.0.0.1:6379",
        f"redis://:1?{SECRET}@127.0.0.1:6379",
    ],
)
async def test_invalid_address_is_refused(url: str) -> None:
    assert "is no address: write redis://" in await refusal(url)


@pytest.mark.parametrize(
    "options", ["decode_responses=true", "socket_timeout=60", "db=1", "ssl_ca_certs=/ca.pem", "x="]
)
async def test_options_are_for_tls(options: str) -> None:
    assert "has options, which are for TLS" in await refusal(f"redis://:{SECRET}@127.0.0.1:6379?{options}")


@pytest.mark.parametrize(
    "options",
    [
        "socket_timeout=60",
        f"password={SECRET}",
        "ssl_ca_data=x",
        "ssl_ca_certs=",
        "ssl_cert_reqs=CERT_NONE",
        "ssl_check_hostname=perhaps",
        "ssl_cert_reqs=required&ssl_cert_reqs=none",
    ],
)
async def test_unknown_tls_option_is_refused(options: str) -> None:
    told = await refusal(f"rediss://:{SECRET}@127.0.0.1:6379?{options}")
    assert "there are ssl_ca_certs, " in told


# ───────────── addresses of another server or database ─────────────


@pytest.mark.parametrize("number", [16, 999_999_999])
async def test_missing_database_is_refused(server: RedisServer, number: int) -> None:
    told = await refusal(f"{server.url.replace('//', f'//:{SECRET}@')}/{number}")
    assert "no database of that number" in told


async def test_each_database_is_one_of_its_own(server: RedisServer) -> None:
    stores = [RedisStore(f"{server.url}{path}", ack_seconds=15) for path in ("", "/", "/0", "/15")]
    for store in stores:
        await store.open()
    await stores[0].accept([Incoming(conversation="c", event_ids=(), body={})])
    assert [(await store.stats()).waiting for store in stores] == [1, 1, 1, 0]
    for store in stores:
        await store.close()


async def test_unknown_or_forbidden_user_is_refused(server: RedisServer) -> None:
    await server.command("ACL", "SETUSER", "reads", "on", f">{SECRET}", "~*", "+@read", "+info")
    for user in ("nobody", "reads"):
        told = await refusal(server.url.replace("//", f"//{user}:{SECRET}@"))
        assert "user or password, or does not let that user do this" in told


async def test_server_that_is_no_redis_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        assert "see whether it is a Redis at all" in await refusal(f"redis://:{SECRET}@127.0.0.1:{port}")


async def test_port_without_a_listener_is_refused() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for scheme in ("redis", "rediss"):
            told = await refusal(f"{scheme}://:{SECRET}@127.0.0.1:{nobody.getsockname()[1]}")
            assert "cannot be reached: see whether it runs" in told


# ───────────── TLS ─────────────


async def test_tls_with_a_ca_of_the_address_works(tls: Tls, caplog: pytest.LogCaptureFixture) -> None:
    await tls.plain.command("CONFIG", "SET", "requirepass", SECRET)
    store = RedisStore(tls.url(path="/3", ssl_ca_certs=tls.ca), ack_seconds=15)
    await store.open()
    waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=60))
    await store.ping()
    await store.accept([Incoming(conversation="c", event_ids=(), body={})])
    assert await asyncio.wait_for(waiting, 15) is not None
    await store.close()
    assert caplog.record_tuples == []


async def test_server_wanting_a_client_certificate_is_told(tls: Tls) -> None:
    tls.context.verify_mode = ssl.CERT_REQUIRED
    told = await refusal(tls.url(ssl_ca_certs=tls.ca))
    # The reason comes after the handshake, and may be overtaken by the end of the connection.
    assert "TLS with it fails (" in told or "ssl_certfile=" in told
    key = tls.ca.with_name("key.pem")
    store = RedisStore(tls.url(ssl_ca_certs=tls.ca, ssl_certfile=tls.ca, ssl_keyfile=key), ack_seconds=15)
    await store.open()
    await store.close()


async def test_untrusted_certificate_is_refused(tls: Tls, caplog: pytest.LogCaptureFixture) -> None:
    told = await refusal(tls.url())
    assert "not trusted (self-signed certificate): name" in told
    assert "?ssl_ca_certs=/path/to/ca.pem" in told
    for option in ({"ssl_cert_reqs": "none"}, {"ssl_ca_certs": tls.ca, "ssl_check_hostname": "false"}):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            store = RedisStore(tls.url(**option), ack_seconds=15)
            await store.open()
            await store.close()
        assert "Redis need not prove that it is the one" in caplog.text


async def test_certificate_for_another_host_is_refused(tls: Tls) -> None:
    told = await refusal(tls.url("127.0.0.1", ssl_ca_certs=tls.ca))
    assert "not valid for '127.0.0.1'" in told


async def test_invalid_ca_file_is_refused(tls: Tls) -> None:
    assert "a file that ASKFIRST_STORE names" in await refusal(tls.url(ssl_ca_certs=tls.ca.with_name("none.pem")))
    told = await refusal(tls.url(ssl_ca_certs=tls.ca.with_name("key.pem")))
    assert "TLS with it fails (" in told
    assert "the files that ASKFIRST_STORE names" in told


async def test_plain_address_for_a_tls_port_is_refused(tls: Tls) -> None:
    assert "if its port takes TLS, write rediss://" in await refusal(tls.url(scheme="redis"))


async def test_tls_address_for_a_plain_port_is_refused(server: RedisServer) -> None:
    """Redis waits for the end of the supposed command: the handshake is never answered."""
    url = server.url.replace("redis://", f"rediss://:{SECRET}@")
    told = await refusal(url, RedisTimings(work_seconds=0.3))
    assert "did not answer in time: see that its port takes TLS, or write redis://" in told
