"""Child processes that begin with everything imported: importing the gateway takes longer than most of these tests."""

from __future__ import annotations

import multiprocessing

__all__ = ["children"]

children = multiprocessing.get_context("forkserver")
children.set_forkserver_preload(
    [
        "tests.store.worker",
        "tests.chaos.worker",
        "tests.pending.seed_worker",
        "tests.cli.command",
        *(f"channels.{name}.channel" for name in ("slack", "telegram", "twilio", "webchat")),
        *(f"gateway.providers.{name}" for name in ("anthropic", "openai")),
        "gateway.store.redis",
        "fpdf",
        "uvloop",
    ]
)
