"""The chat page in a frame of a shop on another origin, in a real Chromium."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, FrameLocator, Page, expect

from gateway.web import serve
from tests.web.site import PIXEL, Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@dataclass
class Shop:
    """A site of another origin. `html` is its one page."""

    html: str = ""
    url: str = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async def page(request: web.Request) -> web.Response:
            return web.Response(text=f"<!doctype html><title>Shop</title>{self.html}", content_type="text/html")

        app = web.Application()
        app.router.add_get("/", page)
        running = await serve(app, "127.0.0.1", 0)
        self.url = f"http://localhost:{running.port}"
        try:
            yield
        finally:
            await running.cleanup()


def script(site: Site, token: str = "") -> str:
    return f'<script src="{site.url}/chat/embed.js" data-token="{token}" async></script>'


async def opened(page: Page) -> FrameLocator:
    await page.get_by_role("button", name="Agent").click()
    frame = page.frame_locator("iframe")
    await expect(frame.get_by_role("status")).to_have_text("Connected")
    return frame


async def says(frame: FrameLocator | Page, words: str) -> None:
    box = frame.get_by_role("textbox")
    await box.fill(words)
    await box.press("Enter")


async def test_a_site_shows_the_chat_of_its_person(context: BrowserContext, tmp_path: Path) -> None:
    site, shop = Site(), Shop()
    async with shop.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        shop.html = script(site, "token-of-bob")
        page = await context.new_page()
        await page.goto(shop.url)
        frame = await opened(page)
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_contain_text("INV-7, INV-42")
        assert [each.person for each in site.ran_for] == ["webchat:site:bob"]

        await page.reload()
        frame = await opened(page)
        await expect(frame.locator(".person .bubble")).to_have_text("list invoices")
        await frame.get_by_role("textbox").press("Escape")
        await expect(page.locator("iframe")).to_be_hidden()
        await expect(page.get_by_role("button", name="Agent")).to_be_focused()

        cookies = [each for each in await context.cookies() if each["name"].startswith("askfirst")]
        assert [(each["name"], each["sameSite"], each["secure"]) for each in cookies] == [
            ("askfirst_embedded", "None", True)
        ]
        assert "token-of-bob" not in " ".join(str(request.url) for request in site.requests)


async def test_another_token_shows_another_person(context: BrowserContext, tmp_path: Path) -> None:
    site, shop = Site(), Shop()
    async with shop.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        shop.html = script(site, "token-of-bob")
        page = await context.new_page()
        await page.goto(shop.url)
        frame = await opened(page)
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_contain_text("INV-7")

        await page.locator("script").evaluate("script => { script.dataset.token = 'token-of-eve'; }")
        await expect(frame.locator(".bubble")).to_have_count(0)
        await expect(frame.get_by_role("status")).to_have_text("Connected")
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_contain_text("INV-7")
        assert [each.person for each in site.ran_for] == ["webchat:site:bob", "webchat:site:eve"]

        await page.locator("script").evaluate("script => { script.dataset.token = ''; }")
        await expect(frame.locator(".bubble")).to_have_count(0)
        await expect(frame.get_by_role("status")).to_have_text("Connected")


async def test_a_framed_page_has_several_chats(context: BrowserContext, tmp_path: Path) -> None:
    site, shop = Site(), Shop()
    async with shop.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        shop.html = script(site, "token-of-bob")
        page = await context.new_page()
        await page.goto(shop.url)
        frame = await opened(page)
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_have_count(1)
        await frame.get_by_role("button", name="Chats").click()
        await frame.get_by_role("button", name="New chat").click()
        await expect(frame.locator(".bubble")).to_have_count(0)
        await expect(frame.get_by_role("status")).to_have_text("Connected")
        await says(frame, "what can you do?")
        await expect(frame.locator(".bot .bubble")).to_have_count(1)
        await frame.get_by_role("button", name="Chats").click()
        await expect(frame.locator("#listed .title")).to_have_text(["what can you do?", "list invoices"])
        await frame.get_by_role("link", name="list invoices").click()
        await expect(frame.locator(".person .bubble")).to_have_text("list invoices")


async def test_a_site_that_is_not_listed_gets_no_page(browser: Browser, tmp_path: Path) -> None:
    site, shop, evil = Site(), Shop(), Shop()
    async with shop.open(), evil.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        evil.html = script(site, "token-of-bob") + f'<iframe id="own" src="{site.url}/chat"></iframe>'
        context = await browser.new_context()
        refused: list[str] = []
        context.on("console", lambda said: refused.append(said.text))
        page = await context.new_page()
        await page.goto(evil.url)
        await page.get_by_role("button", name="Agent").click()
        async with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
            await page.locator("#own").evaluate("frame => { frame.src += '?embed'; }")
        assert not [frame.url for frame in page.frames if site.url in frame.url]
        await context.close()
    assert refused
    assert not [request for request in site.requests if request.method == "POST"]


HANDS = """<iframe title="chat" src="{page}"></iframe><iframe src="{advert}"></iframe><script>
addEventListener("message", ({{ source, data }}) => {{
  if (data.askfirst === "ready") source.postMessage({{ askfirst: "user", token: "token-of-bob" }}, "{bot}");
}});</script>"""
FORGES = "() => { for (const at of [0, 1]) parent[at].postMessage({ askfirst: 'user', token: 'token-of-eve' }, '*'); }"


async def test_a_token_of_another_window_is_not_taken(context: BrowserContext, tmp_path: Path) -> None:
    """A frame of an advertiser beside the chat cannot log its own person in, though its site is listed too."""
    site, shop, advert = Site(), Shop(), Shop()
    async with shop.open(), advert.open(), site.served(tmp_path, chat_origins=(shop.url, advert.url)):
        shop.html = HANDS.format(page=f"{site.url}/chat?embed", advert=advert.url, bot=site.url)
        page = await context.new_page()
        await page.goto(shop.url)
        frame = page.frame_locator("iframe[title]")
        await expect(frame.get_by_role("status")).to_have_text("Connected")
        [other] = [each for each in page.frames if each.url.startswith(advert.url)]
        await other.evaluate(FORGES)
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_contain_text("INV-7")
    assert [each.person for each in site.ran_for] == ["webchat:site:bob"]
    assert "token-of-eve" not in {each.headers.get("X-Askfirst-User") for each in site.requests}


async def test_a_framed_page_shows_pictures(context: BrowserContext, tmp_path: Path) -> None:
    site, shop = Site(), Shop()
    async with shop.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        shop.html = script(site, "token-of-bob")
        page = await context.new_page()
        await page.goto(shop.url)
        frame = await opened(page)
        await frame.locator("#file").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL})
        await says(frame, "see")
        picture = frame.locator('.person img[alt="dot.png"]')
        await expect(picture).to_have_js_property("naturalWidth", 1)


async def test_without_a_token_the_visitor_is_anonymous(context: BrowserContext, tmp_path: Path) -> None:
    site, shop = Site(), Shop()
    async with shop.open(), site.served(tmp_path, chat_origins=(shop.url,)):
        shop.html = script(site)
        page = await context.new_page()
        await page.goto(shop.url)
        frame = await opened(page)
        await says(frame, "list invoices")
        await expect(frame.locator(".bot .bubble")).to_contain_text("INV-7")
    [ran] = site.ran_for
    assert ran.person.startswith("webchat:local:")
