"""The page on stability is true: each public module has a label, and the origins are named."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import askfirst
from gateway import AgentConfig, ConversationMemory, EntityMemory, Tool, ToolConfig

PAGE = (Path(__file__).parent.parent / "docs" / "stability.md").read_text(encoding="utf-8")
LABELS = {"stable", "beta", "deprecated"}


@pytest.mark.ledger("MISC-14")
def test_every_public_module_has_one_explained_label() -> None:
    modules = {f"askfirst.{each.name}" for each in pkgutil.iter_modules(askfirst.__path__) if each.name != "__main__"}
    labelled = re.findall(r"^\| `(askfirst[\w.]*)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in labelled) == sorted({"askfirst", *modules})
    assert {label for _, label in labelled} <= LABELS
    assert set(re.findall(r"^\| (stable|beta|deprecated) \| \w", PAGE, re.MULTILINE)) == LABELS


@pytest.mark.ledger("MISC-16")
@pytest.mark.parametrize(
    ("issue", "idea"), [(58, "deferred confirmation"), (59, "results and artifacts"), (82, "buttons")]
)
def test_ideas_of_others_are_credited(issue: int, idea: str) -> None:
    assert f"- issue {issue}, {idea}: " in PAGE


@pytest.mark.ledger("USE-09")
def test_ways_to_spend_less_stand_in_one_place() -> None:
    page = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[`(](\w+)=", page.partition("## Spend less\n")[2].partition("\n## ")[0]))
    owners = (AgentConfig, ToolConfig, ConversationMemory, EntityMemory, Tool)
    assert named <= {option for owner in owners for option in inspect.signature(owner).parameters}
    assert {"model", "max_tokens", "compress_results", "compress_context", "cache", "max_cost_usd"} <= named


@pytest.mark.ledger("MISC-15")
@pytest.mark.parametrize("version", ["0.13.0", "0.15.0", "0.16.0", "0.16.3", "0.16.5", "0.22.0"])
def test_document_versions_are_listed_and_not_in_the_changelog(version: str) -> None:
    assert re.search(rf"^\| {re.escape(version)} \| \w", PAGE, re.MULTILINE)
    changelog = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE)
