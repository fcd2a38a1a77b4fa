"""The tool `http_get`: pages of hosts allowed by the author, from public addresses only."""

from __future__ import annotations

import asyncio
import codecs
import html
import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from gateway.tools import Tool, ToolFailed

_CHARSET: Final = re.compile(
    r"ascii|utf-(8|8-sig|16|16-le|16-be|32|32-le|32-be)|iso8859-\d+|cp(125\d|437|850|852|874|866|932|949)|koi8-[ru]|mac-(roman|cyrillic)|gb(k|2312|18030)|big5(hkscs)?|tis-620|johab"
    r"|euc_(jp|kr)|shift_jis|iso2022_jp"
)
"""The charsets of the web: https://encoding.spec.whatwg.org."""
_MOST_BYTES: Final = 1_000_000
_SECONDS: Final = 15.0
_MOST_REDIRECTS: Final = 5
_NOT_PUBLIC: Final = [ip_network(network) for network in ("192.0.0.0/24", "64:ff9b::/96", "64:ff9b:1::/48", "::/96")]
"""Networks counted as public by some releases of Python.

These are networks of protocols (RFC 6890) and of translations to IPv4 (RFC 6052, RFC 8215, RFC 4291 2.5.5.1), with
private addresses behind.
"""
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/rss+xml")


def http_get(allowed_hosts: Sequence[str], *, private_networks: bool = False) -> Tool:
    """Return a tool for reading pages of these hosts: ``example.org`` or ``*.example.org``.

    Redirects are followed to allowed hosts only. A host with a non-public address is refused, unless `private_networks`
    is True. A page has at most 1 MB of text, and takes 15 seconds at most. The result is screened. Raises ValueError
    for a list without hosts.
    """
    hosts = [host.lower() for host in allowed_hosts if isinstance(host, str)]
    if isinstance(allowed_hosts, str) or not hosts or any("/" in host or not host.strip("*.") for host in hosts):
        raise ValueError(f"allowed_hosts is a list of hosts such as example.org, not {allowed_hosts!r}")

    async def http_get(url: str) -> str:
        """Read a page on the web.

        Args:
            url: The address of the page, with https:// in front.
        """
        connector = aiohttp.TCPConnector(resolver=_Resolver(private_networks), use_dns_cache=False)
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
                return await _read(session, _checked(url, hosts, private_networks), hosts, private_networks)
        except TimeoutError:
            raise ToolFailed(f"the page did not come within {_SECONDS:g} seconds") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolFailed(f"the page cannot be read: {type(error).__name__}") from None

    return Tool(
        http_get,
        description=f"Read a page on the web. Hosts that may be read: {', '.join(hosts)}.",
        read_only=True,
        screen_output=True,
        timeout_seconds=_SECONDS + 5,
    )


async def _read(session: aiohttp.ClientSession, url: URL, hosts: Sequence[str], private_networks: bool) -> str:
    for _ in range(_MOST_REDIRECTS + 1):
        async with session.get(url, allow_redirects=False) as response:
            if response.status in (301, 302, 303, 307, 308) and (to := response.headers.get("Location")):
                url = _checked(str(url.join(URL(to))), hosts, private_networks)
                continue
            if response.status >= 400:
                raise ToolFailed(f"the server answered {response.status}")
            kind = response.content_type
            if not kind.startswith(_TEXTS):
                raise ToolFailed(f"the page is no text but {kind[:60]}")
            body = await _body(response)
            text = body.decode(_encoding(response.charset), "replace")
            return await _text_of(text) if "html" in kind else text
    raise ToolFailed(f"the page leads on more than {_MOST_REDIRECTS} times")


