"""Caches for the replies of models and the results of tools."""

from gateway.cache.base import Cache, CacheNotReady, CacheStats, InMemoryCache

__all__ = ["Cache", "CacheNotReady", "CacheStats", "InMemoryCache"]
