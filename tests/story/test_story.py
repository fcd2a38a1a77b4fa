"""The whole story on every platform, store and model: the real ``askfirst serve``, stopped in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pypdf import PdfReader

from tests.cli.processes import forked
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.model_server import Call, ModelServer
from tests.fakes.openai import FakeOpenAI
from tests.ports import free_port
from tests.store.redis_server import RedisServer
from tests.story.phones import PHONES

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
SIGNING = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
STORES = ("sqlite", "redis")
PROVIDERS = {"openai": FakeOpenAI, "anthropic": FakeAnthropic}


def stories() -> Iterator[object]:
    """Yield every combination. Those of even parity contain every pair; the others run with `make nightly`."""
    for channel, store, provider in itertools.product(PHONES, STORES, PROVIDERS):
        parity = list(PHONES).index(channel) + STORES.index(store) + list(PROVIDERS).index(provider)
        marks = [pytest.mark.nightly] if parity % 2 else []
        yield pytest.param(channel, store, provider, id=f"{channel}-{store}-{provider}", marks=marks)


@contextlib.asynccontextmanager
async def opened(store: str, directory: Path) -> AsyncIterator[dict[str, str]]:
    """The settings of a separate store."""
    if store == "sqlite":
        yield {"ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}"}
        return
    server = RedisServer(directory)
    await server.start()
    try:
        yield {"ASKFIRST_STORE": server.url, "ASKFIRST_ARTIFACTS": str(directory / "artifacts")}
    finally:
        await server.kill()


def settings_of(provider: str, model: ModelServer) -> dict[str, str]:
    name = provider.upper()
    return {
        "ASKFIRST_PROVIDER": f"{provider}:test-model",
        f"{name}_API_KEY": model.key,
        f"{name}_BASE_URL": model.url,
    }


@pytest.mark.ledger("PEND-01", "PEND-02", "PEND-44")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("channel", "store", "provider"), list(stories()))
async def test_ask_confirm_once_and_get_the_file(channel: str, store: str, provider: str, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", EXAMPLE, "--host=127.0.0.1", f"--port={port}")
    async with PHONES[channel]() as phone, PROVIDERS[provider]() as model, opened(store, tmp_path) as kept:
        env = {
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": f"{channel}:*",
            "ASKFIRST_LOG_LEVEL": "DEBUG",
            "ASKFIRST_PUBLIC_URL": url,
            **kept,
            **phone.settings,
            **settings_of(provider, model),
        }
        phone.reached_at(url)
        model.script([Call("list_invoices", {"state": "open"}), "INV-7 and INV-42 are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with forked(*serve, cwd=tmp_path, env=env) as first:
            await first.url()
            await phone.writes("list the open invoices")
            assert await phone.reads("are open") == "INV-7 and INV-42 are open."
            assert "Café Aurora" in str(model.requests[-1]["messages"])
            await phone.writes("delete invoice INV-42")
            await phone.reads("Delete invoice INV-42 for good?")
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0

        async with forked(*serve, cwd=tmp_path, env=env) as second:
            await second.url()
            await phone.confirms()
            await phone.reads("Invoice INV-42 of Café Aurora is deleted.")
            model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here is INV-7."])
            await phone.writes("send me INV-7 as PDF")
            await phone.reads("Here is INV-7.")
            filename, mime_type, content = await phone.file()
            assert (filename, mime_type) == ("INV-7.pdf", "application/pdf")
            assert "Blue Bakery" in (await asyncio.to_thread(PdfReader, io.BytesIO(content))).pages[0].extract_text()
            told = str(model.requests[-1]["messages"])
            assert "list the open invoices" in told and "confirmed by the person and done" in told
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0

        assert sum("INV-42 of Café Aurora is deleted" in text for text in phone.screen()) == 1
        assert phone.refusals() == []
        async with forked("dead", "list", "--json", cwd=tmp_path, env=env) as dead:
            assert await dead.ended() == 0, dead.said
            assert dead.said.strip() == "[]"
    said = first.said + second.said
    for hidden in (*phone.secrets, SIGNING, model.key, "Aurora", "Bakery", "list the open"):
        assert hidden not in said
    assert "Traceback" not in said
