"""Tools: a function, the description for the model, and the ways to check, show and run a call."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, overload

from channels import Json
from channels.cancellable_threads import WORK, in_thread
from gateway.config.options import checked
from gateway.tools.arguments import Arguments
from gateway.tools.confirm import (
    Approvers,
    AskFunction,
    Confirm,
    Preview,
    Standing,
    as_text,
    frozen,
)
from gateway.tools.context import ToolContext
from gateway.tools.errors import Problem, ToolError, ToolValidationError
from gateway.tools.escape import QUICK, plain, shown
from gateway.tools.function import Function, call_guarded
from gateway.tools.layout import NO_LAYOUT, Layout, Template, by_language, in_language
from gateway.tools.pending_action import PendingAction, canonical_json
from gateway.tools.policy import ToolPolicy
from gateway.tools.results import serialise
from gateway.tools.schema_arguments import ArgumentReader, SchemaArguments, ToolParameter, schema_of
from gateway.wording import say


def version_hash(name: str, version: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a tool's name, version and parameters, without descriptions and defaults."""
    relied_on = {"name": name, "version": version, "parameters": _types_only(parameters)}
    return hashlib.sha256(canonical_json(relied_on)).hexdigest()


def _types_only(schema: Any) -> Any:
    """Return a JSON Schema without descriptions, titles, examples and defaults."""
    if isinstance(schema, list):
        return [_types_only(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            kept[key] = {name: _types_only(inner) for name, inner in value.items()}
        elif key not in ("description", "title", "default", "examples"):
            kept[key] = _types_only(value)
    return kept


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_TOLD = 2_000
"""The most characters of a result in the text of ``done=``."""


class Tool:
    """A function for a model to call. A direct call of the tool calls the function itself.

    - `name`, `description`: the function's name and the first paragraph of its docstring, unless given.
    - `confirm`: how a person is asked first: True, a template, one for each language, a preview function or a Confirm.
    - `read_only`: True if the function has no effect and may be repeated freely. `idempotent`: True if a call may be
      repeated with the same ``ctx.idempotency_key``.
    - `version`: to be changed when the same arguments get another meaning, also through injected values. Open questions
      then drift.
    - `terminal`: True if the result is the answer, and the model is not called again.
    - `streaming`: True if the function is a generator, and its values are shown immediately.
    - `timeout_seconds`: the timeout of a call, including the wait for the lock; None: the agent's.
    - `lock`: a template over the arguments; calls with the same text run one at a time, among all processes of a store.
    - `cacheable`: True if the result depends on the arguments alone: the agent's cache may keep it for
      `cache_ttl_seconds`. Requires `read_only`.
    - `completion_check`: True if the function checks for the end of the task: a result of True ends the loop with the
      model's text beside the call. The function is annotated with ``-> bool``.
    - `screen_output`: True if the result is text from outside: apparent instructions to the model are removed.
    - `param_metadata`: parameter -> ``{"description": ..., "enum": [...]}``.
    - `injected_kwargs`: values for parameters hidden from the model. `config_injector` gives more values at each call,
      for parameters annotated `Injected[...]`.
    - `channels`: the channels for calls and confirmations, for example ``["slack", "telegram"]``; None: all. In other
      channels the model does not see the tool.
    """

    origin: str = ""
    """The source that lists the tool, with its claims about the tool; empty for a tool of the bot itself."""

    @checked
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        confirm: bool | str | Mapping[str, str] | AskFunction | Confirm = False,
        read_only: bool = False,
        idempotent: bool = False,
        version: str = "",
        terminal: bool = False,
        streaming: bool = False,
        timeout_seconds: float | None = None,
        lock: str | None = None,
        cacheable: bool = False,
        cache_ttl_seconds: float = 300.0,
        screen_output: bool = False,
        completion_check: bool = False,
        param_metadata: Mapping[str, Mapping[str, Any]] | None = None,
        injected_kwargs: Mapping[str, Any] | None = None,
        config_injector: Callable[[], Mapping[str, Any] | None] | None = None,
        channels: Collection[str] | None = None,
    ) -> None:
        """Raises ToolValidationError for an inconsistent definition, and WrongOption for a wrong option."""
        self.name = name if name is not None else getattr(function, "__name__", "")
        documented = inspect.cleandoc(getattr(function, "__doc__", None) or "")
        if description is None:
            description = documented.split("\n\n")[0]
        self.description = " ".join(description.split())
        self.read_only, self.idempotent, self.version = read_only, idempotent, version
        self.terminal, self.streaming, self.cacheable = terminal, streaming, cacheable
        self.timeout_seconds, self.cache_ttl_seconds = timeout_seconds, cache_ttl_seconds
        self.screen_output, self.completion_check = screen_output, completion_check
        self._injected, self._injector = dict(injected_kwargs or {}), config_injector
        if not _NAME.fullmatch(self.name):
            raise self._undefined(f"the name {self.name!r} must be 1 to 64 letters, digits, _ or -", "Give name=")
        if not self.description:
            raise self._undefined("has no description", "Write a docstring or give description=")
        self._check_times(cacheable)
        try:
            self._function = Function(function, self.name)
        except ValueError as error:
            raise self._undefined(str(error)) from None
        if completion_check and (not self._function.returns_bool or terminal or confirm is not False):
            raise self._undefined(
                "completion_check=True needs a function that returns bool, and neither terminal= nor confirm=",
                "Annotate it with -> bool",
            )
        if streaming and not self._function.is_generator:
            raise self._undefined("streaming=True needs a generator function", "Yield the pieces")
        self._arguments = self._read_arguments(param_metadata or {}, documented)
        self._check_injected()
        self.confirm = self._make_confirm(confirm)
        self.channels = self._make_channels(channels)
        self._read_templates(lock)
        self.version_hash = self._hash()
        """The hash of the parts that open questions rely on: name, parameters (names, types, required), `version`."""
        functools.update_wrapper(self, function, updated=())

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Json] | Sequence[ToolParameter],
        function: Callable[..., Any],
        **options: Any,
    ) -> Tool:
        """Return a tool with arguments described by a JSON Schema of an object, or by ToolParameters.

        The function gets the arguments by name, as plain JSON. `options` are the options of Tool. Raises
        ToolValidationError and WrongOption as Tool.
        """
        from gateway.tools.tool import SchemaTool

        return SchemaTool(function, parameters, name=name, description=description, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, without checks."""
        return self._function.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments: an object."""
        return self._arguments.schema

    @property
    def is_async(self) -> bool:
        """True if the function runs on the event loop; otherwise in a thread."""
        return self._function.is_async

    @property
    def repeatable(self) -> bool:
        """True if a begun and unfinished call may simply be repeated."""
        return self.read_only or self.idempotent

    @property
    def probes(self) -> bool:
        """True if the tool has a probe for calls of unknown outcome."""
        return self._probe is not None

    @property
    def volatile(self) -> bool:
        """True if previews may change between question and launch, and so are not compared."""
        return self.confirm is not None and self.confirm.volatile

    @property
    def compares_previews(self) -> bool:
        """True if a function makes the previews, and two previews are compared."""
        return not self.volatile and self._ask is not None

    @property
    def approvers(self) -> Approvers | None:
        """The rule for the people deciding instead of the requester; None: the requester decides."""
        return self.confirm.approvers if self.confirm is not None else None

    async def named_approvers(self) -> Approvers | None:
        """Return `approvers` with the people named at this moment. Raises NoApprovers."""
        return await self.approvers.named() if self.approvers is not None else None

    def template_in(self, language: str) -> str | None:
        """Return the question's template in this language; None without a template."""
        template = (self.layout or NO_LAYOUT).template(language)
        return template.text if template is not None else None

    def serves(self, channel: str) -> bool:
        """Return True if the tool may be called and confirmed in the chats of this channel."""
        return self.channels is None or channel in self.channels

    def schema(self) -> dict[str, Any]:
        """Return the definition of the tool for the model."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, coerced and with defaults filled in, in a new dict.

        Raises ToolValidationError with every problem.
        """
        return self._arguments.validate(arguments)

    def values(self, args: Mapping[str, Json]) -> dict[str, Any]:
        """Return checked arguments as values for the function. Raises ToolValidationError."""
        return self._arguments.values(args)

    async def preview(
        self, args: Mapping[str, Json], ctx: ToolContext, *, timeout_seconds: float | None = None
    ) -> Preview:
        """Return the preview of a call, to be shown before the call is made.

        The timeout is the lesser of `timeout_seconds` and the tool's own. Raises ValueError when the call cannot be
        asked: the preview function refuses the call, with a text for the model; canonical JSON cannot hold the
        arguments or the preview; or a second validation, as right before `run`, changes the arguments. Raises a
        ToolError when the preview could not be made: ToolTimeout and NothingDone as `run`, ToolExecutionError for any
        other error of the function. JSONDecodeError, UnicodeError, OSError (a refused certificate) and pydantic's
        ValidationError are ValueErrors, but not refusals.
        """
        given = canonical_json(dict(args))
        if canonical_json(self.validate(args)) != given:
            raise ValueError(
                f"{self.name} would run with other arguments than are shown: its types change a value each time it is "
                "checked"
            )
        if self.layout is not None and self.layout.templates:
            return Preview(text=await _escaped(partial(self.layout.sentence, args, ctx.language), len(given)))
        if self._ask is None:
            return Preview(text=say("run_tool", ctx.language, tool=f"“{self.name.replace('_', ' ')}”"))
        found = await self._guarded(self._ask, args, ctx, self._at_most(timeout_seconds), passing=(ValueError,))
        return frozen(found if isinstance(found, Preview) else Preview(text=str(found)))

    def matches(self, action: PendingAction) -> bool:
        """Return True if an action was asked under this definition of the tool: the same version and layout.

        The version alone counts if the tool no longer asks.
        """
        same_layout = self.confirm is None or action.layout == self.layout
        return action.tool_version == self.version_hash and same_layout

    def compares(self, action: PendingAction) -> bool:
        """Return True if the preview of an action is made again and compared right before its launch."""
        return self.compares_previews or (not self.volatile and action.precondition is not None)

    async def run(
        self,
        args: Mapping[str, Any],
        ctx: ToolContext,
        *,
        timeout_seconds: float | None = None,
        on_chunk: Callable[[str], None] | None = None,
        on_late: Callable[[Future[Any]], None] | None = None,
    ) -> Any:
        """Call the function with checked arguments, and return the result unchanged.

        `timeout_seconds` applies if the tool has no timeout. `on_chunk` is called with the pieces of a streaming tool.
        `on_late` is called with the call of a sync function still running in a thread after a ToolTimeout or
        CancelledError here. This call ends with the function, and holds the lock until then.

        Raises ToolValidationError before the function runs; NothingDone and OutcomeUnknown when raised by the tool, or
        on a timeout: NothingDone during the wait for the lock or a thread, OutcomeUnknown during the run; ToolBusy when
        an earlier call past the timeout still holds the lock; ToolExecutionError with the cause for any other error of
        the function.
        """
        limit = self.limit(timeout_seconds)
        on_chunk = on_chunk if self.streaming else None
        return await self._guarded(
            self._function, args, ctx, limit, on_chunk=on_chunk, on_late=on_late, lock=self._lock
        )

    def limit(self, timeout_seconds: float | None) -> float | None:
        """Return the timeout of a call in seconds: the tool's own, or else the caller's."""
        return self.timeout_seconds if self.timeout_seconds is not None else timeout_seconds

    async def probe(
        self, args: Mapping[str, Json], ctx: ToolContext, *, timeout_seconds: float | None = None
    ) -> Literal["done", "not_done", "unknown"]:
        """Return the result of the tool's probe for a call of unknown outcome; ``unknown`` without a probe.

        `timeout_seconds` is as for `preview`. Raises as `run`.
        """
        if self._probe is None:
            return "unknown"
        found = await self._guarded(self._probe, args, ctx, self._at_most(timeout_seconds))
        return found if found in ("done", "not_done") else "unknown"

    async def done_text(self, args: Mapping[str, Json], result: Any, language: str) -> str | None:
        """Return the tool's text for a done confirmed call, as Markdown; None without ``done=``.

        The values are shown as in a question: quoted, and never as Markdown. Too long results are cut.
        """
        if not self._done:
            return None
        done = in_language(self._done, language)
        return await _escaped(
            lambda: self._filled(done, args, language, result=_result_text(result)), len(canonical_json(dict(args)))
        )

    async def failed_text(self, args: Mapping[str, Json], reason: str, language: str) -> str | None:
        """Return the tool's text for a failed confirmed call, as Markdown; None without ``failed=``.

        The values are shown as in a question. `reason` is Markdown.
        """
        if not self._failed:
            return None
        filled = partial(self._filled, in_language(self._failed, language), args, language, reason=reason)
        return await _escaped(filled, len(canonical_json(dict(args))))

    def _filled(self, template: Template, args: Mapping[str, Json], language: str, **more: str) -> str:
        """Return the template with the arguments as in a question, and more values, as Markdown."""
        layout = self.layout or NO_LAYOUT
        named = {name: plain(layout.value(name, args[name], language)) for name in template.names if name in args}
        return template.render({**named, **more})

    def _at_most(self, seconds: float | None) -> float | None:
        return min((each for each in (self.timeout_seconds, seconds) if each is not None), default=None)

    async def _guarded(
        self,
        function: Function,
        args: Mapping[str, Any],
        ctx: ToolContext,
        limit: float | None,
        *,
        passing: tuple[type[Exception], ...] = (),
        on_chunk: Callable[[str], None] | None = None,
        on_late: Callable[[Future[Any]], None] | None = None,
        lock: Template | None = None,
    ) -> Any:
        values = self._arguments.values(args)
        key = None
        if lock is not None:
            key = lock.render({name: as_text(value) for name, value in self.validate(args).items()})

        async def call() -> Any:
            values.update(self._injected, **self._more_injected())
            return await function.call(values, ctx, on_chunk=on_chunk)

        return await call_guarded(
            self.name, call, limit=limit, lock=key, hold=ctx.hold, passing=passing, on_late=on_late
        )

    def _more_injected(self) -> Mapping[str, Any]:
        more = dict((self._injector() or {}) if self._injector else {})
        if visible := sorted(set(more) & set(self._arguments.names)):
            # The function would run with other values than the checked and shown ones.
            raise ToolError(f"config_injector gave {visible}, which the model gives: annotate them Injected[...]")
        return more

    def _read_arguments(self, metadata: Mapping[str, Mapping[str, Any]], documented: str) -> ArgumentReader:
        hidden, parameters = frozenset(self._injected), self._function.parameters
        return Arguments(
            self.name,
            parameters,
            hidden=hidden,
            metadata=metadata,
            documented=documented,
            injects=self._injector is not None,
        )

    def under(self, policy: ToolPolicy | None) -> ToolPolicy | None:
        """Return the policy for the calls of this tool in an agent with this policy."""
        return policy

    def _make_confirm(self, confirm: bool | str | Mapping[str, str] | AskFunction | Confirm) -> Confirm | None:
        if isinstance(confirm, Confirm):
            return confirm
        if isinstance(confirm, bool):
            return Confirm() if confirm else None
        return Confirm(confirm)

    def _read_templates(self, lock: str | None) -> None:
        """Read the lock template, and the templates or functions of the question."""
        names, confirm = self._arguments.names, self.confirm
        ask, probe = (confirm.ask, confirm.probe) if confirm else (None, None)
        done, failed = (confirm.done, confirm.failed) if confirm else (None, None)
        try:
            self._lock = Template(lock, names) if lock is not None else None
            texts = ask if isinstance(ask, str | Mapping) else None
            self.layout = Layout.of(texts, self._annotations()) if confirm is not None else None
            """The way of writing the tool's questions; None for a tool without templates, labels and currencies."""
            self._ask = Function(ask, self.name) if callable(ask) else None
            self._done = _templates(done, [*names, "result"], "done")
            self._failed = _templates(failed, [*names, "reason"], "failed")
            if "reason" in names and any("reason" in template.names for template in self._failed.values()):
                raise ValueError(f"{failed!r}: {{reason}} is why it failed, and an argument too: rename the argument")
            self._probe = Function(probe, self.name) if probe is not None else None
        except ValueError as error:
            raise self._undefined(str(error)) from None
        for helper in (self._ask, self._probe):
            if helper is not None and (extra := sorted(helper.needs - set(names))):
                known = ", ".join(names) or "none"
                raise self._undefined(f"a function it asks or probes with takes {extra}; its arguments: {known}")
        if confirm is not None and confirm.standing is not None:
            self._check_standing(confirm.standing)

    def _annotations(self) -> dict[str, Any]:
        """Return the annotations of the tool's arguments; None for an argument described by a schema alone."""
        parameters = self._function.parameters
        return {name: parameters[name].annotation if name in parameters else None for name in self._arguments.names}

    def _check_standing(self, rule: Standing) -> None:
        names = self._arguments.names
        for option, named in (("same", rule.same), ("free", rule.free), ("most", rule.most)):
            if unknown := [name for name in named if name not in names]:
                known = ", ".join(names) or "none"
                raise self._undefined(f"Standing({option}=) names {unknown}; its arguments: {known}")
        if texts := [name for name in rule.most if not self._arguments.is_number(name)]:
            raise self._undefined(
                f"Standing(most=) bounds {texts}, whose type is no number",
                "Annotate int, float or Decimal, or name it in free= or same=",
            )

    def _make_channels(self, channels: Collection[str] | None) -> frozenset[str] | None:
        if channels is None:
            return None
        if isinstance(channels, str) or not channels:
            raise self._undefined(
                f"channels must be a list of names, not {channels!r}", 'Write channels=["telegram"], or leave it out'
            )
        return frozenset(channels)

    def _check_times(self, cacheable: bool) -> None:
        if cacheable and not (self.read_only and 0 < self.cache_ttl_seconds < float("inf")):
            raise self._undefined(
                "cacheable=True needs read_only=True, and cache_ttl_seconds as a positive number of seconds",
                "A call with effects must run each time",
            )
        if self.timeout_seconds is not None and not 0 < self.timeout_seconds < float("inf"):
            raise self._undefined(f"timeout_seconds must be a positive number of seconds, not {self.timeout_seconds!r}")

    def _check_injected(self) -> None:
        parameters = self._function.parameters
        if not self._function.takes_any and (unknown := sorted(set(self._injected) - set(parameters))):
            raise self._undefined(f"injected_kwargs names {unknown}, which the function does not take")
        unfilled = sorted(
            name
            for name in self._arguments.hidden & set(parameters)
            if parameters[name].default is inspect.Parameter.empty and name not in self._injected
        )
        if unfilled and self._injector is None:
            raise self._undefined(f"nothing fills in {unfilled}", "Give injected_kwargs= or config_injector=")

    def _hash(self) -> str:
        try:
            return version_hash(self.name, self.version, self.parameters)
        except ValueError as error:
            raise self._undefined(f"its parameters have no canonical form: {error}") from None

    def _undefined(self, issue: str, suggestion: str = "") -> ToolValidationError:
        return ToolValidationError(self.name, Problem("", issue, suggestion))


async def _escaped(written: Callable[[], str], length: int) -> str:
    """Return a text with escaped values, in a thread for long values: a model chooses the values."""
    return written() if length <= QUICK else await in_thread(written, threads=WORK)


def _templates(text: str | Mapping[str, str] | None, names: Sequence[str], what: str) -> dict[str, Template]:
    """Return language -> template; empty without a text. Raises ValueError as Template."""
    written = {} if text is None else by_language(text, what)
    return {language: Template(each, names) for language, each in written.items()}


def _result_text(result: Any) -> str:
    """Return a result for use in a sentence, as Markdown."""
    text = serialise(result)
    if len(text) > _LONGEST_TOLD:
        text = f"{text[:_LONGEST_TOLD]}… (cut: it has {len(text)} characters)"
    return plain(shown(text, bare=False) if isinstance(result, str) else text)


class SchemaTool(Tool):
    """A tool made by `Tool.from_schema`. The function gets the arguments by name, as plain JSON."""

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Mapping[str, Json] | Sequence[ToolParameter],
        *,
        name: str,
        description: str,
        **options: Any,
    ) -> None:
        """Raises ToolValidationError for a wrong schema, or for a function not fitting the schema."""
        try:
            self._described: Mapping[str, Any] = (
                parameters if isinstance(parameters, Mapping) else schema_of(parameters)
            )
        except (ValueError, AttributeError) as error:
            raise ToolValidationError(name, Problem("", f"parameters: {error}")) from None
        super().__init__(function, name=name, description=description, **options)

    def _read_arguments(self, metadata: Mapping[str, Mapping[str, Any]], documented: str) -> SchemaArguments:
        if metadata:
            raise self._undefined("param_metadata is for a function's signature", "Describe it in the schema")
        function = self._function
        extra = function.parameters.keys() - set(self._described.get("properties") or {})
        hidden = frozenset(
            {name for name in self._injected if name in function.parameters or function.takes_any}
            | {name for name in extra if self._injector is not None or name not in function.needs}
        )
        arguments = SchemaArguments(self.name, self._described, hidden=hidden)
        unfilled = sorted(function.needs - set(arguments.names) - hidden)
        dropped = sorted(set(arguments.names) - function.parameters.keys())
        if unfilled:
            raise self._undefined(f"the function needs {unfilled}, which are not in its parameters")
        if not function.takes_any and (dropped or arguments.open):
            what = f"take {dropped}" if dropped else "take arguments without a name in the schema"
            raise self._undefined(f"the function does not {what}", "Give it **arguments")
        optional = set(arguments.names) - set(arguments.schema["required"]) - set(arguments.defaults)
        if late := sorted(optional & function.needs):
            raise self._undefined(f"the function needs {late}, which a call may leave out", "Give them a default")
        return arguments


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    confirm: bool | str | Mapping[str, str] | AskFunction | Confirm = False,
    read_only: bool = False,
    idempotent: bool = False,
    version: str = "",
    terminal: bool = False,
    streaming: bool = False,
    timeout_seconds: float | None = None,
    lock: str | None = None,
    cacheable: bool = False,
    cache_ttl_seconds: float = 300.0,
    screen_output: bool = False,
    completion_check: bool = False,
    param_metadata: Mapping[str, Mapping[str, Any]] | None = None,
    injected_kwargs: Mapping[str, Any] | None = None,
    config_injector: Callable[[], Mapping[str, Any] | None] | None = None,
    channels: Collection[str] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a tool of a function: ``@tool`` or ``@tool(confirm=True, ...)``, with the options of Tool.

    Raises ToolValidationError for an inconsistent definition, and WrongOption for a wrong name or type of an option.
    """
    if function is None:
        return lambda function: Tool(function, **options)
    return Tool(function, **options)
