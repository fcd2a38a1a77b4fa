"""The chat page in a frame of other sites: cookies, origins, tokens, and the looks by setting."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from channels import MissingSetting
from channels.webchat import COOKIE
from gateway import Settings
from gateway.web.chat_theme import Theme, contrast
from tests.web.site import PIXEL, SHOP, Site, Visitor

LOCAL = "http://localhost:3000"
TOKEN = "token-of-ana"
FRAMED, HOST_FRAMED = "askfirst_embedded", "__Host-askfirst_embedded"


@pytest.fixture
def site() -> Site:
    return Site()


async def test_listed_sites_alone_frame_the_page(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path, chat_origins=(SHOP, LOCAL)), Visitor(site, "ana") as ana:
        for path in ("/chat", "/chat?embed", "/chat/chat.css"):
            page = await ana.opens(path)
            assert page.headers["Content-Security-Policy"].endswith(f"frame-ancestors {LOCAL} {SHOP}")
        assert "SameSite=Strict" in (await ana.opens()).headers["Set-Cookie"], "a page of its own"


@pytest.mark.parametrize(("public_url", "name"), [(None, FRAMED), ("https://127.0.0.1", HOST_FRAMED)])
async def test_a_framed_page_has_a_cookie_for_its_site_alone(
    site: Site, tmp_path: Path, public_url: str | None, name: str
) -> None:
    settings: dict[str, Any] = {"public_url": public_url} if public_url else {}
    async with site.served(tmp_path, chat_origins=(SHOP,), **settings), Visitor(site, token=TOKEN) as ana:
        headers = {"Host": "127.0.0.1", "Origin": public_url or "http://127.0.0.1"}
        for framed in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Dest": ""}):
            async with ana.http.get("/chat?embed", headers={**framed, "X-Askfirst-User": ""}) as page:
                assert page.status == 200
        asked = len(site.requests)
        async with ana.http.post("/chat/session", json={}, headers=headers) as response:
            cookie = response.headers["Set-Cookie"]
        assert re.fullmatch(
            rf"{name}=[\w-]+\.\d+\.YW5h\.[\w-]+; Max-Age=\d+; Path=/; HttpOnly; SameSite=None; Secure; Partitioned",
            cookie,
        )
        assert len(site.requests) == asked + 1
        sent = {**headers, "Cookie": cookie.partition(";")[0]}
        body = {"client_id": "abcdefgh", "text": "list invoices"}
        async with ana.http.post("/chat/messages", json=body, headers=sent) as response:
            assert response.status == 200
        async with ana.http.get("/chat/chats", headers=sent) as response:
            assert response.status == 200
        async with ana.http.post("/chat/session", json={}, headers=sent) as response:
            assert response.headers["Set-Cookie"].split(".")[0] == cookie.split(".")[0], "a reload goes on"


async def test_cookies_of_page_and_frame_are_apart(site: Site, tmp_path: Path) -> None:
    async with (
        site.served(tmp_path, chat_origins=(SHOP,)),
        Visitor(site, token=TOKEN) as framed,
        Visitor(site) as alone,
    ):
        assert await framed.posts("session") == 200
        assert await framed.says("hello") == 200
        [cookie] = list(framed.http.cookie_jar)
        assert cookie.key == FRAMED
        alone.http.cookie_jar.update_cookies({FRAMED: cookie.value, COOKIE: cookie.value})
        assert await alone.says("hello") == 401, "without the header it is no framed page, and nobody is logged in"


async def test_another_token_is_another_session(site: Site, tmp_path: Path) -> None:
    async with site.served(tmp_path, chat_origins=(SHOP,)), Visitor(site, token=TOKEN) as visitor:
        assert await visitor.posts("session") == 200
        await visitor.says("my secret")
        visitor.http.headers["X-Askfirst-User"] = "token-of-eve"
        assert await visitor.says("hello") == 401
        visitor.http.headers["X-Askfirst-User"] = TOKEN
        assert await visitor.says("hello") == 401, "it has ended for good"
        assert await visitor.posts("session") == 200
        assert [each["title"] for each in await visitor.chats()] == ["my secret"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": LOCAL}, 200),
        ({"Origin": SHOP, "Content-Type": "text/plain"}, 401),
        ({"Origin": SHOP, "Content-Type": "application/x-www-form-urlencoded"}, 401),
        ({"Origin": "https://shop.example.evil.example"}, 401),
        ({"Origin": "https://sub.shop.example"}, 401),
        ({"Origin": "http://shop.example"}, 401),
        ({"Origin": f"{SHOP}:444"}, 401),
        ({"Origin": f"{SHOP}/"}, 401),
        ({"Origin": "null"}, 401),
        ({"Origin": ""}, 401),
        ({"Origin": "https://evil.example"}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
    ],
    ids=str,
)
async def test_posts_of_listed_origins_alone_are_taken(
    site: Site, tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with site.served(tmp_path, chat_origins=(SHOP, LOCAL)), Visitor(site, token=TOKEN) as ana:
        assert await ana.posts("session") == 200
        typed = {"Content-Type": "application/json", **headers}
        for path, said in (("messages", b'{"client_id": "abcdefgh", "text": "hello"}'), ("session", b"{}")):
            async with ana.http.post(f"/chat/{path}", data=said, headers=typed) as response:
                assert response.status == status
                assert "Access-Control-Allow-Origin" not in response.headers
        async with ana.http.options("/chat/messages", headers=typed) as response:
            assert response.status == 405, "no script of another origin gets through"


async def test_a_token_is_written_nowhere(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with site.served(tmp_path, chat_origins=(SHOP,)), Visitor(site, token=TOKEN) as ana:
        assert await ana.posts("session") == 200
        await ana.says("list invoices")
        await ana.reads(2)
        await ana.posts("messages", text=7)
        await ana.says("hello", "wrong")
        site.fails = ValueError(TOKEN)
        await ana.says("hello")
    assert TOKEN not in caplog.text
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert written and not [file.name for file in written if TOKEN.encode() in file.read_bytes()]


async def test_the_script_is_for_every_site_and_has_the_looks(site: Site, tmp_path: Path) -> None:
    looks: dict[str, Any] = {"chat_title": 'Ask "us" </script>', "chat_color": "#fd0"}
    async with site.served(tmp_path, chat_origins=(SHOP,), **looks), Visitor(site) as stranger:
        response = await stranger.opens("/chat/embed.js")
        script = await response.text()
    assert response.content_type == "text/javascript"
    assert response.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert "{{" not in script and "Set-Cookie" not in response.headers
    assert '?? "Ask \\"us\\" </script>";' in script and 'background: ${"#ffdd00"}; color: ${"#000000"}' in script


ORIGINS = ["*", "https://*.shop.example", f"{SHOP}/", f"{SHOP}/chat", "http://shop.example", "shop.example"]
ORIGINS += [f"{SHOP}:443", "https://Shop.example", "https://a@shop.example", "https://shop.example;x", "null"]


@pytest.mark.parametrize("wrong", [*ORIGINS, "http://localhost.evil.example", f"{SHOP},*", "https://shöp.example"])
def test_origins_that_are_not_exact_stop_the_start(wrong: str) -> None:
    with pytest.raises(MissingSetting, match=r"^ASKFIRST_CHAT_ORIGINS: .*https://shop\.example"):
        Settings(chat_origins=wrong)


def test_exact_origins_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_CHAT_ORIGINS", f"{SHOP}, https://a.b-c.example:8443,http://127.0.0.1:1")
    assert Settings().chat_origins == (SHOP, "https://a.b-c.example:8443", "http://127.0.0.1:1")
    monkeypatch.setenv("ASKFIRST_CHAT_ORIGINS", "")
    assert Settings().chat_origins == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat_title", "x" * 61),
        ("chat_title", "two\nlines"),
        ("chat_color", "green"),
        ("chat_color", "#12345"),
        ("chat_color", "#123456; } body { display: none"),
        ("chat_logo", "http://shop.example/logo.png"),
        ("chat_logo", "https://shop.example/logo.png; script-src *"),
        ("chat_logo", "javascript://x"),
        ("chat_logo", "/no/such/secret.png"),
        ("chat_logo", __file__),
    ],
)
def test_looks_of_another_form_stop_the_start(name: str, value: str) -> None:
    with pytest.raises(MissingSetting, match=f"^ASKFIRST_{name.upper()}: (write|there should be)") as refused:
        Settings(**{name: value})
    assert value not in str(refused.value)


async def test_a_logo_of_a_file_or_of_another_host_is_shown(site: Site, tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PIXEL)
    looks: dict[str, Any] = {
        "chat_title": "Shop & Co",
        "chat_logo": str(tmp_path / "logo.png"),
        "chat_color": "#0b5fff",
    }
    async with site.served(tmp_path, **looks), Visitor(site) as visitor:
        page = await (await visitor.opens()).text()
        assert '<img class="mark" src="chat/logo" alt="">' in page
        assert "<title>Shop &amp; Co</title>" in page and "<h1>Shop &amp; Co</h1>" in page
        async with visitor.http.get("/chat/logo") as logo:
            assert (await logo.read(), logo.content_type) == (PIXEL, "image/png")
            assert logo.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "--accent: #0b5dfa; --accent-text: #ffffff" in await (await visitor.opens("/chat/theme.css")).text()

    elsewhere = "https://cdn.shop.example/logo.svg"
    async with site.served(tmp_path, chat_logo=elsewhere), Visitor(site) as visitor:
        shown = await visitor.opens()
        assert f'<img class="mark" src="{elsewhere}" alt="">' in await shown.text()
        assert f"img-src 'self' {elsewhere};" in shown.headers["Content-Security-Policy"]
        assert (await visitor.opens("/chat/logo")).status == 404


SURFACES = {"light": ("#ffffff", "#f1f0eb"), "dark": ("#1b1c1a", "#2a2c28")}


def rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


@pytest.mark.parametrize("colour", ["#fff", "#000", "#fd0", "#777777", "#0b5fff", "#7fcdb4", "#b3261e", "#00ff00"])
def test_every_colour_stays_readable(colour: str) -> None:
    theme = Theme(colour=colour)
    light, dark = re.findall(r"--accent: (#\w{6}); --accent-text: (#\w{6});", theme.css)
    for (accent, text), surfaces in zip((light, dark), SURFACES.values(), strict=True):
        assert contrast(rgb(accent), rgb(text)) >= 4.5
        assert all(contrast(rgb(accent), rgb(surface)) >= 4.5 for surface in surfaces)
    assert contrast(rgb(theme.fill), rgb(theme.on_fill)) >= 4.5
    assert Theme().css == ""
