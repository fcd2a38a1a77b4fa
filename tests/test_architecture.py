"""What the import rules of pyproject.toml cannot say: each module stands alone, and `__all__` is what is public."""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import channels
import gateway

IMPORT_EACH_ALONE = """
import importlib, os, sys, traceback, warnings

with warnings.catch_warnings(action="ignore"):  # theirs, loaded once; ours is not among them
    import aiohttp, babel, click, openai, pydantic_settings, pytest, telegram

def alone(module):
    process = os.fork()
    if process == 0:
        try:
            importlib.import_module(module)
        except BaseException:
            sys.stderr.write(f"{module} alone: {traceback.format_exc()}")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)

at_once, *modules = sys.argv[1:]
failed = 0
for waiting, module in enumerate(modules):
    failed |= os.wait()[1] if waiting >= int(at_once) else 0
    alone(module)
for _ in modules[:int(at_once)]:
    failed |= os.wait()[1]
sys.exit(failed != 0)
"""


def modules(package: ModuleType) -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    return [package.__name__, *(name for name in found if not name.endswith(".__main__"))]


@pytest.mark.parametrize("package", [channels, gateway], ids=lambda package: package.__name__)
def test_every_module_imports_alone_without_a_warning(package: ModuleType) -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH_ALONE, str(os.cpu_count() or 1), *modules(package)]
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
    assert list(exported) == sorted(exported)
    assert public <= set(exported)
    assert [name for name in exported if not hasattr(package, name)] == []
