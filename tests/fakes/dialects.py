"""Servers with partial Chat Completions, each with the refusals from user reports.

Sources: https://github.com/openai/openai-agents-python/issues/442 (Mistral and vLLM list the extra field),
https://github.com/vercel/ai/pull/1578 (Groq, Azure), https://github.com/anomalyco/opencode/issues/1680 (Mistral's ids).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes.model_server import Fail
from tests.fakes.openai import FakeOpenAI

__all__ = ["DIALECTS", "Dialect", "mistrals_refusal_of"]

Body = dict[str, Any]


def _openai(name: str, body: Body) -> Body:
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(name)
    hint = f" Use '{other}' instead." if other else ""
    text = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
    return {"error": {"message": text, "type": "invalid_request_error", "param": name, "code": "unsupported_parameter"}}


def _azure(name: str, body: Body) -> Body:
    text = f"Unrecognized request argument supplied: {name}"
    return {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": None}}


def _detail(name: str, body: Body) -> list[Body]:
    return [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": body}]


def _fastapi(name: str, body: Body) -> Body:
    return {"detail": _detail(name, body)}


def _mistral(name: str, body: Body) -> Body:
    return {"object": "error", "message": _fastapi(name, body), "type": "invalid_request_error", "code": None}


def _vllm(name: str, body: Body) -> Body:
    return {"object": "error", "message": repr(_detail(name, body)), "type": "BadRequestError", "code": 400}


def _vllm_cut(name: str, body: Body) -> Body:
    """The same, cut off in the middle of the quote."""
    return {"object": "error", "message": repr(_detail(name, body))[:-40], "type": "BadRequestError", "code": 400}


def _groq(name: str, body: Body) -> Body:
    return {"error": {"message": f"property '{name}' is unsupported", "type": "invalid_request_error"}}


def _openrouter(name: str, body: Body) -> Body:
    raw = json.dumps(_azure(name, body))
    return {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}


DIALECTS: Mapping[str, tuple[int, Callable[[str, Body], Body]]] = {
    "openai": (400, _openai),
    "azure": (400, _azure),
    "fastapi": (422, _fastapi),
    "mistral": (422, _mistral),
    "vllm": (400, _vllm),
    "vllm, cut off": (400, _vllm_cut),
    "groq": (400, _groq),
    "openrouter": (400, _openrouter),
}


class Dialect(FakeOpenAI):
    """A server of one dialect that refuses each of these parameters. `rules`: Mistral's rules apply too."""

    def __init__(self, dialect: str, *refuses: str, rules: bool = False) -> None:
        super().__init__(key="a-key-of-this-server")
        self.status, self._words = DIALECTS[dialect]
        self._refuses, self._rules = refuses, rules
        self._body: Body = {}

    def refused_body(self, body: Any) -> Fail | None:
        self._body = body
        for name in self._refuses:
            schema = (body.get("response_format") or {}).get("json_schema") or {}
            if name in body or name in schema:
                return Fail(self.status, name, message="a parameter")
        return mistrals_refusal_of(body["messages"]) if self._rules else None

    def error(self, fail: Fail) -> dict[str, Any]:
        return self._words(str(fail.code), self._body) if fail.message == "a parameter" else super().error(fail)


def mistrals_refusal_of(messages: list[Body]) -> Fail | None:
    """Return the error of Mistral's server for these messages; None if accepted.

    https://github.com/mistralai/mistral-common/blob/main/src/mistral_common/protocol/instruct/validator.py has the
    rules. Templates of other models want user and assistant in turn, too
    (https://github.com/ggml-org/llama.cpp/issues/12279).
    """
    roles = [message["role"] for message in messages if message["role"] != "system"]
    for before, role in itertools.pairwise(roles):
        if (before, role) in (("tool", "user"), ("user", "user"), ("assistant", "assistant"), ("user", "tool")):
            text = f"Unexpected role '{role}' after role '{before}'"
            return Fail(400, "3230", text, "invalid_request_message_order")
    if roles[:1] != ["user"] or roles[-1] not in ("user", "tool"):
        text = f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {roles[-1]}"
        return Fail(400, "3230", text, "invalid_request_message_order")
    for id_ in [call["id"] for message in messages for call in message.get("tool_calls", ())]:
        if not re.fullmatch(r"[A-Za-z0-9]{9}", id_):
            text = f"Tool call id was {id_} but must be a-z, A-Z, 0-9, with a length of 9."
            return Fail(400, "3280", text, "invalid_function_call")
    return None
