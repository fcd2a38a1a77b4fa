"""OpenAI's Responses API and Chat Completions, the latter also on compatible servers."""

from gateway.providers.openai.client import OpenAIProvider, from_environ

__all__ = ["OpenAIProvider", "from_environ"]
