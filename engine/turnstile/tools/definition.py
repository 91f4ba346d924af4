"""`@tool`: a plain function as a tool that a model may call, still called like the function.

What is wrong with a tool is said as soon as it can be: where it is made, for its name, its options and the kinds of
its parameters. Its schema and description are made when first asked for, by `turnstile.tools.schema`, so that a program
which never calls a model doesn't pay for pydantic.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, get_args, overload

from turnstile.core.errors import ToolDefinitionError
from turnstile.core.events import Access, OnInDoubt
from turnstile.core.receipts import idempotency_key
from turnstile.core.strict_json import JsonValue

if TYPE_CHECKING:
    from turnstile.tools.schema import Parameters

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"  # what OpenAI's and Anthropic's API references ask of a tool's name
MAX_RESULT_CHARS = 20_000  # about 5,000 tokens of English, so that eight such results fit a context of 64,000
LEAST_RESULT_CHARS = 100  # room to say how much was left out

_NO_NAME: Mapping[object, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and a model gives arguments by name; take the '/' away",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments, and a model gives them by name; take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name, and a model must be told the names; name each one",
}


def _unheard(_: str) -> None:
    """Let a progress text go where nobody listens."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the run that calls it. A parameter of this type is filled in, and hidden from the model.

    Attributes:
        run_id: The run.
        call_id: The call, unique within the run.
        deps: What the user handed to the run for its tools.
        on_progress: Takes what `progress` says.
    """

    run_id: str
    call_id: str
    deps: Any = None
    on_progress: Callable[[str], None] = _unheard

    @property
    def idempotency_key(self) -> str:
        """A key to hand to a server: the same whenever this call is begun again, another for every other call."""
        return idempotency_key(self.run_id, self.call_id)

    def progress(self, text: str) -> None:
        """Tell whoever observes the run how far the tool is, from any thread. The model doesn't see it."""
        self.on_progress(text)


class ToolOptions(TypedDict, total=False):
    """What `tool` may be told about a function.

    Attributes:
        name: Its name for the model, if not the function's.
        description: What it does, for the model, if not what the docstring says.
        access: What it does to the world: ``"read"`` nothing; ``"idempotent"`` the same however often it runs with the
            same `ToolContext.idempotency_key`; ``"write"``, the default, something new each time, so that a call whose
            outcome is unknown is never run again.
        timeout: Seconds after which a call is given up; ``None``, the default, never does.
        max_result_chars: How long a result may be; a longer one is cut in the middle.
        max_calls: How often one run may call it; ``None``, the default, as often as the run's limits let it.
        repeats: How often in a row the same call may bring the same result before the run counts as stuck; ``None``
            does not count, for a tool that polls; by default as the run's limits say.
        sequential: Whether a call runs alone: after all calls before it, and before all calls after it.
        on_in_doubt: Who decides about a call that was begun when its process was lost, and that must not run again
            since its access is ``"write"``: ``"tell"``, the default, lets the model know that the outcome is unknown;
            ``"ask"`` makes the run wait for a human (`Run.settle`).
    """

    name: str | None
    description: str | None
    access: Access
    timeout: float | None
    max_result_chars: int
    max_calls: int | None
    repeats: int | Literal["as_run"] | None
    sequential: bool
    on_in_doubt: OnInDoubt


class Tool(Generic[P, R_co]):
    """A function that a model may call, made by `tool`; its options are `ToolOptions`, each an attribute here.

    Attributes:
        function: The function.
        is_async: Whether calling the function gives a coroutine, which runs on the event loop and not in a thread.

    Raises:
        ToolDefinitionError: It cannot be offered to a model as it is; the text says what to change.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str | None = None,
        description: str | None = None,
        access: Access = "write",
        timeout: float | None = None,
        max_result_chars: int = MAX_RESULT_CHARS,
        max_calls: int | None = None,
        repeats: int | Literal["as_run"] | None = "as_run",
        sequential: bool = False,
        on_in_doubt: OnInDoubt = "tell",
    ) -> None:
        # Without the function's own attributes (`updated`), which could stand before ours.
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name = _name_of(function) if name is None else name
        self.access = access
        self.timeout = timeout
        self.max_result_chars = max_result_chars
        self.max_calls = max_calls
        self.repeats = repeats
        self.sequential = sequential
        self.on_in_doubt = on_in_doubt
        self.is_async = _is_async(function)
        self._description = description
        _check_options(self, description)
        self._signature = _signature_of(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, access={self.access!r})"

    @property
    def description(self) -> str:
        """What it does, for the model."""
        return self._parameters.description if self._description is None else self._description

    @property
    def parameters(self) -> Mapping[str, JsonValue]:
        """JSON Schema of its arguments: an object schema, which always has ``properties``.

        Raises:
            ToolDefinitionError: A parameter's type has no schema, or cannot be found.
        """
        return self._parameters.schema

    def check(self, arguments: Mapping[str, JsonValue]) -> tuple[Mapping[str, object], str]:
        """The arguments as the function takes them, and an empty text; or nothing, and what is wrong with them."""
        return self._parameters.check(arguments)

    def bind(self, arguments: Mapping[str, object], context: Callable[[], ToolContext]) -> Mapping[str, object]:
        """Checked arguments together with the `ToolContext`, if the function asks for one; only then is it made."""
        names = self._parameters.context_names
        return {**arguments, **dict.fromkeys(names, context())} if names else arguments

    @functools.cached_property
    def _parameters(self) -> Parameters:
        from turnstile.tools.schema import describe

        return describe(self.name, self.function, self._signature)


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool, as ``@tool``, ``@tool(access="read")`` or ``tool(function, access="read")``.

    The model sees the function's name, its docstring, and a schema made from its type hints and what the docstring
    says of each parameter (in Google's, NumPy's or Sphinx's way). The function may be async, or sync: then it runs in a
    thread of its own.

    Args:
        function: The function, a bound method, or anything that can be called.
        options: Those of `ToolOptions`.

    Raises:
        ToolDefinitionError: It cannot be offered to a model as it is; the text says what to change.
    """
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    if isinstance(function, Tool):
        if options:
            raise ToolDefinitionError(function.name, f"it is a tool already; give {sorted(options)!r} where it is made")
        return function
    return Tool(function, **options)


