"""`Agent`: a model, its instructions, tools and limits, ready to run; what a program builds once and runs often."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from turnstile.core.approval import with_approval
from turnstile.core.context import KeepAll
from turnstile.core.errors import ConfigurationError, InsideEventLoop
from turnstile.core.events import RunStarted
from turnstile.core.expecting import expect, expect_several
from turnstile.core.history import History
from turnstile.core.limits import Limits, Retry
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Prompt, parted
from turnstile.core.strict_json import JsonValue
from turnstile.driver import Outside, Run, reopen
from turnstile.options import (
    AgentOptions,
    Models,
    RunOptions,
    check_agent,
    check_price,
    check_run,
    choices,
    hearing,
    max_tokens,
)
from turnstile.outputs import OutputType
from turnstile.ports import Clock, ContextPolicy, ModelClient, Observer, Store
from turnstile.result import Result
from turnstile.shell.clock import SystemClock
from turnstile.shell.stores.memory import MemoryStore

if TYPE_CHECKING:
    from turnstile.tools import Tool

T = TypeVar("T")


class Agent(Generic[T]):
    """A model, its instructions, tools and limits, ready to run.

    It holds no state of a run, so one agent serves any number of runs at once.

    Args:
        model: ``"provider:name"``, a model client, or a list of them: the first choice, then its fallbacks. Without one
            it is ``$TURNSTILE_MODEL``, else a model of the first provider whose key is in the environment.
        name: Names the agent in logs.
        instructions: The system prompt, as text or as a function from a run's `deps` to text.
        tools: Functions, or what `tool` made of them.
        limits: How far a run may go.
        output: What an answer must be: any type that pydantic validates; text as it is by default.
        context: Which part of a long history a request carries; all of it by default.
        retry: How requests that failed for a passing reason are sent again.
        machine: The table; `loop.extend` makes others.
        store: Where journals are kept; in memory by default.
        observers: Who hears of every transition, such as a `turnstile.log.JsonLog`.
        settings: What the models are told, such as ``{"max_tokens": 1000, "temperature": 0}``.
        clock: The time; `turnstile.testing.FrozenClock` stands still.

    Raises:
        ToolDefinitionError: A tool cannot be offered to a model as it is.
        ConfigurationError: Another option cannot be used as it is.
    """

    @overload
    def __init__(
        self: Agent[str], model: Models | None = None, *, output: type[str] = ..., **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(self, model: Models | None = None, *, output: type[T], **options: Unpack[AgentOptions]) -> None: ...
    def __init__(
        self,
        model: Models | None = None,
        *,
        name: str = "agent",
        instructions: str | Callable[[Any], str] = "",
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        limits: Limits = Limits(),
        output: Any = str,
        context: ContextPolicy | None = None,
        retry: Retry = Retry(),
        machine: Machine = loop,
        store: Store | None = None,
        observers: Iterable[Observer] = (),
        settings: Mapping[str, JsonValue] | None = None,
        clock: Clock | None = None,
    ) -> None:
        from turnstile.shell.toolbox import Toolbox

        check_agent(
            name=name,
            instructions=instructions,
            limits=limits,
            context=context,
            retry=retry,
            machine=machine,
            store=store,
            settings=settings,
            clock=clock,
        )
        if model is not None:
            choices(model)  # which refuses what is none
        self.model = model
        self.name = name
        self.instructions = instructions
        self.clock = SystemClock() if clock is None else clock
        self.toolbox = Toolbox(
            expect_several("Agent's tools", tools, "a list of functions, such as [add]"), monotonic=self.clock.monotonic
        )
        self.limits = limits
        self.output: OutputType[T] = OutputType(output)
        self.context = KeepAll() if context is None else context
        self.retry = retry
        asks = any(tool.on_in_doubt == "ask" for tool in self.toolbox.tools)
        self.machine = with_approval(machine) if asks else machine
        self.origin = ""
        self.store = MemoryStore() if store is None else store
        self.observers = hearing("Agent's", observers)
        self.settings = dict(settings or {})
        self._max_output = max_tokens(self.settings)
        self._clients: dict[str, ModelClient] = {}

    def __repr__(self) -> str:
        return f"Agent(name={self.name!r}, model={self.model!r})"

    def start(self, prompt: Prompt, **options: Unpack[RunOptions]) -> Run[T]:
        """A run that nothing has driven yet; use it as ``async with agent.start(…) as run``.

        Args:
            prompt: What the user says: text, or a list of texts and `Attachment`.
            options: Those of `RunOptions`.

        Raises:
            ModelNotFound: No model is named, or its provider or key is unknown.
            ConfigurationError: A cost limit stands beside a model whose price is unknown; the agent's output is a type
                that pydantic can make nothing of; or an option is not of its kind.
            UsageError: The prompt is empty, or the history has a call without a result, or a result without a call.
        """
        check_run(prompt, options)
        session, deps = options.get("session"), options.get("deps")
        clients = self.clients(options.get("model"))
        limits = options.get("limits") or self.limits
        said = options.get("history")
        items = History.of(said)[:] if said else ()
        if session is not None and items:
            raise ConfigurationError("give a run a session or a history, not both: a session brings its own")
        check_price(clients, limits)
        text, attachments = parted(prompt)
        models = tuple([client.name for client in clients])
        start = RunStarted(
            run_id=options.get("run_id") or new_run_id(),
            prompt=text,
            attachments=attachments,
            agent=self.name,
            instructions=self._instructions(deps),
            history=items,
            session=session,
            limits=limits,
            retry=self.retry,
            deadline=None if limits.seconds is None else self.clock.time() + limits.seconds,
            models=models,
            prices=(None,) * len(clients) if limits.cost is None else tuple([client.price for client in clients]),
            max_output=self._max_output,  # and in the settings: there it is a wish, where a budget is only a bound
            tools_size=self._tools_size() if limits.tokens is not None or limits.cost is not None else 0,
            fingerprints=nature_of(self, models),
            tools=self.toolbox.specs,
            settings=self.settings,
            output_schema=dict(self.output.schema) if self.output.schema else None,
            origin=self.origin,
        )
        outside = self._outside(clients, deps, options.get("observers"))
        return Run(outside, start, self.output.convert, fork=self._fork)

    async def resume(
        self,
        run_id: str,
        *,
        deps: object = None,
        model: Models | None = None,
        observers: Iterable[Observer] | None = None,
        accept_changes: bool = False,
    ) -> Run[T]:
        """A run that its process left, or lost, ready to go on here: ``run = await agent.resume(run_id)``.

        What it was told when it began (prompt, instructions, limits, the time it has) holds on. A model request that
        was under way is sent again. Of the open calls, those that ended keep their results, those that were not begun
        run, and those that were begun run again if they only read or are idempotent; any other's outcome is unknown,
        which the model is told, or a human is asked about. `Run.recovery` says what was found.

        Args:
            run_id: The run.
            deps: What tools get from you.
            model: Another model, or list of models, than the agent's.
            observers: Who hears of the run from here on, besides the agent's observers.
            accept_changes: Whether it goes on although the machine, a model or a tool is not what it was.

        Raises:
            NoSuchRun: The store has no such run.
            RunFinished: It has ended.
            RunIsLeased: Somebody drives it.
            Changed: The machine, a model or a tool is not what it was.
        """
        clients = self.clients(model)
        outside = self._outside(clients, deps, observers)
        now = nature_of(self, (client.name for client in clients))
        found = await reopen(outside, run_id, now, accept_changes=accept_changes)
        return Run(outside, found.run.start, self.output.convert, found, fork=self._fork)

    async def _fork(self, outside: Outside, run_id: str, seq: int) -> Run[T]:
        """A fork of a run of this agent, for `Run.fork`."""
        from turnstile.replay import fork

        forked = await fork(self.store, self, run_id, seq)
        return await self.resume(forked, deps=outside.deps, model=outside.models)

    def _outside(self, clients: tuple[ModelClient, ...], deps: object, observers: Iterable[Observer] | None) -> Outside:
        return Outside(
            machine=self.machine,
            models=clients,
            tools=self.toolbox,
            store=self.store,
            clock=self.clock,
            context=self.context,
            vet_output=self.output.vet,
            output_schema=self.output.schema,
            settings=self.settings,
            observers=self.observers if observers is None else (*self.observers, *hearing("a run's", observers)),
            deps=deps,
        )

    async def run(self, prompt: Prompt, **options: Unpack[RunOptions]) -> Result[T]:
        """Run to the end; the arguments are those of `start`.

        When the awaiting task is cancelled, the run ends as cancelled, with every call answered, and the cancellation
        goes on.
        """
        async with self.start(prompt, **options) as run:
            return await run.finish()

    def run_sync(self, prompt: Prompt, **options: Unpack[RunOptions]) -> Result[T]:
        """Run to the end in a program without an event loop; the arguments are those of `start`.

        Raises:
            InsideEventLoop: An event loop is running in this thread, which this call would stop.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run_and_close(prompt, options))
        raise InsideEventLoop("Agent.run_sync()", "await agent.run(…)")

    async def _run_and_close(self, prompt: Prompt, options: RunOptions) -> Result[T]:
        """A run whose connections end with it, as they must when its event loop does."""
        try:
            return await self.run(prompt, **options)
        finally:
            for client in self.clients(options.get("model")):
                await client.aclose()

    def clients(self, model: Models | None = None) -> tuple[ModelClient, ...]:
        """The model clients that a run would use, the first choice first.

        Raises:
            ModelNotFound: No model is named, or its provider or key is unknown.
            ConfigurationError: What was given is no model.
        """
        chosen = model if model is not None else self.model
        if chosen is None:
            from turnstile.models import first_available

            chosen = os.environ.get("TURNSTILE_MODEL") or first_available(os.environ).model
        return tuple(self._client(choice) for choice in choices(chosen))

    async def aclose(self) -> None:
        """Let go of the connections of models that were given by name."""
        for client in self._clients.values():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _client(self, model: str | ModelClient) -> ModelClient:
        if not isinstance(model, str):
            return model
        if model not in self._clients:
            from turnstile.models import resolve

            self._clients[model] = resolve(model, os.environ)
        return self._clients[model]

    def _instructions(self, deps: object) -> str:
        text = self.instructions if isinstance(self.instructions, str) else self.instructions(deps)
        expect("what Agent's instructions give", text, str, "text")
        return "\n\n".join(part for part in (text, self.output.instructions) if part)

    def _tools_size(self) -> int:
        return sum(len(spec.description) + len(str(spec.parameters)) for spec in self.toolbox.specs)


def nature_of(agent: Agent[Any], models: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Names and digests of all that a run must go on under once it has begun: machine, models, tools."""
    return _nature(agent.machine.fingerprint, ", then ".join(models), agent.toolbox.fingerprints)


@lru_cache(128)  # every run of an agent has the same one
def _nature(machine: str, models: str, tools: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return ("machine", machine), ("model", models), *((f"tool {name}", digest) for name, digest in tools)


def new_run_id() -> str:
    """An id that no other run has: 48 random bits, short enough to read out."""
    return secrets.token_hex(6)
