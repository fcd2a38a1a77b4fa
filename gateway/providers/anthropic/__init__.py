"""Anthropic's Messages API, and each server that speaks it."""

from gateway.providers.anthropic.client import AnthropicProvider, from_environ

__all__ = ["AnthropicProvider", "from_environ"]
