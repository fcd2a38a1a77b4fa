"""The browser of the tests of the page."""

from tests.web.conftest import browser, context

__all__ = ["browser", "context"]
