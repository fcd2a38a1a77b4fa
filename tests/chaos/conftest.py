"""A Redis server for each test."""

from __future__ import annotations

from tests.store.conftest import server

__all__ = ["server"]
