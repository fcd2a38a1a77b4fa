"""Tests of `verify`: only requests with the platform's proof are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import cycle

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from yarl import URL

from channels import Channel, Forged, Stale, WebhookRequest
from gateway.testing.channel_contract.case import ChannelCase, Webhook
from gateway.testing.channel_contract.helpers import NOW, Contract, WebServer, any_input, webhook_test, with_proof
from gateway.web.limits import MAX_BODY_BYTES

_WEEK_SECONDS = 7 * 86400.0
_ODD = ("é", "\udcff", "\ud800", "\0", "9" * 5_000, "nan", "-1", "١٢٣", "=", "A" * 100_000, "\udc80" * 100)
_ODD_BYTES = (b"\xff\xfe", b"\xc3\xa9", bytes(range(0x80, 0x100)), b"\t", b"\x01" * 10, b"=" * 1_000)
_TEXT = st.text(st.characters(categories=None), max_size=60)
_HEADERS = ("content-type", "content-length", "host", "user-agent", "accept-language", "x-forwarded-for")


class VerifyContract(Contract):
    @webhook_test
    async def test_request_with_the_platforms_proof_is_accepted(self, webhook: Webhook, channel: Channel) -> None:
        assert webhook.deliveries, "the case names no delivery"
        for delivery in webhook.deliveries:
            for attempt in (1, 2):
                channel.verify(with_proof(webhook, delivery.request, NOW, attempt), NOW)

    @webhook_test
    async def test_without_the_whole_proof_it_is_forged(self, webhook: Webhook, channel: Channel) -> None:
        assert webhook.proof, "the case names no header of the proof"
        request = with_proof(webhook, webhook.deliveries[0].request)
        check_refused(channel, replace(request, headers={}), "no header at all")
        for name in webhook.proof:
            check_refused(channel, without_header(request, name), f"no {name}")
            for how, value in spoiled_values(request.headers[name]):
                check_refused(channel, with_headers(request, {name: value}), f"{name}: {how}")

    @webhook_test
    async def test_refusal_shows_no_secret(self, case: ChannelCase, webhook: Webhook, channel: Channel) -> None:
        request = with_proof(webhook, webhook.deliveries[0].request)
        for name in webhook.proof:
            value = request.headers[name]
            with pytest.raises((Forged, Stale)) as caught:
                channel.verify(with_headers(request, {name: value[:-1]}), NOW)
            shown = f"{caught.value!r} {caught.value.__cause__!r}"
            assert not any(secret in shown for secret in (*case.settings.values(), value[:-1]) if len(secret) >= 8)

    @webhook_test
    async def test_the_proof_is_of_one_body_or_the_case_says_not(self, webhook: Webhook, channel: Channel) -> None:
        for delivery in webhook.deliveries:
            request = with_proof(webhook, delivery.request)
            channel.verify(request, NOW)
            for body in (b"", request.body[:-1], request.body[1:], request.body + b"x", b"{}"):
                if webhook.covers_body:
                    check_refused(channel, replace(request, body=body), f"{delivery.name} with another body")
                else:
                    channel.verify(replace(request, body=body), NOW)

    @webhook_test
    async def test_a_proof_ends_and_does_not_begin_in_the_future(self, webhook: Webhook, channel: Channel) -> None:
        """A proof without a time holds for ever, so the ids of the events must be kept for long."""
        request = with_proof(webhook, webhook.deliveries[0].request)
        if webhook.window_seconds is None:
            channel.verify(request, NOW + timedelta(days=3650))
            assert channel.capabilities.keep_seconds >= _WEEK_SECONDS
            return
        after, before = webhook.window_seconds
        for seconds in (after - 1, 1 - before, 0):
            channel.verify(request, NOW + timedelta(seconds=seconds))
        for seconds in (after + 2, -before - 2, after + 86400.0 * 365, -before - 86400.0 * 365):
            with pytest.raises(Stale):
                channel.verify(request, NOW + timedelta(seconds=seconds))
        assert channel.capabilities.keep_seconds >= min(after, _WEEK_SECONDS)

    @any_input
    @given(
        of=st.integers(0, 999),
        spoil=st.lists(st.tuples(st.booleans(), st.integers(0, 99), _TEXT), min_size=1, max_size=4),
        headers=st.dictionaries(st.sampled_from(_HEADERS) | _TEXT, _TEXT, max_size=3),
        method=st.sampled_from(["POST", "GET", ""]),
        url=st.none() | _TEXT,
        body=st.none() | st.binary(max_size=300),
    )
    @webhook_test
    async def test_random_bytes_are_refused_as_forged_or_stale(
        self,
        webhook: Webhook,
        channel: Channel,
        of: int,
        spoil: list[tuple[bool, int, str]],
        headers: dict[str, str],
        method: str,
        url: str | None,
        body: bytes | None,
    ) -> None:
        """Random text in every header and in the URL, random bytes in the body.

        Some proofs are right but for a few characters, so the check gets further than with random text.
        """
        true = with_proof(webhook, webhook.deliveries[of % len(webhook.deliveries)].request)
        wrong: dict[str, str] = {}
        for name, (near, at, text) in zip(webhook.proof, cycle(spoil), strict=False):
            wrong[name] = _overwritten(true.headers[name], at, text) if near else text
        if any(value.strip() == true.headers[name] for name, value in wrong.items()):
            return
        kept = {name: value for name, value in headers.items() if name not in wrong}
        check_refused(
            channel,
            WebhookRequest(
                method or true.method,
                true.url if url is None else url,
                {**true.headers, **kept, **wrong},
                true.body if body is None else body,
            ),
            "random",
        )

    # ── through the gateway's own web server ──

    @webhook_test
    async def test_a_delivery_comes_in_over_http_and_is_answered(self, webhook: Webhook, web_server: WebServer) -> None:
        async with aiohttp.ClientSession() as http:
            for delivery in webhook.deliveries:
                request = with_proof(webhook, delivery.request)
                web_server.stored.clear()
                url = url_at(web_server, request)
                async with http.post(url, data=request.body, headers=request.headers) as response:
                    body = await response.read()
                    expected = delivery.parsed.response
                    assert (response.status, body) == (expected.status, expected.body), delivery.name
                    for name, value in expected.headers.items():
                        assert response.headers.get(name) == value, delivery.name
                assert [(p.events, p.not_understood) for p in web_server.stored] == [
                    (delivery.parsed.events, delivery.parsed.not_understood)
                ], delivery.name

    @webhook_test
    async def test_odd_bytes_in_any_header_are_no_fault_of_ours(
        self, webhook: Webhook, web_server: WebServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        request = with_proof(webhook, webhook.deliveries[0].request)
        for name in {*request.headers, *_HEADERS} - {"content-length"}:
            for odd in _ODD_BYTES:
                status = await posted(web_server, request, {name: odd})
                asked = f"{name}: {odd[:20]!r}"
                assert status in ((400, 401) if name in webhook.proof else (200, 400, 401)), f"{asked}: {status}"
        for name in webhook.proof:
            value = request.headers[name].encode()
            assert await posted(web_server, request, {name: b""}) in (400, 401)
            assert await posted(web_server, request, {name: value + b", " + value}) in (400, 401)
            doubled = value + b"\r\n" + name.encode() + b": " + value
            assert await posted(web_server, request, {name: doubled}) in (400, 401), f"{name} twice"
        assert [record.getMessage() for record in caplog.records if "broke its contract" in record.message] == []

    @webhook_test
    async def test_too_large_or_packed_body_is_refused_before_it_is_read(
        self, webhook: Webhook, web_server: WebServer
    ) -> None:
        request = with_proof(webhook, webhook.deliveries[0].request)
        large = request.body + b" " * MAX_BODY_BYTES
        async with aiohttp.ClientSession() as http:
            for body, more, status in ((large, {}, 413), (request.body, {"content-encoding": "gzip"}, 415)):
                headers = CIMultiDict({**request.headers, **more})
                async with http.post(url_at(web_server, request), data=body, headers=headers) as response:
                    assert response.status == status
        assert web_server.stored == []


def check_refused(channel: Channel, request: WebhookRequest, what: str) -> None:
    """Check that `verify` raises Forged or Stale. Any other error is passed on."""
    try:
        channel.verify(request, NOW)
    except (Forged, Stale):
        return
    pytest.fail(f"let in: {what}")


def spoiled_values(value: str) -> Iterator[tuple[str, str]]:
    """Yield wrong values of the proof, each with a name for the fault."""
    middle = len(value) // 2
    yield "empty", ""
    yield "cut", value[:-1]
    yield "longer", f"{value}x"
    yield "wrong", f"{value[:middle]}{'a' if value[middle] != 'a' else 'b'}{value[middle + 1 :]}"
    yield "twice", f"{value}, {value}"
    if value.swapcase() != value:
        yield "another case", value.swapcase()
    for odd in _ODD:
        yield f"odd {odd[:8]!r}", odd
        yield f"odd {odd[:8]!r} at its end", value + odd
        yield f"odd {odd[:8]!r} within", value[:middle] + odd + value[middle:]


def with_headers(request: WebhookRequest, headers: Mapping[str, str]) -> WebhookRequest:
    return replace(request, headers={**request.headers, **headers})


def without_header(request: WebhookRequest, name: str) -> WebhookRequest:
    return replace(request, headers={k: v for k, v in request.headers.items() if k != name})


def _overwritten(value: str, at: int, text: str) -> str:
    """Return the value with a part overwritten by a text."""
    at %= len(value)
    return (value[:at] + text)[: len(value)] + value[at + len(text) :]


def url_at(web_server: WebServer, request: WebhookRequest) -> str:
    """Return the URL of the web server with the path and query of the request."""
    return web_server.url + URL(request.url).raw_path_qs


async def posted(web_server: WebServer, request: WebhookRequest, headers: Mapping[str, bytes]) -> int:
    """Post a request with these bytes in the headers, impossible for an HTTP client; return the status."""
    url = URL(web_server.url)
    lines = {name: value.encode() for name, value in {"host": url.authority, **request.headers}.items()}
    lines |= {**headers, "content-length": str(len(request.body)).encode(), "connection": b"close"}
    head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        path = URL(request.url).raw_path_qs.encode()
        writer.write(b"POST " + path + b" HTTP/1.1\r\n" + head + b"\r\n" + request.body)
        answer = await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
