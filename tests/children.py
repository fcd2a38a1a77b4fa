"""Child processes that begin with everything imported: importing the gateway takes longer than most of these tests."""

from __future__ import annotations

import multiprocessing

__all__ = ["children"]

children = multiprocessing.get_context("forkserver")
children.set_forkserver_preload(["tests.store.worker", "tests.chaos.worker"])
