"""The package `askfirst`: the public names of the other two packages, loaded on demand."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from types import ModuleType

import pytest

import askfirst
import askfirst.channels
import askfirst.formatting
import askfirst.pending
import askfirst.providers
import askfirst.structured
import askfirst.testing
import askfirst.tools
import askfirst.web
import channels
import channels.formatting
import gateway
import gateway.pending
import gateway.providers
import gateway.structured
import gateway.testing
import gateway.tools
import gateway.web

PAIRS = [
    (askfirst, gateway),
    (askfirst.channels, channels),
    (askfirst.formatting, channels.formatting),
    (askfirst.pending, gateway.pending),
    (askfirst.providers, gateway.providers),
    (askfirst.structured, gateway.structured),
    (askfirst.testing, gateway.testing),
    (askfirst.tools, gateway.tools),
    (askfirst.web, gateway.web),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda module: module.__name__)
def test_each_public_name_is_the_original_object(ours: ModuleType, theirs: ModuleType) -> None:
    assert set(theirs.__all__) <= set(ours.__all__)
    assert set(ours.__all__) <= set(dir(ours))
    for name in theirs.__all__:
        assert getattr(ours, name) is getattr(theirs, name)


@pytest.mark.parametrize("name", ["askfirst", "askfirst.testing"])
def test_a_name_that_is_not_public_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'contextlib'"):
        _ = importlib.import_module(name).contextlib


@pytest.mark.parametrize(
    ("module", "waiting", "name"),
    [("askfirst", "gateway.app", "Gateway"), ("askfirst.testing", "hypothesis", "StoreContract")],
)
def test_heavy_module_is_loaded_on_first_use(module: str, waiting: str, name: str) -> None:
    program = (
        f"import sys, {module}\nprint('{waiting}' in sys.modules)\n"
        f"from {module} import {name}\nprint('{waiting}' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "askfirst", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == importlib.metadata.version("askfirst")
