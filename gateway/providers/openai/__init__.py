"""OpenAI's Responses API and Chat Completions, and each server that speaks the latter."""

from gateway.providers.openai.client import OpenAIProvider, from_environ

__all__ = ["OpenAIProvider", "from_environ"]
