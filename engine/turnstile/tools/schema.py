"""What a tool's function takes: a JSON Schema for the model, and a check of what the model gives, both by pydantic.

The parameters become a typed dictionary. Its keys may have any name, where a model class would forbid ``schema`` or
``_x``; and what is missing stays missing, so that the function's own defaults hold. This module is imported when a
schema is first needed, since pydantic is heavy.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from turnstile.core.errors import InvalidJSON, ToolDefinitionError
from turnstile.core.strict_json import JsonValue, loads
from turnstile.tools import ToolContext
from turnstile.tools.docstrings import Docstring

PROBLEMS_SHOWN = 8  # a model that errs in more fields mends them in two goes
PREVIEW_CHARS = 80
MESSAGE_CHARS = 300


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes from names: a model reads the name, and each title costs tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002, ANN401 - pydantic's signature
        return False


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a tool's function takes, and what its docstring says.

    Attributes:
        description: What the docstring says, without its section on parameters.
        schema: JSON Schema of the arguments.
        context_names: The parameters that get the tool's context.
        adapter: Checks arguments.
    """

    description: str
    schema: Mapping[str, JsonValue]
    context_names: tuple[str, ...]
    adapter: TypeAdapter[Mapping[str, object]]

    def check(self, arguments: Mapping[str, JsonValue]) -> tuple[Mapping[str, object], str]:
        """The arguments as the function takes them, and an empty text; or nothing, and what is wrong with them."""
        try:
            # As JSON, so that a strict type takes what JSON has for it: text for a date, a list for a tuple.
            return self.adapter.validator.validate_json(to_json(arguments)), ""
        except PydanticSerializationError:
            return {}, "- a text holds half a surrogate pair (\\ud800 to \\udfff), which stands for no character"
        except ValidationError as error:
            return {}, self._problems(error)
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything, and the model can act on it
            return {}, f"- {type(error).__name__}: {error}"[:MESSAGE_CHARS]

    def _problems(self, error: ValidationError) -> str:
        found = error.errors(include_url=False, include_context=False)
        lines = [self._problem(details) for details in found[:PROBLEMS_SHOWN]]
        left = len(found) - PROBLEMS_SHOWN
        return "\n".join(lines + ([f"- and {left} more"] if left > 0 else []))

    def _problem(self, details: ErrorDetails) -> str:
        place = ".".join(str(part) for part in details["loc"])
        if details["type"] == "missing":
            return f"- {place}: required, but missing"
        if details["type"] == "extra_forbidden" and len(details["loc"]) == 1:
            names = ", ".join(cast("Mapping[str, JsonValue]", self.schema["properties"])) or "none"
            return f"- {place[:PREVIEW_CHARS]}: there is no such parameter; the parameters: {names}"
        got = json.dumps(details["input"], ensure_ascii=False, default=repr)
        got = got if len(got) <= PREVIEW_CHARS else got[:PREVIEW_CHARS] + "…"
        return f"- {place[:MESSAGE_CHARS]}: {details['msg'][:MESSAGE_CHARS]}; got {got}"


def describe(name: str, function: Callable[..., object], signature: inspect.Signature) -> Parameters:
    """What a function takes.

    Args:
        name: Name of the tool, for errors.
        function: The function.
        signature: Its parameters.

    Raises:
        ToolDefinitionError: A type hint cannot be resolved, or has no schema.
    """
    target = _target(function)
    hints = _hints(name, target, signature)
    docstring = Docstring(_docstring(function))
    context_names = tuple(key for key, hint in hints.items() if _is_context(hint))
    shown = {key: value for key, value in signature.parameters.items() if key not in context_names}
    for key, parameter in shown.items():
        if isinstance(parameter.default, FieldInfo):
            problem = f"has a Field as default, which a direct call would get; write {key}: Annotated[…, Field(…)] = …"
            raise ToolDefinitionError(name, f"parameter {key!r} {problem}")
    try:
        adapter = _adapter(hints, shown)
        made = adapter.json_schema(schema_generator=_Untitled)
    except Exception as error:
        raise _culprit(name, {key: hints[key] for key in shown}, error) from error
    schema = _plain(name, made)
    properties = cast("dict[str, dict[str, JsonValue]]", schema["properties"])
    for key, parameter in shown.items():
        if key in properties:  # one with an alias stands under that, with what its Field says
            _complete(properties[key], docstring.parameters.get(key, ""), parameter.default)
    return Parameters(docstring.text, schema, context_names, adapter)


