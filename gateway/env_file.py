"""Loading of a bot's ``.env`` file."""

from __future__ import annotations

from pathlib import Path

from dotenv import load_dotenv
from dotenv.parser import parse_stream

from channels import MissingSetting

__all__ = ["load_env_file"]


def load_env_file(path: Path) -> None:
    """Load the variables of a ``.env`` into the environment. Raises MissingSetting for a malformed line."""
    try:
        if path.is_file():
            _refuse_broken_lines(path)
        load_dotenv(path, interpolate=False)
    except (OSError, ValueError) as error:
        raise MissingSetting(str(path), "it cannot be read: write it in UTF-8, as your own") from error


def _refuse_broken_lines(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        for binding in parse_stream(file):
            if binding.error or (binding.key is not None and binding.value is None):
                written = binding.original.string
                blank = written[: len(written) - len(written.lstrip())].count("\n")
                raise MissingSetting(
                    f"{path}, line {binding.original.line + blank}",
                    "it is not NAME=value: write it so, close its quotes, or begin the line with #",
                )
