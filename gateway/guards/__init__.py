"""Guards: checks of texts on the way to the model, to a tool and to a person."""

from gateway.guards.base import STAGES, Guardrail, GuardrailContext, GuardrailVerdict, Stage
from gateway.guards.guardrails import InjectionGuardrail, LengthGuardrail, PiiGuardrail
from gateway.guards.screening import QUICK, Screened, screen, screen_aside, screened_name

__all__ = [
    "QUICK",
    "STAGES",
    "Guardrail",
    "GuardrailContext",
    "GuardrailVerdict",
    "InjectionGuardrail",
    "LengthGuardrail",
    "PiiGuardrail",
    "Screened",
    "Stage",
    "screen",
    "screen_aside",
    "screened_name",
]
