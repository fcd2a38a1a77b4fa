"""Takes the pictures of the chat page: real conversations in Chromium, at three widths, light and dark.

``python -m scripts.pictures`` writes all of them into .pictures/, to be looked at, and those of the documentation into
docs/images.
"""

from __future__ import annotations

import asyncio
import runpy
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import Browser, Page, async_playwright, expect

from askfirst import Agent, AgentConfig, ChannelAgent, Gateway, Settings, tool
from askfirst.testing import ScriptedProvider, ToolCall
from askfirst.web import serve
from scripts import chromium

__all__ = ["desk"]

ROOT: Final = Path(__file__).parent.parent
INVOICES: Final = ROOT / "examples" / "invoices.py"
ALL: Final = ROOT / ".pictures"
IMAGES: Final = ROOT / "docs" / "images"
WIDTHS: Final = {1280: 800, 390: 844, 320: 640}
SHOWN: Final = {
    "invoices-1280-light": "web-chat",
    "plan-390-light": "web-chat-plan",
    "answer-390-dark": "web-chat-answer",
    "menu-1280-light": "web-chat-commands",
}
"""The pictures of the documentation."""

SIDEWAYS: Final = "[...document.querySelectorAll('html, #scroll')].some((each) => each.scrollWidth > each.clientWidth)"
"""True in a page that scrolls sideways."""

OVERDUE: Final = """Three invoices are overdue:

| number | customer | amount | days |
| --- | --- | --: | --: |
| INV-7 | Blue Bakery of the Old Harbour | 1,280.00 EUR | 31 |
| INV-15 | Harbour Books | 96.50 EUR | 12 |
| INV-42 | Café Aurora | 410.20 EUR | 4 |

What I would do next:

1. Remind all three.
2. Write off nothing yet, since **INV-42** is only late by `4` days."""
CODE: Final = '''The interest for $d$ days at the rate $r$ is

$$I = \\frac{A \\cdot r \\cdot d}{365}$$

As code:

```python
from decimal import Decimal


def interest(amount: Decimal, days: int, rate: Decimal = Decimal("0.0912")) -> Decimal:
    """Return the interest for late payment, in the currency of the amount."""
    return round(amount * rate * days / 365, 2)  # never more than two digits
```

- [x] INV-7: 9.91 EUR
- [ ] INV-42: $0 until the fifth day'''
SCRIPT: Final = (
    [ToolCall("list_overdue", {}), ToolCall("read_notes", {"number": "INV-42"})],
    OVERDUE,
    CODE,
    [ToolCall("send_reminder", {"number": number}) for number in ("INV-7", "INV-15", "INV-42")],
)


@tool(read_only=True)
async def list_overdue() -> list[str]:
    """List the overdue invoices."""
    return ["INV-7", "INV-15", "INV-42"]


@tool(read_only=True)
async def read_notes(number: str) -> str:
    """Read the notes about an invoice."""
    return "pays late each summer"


@tool(confirm="Send a reminder for {number}?")
async def send_reminder(number: str) -> str:
    """Remind a customer by mail."""
    return f"The reminder for {number} is sent."


def desk(*script: str | ToolCall | Sequence[ToolCall]) -> ChannelAgent:
    """Return the bot of the pictures. Its model plays a script."""
    config = AgentConfig(name="Accounts")
    provider = ScriptedProvider(script or SCRIPT)
    agent = Agent([list_overdue, read_notes, send_reminder], provider=provider, config=config)
    made = ChannelAgent(agent, greeting="Ask me about **overdue invoices**.")

    @made.command("overdue")
    async def overdue(ctx: object, text: str) -> str:
        """List what is overdue"""
        return OVERDUE

    return made


@asynccontextmanager
async def served(bot: ChannelAgent, place: Path, *, console: bool) -> AsyncIterator[str]:
    """Serve the page of a bot with a store in this directory, and give its address."""
    settings = Settings(store=f"sqlite:///{place}/chat.db", allow="webchat:*", provider="demo")
    made = partial(Gateway, bot, settings, chat=True, chat_hosts=["127.0.0.1"], console=console)
    gateway = await asyncio.to_thread(made)  # it makes directories
    running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{running.port}/chat"
    finally:
        await running.cleanup()


async def says(page: Page, words: str, answer: str) -> None:
    """Say something, and wait for a part of the answer."""
    await page.locator("#text").fill(words)
    await page.keyboard.press("Enter")
    await expect(page.locator(".bot .bubble").filter(has_text=answer).last).to_be_visible()


Theme = Literal["light", "dark"]


async def pictures_of_desk(browser: Browser, place: Path, width: int, theme: Theme) -> None:
    """Take the pictures of an answer with steps, of code and a formula, of a plan, and of the menu."""
    async with served(desk(), place, console=False) as url:
        page = await browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=theme)
        await page.goto(url)

        async def take(name: str) -> None:
            assert not await page.evaluate(SIDEWAYS), f"{name} at {width}: the page scrolls sideways"
            await page.screenshot(path=ALL / f"{name}-{width}-{theme}.png")

        await take("empty")
        await says(page, "What is overdue? Please look at the notes too.", "Three invoices")
        await page.locator(".steps summary").click()
        await take("table")
        await says(page, "What is the interest for late payment?", "As code")
        await take("answer")
        await says(page, "Remind them all", "INV-42")
        await expect(page.get_by_role("button", name="Confirm all")).to_be_visible()
        await take("plan")
        await page.get_by_role("button", name="Confirm all").click()
        await expect(page.locator(".settled.done").first).to_be_visible()
        await take("settled")
        await page.locator("#text").fill("/")
        await expect(page.get_by_role("listbox")).to_be_visible()
        await take("menu")
        await page.close()


async def picture_of_invoices(browser: Browser, place: Path, theme: Theme) -> None:
    """Take the picture of `askfirst dev examples/invoices.py`: a question, and the console beside it."""
    async with served(runpy.run_path(str(INVOICES))["bot"], place, console=True) as url:
        page = await browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=theme)
        await page.goto(url)
        await says(page, "list invoices", "INV-42")
        await says(page, "delete invoice INV-42", "for good?")
        await expect(page.locator(".run .end").filter(has_text="asked")).to_be_visible()
        await page.screenshot(path=ALL / f"invoices-1280-{theme}.png")
        await page.close()


async def take_all() -> None:
    """Take all pictures."""
    ALL.mkdir(exist_ok=True)
    expect.set_options(timeout=30_000)
    themes: Sequence[Theme] = ("light", "dark")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        for theme in themes:
            with tempfile.TemporaryDirectory() as place:
                await picture_of_invoices(browser, Path(place), theme)
            for width in WIDTHS:
                with tempfile.TemporaryDirectory() as place:
                    await pictures_of_desk(browser, Path(place), width, theme)
        await browser.close()
    for name, image in SHOWN.items():
        shutil.copy(ALL / f"{name}.png", IMAGES / f"{image}.png")


if __name__ == "__main__":
    asyncio.run(take_all())
