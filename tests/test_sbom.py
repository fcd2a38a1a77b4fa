"""The output of ``make sbom``: all locked packages, with hashes and licences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts import sbom

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def packages() -> list[sbom.Package]:
    return sbom.packages()


def test_sbom_lists_all_locked_packages_with_their_hashes(tmp_path: Path) -> None:
    sbom.write(tmp_path)
    written = json.loads((tmp_path / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert (written["bomFormat"], written["specVersion"]) == ("CycloneDX", "1.6")
    assert written["metadata"]["component"]["name"] == "askfirst"
    lock = sbom.LOCK.read_text(encoding="utf-8")
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in written["components"]) == sorted(pinned)
    hashes = [digest["content"] for each in written["components"] for digest in each["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", lock))
    rows = (tmp_path / "licences.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) == len(pinned) + 4


def test_installed_packages_name_a_licence(packages: list[sbom.Package]) -> None:
    assert [package.name for package in packages if package.licence == "none named"] == []
    named = [package for package in packages if package.licence != sbom.UNKNOWN]
    assert len(named) > len(packages) / 2


def test_build_packages_are_marked_and_not_in_the_image(packages: list[sbom.Package]) -> None:
    match = re.search(r"pip uninstall --yes (.*)", DOCKERFILE)
    assert match is not None
    builds = {package.name for package in packages if not package.runs}
    assert builds == set(match[1].split()) - {"pip"}


def test_copyleft_that_runs_is_named_in_the_documents(packages: list[sbom.Package]) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    section = page.partition("## What it is made of")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9-]+)` \(", section))
    assert named == {package.name for package in packages if package.is_copyleft and package.runs}
