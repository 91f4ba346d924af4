"""How far a run may go, how often it retries, and the names of all reasons why a run stops."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Literal

from turnstile.core.errors import ConfigurationError


class StopReason(StrEnum):
    """Why a run ended. An extension's rows may add reasons of their own, as plain text."""

    ANSWERED = "answered"
    EMPTY_ANSWER = "empty_answer"
    MAX_TURNS = "max_turns"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a reason, not a secret
    COST_LIMIT = "cost_limit"
    TOOL_CALL_LIMIT = "tool_call_limit"
    STUCK_LOOP = "stuck_loop"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    INCOMPLETE = "incomplete"
    INVALID_OUTPUT = "invalid_output"
    CONTEXT_OVERFLOW = "context_overflow"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    TOOL_ABORTED = "tool_aborted"
    CRASH_LOOP = "crash_loop"


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run may go; ``None`` means no limit of that kind. The number of turns is never unlimited.

    Attributes:
        turns: Accepted model replies.
        tool_calls: Tool calls that are run.
        tokens: Tokens of all requests and replies together.
        cost: US dollars for all replies together; needs a model whose price is known.
        seconds: From the start of the run to its end.
        repeats: How often the same calls with the same results may be run in a row; ``None`` never stops for that.
        parallel: Tool calls that run at once.
        nudges: How often an empty or unfinished reply is asked to go on.
        repairs: How often a malformed call or an invalid output is asked for again.
        recoveries: How often in a row a lost effect is begun again before the run counts as crashing for ever.
        on_exhausted: ``"fail"`` ends the run at a limit; ``"wrap_up"`` asks once more, with tools off, for an answer
            from what is there. That one request is paid from the same budget; of the turns it is one more.
    """

    turns: int = 10
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    repeats: int | None = 3
    parallel: int = 8
    nudges: int = 1
    repairs: int = 2
    recoveries: int = 3
    on_exhausted: Literal["fail", "wrap_up"] = "fail"

    def __post_init__(self) -> None:
        for name in ("turns", "parallel"):
            _require_count(self, name, least=1)
        for name in ("nudges", "repairs", "recoveries"):
            _require_count(self, name, least=0)
        for name in ("tool_calls", "tokens"):
            _require_count(self, name, least=0, optional=True)
        _require_count(self, "repeats", least=1, optional=True)
        for name in ("cost", "seconds"):
            _require_amount(self, name, optional=True)
        if self.on_exhausted not in {"fail", "wrap_up"}:
            msg = f"Limits.on_exhausted is 'fail' or 'wrap_up'; got {self.on_exhausted!r}"
            raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True)
class Retry:
    """How a request that failed for a passing reason is sent again.

    Attributes:
        attempts: How often one request is sent at most, the first time included.
        base_delay: Seconds of the first wait's upper bound; it doubles with each retry, and the wait is drawn below it
            ("full jitter", AWS Architecture Blog, "Exponential Backoff And Jitter").
        max_delay: Seconds that no wait exceeds; a server that asks for a longer one ends the attempts.
    """

    attempts: int = 4
    base_delay: float = 0.5
    max_delay: float = 60.0

    def __post_init__(self) -> None:
        _require_count(self, "attempts", least=1)
        for name in ("base_delay", "max_delay"):
            _require_amount(self, name)


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in US dollars for a million tokens."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _require_amount(self, name)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """The price of one request in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


def _require_count(settings: Limits | Retry, name: str, *, least: int, optional: bool = False) -> None:
    value: object = getattr(settings, name)
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return
    _refuse(settings, name, f"a whole number of at least {least}", value, optional=optional)


def _require_amount(settings: Limits | Retry | Price, name: str, *, optional: bool = False) -> None:
    value: object = getattr(settings, name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf:
        return
    _refuse(settings, name, "a finite number of at least 0", value, optional=optional)


def _refuse(settings: Limits | Retry | Price, name: str, what: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    what += ", or None for no limit" if optional else ""
    msg = f"{type(settings).__name__}.{name} is {what}; got {value!r}"
    raise ConfigurationError(msg)
