"""A pytest plugin: Hypothesis stops at the first failure, because only the existence of a failure counts."""

from __future__ import annotations

from hypothesis import Phase, settings

__all__: list[str] = []


def pytest_configure() -> None:
    settings.register_profile(
        "first_failure", settings(max_examples=100), phases=[Phase.generate], report_multiple_bugs=False
    )
    settings.load_profile("first_failure")
