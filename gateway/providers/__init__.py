"""Providers of models, one module a vendor, selected by the first word of a spec: ``openai:gpt-5-mini``, ``demo``.

A vendor's module has `from_environ(model, environ)` and is imported when a spec names it. Another distribution adds a
vendor with an entry point of the group ``askfirst.providers`` that names a function like that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from gateway.environment import environment
from gateway.providers.base import (
    KnowsModels,
    ModelMessage,
    Provider,
    ProviderConfigurationError,
    ProviderError,
    Request,
    Response,
    ToolCall,
    ToolSpec,
    ToolUsage,
    Usage,
)

__all__ = [
    "KnowsModels",
    "ModelMessage",
    "Provider",
    "ProviderConfigurationError",
    "ProviderError",
    "Request",
    "Response",
    "ToolCall",
    "ToolSpec",
    "ToolUsage",
    "Usage",
    "make_provider",
]

Factory: TypeAlias = Callable[[str, Mapping[str, str]], Provider]

_OURS = ("anthropic", "demo", "openai")


def make_provider(spec: str | None = None, *, environ: Mapping[str, str] | None = None) -> Provider:
    """Make the provider that `spec` names, from the settings in `environ` (by default the process's).

    None: the provider of ``ASKFIRST_PROVIDER``, or else the offline demo. The call imports the vendor's package, which
    blocks: inside an event loop, call it in a thread. Raises MissingSetting for a key's file that cannot be read.
    Raises ProviderConfigurationError for an unknown vendor, a missing key, a missing package, or another distribution's
    vendor that cannot be imported.
    """
    environ = environment() if environ is None else environ
    vendor, _, model = (spec or environ.get("ASKFIRST_PROVIDER") or "demo").strip().partition(":")
    return _factory(vendor)(model, environ)


def _factory(vendor: str) -> Factory:
    if vendor in _OURS:
        try:
            ours: Factory = import_module(f"gateway.providers.{vendor}").from_environ
        except ModuleNotFoundError as error:
            if error.name != vendor:
                raise
            raise ProviderConfigurationError(
                vendor, f"the package {vendor} is not installed: pip install 'askfirst[{vendor}]'"
            ) from None
        return ours
    theirs = {point.name: point for point in entry_points(group="askfirst.providers")}
    if vendor in theirs:
        return _load_theirs(theirs[vendor])
    choices = ", ".join(["demo", "openai:MODEL", "anthropic:MODEL", *(f"{name}:MODEL" for name in sorted(theirs))])
    raise ProviderConfigurationError(
        vendor, f"no such provider; set ASKFIRST_PROVIDER (or provider=) to one of: {choices}"
    )


def _load_theirs(point: EntryPoint) -> Factory:
    try:
        theirs: Factory = point.load()
    except Exception as error:
        raise ProviderConfigurationError(
            point.name, f"{point.value} cannot be loaded, {type(error).__name__}: {error}; install what it needs"
        ) from error
    return theirs
