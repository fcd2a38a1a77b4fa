"""Providers of models, one module a vendor, selected by the first word of a spec: ``openai:gpt-5-mini``, ``demo``.

A vendor's module has `from_environ(model, environ)` and is imported when a spec names it. Another distribution adds a
vendor with an entry point of the group ``askfirst.providers`` that names a function like that.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.environment import environment
from gateway.providers.base import (
    Completes,
    KnowsModels,
    ModelMessage,
    Provider,
    ProviderConfigurationError,
    ProviderError,
    ProviderFault,
    Request,
    Response,
    ToolCall,
    ToolSpec,
    ToolUsage,
    Transcriber,
    TranscriptionFailed,
    Usage,
)
from gateway.providers.completing import as_provider
from gateway.providers.fallback import FallbackProvider
from gateway.providers.specs import provider_of

__all__ = [
    "Completes",
    "FallbackProvider",
    "KnowsModels",
    "ModelMessage",
    "Provider",
    "ProviderConfigurationError",
    "ProviderError",
    "ProviderFault",
    "Request",
    "Response",
    "ToolCall",
    "ToolSpec",
    "ToolUsage",
    "Transcriber",
    "TranscriptionFailed",
    "Usage",
    "as_provider",
    "make_provider",
]


def make_provider(spec: str | None = None, *, environ: Mapping[str, str] | None = None) -> Provider:
    """Make the provider that `spec` names, from the settings in `environ` (by default the process's).

    None: the provider of ``ASKFIRST_PROVIDER``, or else the offline demo. Several specs with commas between them are a
    FallbackProvider. The call imports the vendor's package, which blocks: inside an event loop, call it in a thread.
    Raises MissingSetting for a key's file that cannot be read. Raises ProviderConfigurationError for an unknown vendor,
    a missing key, a missing package, or another distribution's vendor that cannot be imported.
    """
    environ = environment() if environ is None else environ
    specs = (spec or environ.get("ASKFIRST_PROVIDER") or "demo").split(",")
    made = [provider_of(each, environ) for each in specs]
    return made[0] if len(made) == 1 else FallbackProvider(made)
