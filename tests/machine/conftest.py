"""The machine's worlds are kept on every store there is, as the engine's."""

from tests.engine.conftest import kept_on, nobody_waits_long, places, prefix, pytest_generate_tests, redis_url

__all__ = ["kept_on", "nobody_waits_long", "places", "prefix", "pytest_generate_tests", "redis_url"]
