"""Output types: a schema for the model, a check of its answer, and the value back, from any type pydantic takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from turnstile.core.errors import ConfigurationError, InvalidJSON
from turnstile.core.strict_json import JsonValue, loads

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
V = TypeVar("V")

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_PROBLEMS_SHOWN = 5  # a model mends a few problems at a time; the rest come with its next try


@dataclass(frozen=True)
class OutputType(Generic[T]):
    """What an answer must be.

    Attributes:
        type: Any type that pydantic validates; ``str`` takes the answer's text as it is.
    """

    type: Any

    @property
    def is_text(self) -> bool:
        """Whether the answer's text is the output."""
        return self.type is str

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        from pydantic import TypeAdapter

        return self._made(lambda: TypeAdapter(self.type))

    @cached_property
    def schema(self) -> Mapping[str, JsonValue] | None:
        """JSON Schema of the answer; ``None`` for plain text."""
        return None if self.is_text else self._made(self._adapter.json_schema)

    def _made(self, make: Callable[[], V]) -> V:
        """What pydantic makes of the type; it raises errors of many kinds for one that it can make nothing of."""
        try:
            return make()
        except Exception as error:
            problem = str(error).partition("\n")[0] or type(error).__name__
            what = "a type that pydantic can validate and describe as JSON, such as a BaseModel"
            raise ConfigurationError(f"Agent's output is {what}; got {self.type!r} ({problem})") from error

    @cached_property
    def instructions(self) -> str:
        """What the model is told about the form of its answer; empty for plain text."""
        if self.is_text:
            return ""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Give your final answer as JSON alone, without any other text, that fits this JSON Schema:\n{schema}"

    def vet(self, text: str) -> tuple[JsonValue, str]:
        """The answer's output as JSON with an empty text; or ``None``, with what is wrong written for the model."""
        if self.is_text:
            return text, ""
        from pydantic import ValidationError

        fenced = _FENCE.match(text)
        try:
            value = loads(fenced.group(1) if fenced else text)
            output = self._adapter.validate_json(json.dumps(value))
        except InvalidJSON as error:
            return None, f"not valid JSON: {error}"
        except ValidationError as error:
            return None, describe(error)
        dumped: JsonValue = self._adapter.dump_python(output, mode="json", by_alias=True)
        return dumped, ""

    def convert(self, output: JsonValue) -> T:
        """The output as the type, from its JSON.

        Raises:
            ValueError: There is no output that fits.
        """
        if self.is_text:
            return cast("T", output or "")
        return self._adapter.validate_json(json.dumps(output))


def describe(error: ValidationError) -> str:
    """The problems of a pydantic ``ValidationError``, one after another: where, what, and what was got."""
    problems = error.errors(include_url=False, include_context=False)
    lines = []
    for problem in problems[:_PROBLEMS_SHOWN]:
        place = ".".join(str(part) for part in problem["loc"]) or "the answer"
        lines.append(f"{place}: {problem['msg']} (got {str(problem['input'])[:80]!r})")
    more = len(problems) - _PROBLEMS_SHOWN
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")