def _target(function: Callable[..., object]) -> Callable[..., object]:
    """The function that holds the hints: in a ``partial`` or a decorator, or behind an object that can be called."""
    if isinstance(function, functools.partial):
        return _target(function.func)
    inner = inspect.unwrap(function)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _docstring(function: Callable[..., object]) -> str:
    if isinstance(function, functools.partial):
        return _docstring(function.func)
    if inspect.isroutine(inspect.unwrap(function)):
        return inspect.getdoc(function) or ""
    return type(function).__call__.__doc__ or type(function).__doc__ or ""


def _hints(name: str, target: Callable[..., object], signature: inspect.Signature) -> dict[str, Any]:
    try:
        hints = get_type_hints(target, include_extras=True)
    except Exception as error:
        problem = f"a type hint cannot be resolved ({type(error).__name__}: {error})"
        fix = "what it names must be known in the function's module when it runs, not only under TYPE_CHECKING"
        raise ToolDefinitionError(name, f"{problem}; {fix}") from error
    return {key: hints.get(key, parameter.annotation) for key, parameter in signature.parameters.items()}


def _is_context(hint: object) -> bool:
    if get_origin(hint) is Annotated or get_origin(hint) in (Union, UnionType):
        return any(_is_context(part) for part in get_args(hint))
    return hint is ToolContext


def _adapter(hints: Mapping[str, Any], shown: Mapping[str, inspect.Parameter]) -> TypeAdapter[Mapping[str, object]]:
    """What checks a dictionary of arguments, of which those with a default may be missing."""
    fields: dict[str, Any] = {}
    for key, parameter in shown.items():
        hint = hints[key]
        fields[key] = Required[hint] if parameter.default is inspect.Parameter.empty else NotRequired[hint]
    make: Any = TypedDict  # type checkers want its keys written out, and they are known only now
    arguments = make("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(arguments)


def _culprit(name: str, hints: Mapping[str, Any], error: Exception) -> ToolDefinitionError:
    """The error that names the parameter whose type pydantic cannot describe."""
    for key, hint in hints.items():
        try:
            TypeAdapter(hint).json_schema()
        except Exception as found:  # noqa: BLE001 - whatever it is, it is why this parameter has no schema
            return ToolDefinitionError(name, f"parameter {key!r} has a type without a schema: {_first_line(found)}")
    return ToolDefinitionError(name, f"its parameters have no schema: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _plain(name: str, made: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The schema as JSON that every model server takes: an object that always has ``properties``."""
    schema: dict[str, Any] = {"type": "object", "properties": made["properties"]}
    schema.update({key: made[key] for key in ("required", "$defs") if key in made})
    if made["properties"]:
        schema["additionalProperties"] = False
    try:
        return cast("dict[str, JsonValue]", loads(json.dumps(schema)))
    except InvalidJSON as error:
        problem = f"its schema is no JSON: {error}; use finite numbers as defaults and examples of its types"
        raise ToolDefinitionError(name, problem) from None


def _complete(described: dict[str, JsonValue], said: str, default: object) -> None:
    """Add to a parameter's schema what only the docstring and the signature know; what its Field says comes first."""
    if said:
        described.setdefault("description", said)
    if default is not inspect.Parameter.empty and "default" not in described:
        try:
            described["default"] = loads(to_json(default))
        except ValueError:
            return  # a default that JSON cannot say: the model sees that the parameter is optional
