"""Rules beyond the import rules of pyproject.toml: no circle of modules, and `__all__` lists the public names."""

from __future__ import annotations

import ast
import graphlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

import channels
import gateway

ROOT = Path(__file__).parents[1]


def modules() -> dict[str, Path]:
    files = [file for package in ("askfirst", "channels", "gateway") for file in (ROOT / package).rglob("*.py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def packages(name: str) -> set[str]:
    """Return the packages of a module. Python imports the packages first."""
    words = name.split(".")
    return {".".join(words[:length]) for length in range(1, len(words))}


def imported(name: str, files: Mapping[str, Path]) -> Iterator[str]:
    """Yield every module of ours imported by a module, also in a function or for types alone."""
    for node in ast.walk(ast.parse(files[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [each if each in files else node.module for each in inside]
        else:
            continue
        for module in found:
            if module in files:
                yield from {module} | packages(module) - packages(name)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Without a circle, each module can be imported alone."""
    files = modules()
    needs = {name: {*imported(name, files)} - {name} for name in files}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize("package", [channels, gateway], ids=lambda package: package.__name__)
def test_all_lists_the_public_names(package: ModuleType) -> None:
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    exported = getattr(package, "__all__", [])
    assert public <= set(exported)
    assert [name for name in exported if not hasattr(package, name)] == []


def test_importing_the_gateway_loads_no_lazy_library() -> None:
    heavy = {
        "babel",
        "click",
        "hypothesis",
        "jsonschema",
        "openai",
        "playwright",
        "puremagic",
        "pytest",
        "telegram",
        "watchfiles",
    }
    program = f"import sys, gateway; sys.exit(str(found) if (found := {heavy!r} & set(sys.modules)) else 0)"
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 0, run.stderr
