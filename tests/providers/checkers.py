"""A checker for each server: the refusals of a conversation in the sent form."""

from __future__ import annotations

from dataclasses import replace

from gateway.providers import Request
from gateway.providers.anthropic.messages import Conversation
from gateway.providers.openai.chat import chat_messages
from gateway.providers.openai.responses import responses_parameters
from tests.fakes import anthropic, openai, openai_responses
from tests.fakes.dialects import mistrals_refusal_of
from tests.fakes.model_server import Fail

__all__ = ["refusals"]

_MISTRALS = frozenset({"user_after_tool", "call_ids"})


def refusals(request: Request, model: str = "m") -> dict[str, Fail]:
    """Return the refusals of this request, by the server's name."""
    request = replace(request, timeout_seconds=None)  # an argument of the library
    found = {
        "openai": openai.refusal_of({"model": model, "messages": chat_messages(request, model)}),
        "mistral": _mistrals(request, model),
        "responses": openai_responses.refusal_of(responses_parameters(request, model, 0)),
        "anthropic": anthropic.refusal_of(
            {"model": model, "max_tokens": 9, "messages": Conversation(request, model).turns}
        ),
    }
    return {server: fail for server, fail in found.items() if fail is not None}


def _mistrals(request: Request, model: str) -> Fail | None:
    messages = chat_messages(request, model, _MISTRALS)
    return openai.refusal_of({"model": model, "messages": messages}) or mistrals_refusal_of(messages)
