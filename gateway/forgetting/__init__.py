"""Forgetting: all that is kept of a person or of a conversation is removed from the store, with its names."""

from gateway.forgetting.order import forget
from gateway.forgetting.scope import NotForgotten

__all__ = ["NotForgotten", "forget"]
