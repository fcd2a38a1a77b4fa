"""The first thing a newcomer does: `askfirst dev` with the invoices example, in a real browser."""

from __future__ import annotations

import io
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect
from pypdf import PdfReader

from tests.cli.processes import running

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

LIFE = [
    "Received · Message",
    "Turn begins",
    "Model · demo",
    "Asked · delete_invoice",
    "Turn ends · asked",
    "Sent · show",
    "Received · Press",
    "Decided · confirmed",
    "Launched · delete_invoice",
    "Effect · delete_invoice",
    "Sent · show",
    "Sent · show",
]
"""The steps of a confirmed message, from the arrival to the receipt of the outcome."""

pytestmark = [pytest.mark.browser, pytest.mark.nightly]


@pytest.fixture
async def page(browser_executable: Path, tmp_path: Path) -> AsyncIterator[Page]:
    shutil.copy(EXAMPLE, tmp_path / "invoices.py")
    async with running("dev", "invoices.py", "--port", "0", cwd=tmp_path) as process, async_playwright() as playwright:
        url = await process.url()
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=ARGUMENTS)
        page = await browser.new_page()
        await page.goto(f"{url}/chat")
        yield page
        await browser.close()


async def says(page: Page, text: str) -> None:
    box = page.get_by_role("textbox")
    await box.fill(text)
    await box.press("Enter")


@pytest.mark.timeout(300)
async def test_list_ask_confirm_pdf_and_reload(page: Page) -> None:
    chat, console = page.get_by_role("log"), page.get_by_role("complementary")
    await says(page, "list invoices")
    await expect(page.get_by_role("cell", name="INV-42")).to_be_visible()

    await says(page, "delete invoice INV-42")
    await expect(chat.get_by_text("Delete invoice INV-42 for good?")).to_be_visible()
    await page.get_by_role("button", name="Confirm").dblclick()
    await expect(chat.get_by_text("Invoice INV-42 of Café Aurora is deleted.")).to_have_count(1)
    await expect(page.get_by_role("button", name="Confirm")).to_have_count(0)

    settled = chat.get_by_role("listitem").filter(has_text="Confirmed by you, done")
    await expect(settled.locator(".settled.done")).to_be_visible()
    await expect(settled).to_contain_text("410.20 EUR")

    await says(page, "delete invoice INV-15")
    await expect(page.get_by_role("button", name="Confirm")).to_have_count(1)
    await says(page, "what can you do?")
    await expect(chat.get_by_text("Delete invoice INV-15 for good?")).to_have_count(2)
    await expect(page.get_by_role("button", name="Confirm")).to_have_count(1)
    await page.get_by_role("button", name="Cancel").click()
    await expect(chat.locator(".settled.not_done")).to_have_count(2)

    await says(page, "send me INV-7 as PDF")
    async with page.expect_download() as downloading:
        await chat.get_by_text("INV-7.pdf").click()
    download = await downloading.value
    pdf = PdfReader(io.BytesIO(Path(await download.path()).read_bytes()))
    assert "INV-7" in pdf.pages[0].extract_text()

    life = console.locator(".run").filter(has_text="delete invoice INV-42")
    await expect(life.locator(".end")).to_have_text("done")
    await life.locator("summary").first.click()
    await expect(life.locator(".stage .what")).to_have_text(LIFE)
    await expect(life.locator(".stage").filter(has_text="Decided")).to_contain_text("decided by button")

    await page.reload()
    await expect(chat.get_by_text("Invoice INV-42 of Café Aurora is deleted.")).to_have_count(1)
    await expect(chat.get_by_text("INV-7.pdf")).to_be_visible()
    await says(page, "list invoices")
    await expect(page.get_by_role("cell", name="INV-7")).to_have_count(2)
    await expect(page.get_by_role("cell", name="INV-42")).to_have_count(1)