def _name_of(function: Callable[..., object]) -> str:
    inner = _inner(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _is_async(function: Callable[..., object]) -> bool:
    inner = _inner(function)
    called = getattr(type(inner), "__call__", None)  # noqa: B004 - not whether it can be called, but what runs then
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called)


def _inner(function: Callable[..., object]) -> Callable[..., object]:
    return function.func if isinstance(function, functools.partial) else function


def _check_options(tool: Tool[..., Any], description: object) -> None:
    name: object = tool.name
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        problem = f"its name does not match {NAME_PATTERN}, so model servers refuse it; give it one with tool(name=…)"
        raise ToolDefinitionError(str(name), problem)
    if description is not None and not isinstance(description, str):
        raise ToolDefinitionError(tool.name, f"description is text, or None; got {description!r}")
    if not isinstance(tool.sequential, bool):
        raise ToolDefinitionError(tool.name, f"sequential is True or False; got {tool.sequential!r}")
    if tool.access not in get_args(Access):
        raise ToolDefinitionError(tool.name, f"access is one of {get_args(Access)!r}; got {tool.access!r}")
    if tool.on_in_doubt not in get_args(OnInDoubt):
        raise ToolDefinitionError(tool.name, f"on_in_doubt is one of {get_args(OnInDoubt)!r}; got {tool.on_in_doubt!r}")
    timeout: object = tool.timeout
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ToolDefinitionError(tool.name, f"timeout is a number of seconds above 0, or None; got {timeout!r}")
    if not _is_count(tool.max_result_chars, LEAST_RESULT_CHARS):
        problem = f"max_result_chars is at least {LEAST_RESULT_CHARS}, so that a cut result can say so"
        raise ToolDefinitionError(tool.name, f"{problem}; got {tool.max_result_chars!r}")
    if tool.max_calls is not None and not _is_count(tool.max_calls, 1):
        raise ToolDefinitionError(tool.name, f"max_calls is a whole number above 0, or None; got {tool.max_calls!r}")
    if tool.repeats is not None and tool.repeats != "as_run" and not _is_count(tool.repeats, 1):
        problem = "repeats is a whole number above 0, None to not count them, or 'as_run'"
        raise ToolDefinitionError(tool.name, f"{problem}; got {tool.repeats!r}")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _signature_of(tool: Tool[..., Any]) -> inspect.Signature:
    """The signature of the tool's function, without what a ``partial`` has bound already."""
    function = tool.function
    if not callable(function):
        raise ToolDefinitionError(tool.name, f"a tool is made from something that can be called; got {function!r}")
    if isinstance(function, type):
        raise ToolDefinitionError(tool.name, f"{function!r} is a class; make the tool from a function that uses it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(tool.name, "it yields, and a call has one result; return a list or a text")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(tool.name, f"its parameters cannot be read ({error}); wrap it in a def") from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    taken = [parameter for parameter in signature.parameters.values() if parameter.name not in bound]
    for parameter in taken:
        problem = _NO_NAME.get(parameter.kind, "")
        if parameter.name == "self" and parameter.annotation is inspect.Parameter.empty:
            problem = "belongs to a method; make the tool from the bound method: tool(thing.method)"
        elif parameter.annotation is inspect.Parameter.empty and not problem:
            problem = f"has no type hint; give it one, such as {parameter.name}: str"
        if problem:
            raise ToolDefinitionError(tool.name, f"parameter {parameter.name!r} {problem}")
    return signature.replace(parameters=taken)
