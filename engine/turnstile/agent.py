"""`Agent`: a model, its instructions, tools and limits, ready to run; what a program builds once and runs often."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack, overload

from turnstile.core.approval import with_approval
from turnstile.core.context import KeepAll
from turnstile.core.errors import ConfigurationError, InsideEventLoop, UsageError
from turnstile.core.events import RunStarted
from turnstile.core.history import History
from turnstile.core.limits import Limits, Retry
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Attachment, Item, Message, Prompt, parted
from turnstile.core.strict_json import JsonValue
from turnstile.driver import Outside, Run, reopen
from turnstile.outputs import OutputType
from turnstile.ports import Clock, ContextPolicy, ModelClient, Observer, Store
from turnstile.result import Result
from turnstile.shell.clock import SystemClock
from turnstile.shell.stores.memory import MemoryStore

if TYPE_CHECKING:
    from turnstile.tools import Tool

T = TypeVar("T")
Models = str | ModelClient | Sequence[str | ModelClient]


class AgentOptions(TypedDict, total=False):
    """The options of an `Agent` that don't bear on the type of its output."""

    name: str
    instructions: str | Callable[[Any], str]
    tools: Iterable[Tool[..., Any] | Callable[..., Any]]
    limits: Limits
    context: ContextPolicy | None
    retry: Retry
    machine: Machine
    store: Store | None
    observers: Iterable[Observer]
    settings: Mapping[str, JsonValue] | None
    clock: Clock | None


class RunOptions(TypedDict, total=False):
    """What one run may be given besides its prompt.

    Attributes:
        session: Name of a conversation: the run goes on where the session's newest run in this store ended.
        run_id: A name of your own; without one it gets a new one.
        history: What was said before: another result's `messages`, or items. Not together with `session`.
        limits: In place of the agent's.
        model: In place of the agent's.
        deps: What tools and instructions get from you: a database, the user.
        observers: Who hears of this run, besides the agent's observers.
    """

    session: str | None
    run_id: str | None
    history: Iterable[Item | Message]
    limits: Limits | None
    model: Models | None
    deps: object
    observers: Iterable[Observer]


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

        for option, value, kind, what in (
            ("name", name, str, "text"),
            ("limits", limits, Limits, "Limits(…)"),
            ("retry", retry, Retry, "Retry(…)"),
            ("machine", machine, Machine, "a Machine, such as loop.extend(…)"),
            ("settings", settings or {}, Mapping, 'a mapping, such as {"max_tokens": 1000}'),
        ):
            _expect(f"Agent's {option}", value, kind, what)
        self.model = model
        self.name = name
        self.instructions = instructions
        self.clock = clock or SystemClock()
        self.toolbox = Toolbox(tools, monotonic=self.clock.monotonic)
        self.limits = limits
        self.output: OutputType[T] = OutputType(output)
        self.context = context or KeepAll()
        self.retry = retry
        asks = any(tool.on_in_doubt == "ask" for tool in self.toolbox.tools)
        self.machine = with_approval(machine) if asks else machine
        self.origin = ""
        self.store = store or MemoryStore()
        self.observers = tuple(observers)
        self.settings = dict(settings or {})
        self._max_output = _max_tokens(self.settings)
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
            ConfigurationError: A cost limit stands beside a model whose price is unknown.
            UsageError: The prompt is empty, or the history has a call without a result, or a result without a call.
        """
        _check_options(prompt, options)
        session, deps = options.get("session"), options.get("deps")
        clients = self.clients(options.get("model"))
        limits = options.get("limits") or self.limits
        said = options.get("history", ())
        items = History.of(said)[:] if said else ()
        if session is not None and items:
            raise ConfigurationError("give a run a session or a history, not both: a session brings its own")
        _check_price(clients, limits)
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
        outside = self._outside(clients, deps, options.get("observers", ()))
        return Run(outside, start, self.output.convert, fork=self._fork)

    async def resume(
        self,
        run_id: str,
        *,
        deps: object = None,
        model: Models | None = None,
        observers: Iterable[Observer] = (),
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

    def _outside(self, clients: tuple[ModelClient, ...], deps: object, observers: Iterable[Observer]) -> Outside:
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
            observers=(*self.observers, *observers) if observers else self.observers,
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
        """
        chosen = model if model is not None else self.model
        if chosen is None:
            from turnstile.models import first_available

            chosen = os.environ.get("TURNSTILE_MODEL") or first_available(os.environ).model
        choices = [chosen] if isinstance(chosen, str) or not isinstance(chosen, Sequence) else list(chosen)
        if not choices:
            raise ConfigurationError("an agent needs at least one model; got an empty list")
        return tuple(self._client(choice) for choice in choices)

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


def _expect(name: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name} is {what}; got {value!r}")


def _max_tokens(settings: Mapping[str, JsonValue]) -> int | None:
    wish = settings.get("max_tokens")
    if wish is not None and (not isinstance(wish, int) or isinstance(wish, bool) or wish < 1):
        raise ConfigurationError(f"settings['max_tokens'] is a whole number of at least 1; got {wish!r}")
    return wish


def _check_options(prompt: object, options: RunOptions) -> None:
    """Refuse what cannot be meant, before anything of it is kept or paid for."""
    if options:
        _check_named(options)
    parts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(parts, Sequence) or not all(isinstance(part, str | Attachment) for part in parts):
        raise UsageError(f"a prompt is text, or a list of texts and attachments; got {prompt!r}")
    if not any(isinstance(part, Attachment) or part.strip() for part in parts):
        raise UsageError("the prompt is empty; say what the agent is to do")


def _check_named(options: RunOptions) -> None:
    unknown = options.keys() - RunOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a run has no option {min(unknown)!r}; it takes {', '.join(RunOptions.__annotations__)}")
    if options.get("limits") is not None:
        _expect("a run's limits", options.get("limits"), Limits, "Limits(…)")
    for name in ("run_id", "session"):
        value = options.get(name, "-")
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise UsageError(f"a run's {name} is text that isn't empty, or None; got {value!r}")


def _check_price(clients: tuple[ModelClient, ...], limits: Limits) -> None:
    if limits.cost is None:
        return
    for client in clients:
        if client.price is None:
            raise ConfigurationError(
                f"Limits.cost={limits.cost!r} cannot be held with {client.name!r}, whose price is unknown; "
                "give the model client price=Price(input=…, output=…), or limit tokens instead"
            )
