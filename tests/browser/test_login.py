"""The chat page of a site with logged-in people, in a real Chromium: logins, chats, the end of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.web.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def opened(context: BrowserContext, site: Site, login: str | None) -> Page:
    await logs_in(context, site, login)
    page = await context.new_page()
    await page.goto(f"{site.url}/chat")
    await expect(page.get_by_role("status")).to_have_text("Connected")
    return page


async def logs_in(context: BrowserContext, site: Site, login: str | None) -> None:
    await context.clear_cookies(name="login")
    if login is not None:
        await context.add_cookies([{"name": "login", "value": login, "url": site.url}])


async def says(page: Page, words: str) -> None:
    await page.get_by_role("textbox").fill(words)
    await page.keyboard.press("Enter")


async def new_chat(page: Page) -> None:
    await page.get_by_role("button", name="Chats").click()
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator(".bubble")).to_have_count(0)
    await expect(page.get_by_role("status")).to_have_text("Connected")


async def test_another_login_ends_the_page(context: BrowserContext, tmp_path: Path) -> None:
    site = Site()
    async with site.served(tmp_path):
        page = await opened(context, site, "bob")
        await says(page, "list invoices")
        await expect(page.locator(".bot .bubble")).to_have_count(1)
        await logs_in(context, site, "eve")
        await says(page, "delete invoice INV-7")
        await expect(page.get_by_role("status")).to_have_text("Session ended: reload the page")
        await page.get_by_role("textbox").fill("my half secret")
        await page.reload()
        await expect(page.get_by_role("status")).to_have_text("Connected")
        await expect(page.get_by_role("textbox")).to_have_value("")
        await says(page, "what can you do?")
        await expect(page.locator(".person .bubble")).to_have_text("what can you do?")
        await logs_in(context, site, "bob")
        await page.reload()
        await expect(page.locator(".person .bubble")).to_have_text("list invoices")


async def test_two_people_have_their_own_chats(browser: Browser, context: BrowserContext, tmp_path: Path) -> None:
    site, other = Site(), await browser.new_context()
    async with site.served(tmp_path):
        bob, eve = await opened(context, site, "bob"), await opened(other, site, "eve")
        await says(bob, "list invoices")
        await expect(bob.locator(".bot .bubble")).to_have_count(1)
        await says(eve, "what can you do?")
        await expect(eve.locator(".person .bubble")).to_have_text("what can you do?")
        second = await opened(await browser.new_context(), site, "bob")
        await expect(second.locator(".person .bubble")).to_have_text("list invoices")
        await second.context.close()
        await other.close()


async def test_a_question_stays_in_its_chat(context: BrowserContext, tmp_path: Path) -> None:
    site = Site()
    async with site.served(tmp_path):
        page = await opened(context, site, "bob")
        await new_chat(page)
        address = page.url
        await says(page, "delete invoice INV-42")
        await expect(page.get_by_role("button", name="Confirm")).to_be_visible()
        await page.get_by_role("textbox").fill("half a")
        await new_chat(page)
        assert page.url != address
        await expect(page.get_by_role("textbox")).to_have_value("")
        await says(page, "yes")
        await expect(page.locator(".bot .bubble")).to_have_count(1)
        assert site.deleted == []
        await page.reload()
        await expect(page.locator(".person .bubble")).to_have_text("yes")

        await page.get_by_role("button", name="Chats").click()
        titles = page.locator("#listed .title")
        await expect(titles).to_have_text(["yes", "delete invoice INV-42"])
        await expect(page.get_by_role("link", name="yes")).to_have_attribute("aria-current", "page")
        await page.keyboard.press("Escape")
        await expect(titles.first).to_be_hidden()
        await page.goto(address)
        await expect(page.get_by_role("textbox")).to_have_value("half a")
        await page.get_by_role("button", name="Confirm").click()
        await expect(page.locator(".settled.done")).to_have_count(1)
        assert site.deleted == ["INV-42"]


async def test_a_session_is_ended_by_two_presses(context: BrowserContext, tmp_path: Path) -> None:
    site = Site()
    async with site.served(tmp_path):
        page = await opened(context, site, None)
        await says(page, "list invoices")
        await expect(page.locator(".bot .bubble")).to_have_count(1)
        await page.get_by_role("button", name="Chats").click()
        await page.get_by_role("button", name="End session").click()
        await expect(page.get_by_role("status")).to_have_text("Connected")
        await page.get_by_role("button", name="Press again to end the session").click()
        await expect(page.get_by_role("status")).to_have_text("Session ended: reload the page")
        await page.reload()
        await expect(page.get_by_role("status")).to_have_text("Connected")
        await expect(page.locator(".bubble")).to_have_count(0)
