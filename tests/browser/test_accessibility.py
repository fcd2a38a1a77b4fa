"""axe-core finds no violation on the page, in any state of it, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright, expect

from askfirst.testing import ToolCall
from scripts.pictures import CODE, OVERDUE, SIDEWAYS, Theme, desk, says, served
from tests.browser.test_dev import ARGUMENTS
from tests.examples.loading import load

pytestmark = pytest.mark.browser

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SCRIPT = (
    [ToolCall("list_overdue", {})],
    OVERDUE,
    CODE,
    ToolCall("send_reminder", {"number": "INV-7"}),
    [ToolCall("send_reminder", {"number": number}) for number in ("INV-15", "INV-42")],
)


async def violations(page: Page) -> list[str]:
    """Return the violations that axe-core finds, with the elements."""
    options: dict[str, Any] = {"runOnly": {"type": "tag", "values": RULES}}
    found = await Axe().run(page, options=options)
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]} {node['failureSummary'][:300]}"
        for each in found.response["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_state_of_the_page_has_a_violation(browser_executable: Path, tmp_path: Path, theme: Theme) -> None:
    """With an answer, code, a formula, boxes, a question, a settled one, a plan, the menu, and at 320 pixels."""
    found: dict[str, list[str]] = {}
    async with served(desk(*SCRIPT), tmp_path, console=False) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=ARGUMENTS)
        context = await browser.new_context(color_scheme=theme, reduced_motion="reduce")
        page = await context.new_page()
        await page.goto(url)
        found["empty"] = await violations(page)
        await says(page, "What is overdue?", "Three invoices")
        await page.locator(".steps summary").click()
        await says(page, "What is the interest?", "As code")
        await expect(page.locator("math").first).to_be_visible()
        await page.get_by_role("button", name="Good answer").last.click()
        found["answers"] = await violations(page)
        await says(page, "Remind the first", "INV-7")
        await expect(page.locator(".asks")).to_be_visible()
        found["question"] = await violations(page)
        await page.get_by_role("button", name="Confirm").click()
        await expect(page.locator(".settled.done")).to_be_visible()
        await says(page, "Remind the others", "INV-42")
        await expect(page.get_by_role("button", name="Confirm all")).to_be_visible()
        await page.locator("#text").fill("/")
        await expect(page.get_by_role("listbox")).to_be_visible()
        found["plan and menu"] = await violations(page)
        await page.set_viewport_size({"width": 320, "height": 640})
        found["narrow"] = await violations(page)
        assert not await page.evaluate(SIDEWAYS)
        await browser.close()
    assert {state: each for state, each in found.items() if each} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_console_has_no_violation(browser_executable: Path, tmp_path: Path, theme: Theme) -> None:
    async with served(load("invoices").bot, tmp_path, console=True) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=theme)
        await page.goto(url)
        await says(page, "list invoices", "INV-42")
        await says(page, "delete invoice INV-42", "for good?")
        await expect(page.locator(".run .end").filter(has_text="asked")).to_be_visible()
        await page.locator("#others summary").first.click()
        assert await violations(page) == []
        await browser.close()


async def test_a_violation_is_found(browser_executable: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=ARGUMENTS)
        page = await browser.new_page()
        await page.set_content("<html lang=en><title>a</title><main><h1>a</h1><input></main>")
        assert [each.split(" ")[0] for each in await violations(page)] == ["label"]
        await browser.close()
