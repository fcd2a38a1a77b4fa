"""Bot references on the command line: parsing, loading the bot, and the bot's settings."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self

import click

import channels
import gateway
from channels import AskfirstError, MissingSetting
from gateway.agent import Agent
from gateway.channel_agent import ChannelAgent
from gateway.config.environment import hide_secrets
from gateway.config.options import WrongOption
from gateway.config.settings import Settings
from gateway.tools import ToolValidationError
from gateway.wording import speaking

_NOT_THEIRS = (*(str(Path(package.__file__ or "").parent) for package in (gateway, channels)), "<frozen importlib")
"""The beginnings of the files of frames that are not the author's."""


class NoBot(AskfirstError):
    """The named bot does not exist, or the bot's file cannot be run."""


@dataclass(frozen=True, slots=True)
class BotRef:
    """Reference to a bot: ``path.py`` or ``module:name``. The name is ``bot`` by default."""

    written: str
    module: str
    name: str
    directory: Path
    """Directory of the bot's ``.env`` and, by default, of the store."""
    file: Path | None
    """The bot's Python file. None for a module."""

    @classmethod
    def parse(cls, written: str) -> Self:
        """Parse a reference. Raises click.BadParameter for text that is neither an existing Python file nor a module
        name."""
        before, colon, after = written.rpartition(":")
        where, name = (before, after) if colon else (written, "bot")
        if where.endswith(".py"):
            file = Path(where).resolve()
            if not file.is_file():
                raise click.BadParameter(f"there is no file {where}")
            return cls(written, file.stem, name, file.parent, file)
        if not all(part.isidentifier() for part in (*where.split("."), name)):
            raise click.BadParameter(f"{written!r} is neither a Python file nor module:name")
        return cls(written, where, name, Path.cwd(), None)

    def load(self) -> ChannelAgent:
        """Import the bot, then remove the secrets from the process's environment.

        The rest of the command speaks in the bot's wording. Raises NoBot, with the traceback of the author's own code,
        and AskfirstError for a channel without a loadable module.
        """
        found = self._found()
        if (command := click.get_current_context(silent=True)) is not None:
            command.with_resource(speaking(found.wording))
        return found

    def _found(self) -> ChannelAgent:
        module = self._module()
        hide_secrets()
        try:
            found = getattr(module, self.name)
        except AttributeError:
            raise NoBot(f"{self.written} has no {self.name!r}: assign {self.name} = ChannelAgent(Agent(...))") from None
        if isinstance(found, Agent):
            return ChannelAgent(found)
        if not isinstance(found, ChannelAgent):
            kind = type(found).__name__
            raise NoBot(f"{self.name!r} in {self.written} is of type {kind}, not a ChannelAgent or an Agent")
        return found

    def _module(self) -> ModuleType:
        if self.file is not None and not self.file.is_file():
            raise NoBot(f"there is no file {self.written}")
        # Like Python for a script: make the modules beside the file importable.
        sys.path.insert(0, str(self.directory))
        try:
            return importlib.import_module(self.module) if self.file is None else _run(self.module, self.file)
        except ModuleNotFoundError as error:
            if self.file is None and error.name == self.module.split(".")[0]:
                raise NoBot(f"there is no module {self.module}") from None
            raise NoBot(f"{self.written} cannot be loaded:\n{authors_traceback(error)}") from error
        except MissingSetting:  # its text has the mend, and an operator has to do it
            raise
        except (WrongOption, ToolValidationError) as error:  # its text has the mend, and the author has to do it
            raise NoBot(f"{self.written} cannot be loaded: {error}{_authors_place(error)}") from error
        except Exception as error:
            raise NoBot(f"{self.written} cannot be loaded:\n{authors_traceback(error)}") from error


bot_argument = click.argument("bot", type=BotRef.parse, metavar="BOT")


def load_settings(directory: Path) -> Settings:
    """Return the settings of a bot in this directory. A default store is placed there too. Raises MissingSetting."""
    settings = Settings.load(directory)
    if "store" in settings.model_fields_set:
        return settings
    file = directory / settings.store.removeprefix("sqlite:///")
    return settings.model_copy(update={"store": f"sqlite:///{file}"})


def _run(name: str, file: Path) -> ModuleType:
    name = name if name not in sys.modules else f"bot_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise NoBot(f"{file} cannot be loaded: it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up
    spec.loader.exec_module(module)
    return module


def _authors_place(error: Exception) -> str:
    """Return the author's own last line on the way to the error, in brackets."""
    libraries = tuple(sysconfig.get_paths()[each] for each in ("stdlib", "purelib", "platlib"))
    on_the_way = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in on_the_way if not frame.filename.startswith((*_NOT_THEIRS, *libraries))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def authors_traceback(error: Exception) -> str:
    """Return the traceback without the frames of Askfirst and of the import machinery."""
    summary = traceback.TracebackException.from_exception(error)
    for part in _chain(summary):
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if not frame.filename.startswith(_NOT_THEIRS)]
        )
    return "".join(summary.format()).rstrip()


def _chain(error: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
