"""Writes the bill of materials of Askfirst: ``sbom.cdx.json`` (CycloneDX 1.6) and ``licences.md``, a readable table.

Names, versions and hashes come from requirements/run.txt, licences from the metadata of the installed packages.
``python -m scripts.sbom DIRECTORY`` writes both files there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["UNKNOWN", "Package", "bom", "packages", "table", "write"]

ROOT: Final = Path(__file__).parent.parent
LOCK: Final = ROOT / "requirements" / "run.txt"
UNKNOWN: Final = "not installed here"

_PINNED = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)[^\n]*\n(?P<hashes>(?:    --hash=[^\n]+\n)+)", re.MULTILINE
)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_SHORT: Final = 60
"""Maximum length of a licence's name. Some packages have the whole licence text in the name field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A locked package."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file admitted by the lock."""
    licence: str
    runs: bool
    """False for a package used only for building the wheel."""

    @property
    def is_copyleft(self) -> bool:
        """True for a licence of the GPL family, with terms beyond naming the authors."""
        return re.search(r"GPL|Lesser General Public", self.licence) is not None


def packages() -> list[Package]:
    """Return all locked packages, by name."""
    running = _running()
    return [
        Package(
            name=found["name"],
            version=found["version"],
            hashes=tuple(_HASH.findall(found["hashes"])),
            licence=_licence(found["name"]),
            runs=found["name"] in running,
        )
        for found in _PINNED.finditer(LOCK.read_text(encoding="utf-8"))
    ]


def _running() -> set[str]:
    """Return the names of Askfirst's runtime packages with all server extras, as far as installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    served = {extra for line in extras["all"] for extra in Requirement(line).extras}
    waiting = [Requirement(line) for line in project["dependencies"]]
    waiting += [Requirement(line) for extra in served for line in extras[extra]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        waiting += _needed(name, requirement.extras)
    return {name for name, _ in seen}


def _needed(name: str, extras: set[str]) -> Iterator[Requirement]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:  # for another system or Python
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        by_extra = marker is not None and "extra" in str(marker)
        # Packages that only another system needs are shipped there, so only the markers of extras are evaluated.
        if marker is None or not by_extra or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def _licence(name: str) -> str:
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return UNKNOWN
    return _named(found) or "none named"


def _named(found: PackageMetadata) -> str:
    def values(name: str) -> list[str]:
        return [str(value) for value in found.get_all(name) or () if value]

    if expressions := values("License-Expression"):
        return expressions[0]
    classified = [line.rpartition(" :: ")[2] for line in values("Classifier") if line.startswith("License :: ")]
    if precise := [text for text in values("License") if len(text) < _SHORT and "\n" not in text]:
        return precise[0]
    return " and ".join(classified)


def bom(found: list[Package]) -> Bom:
    """Return the bill of materials. Packages used only for building the wheel have the scope "excluded"."""
    licences = LicenseFactory()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made = Bom()
    made.metadata.component = Component(name=project["name"], type=ComponentType.APPLICATION, bom_ref=project["name"])
    components = [
        Component(
            name=package.name,
            version=package.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{package.name}@{package.version}",
            purl=PackageURL("pypi", name=package.name, version=package.version),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes],
            licenses=[licences.make_from_string(package.licence)] if package.licence != UNKNOWN else [],
            scope=ComponentScope.REQUIRED if package.runs else ComponentScope.EXCLUDED,
        )
        for package in found
    ]
    for component in components:
        made.components.add(component)
    made.register_dependency(made.metadata.component, components)
    return made


def table(found: list[Package]) -> str:
    """Return the licences as a table, with the GPL family first."""
    lines = ["# Licences", "", "| package | version | licence | |", "| --- | --- | --- | --- |"]
    for package in sorted(found, key=lambda package: (not package.is_copyleft, package.name)):
        use = "" if package.runs else "builds only"
        lines.append(f"| {package.name} | {package.version} | {package.licence.replace('|', '/')} | {use} |")
    return "\n".join([*lines, ""])


def write(directory: Path) -> None:
    """Write both files, replacing older ones."""
    directory.mkdir(parents=True, exist_ok=True)
    found = packages()
    outputter = make_outputter(bom(found), OutputFormat.JSON, SchemaVersion.V1_6)
    (directory / "sbom.cdx.json").write_text(outputter.output_as_string(indent=2), encoding="utf-8")
    (directory / "licences.md").write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