def _encoding(charset: str | None) -> str:
    """Return the codec of a page. Other codecs of Python, such as punycode, take minutes or are no charset."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _CHARSET.fullmatch(name) else "utf-8"


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ToolFailed(f"the page has more than {_MOST_BYTES} bytes")
    return bytes(body)


def _checked(given: str, hosts: Sequence[str], private_networks: bool) -> URL:
    """Return a permitted address. Raises ToolFailed for another address."""
    try:
        url = URL(given)
        host = (url.host or "").rstrip(".").lower()
    except ValueError:
        raise ToolFailed("this is no address of a page") from None
    if url.scheme not in ("http", "https") or not host or url.user is not None:
        raise ToolFailed("give an address like https://example.org/page, without a name or a password")
    if not any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in hosts):
        raise ToolFailed(f"{host[:100]} may not be read, only {', '.join(hosts)}")
    if not private_networks and _is_private(host):
        raise ToolFailed(f"{host[:100]} is no public address")
    return url


def _is_private(address: str) -> bool:
    """Return True for a non-public IP address, and False for a name."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None)
    if mapped is not None and _is_private(str(mapped)):
        return True
    return not parsed.is_global or parsed.is_multicast or any(parsed in network for network in _NOT_PUBLIC)


class _Resolver(AbstractResolver):
    """A resolver for public addresses only. The connection goes to a resolved address."""

    def __init__(self, private_networks: bool) -> None:
        self._private_networks = private_networks
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.wait_for(self._system.resolve(host, port, family), _SECONDS)
        if not self._private_networks and any(_is_private(each["host"]) for each in found):
            raise OSError("the name leads to an address that is not public")
        return found

    async def close(self) -> None:
        await self._system.close()


_BLOCKS: Final = frozenset({"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article"})
_LEFT_OUT: Final = frozenset({"script", "style", "template", "noscript", "svg"})
_NEXT: Final = re.compile(r"<!--|<[!?]|<(?P<ends>/?)(?P<tag>[A-Za-z][^\s/>]{0,30})|<|[^<]+")
_TAG_END: Final = re.compile(r"""(?:[^"'>]|"[^"]*"|'[^']*')*+>""")
_LONG_NUMBER: Final = re.compile(r"&#x?[0-9A-Fa-f]{8,};?")
_MOST_STEPS: Final = 10_000
"""The number of steps between pauses for other work of the loop: some milliseconds."""
_MOST_AT_ONCE: Final = 16_384
"""The number of characters for reading entities and lines without a break."""


async def _text_of(page: str) -> str:
    """Return the text of an HTML page, without scripts and styles.

    Each character is looked at twice at most, on any page: html.parser takes minutes for unfinished tags. An unfinished
    tag or comment hides the rest of the page.
    """
    parts: list[str] = []
    lines: list[str] = []
    at, steps, has_quotes = 0, 0, True
    while at < len(page) and (found := _NEXT.match(page, at)):
        steps, at = steps + 1, found.end()
        if steps % _MOST_STEPS == 0:
            await asyncio.sleep(0)
        if found[0] == "<!--":
            at = _behind(page, "-->", at)
        elif found["tag"] or found[0] in ("<!", "<?"):
            closed = _TAG_END.match(page, at) if has_quotes else None
            has_quotes = closed is not None
            at = closed.end() if closed is not None else _behind(page, ">", at)
            tag = (found["tag"] or "").lower()
            if tag in _LEFT_OUT and not found["ends"]:
                ended = re.compile(f"</{tag}", re.IGNORECASE).search(page, at)
                at = ended.start() if ended is not None else len(page)
            elif tag in _BLOCKS:
                parts.append("\n")
        else:
            parts.append(found[0])
    text, at = "".join(parts), 0
    while at < len(text):
        end = at + _MOST_AT_ONCE
        if end < len(text):
            end = text.rfind("\n", at, end) + 1 or text.rfind(" ", at, end) + 1 or end
        piece = html.unescape(_LONG_NUMBER.sub("\ufffd", text[at:end]))
        lines += filter(None, (" ".join(line.split()) for line in piece.splitlines()))
        at = end
        await asyncio.sleep(0)
    return "\n".join(lines)


def _behind(page: str, end: str, at: int) -> int:
    """Return the place behind the next `end`, or the end of the page."""
    found = page.find(end, at)
    return len(page) if found < 0 else found + len(end)
