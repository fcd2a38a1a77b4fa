"""How many examples of a property are drawn: always the same, and more in `make nightly`."""

from __future__ import annotations

import hypothesis


def register() -> None:
    for profile, examples in (("nightly", 200), ("askfirst", 30)):
        hypothesis.settings.register_profile(profile, derandomize=True, max_examples=examples, deadline=None)
    hypothesis.settings.load_profile("askfirst")
