"""The agent: a model, its instructions and its tools."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

from gateway.agent.aside import SideProviders
from gateway.agent.caching import Caching
from gateway.agent.compress import with_full_result
from gateway.agent.config import STRATEGIES, AgentConfig
from gateway.agent.confirming import OnConfirm, Unattended
from gateway.agent.loop import run_loop
from gateway.agent.memory import Remembering, extractions_of, with_remember
from gateway.agent.model import OnText
from gateway.agent.ports import CancellationToken, LoopOutcome, LoopPorts
from gateway.agent.replies import AnswerFormat, answer_format
from gateway.agent.spec import AgentSpec
from gateway.agent.tool_set import AgentTool, ToolSet
from gateway.agent.window import Window
from gateway.agent.withdrawing import with_withdrawing
from gateway.cache import Cache
from gateway.config.options import checked
from gateway.logs import describe_error
from gateway.memory import ConversationMemory, Extraction
from gateway.memory.tokens import TokenCount
from gateway.observe.callbacks import HooksObserver
from gateway.observe.events import BatchEnd, BatchStart
from gateway.observe.observer import AgentObserver
from gateway.observe.results import AgentResult, StreamChunk
from gateway.observe.runs import new_run_id
from gateway.observe.teller import Teller, begin_run
from gateway.observe.usage import AgentAnalytics, UsageMeter, usage_text
from gateway.providers import Completes, FallbackProvider, ModelMessage, Provider, as_provider, make_provider
from gateway.structured import ResponseFormat
from gateway.timing.deadlines import milliseconds_since
from gateway.tools import Governed, Tool, ToolContext, ToolPolicy, ToolSource

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[int, int], Any]
"""(ended runs, all runs): called after each run."""

log = logging.getLogger(__name__)


async def run_batch(
    run: Callable[[T], Awaitable[AgentResult]],
    messages: Sequence[T],
    teller: Teller,
    *,
    max_concurrency: int,
    on_progress: OnProgress | None,
) -> list[AgentResult]:
    """Run each message, at most `max_concurrency` at once. Return the results in order; see `Agent.batch`."""
    slots, batch_id, ended = asyncio.Semaphore(max_concurrency), new_run_id(), 0

    async def one(message: T) -> AgentResult:
        nonlocal ended
        async with slots:
            try:
                result = await run(message)
            except Exception as error:  # noqa: BLE001 - one failure is one failed result
                result = AgentResult(content="", stop_reason="error", error=f"{type(error).__name__}: {error}")
        ended += 1
        if on_progress is not None:
            await _tell_progress(on_progress, ended, len(messages))
        return result

    await teller.tell(BatchStart, batch_id=batch_id, prompts_count=len(messages))
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(message)) for message in messages]
    results = [task.result() for task in tasks]
    await teller.tell(
        BatchEnd,
        batch_id=batch_id,
        results_count=len(results),
        errors_count=sum(result.stop_reason in ("provider_error", "error") for result in results),
        total_duration_ms=milliseconds_since(began),
    )
    return results


async def _tell_progress(on_progress: OnProgress, ended: int, total: int) -> None:
    try:
        if inspect.isawaitable(told := on_progress(ended, total)):
            await told
    except Exception as error:  # noqa: BLE001 - it must not change the batch
        log.warning("on_progress raised %s", describe_error(error))


class Agent:
    """An agent: a model with tools that answers messages.

    Without a memory an agent keeps no conversation state, so any number of runs may be active at once. `run`, `stream`
    and `batch` work without a chat. There, a call that needs a confirmation is made only if the config's
    `confirm_action` approves the call.
    """

    @checked
    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any] | ToolSource] = (),
        *,
        provider: str | Provider | Completes | None = None,
        instructions: str | Callable[[ToolContext], str] = "",
        config: AgentConfig | None = None,
        memory: ConversationMemory | None = None,
        policy: ToolPolicy | None = None,
    ) -> None:
        """Make an agent of tools, instructions and a provider.

        `provider` is a Provider, or a spec like ``openai:gpt-5-mini`` or ``demo``; None: ``ASKFIRST_PROVIDER``, or else
        demo. An object without `stream` or `close` is accepted too. Plain functions among the tools become tools. A
        ToolSource among the tools, for example an MCPServer, lists further tools before each turn. `memory` holds the
        conversation of `run`. In a chat the limits of `memory` apply to the history of each conversation. None: `run`
        remembers no message, and a chat 60 messages. Raises ToolValidationError for two tools with the same name, and
        WrongOption for an unknown option or value.
        """
        self.config = config or AgentConfig()
        self.policy, self.memory = policy, memory
        self.extractions: Sequence[Extraction] = extractions_of(self.config)
        """The memories filled by a model from the messages of each conversation."""
        self._tools = ToolSet(tools if self.config.knowledge_memory is None else with_remember(tools), policy)
        self.instructions = instructions
        self._provider = _given(provider)
        self._making = threading.Lock()
        cache = self.config.cache
        self._caching = None if cache is None else Caching(cache=cache, agent=self.config.name)
        counts = memory is not None and memory.max_tokens is not None
        self._window, self._meter = Window(self.config.context_tokens, counts=counts), UsageMeter()
        self.sides = SideProviders(self._made, self._meter)
        # The warning names the line that calls this: `checked` and pydantic stand between.
        hooks = [HooksObserver(self.config.hooks, stacklevel=6)] if self.config.hooks else []
        self.observers: tuple[AgentObserver, ...] = (*self.config.observers, *hooks)
        self._teller = Teller(observers=self.observers)

    @property
    def name(self) -> str:
        """The name of the agent, from its config."""
        return self.config.name

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of this agent by name, including the tools now listed by the sources."""
        return self._tools.now().tools

    @property
    def reach(self) -> Mapping[str, Governed]:
        """The tools of this agent and of the agents behind them, by name, each with the deciding policy."""
        return self._tools.now().reach

    @property
    def sources(self) -> tuple[ToolSource, ...]:
        """The tool sources of this agent and of the agents behind the tools."""
        return self._tools.sources

    @property
    def token_count(self) -> TokenCount:
        """The token count, based on the vendor's last count."""
        return self._window.tokens

    async def refresh_tools(self) -> None:
        """Bring the tools of the sources up to date. Every run does so at the beginning."""
        await self._tools.refresh()

    async def close_sources(self) -> None:
        """Close the connections of the sources in this event loop. A later run opens new connections."""
        await self._tools.close()

    @property
    def provider(self) -> Provider:
        """The provider of the model, made from the spec at first use. Raises ProviderConfigurationError."""
        with self._making:
            if self._provider is None or isinstance(self._provider, str):
                self._provider = make_provider(self._provider)
            elif isinstance(self._provider, FallbackProvider):
                self._provider.make()
            return self._provider

    def providers(self) -> list[Provider]:
        """Return the providers of this agent and of the agents behind the tools. Raises ProviderConfigurationError."""
        found = [self.provider, *self.sides.made()]
        for each in self.tools.values():
            if isinstance(each, AgentTool):
                found += [provider for provider in each.agent.providers() if provider not in found]
        return found

    def caches(self) -> list[Cache]:
        """Return the caches of this agent and of the agents behind the tools."""
        found = [] if self.config.cache is None else [self.config.cache]
        for each in self.tools.values():
            if isinstance(each, AgentTool):
                found += [cache for cache in each.agent.caches() if cache not in found]
        return found

    async def _made(self) -> Provider:
        """Return the provider, made in a thread because the call reads the installed packages."""
        if self._provider is None or isinstance(self._provider, str):
            return await asyncio.to_thread(lambda: self.provider)
        return self._provider

    def using(self, provider: str | Completes | None) -> Self:
        """Return a copy of the agent with another provider."""
        other = copy.copy(self)
        other._provider, other.sides = _given(provider), SideProviders(other._made, other._meter)
        return other

    def with_sources(self, *sources: ToolSource) -> Self:
        """Return a copy of the agent with more sources of tools."""
        other = copy.copy(self)
        other._tools = self._tools.extended(sources)
        return other

    async def run(
        self,
        message: str | Sequence[ModelMessage],
        *,
        context: ToolContext | None = None,
        on_text: OnText | None = None,
        response_format: ResponseFormat | None = None,
        cancellation: CancellationToken | None = None,
        parent_run_id: str | None = None,
    ) -> AgentResult:
        """Answer a message, or a conversation ending with a message.

        With a memory, the remembered conversation comes first, and the messages of the run are added to the memory at
        the end.

        `response_format`: a pydantic model or a JSON Schema for the answer. The result's `parsed` then has the value,
        and `content` the model's text. After an answer that does not fit, the model is asked again
        (`AgentConfig.structured_retries`); if no answer fits, `stop_reason` is ``error`` and `error` has the faults.
        `cancellation`: a token to end the run from any thread.
        `parent_run_id`: the parent run of this run; None: the config's value. The run's own id is random.

        An unreachable model raises no exception: the result's `stop_reason` is ``provider_error``. Raises
        ProviderConfigurationError when no provider can be made, TypeError for a `message` or a `response_format` of
        another kind, and ValueError for an invalid JSON Schema. A cancelled run emits an event to the observers.
        """
        if context is None:
            context = ToolContext(person="app:-:-", idempotency_key=new_run_id())
        elif not context.idempotency_key:
            context = replace(context, idempotency_key=new_run_id())
        events = begin_run(
            self._teller,
            clock=context.clock,
            parent_run_id=parent_run_id or self.config.parent_run_id,
            metadata=self.config.trace_metadata or {},
        )
        ports = LoopPorts(on_text=on_text, events=events, cancellation=cancellation)
        messages = _messages(message)
        wanted = None if response_format is None else await answer_format(response_format)
        async with AsyncExitStack() as stack:
            if cancellation is not None:
                stopping = await stack.enter_async_context(cancellation.stopping(context.stopping))
                context = replace(context, stopping=stopping)
            remember = Remembering(
                memory=self.memory,
                extractions=self.extractions,
                config=self.config,
                said=messages,
                context=context,
                sides=self.sides,
                tokens=self._window.tokens,
                events=events,
            )
            ports = replace(ports, at_end=remember, remembered=remember.remembered())
            messages = [*remember.history(), *messages]
            asker = Unattended(self.config, context)
            return await self.answer(messages, context=context, on_confirm=asker, answer_format=wanted, ports=ports)

    __call__ = run

    def run_sync(self, message: str | Sequence[ModelMessage], **options: Any) -> AgentResult:
        """Run the agent in a script: `run` without an event loop. Raises RuntimeError inside a running event loop."""

        async def once() -> AgentResult:
            # A provider's connections belong to one event loop, and this one ends with the run.
            owns = isinstance(self._provider, str) or self._provider is None
            agent = self.using(self._provider) if owns else self
            try:
                return await agent.run(message, **options)
            finally:
                if owns:
                    await agent.provider.close()
                await self.drain()

        return asyncio.run(once())

    async def stream(
        self, message: str | Sequence[ModelMessage], **options: Any
    ) -> AsyncIterator[StreamChunk | AgentResult]:
        """Run the agent. Yield the pieces of the model's text, and then the result.

        Closing the generator early cancels the run.
        """
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        task = asyncio.ensure_future(self.run(message, **options, on_text=pieces.put_nowait))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield StreamChunk(piece)
            yield await task
        finally:
            if task.cancel():
                await asyncio.wait({task})

    async def batch(
        self,
        messages: Sequence[str | Sequence[ModelMessage]],
        *,
        max_concurrency: int = 5,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> list[AgentResult]:
        """Run the agent for each message, at most `max_concurrency` at once. Return the results in order.

        The messages belong to no conversation: the memory is neither read nor written. `options` are the options of
        `run`. A run with an error yields a result with the stop reason ``error``; the others go on. `on_progress` is
        called with the number of ended runs and of all runs; errors of `on_progress` are logged. Raises ValueError for
        a `max_concurrency` below 1, and ProviderConfigurationError when no provider can be made.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency should be 1 or more, not {max_concurrency}")
        await self._made()
        alone = copy.copy(self)
        alone.memory, alone.extractions = None, ()
        return await run_batch(
            partial(alone.run, **options),
            messages,
            self._teller,
            max_concurrency=max_concurrency,
            on_progress=on_progress,
        )

    def as_tool(self, name: str, description: str) -> Tool:
        """Return a tool for another agent of the same bot, to hand a task over to this agent.

        In a chat the tools of this agent request confirmations in the same chat. The usage counts in the calling run,
        and the events go to the observers of the calling run. Raises ToolValidationError for a name or a description
        not accepted by models.
        """
        return AgentTool(self, name=name, description=description)

    async def drain(self) -> None:
        """Wait until the background observers have handled the events of all runs, at most 10 seconds.

        Also closes the tool sources. `run_sync` and a Gateway do both by themselves. A script with its own event loop
        calls `drain` at the end.
        """
        await self._teller.drain()
        await self.close_sources()

    # ── usage ──

    @property
    def total_tokens(self) -> int:
        """The tokens of all runs of this agent in this process since the last `reset_usage`."""
        return self._meter.total().total_tokens

    @property
    def total_cost(self) -> float | None:
        """The cost of these runs in US dollars. None: the price of a model is unknown."""
        return self._meter.total().cost_usd

    def get_usage_summary(self) -> str:
        """Return the usage of these runs in one line."""
        return usage_text(self._meter.total())

    def reset_usage(self) -> None:
        """Reset the counts to 0."""
        self._meter.reset()

    def get_analytics(self) -> AgentAnalytics | None:
        """Return the usage of the tools since the last `reset_usage`. None without `enable_analytics`."""
        return AgentAnalytics(by_tool=self._meter.total().by_tool) if self.config.enable_analytics else None

    async def answer(
        self,
        messages: Sequence[ModelMessage],
        *,
        context: ToolContext,
        on_confirm: OnConfirm | Unattended,
        answer_format: AnswerFormat | None = None,
        ports: LoopPorts,
    ) -> LoopOutcome:
        """Answer in the loop, for a chat or for another agent; see `run_loop`.

        A call that needs a confirmation never runs in the turn of a chat. Raises ProviderError, and UnreadableStep.
        """
        system = self.instructions(context) if callable(self.instructions) else self.instructions
        strategy = self.config.reasoning_strategy
        # The part that changes from turn to turn comes last, so that vendors cache the rest.
        known = "" if ports.remembered is None else ports.remembered.text()
        parts = [system, "" if strategy is None else STRATEGIES[strategy], known]
        await self._tools.refresh()
        box = self._tools.now()
        tools, specs = box.on(context.channel), box.specs
        if self.config.tool.compress_results:
            tools, specs = with_full_result(tools, specs)
        if ports.withdrawable:
            tools, specs = with_withdrawing(tools, specs)
        return await run_loop(
            AgentSpec(
                tools=tools,
                specs=tuple([specs[name] for name in tools]),
                config=self.config,
                policy=self.policy,
                window=self._window,
                meter=self._meter,
                sides=self.sides,
                caching=self._caching,
            ),
            messages,
            provider=await self._made(),
            context=context,
            on_confirm=on_confirm,
            system="\n\n".join(filter(None, parts)),
            answer_format=answer_format,
            ports=ports,
        )


def _given(provider: str | Completes | None) -> str | Provider | None:
    """Return the author's provider, with all methods of the protocol."""
    return provider if provider is None or isinstance(provider, str) else as_provider(provider)


def _messages(given: str | Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    if isinstance(given, str):
        return [ModelMessage(role="user", content=given)]
    for each in given if isinstance(given, Sequence) else [given]:
        if not isinstance(each, ModelMessage):
            kind = type(each).__name__
            raise TypeError(f'a message is a ModelMessage, not {kind}: ModelMessage(role="user", content="Hi")')
    return given
