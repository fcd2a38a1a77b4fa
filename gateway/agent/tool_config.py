"""The settings for the results of tools."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gateway.options import Options
from gateway.providers import Completes

__all__ = ["ToolConfig"]


class ToolConfig(Options):
    """The settings for the results of tools, frozen. An unknown name or a wrong value raises WrongOption."""

    compress_results: bool = False
    """True to shorten a long result by a small call to a model, before the agent's model reads it."""
    compress_threshold: int = Field(default=2000, ge=1)
    """The characters up to which a result is left as it is."""
    compress_provider: str | Completes | None = None
    """The provider that shortens, as for an Agent; None: the agent's own. It needs `compress_model`."""
    compress_model: str | None = Field(default=None, min_length=1)
    """The model that shortens; None: the one that the agent asks."""

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.compress_provider is not None and self.compress_model is None:
            raise ValueError("compress_provider needs compress_model=, the name of its model")
        return self

    @property
    def summary_tokens(self) -> int:
        """The most tokens of one summary."""
        return max(128, min(1000, self.compress_threshold // 4))
