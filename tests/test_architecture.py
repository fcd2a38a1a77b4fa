"""What the import rules of pyproject.toml cannot say: each module stands alone, and `__all__` is what is public."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import channels
import gateway

IMPORT_EACH_ALONE = """
import importlib, os, pkgutil, sys, traceback, warnings

with warnings.catch_warnings(action="ignore"):  # theirs, loaded once; ours is not among them
    import aiohttp, anthropic, babel, click, openai, pydantic_settings, pytest, telegram

def alone(name):
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == 0
    try:
        module = importlib.import_module(name)
    except BaseException:
        sys.stderr.write(f"{name} alone: {traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)
    inside = [found.name for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}.")]
    os._exit(not all([alone(child) for child in inside if not child.endswith(".__main__")]))

sys.exit(not alone(sys.argv[1]))
"""
"""Python imports a.b.c by importing a, then a.b: so a process that has imported a package and nothing else is a fresh
one for what is in it, and forks for each."""


@pytest.mark.parametrize("package", ["channels", "gateway"])
def test_every_module_imports_alone_without_a_warning(package: str) -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH_ALONE, package]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("package", [channels, gateway], ids=lambda package: package.__name__)
def test_all_is_what_is_public(package: ModuleType) -> None:
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
