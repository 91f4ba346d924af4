"""What an `Agent` and a run of it may be given, and the one clear error for what cannot be meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, TypedDict

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.expecting import SETTINGS, expect, expect_able, expect_several
from turnstile.core.limits import Limits, Retry
from turnstile.core.machine import Machine
from turnstile.core.messages import Attachment, Item, Message
from turnstile.core.strict_json import JsonValue
from turnstile.ports import Clock, ContextPolicy, ModelClient, Observer, Store

if TYPE_CHECKING:
    from turnstile.tools import Tool

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
    history: Iterable[Item | Message] | None
    limits: Limits | None
    model: Models | None
    deps: object
    observers: Iterable[Observer] | None


_LIMITS = "Limits(…)"
_MODEL = "'provider:name', such as 'openai:gpt-5-mini', a model client, or a list of these"
_KINDS: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
    ("name", str, "text"),
    ("limits", Limits, _LIMITS),
    ("retry", Retry, "Retry(…)"),
    ("machine", Machine, "a Machine, such as loop.extend(…)"),
    ("settings", (Mapping, NoneType), SETTINGS),
)
_PORTS: tuple[tuple[str, str, str], ...] = (
    ("store", "claim", "a store, such as SQLiteStore('runs.db')"),
    ("context", "select", "a context policy, which has a method select(history, start)"),
    ("clock", "alarm", "a clock, such as FrozenClock()"),
)


def check_agent(**given: object) -> None:
    """Refuse an option of an agent that is not of its kind.

    Args:
        given: All options of an agent but the model, the tools, the output and the observers.

    Raises:
        ConfigurationError: Names the option, what it is, and what it was given.
    """
    for name, kind, what in _KINDS:
        expect(f"Agent's {name}", given[name], kind, what)
    for name, method, what in _PORTS:
        if given[name] is not None:
            expect_able(f"Agent's {name}", given[name], method, what)
    if not callable(given["instructions"]):
        expect("Agent's instructions", given["instructions"], str, "text, or a function from a run's deps to text")


def choices(models: Models) -> tuple[str | ModelClient, ...]:
    """The models that were named or given, the first choice first.

    Raises:
        ConfigurationError: There is none, or one is no model.
    """
    listed = (models,) if isinstance(models, str) or not isinstance(models, Sequence) else tuple(models)
    if not listed:
        raise ConfigurationError("an agent needs at least one model; got an empty list")
    for model in listed:
        if not isinstance(model, str):
            expect_able("a model", model, "reply", _MODEL)
    return listed


def hearing(whose: str, observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """These observers, each of which can hear.

    Raises:
        ConfigurationError: One cannot.
    """
    listed = expect_several(f"{whose} observers", observers, "a list of observers, such as [JsonLog('-')]")
    for place, observer in enumerate(listed):
        name = f"{whose} observers[{place}]"
        expect_able(name, observer, "observe", "an observer, which has a method observe(notice, run)")
    return listed


def max_tokens(settings: Mapping[str, JsonValue]) -> int | None:
    """How long a reply may be as the settings say; ``None`` when they don't.

    Raises:
        ConfigurationError: They say what is no length.
    """
    wish = settings.get("max_tokens")
    if wish is not None and (not isinstance(wish, int) or isinstance(wish, bool) or wish < 1):
        raise ConfigurationError(f"settings['max_tokens'] is a whole number of at least 1; got {wish!r}")
    return wish


def check_run(prompt: object, options: RunOptions) -> None:
    """Refuse what cannot be meant, before anything of it is kept or paid for.

    Raises:
        UsageError: The prompt, or the name of the run or its session, is none.
        ConfigurationError: Another option is not of its kind.
        TypeError: There is no such option.
    """
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
        expect("a run's limits", options.get("limits"), Limits, _LIMITS)
    for name in ("run_id", "session"):
        value = options.get(name, "-")
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise UsageError(f"a run's {name} is text that isn't empty, or None; got {value!r}")


def check_price(clients: tuple[ModelClient, ...], limits: Limits) -> None:
    """Refuse a cost limit that cannot be held.

    Raises:
        ConfigurationError: A model's price is unknown.
    """
    if limits.cost is None:
        return
    for client in clients:
        if client.price is None:
            raise ConfigurationError(
                f"Limits.cost={limits.cost!r} cannot be held with {client.name!r}, whose price is unknown; "
                "give the model client price=Price(input=…, output=…), or limit tokens instead"
            )
