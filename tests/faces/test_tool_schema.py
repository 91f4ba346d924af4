"""A tool's schema and the check of its arguments: what the model is told is what the function gets."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from turnstile.core.errors import ToolDefinitionError
from turnstile.core.strict_json import JsonValue
from turnstile.tools import ToolContext, tool

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    number: int = 1


@dataclasses.dataclass
class Point:
    """A place on the map."""

    x: int
    y: int = 0


class Box(TypedDict):
    """A box."""

    width: int


class StrictDay(BaseModel):
    """A model whose author allows no conversion."""

    model_config = ConfigDict(strict=True)

    day: dt.date
    sizes: tuple[int, ...]


NOBODY = object()


@tool
def order(  # noqa: D417, PLR0917 - the docstring's silence is part of the test
    item: str,
    ctx: ToolContext,
    count: Annotated[int, Field(ge=1, description="How many.")] = 1,
    unit: Literal["kg", "piece"] = "piece",
    colour: Colour = Colour.RED,
    to: Address | None = None,
    note: Optional[str] = None,  # noqa: UP045 - the older way is written too
    stops: list[Point] = [],  # noqa: B006 - what authors write
    boxes: dict[str, Box] | None = None,
    schema: str = "plain",
    _hidden: float = float("nan"),
    payer: Annotated[object, Field(description="Who pays.")] = NOBODY,
    log: ToolContext | None = None,
) -> str:
    """Order something.

    Args:
        item: What to order.
        count: The docstring's words, which the Field's stand before.
        ctx: Never shown.
    """
    return ""


def test_a_schema_tells_all_that_the_hints_tell() -> None:
    """Defaults, bounds, choices and nested types are what lets a model call a tool right the first time."""
    properties: Any = order.parameters["properties"]
    assert properties["item"] == {"type": "string", "description": "What to order."}
    assert properties["count"] == {"type": "integer", "minimum": 1, "description": "How many.", "default": 1}
    assert properties["unit"] == {"enum": ["kg", "piece"], "type": "string", "default": "piece"}
    assert properties["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert properties["to"] == {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None}
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert properties["stops"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}, "default": []}
    assert properties["schema"] == {"type": "string", "default": "plain"}
    assert set(order.parameters["$defs"]) == {"Address", "Box", "Colour", "Point"}  # type: ignore[arg-type]
    assert order.parameters["required"] == ["item"]
    assert order.parameters["additionalProperties"] is False


def test_a_default_that_json_cannot_say_is_left_out() -> None:
    """NaN or an object of the program's has no place in a schema that a server must parse."""
    properties: Any = order.parameters["properties"]
    assert properties["_hidden"] == {"type": "number"}
    assert properties["payer"] == {"description": "Who pays."}
    json.dumps(order.parameters, allow_nan=False)


def test_the_context_is_hidden_and_filled_in() -> None:
    """The model neither sees nor gives what belongs to the run, however the hint is written."""
    assert not {"ctx", "log"} & set(order.parameters["properties"])  # type: ignore[arg-type]
    assert order.check({"item": "tea", "ctx": {}})[1].startswith("- ctx: there is no such parameter")
    context = ToolContext("run", "call")
    assert order.bind({"item": "tea"}, lambda: context) == {"item": "tea", "ctx": context, "log": context}


def test_the_description_is_the_docstring_without_its_parameters() -> None:
    """What is said of a parameter stands beside the parameter, and isn't paid for twice."""
    assert order.description == "Order something."


@tool
def ping() -> str:
    """Say pong."""
    return "pong"


def test_a_tool_without_arguments_has_properties_still() -> None:
    """Servers refuse an object schema without ``properties`` (wire case schema-noarg-missing-properties)."""
    assert ping.parameters == {"type": "object", "properties": {}}
    assert ping.check({}) == ({}, "")
    assert ping.check({"x": 1})[1] == "- x: there is no such parameter; the parameters: none"


def test_arguments_arrive_as_the_hints_say() -> None:
    """The function's code works with its own types, and never with the JSON that a model wrote."""
    given: dict[str, JsonValue] = {
        "item": "tea",
        "count": "3",
        "colour": "blue",
        "to": {"street": "Main"},
        "stops": [{"x": "1"}],
        "boxes": {"a": {"width": 2}},
    }
    assert order.check(given) == (
        {
            "item": "tea",
            "count": 3,
            "colour": Colour.BLUE,
            "to": Address(street="Main"),
            "stops": [Point(1)],
            "boxes": {"a": {"width": 2}},
        },
        "",
    )


def test_what_is_missing_stays_missing() -> None:
    """The function's own default is the very object its author wrote, not a copy of it."""
    assert order.check({"item": "tea"}) == ({"item": "tea"}, "")


def _book(day: StrictDay) -> str:
    return str(day)


