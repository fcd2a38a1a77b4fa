"""Specs of providers: ``VENDOR:MODEL``, ``demo`` or ``text+VENDOR:MODEL``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from gateway.providers.base import Provider, ProviderConfigurationError
from gateway.providers.text_calls import TextCallsProvider

Factory: TypeAlias = Callable[[str, Mapping[str, str]], Provider]

_OURS = ("anthropic", "demo", "openai")
_TEXT = "text+"


def provider_of(spec: str, environ: Mapping[str, str]) -> Provider:
    """Make the provider of one spec. Raises ProviderConfigurationError."""
    vendor, _, model = spec.strip().partition(":")
    if vendor.startswith(_TEXT):
        return TextCallsProvider(_factory(vendor.removeprefix(_TEXT))(model, environ))
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
