"""The worlds of the machine are kept on every kind of store, like the engine's."""

from tests.engine.conftest import kept_on, nobody_waits_long, places, prefix, pytest_generate_tests, redis_url

__all__ = ["kept_on", "nobody_waits_long", "places", "prefix", "pytest_generate_tests", "redis_url"]
