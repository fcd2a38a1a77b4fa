"""Anthropic's Messages API, also on compatible servers."""

from gateway.providers.anthropic.client import AnthropicProvider, from_environ

__all__ = ["AnthropicProvider", "from_environ"]
