"""A scrape, read like by Prometheus."""

from __future__ import annotations

from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Scrape", "scraped"]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, /, **labels: str) -> float:
        """Return the sum of the samples of this name with these labels; 0 without a sample."""
        return sum(each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items())

    def labels(self, name: str) -> set[str]:
        """Return all values of a label."""
        return {each.labels[name] for each in self.samples if name in each.labels}


async def scraped(url: str, **headers: Any) -> Scrape:
    """Scrape a gateway at this URL."""
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{url}/metrics") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape(await answer.text())
