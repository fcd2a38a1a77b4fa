"""The parent of the forks of `tests.children`: imports all modules for them and freezes the objects for the GC."""

from __future__ import annotations

import gc
from importlib import import_module

from gateway.providers import make_provider

NAMES = (
    "tests.store.worker",
    "tests.chaos.worker",
    "tests.pending.seed_worker",
    "tests.cli.command",
    "tests.zoned",
    *(f"channels.{name}.channel" for name in ("slack", "telegram", "twilio", "webchat")),
    *(f"gateway.providers.{name}" for name in ("anthropic", "demo", "openai")),
    "gateway.store.redis",
    "gateway.web.metrics",
    "gateway.mcp",
    "mcp.server.mcpserver",
    "fpdf",
    "uvloop",
    *(f"gateway.testing.{name}_contract" for name in ("channel", "store")),
    "pytest_aiohttp.plugin",
    "pytest_asyncio.plugin",
)

gc.disable()
for name in NAMES:
    import_module(name)
for vendor in ("anthropic", "openai"):  # which reads the prices
    make_provider(f"{vendor}:none", environ={f"{vendor.upper()}_API_KEY": "none"})
gc.freeze()
gc.enable()
