"""Providers of models, one module a vendor, selected by the first word of a spec: ``openai:gpt-5-mini``, ``demo``.

A vendor's module has `from_environ(model, environ)` and is imported for a spec with the vendor's name. Another
distribution adds a vendor by an entry point of the group ``askfirst.providers`` to a function like `from_environ`.
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
    """Make the provider of `spec`, from the settings in `environ` (by default the process's).

    None: the provider of ``ASKFIRST_PROVIDER``, or else the offline demo. Several specs with commas between them are a
    FallbackProvider. The call imports the vendor's package and therefore blocks: inside an event loop, call in a
    thread. Raises MissingSetting for an unreadable key file. Raises ProviderConfigurationError for an unknown vendor, a
    missing key, a missing package, or another distribution's vendor after a failed import.
    """
    environ = environment() if environ is None else environ
    specs = (spec or environ.get("ASKFIRST_PROVIDER") or "demo").split(",")
    made = [provider_of(each, environ) for each in specs]
    return made[0] if len(made) == 1 else FallbackProvider(made)