def test_strict_types_take_what_json_has_for_them() -> None:
    """JSON has no date and no tuple: a strict model means no guessing, not no calls."""
    values, problem = tool(_book).check({"day": {"day": "2026-05-01", "sizes": [1, 2]}})
    assert problem == ""
    assert values == {"day": StrictDay(day=dt.date(2026, 5, 1), sizes=(1, 2))}


def test_a_misfit_lists_each_field_with_what_was_expected_and_got() -> None:
    """A model mends all its mistakes in one go when all are named, in few words."""
    given: dict[str, JsonValue] = {
        "count": 0,
        "unit": "litre",
        "to": {"street": 3},
        "stops": [{"x": "far" * 50}],
        "citty": 1,
    }
    _, problem = order.check(given)
    names = "item, count, unit, colour, to, note, stops, boxes, schema, _hidden, payer"
    far = "far" * 26 + "f"  # 79 characters and a quotation mark
    assert problem.splitlines() == [
        "- item: required, but missing",
        "- count: Input should be greater than or equal to 1; got 0",
        "- unit: Input should be 'kg' or 'piece'; got \"litre\"",
        "- to.street: Input should be a valid string; got 3",
        f'- stops.0.x: Input should be a valid integer, unable to parse string as an integer; got "{far}…',
        f"- citty: there is no such parameter; the parameters: {names}",
    ]


def test_many_problems_are_bounded() -> None:
    """A hostile or confused model must not fill its own context with our complaints."""
    _, problem = order.check({"item": "x", **{f"x{number}": 1 for number in range(1_000)}})
    assert len(problem.splitlines()) == 9
    assert problem.endswith("- and 992 more")


def _refuse(text: str) -> str:
    raise KeyError(text)


def _picky(text: Annotated[str, AfterValidator(_refuse)]) -> str:
    return text


def test_a_validator_that_breaks_is_told_too() -> None:
    """A validator of the user's may raise anything; the run goes on, and the model learns why."""
    assert tool(_picky).check({"text": "a"}) == ({}, "- KeyError: 'a'")


def test_half_a_surrogate_pair_is_refused() -> None:
    """A lone surrogate is no character, and would break whoever writes it to a file or a socket."""
    values, problem = order.check({"item": "a\ud83d"})
    assert values == {}
    assert "surrogate" in problem


def _aliased(from_: Annotated[str, Field(alias="from", description="Where from.")], to: str = "") -> str:
    return from_ + to


def test_an_alias_is_the_models_name() -> None:
    """A parameter may need a name that Python reserves."""
    made = tool(_aliased)
    properties: Any = made.parameters["properties"]
    assert properties["from"] == {"type": "string", "description": "Where from."}
    assert made.check({"from": "a"}) == ({"from_": "a"}, "")


def _socketed(peer: socket.socket) -> str:
    return str(peer)


def _called(back: Callable[[int], int]) -> str:
    return str(back)


def _only_checked(price: Decimal) -> str:
    return str(price)


def _field_default(city: str = Field("Oslo", description="Where.")) -> str:
    return city


class Measured(BaseModel):
    """A measurement, with a default that JSON cannot say."""

    size: float = float("inf")


def _endless(measured: Measured) -> str:
    return str(measured)


def _odd_pattern(word: Annotated[str, Field(pattern="(")]) -> str:
    return word


def _final(word: str) -> str:
    return word


_final.__annotations__["word"] = Final[str]  # as in a module whose annotations are no texts; it has no place there


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_socketed, "parameter 'peer' has a type without a schema: .*socket"),
        (_called, "parameter 'back' has a type without a schema: "),
        (_only_checked, r"a type hint cannot be resolved \(NameError: .*'Decimal'.*not only under TYPE_CHECKING"),
        (_field_default, r"parameter 'city' has a Field as default.*write city: Annotated\["),
        (_endless, "its schema is no JSON: Infinity is not JSON; use finite numbers"),
        (_odd_pattern, "parameter 'word' has a type without a schema: "),
        (_final, "its parameters have no schema: TypeError: .*Final.* is not valid"),
    ],
)
def test_a_type_without_a_schema_names_its_parameter(function: Callable[..., Any], words: str) -> None:
    """The author must find the one parameter to change, not read pydantic's trace."""
    with pytest.raises(ToolDefinitionError, match=words) as raised:
        _ = tool(function).parameters
    assert "errors.pydantic.dev" not in str(raised.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["item", "count", "unit", "to", "stops", "payer", "x"]), json_values))
def test_any_arguments_give_values_or_a_short_problem(arguments: dict[str, JsonValue]) -> None:
    """Whatever a model sends, the check answers: either all fits, or nothing is handed on and the text says why."""
    values, problem = order.check(arguments)
    assert not (values and problem)
    assert "https://" not in problem
    assert len(problem) < 9 * 800
