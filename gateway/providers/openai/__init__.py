"""OpenAI's Chat Completions, and each server that speaks them."""

from gateway.providers.openai.client import OpenAIProvider, from_environ

__all__ = ["OpenAIProvider", "from_environ"]
