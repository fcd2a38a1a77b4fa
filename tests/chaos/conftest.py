"""A Redis server of a test's own."""

from __future__ import annotations

from tests.store.conftest import server

__all__ = ["server"]
