"""What can happen to a run: for each state a finite choice of events that makes every guard say yes and no.

The engine's own events are written out, since their parts belong together: results answer the open calls, a verdict its
call. An extension's events are made from their declared types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import product
from math import prod
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from turnstile.core.errors import UsageError
from turnstile.core.events import (
    EVENTS,
    Access,
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    OnInDoubt,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.machine import Machine
from turnstile.core.messages import FinishReason, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.run_state import RunState
from turnstile.core.values import fields_of, is_record

T = TypeVar("T")
Alphabet = Callable[[RunState], Iterable[Event]]
"""The events that an effect may bring to a run."""

_DEAR = 1_000_000  # tokens of a reply that passes any budget of `STARTS`
_FINISHES: tuple[FinishReason, ...] = ("stop", "tool_calls", "length", "refusal", "pause")
_FAILURES = (
    ModelFailed("budget", limit="token_limit"),
    ModelFailed("budget", limit="cost_limit"),
    ModelFailed("context_overflow"),
    ModelFailed("timeout", delay=0.0),
    ModelFailed("timeout"),
    ModelFailed("content_filter"),
    ModelFailed("generation_failed"),
    ModelFailed("authentication"),
)


def _start(limits: Limits, models: int = 1, price: Price | None = None, *, attempts: int = 1) -> RunStarted:
    names = tuple(f"model {number + 1}" for number in range(models))
    said = (UserTurn("before"),)
    return RunStarted(
        "run", "?", history=said, limits=limits, retry=Retry(attempts), models=names, prices=(price,) * models
    )


STARTS = (
    _start(Limits(turns=2, nudges=1, repairs=1, recoveries=1, repeats=None), attempts=2),
    _start(
        Limits(turns=2, nudges=0, repairs=0, recoveries=0, repeats=None, on_exhausted="wrap_up"), models=2, attempts=2
    ),
    _start(Limits(turns=3, nudges=0, repairs=0, recoveries=0, repeats=1, tool_calls=2)),
    _start(
        Limits(turns=2, nudges=0, repairs=1, recoveries=0, repeats=None, tokens=10_000, on_exhausted="wrap_up"),
        attempts=2,
    ),
    _start(Limits(turns=3, nudges=1, repairs=0, recoveries=0, repeats=None, cost=0.1), price=Price(1, 2)),
)
"""Small runs in which each limit is soon reached."""


def events_in(machine: Machine, run: RunState, given: Mapping[str, Alphabet]) -> Iterator[Event]:
    """All events to try on a run that is not finished.

    Args:
        machine: The table; the events of an extension are those that its rows name.
        run: The run.
        given: For states by name, what their effects may bring, instead of what is tried otherwise.
    """
    yield Cancelled("no more")
    yield DeadlinePassed()
    yield MessageInjected(f"said at {run.seq}")
    state = machine.state(run.state)
    if state.asks not in {None, "AskHuman"}:
        yield EffectLost()
        if not run.in_flight:
            yield EffectBegun()
            return
    if state.name in given:
        yield from given[state.name](run)
        return
    if state.asks is None:
        yield ResultsAppended()
    elif state.asks == "AskHuman":
        yield from _decisions(run)
    elif state.asks == "CallModel":
        yield from _FAILURES
        limits, turn = run.limits, run.turns + 1
        yield from _replies(turn, limits.repeats, limits.tokens is not None or limits.cost is not None)
        if limits.recoveries and any(other.asks == "AskHuman" for other in machine.states):
            yield _reply(turn, limits.repeats, "stop", calls=2, on_in_doubt="ask")  # which only a recovery asks for
    elif state.asks == "RunTools" and run.open is not None:
        yield from _receipts(run, run.open)
        yield from _results(run, run.open)
    for event in _own_events(machine, state.name):
        yield from samples(event)


@lru_cache(maxsize=32)
def _replies(turn: int, repeats: int | None, has_budget: bool) -> tuple[ModelReplied, ...]:  # noqa: FBT001 - a key
    """The replies of a turn, made once for all the situations that they are tried in."""
    reply = partial(_reply, turn, repeats)
    made = []
    for finish in _FINISHES:
        made += [reply(finish), reply(finish, text="text"), reply(finish, calls=1)]
    made += [
        reply("stop", text="text", output_error="no"),
        reply("stop", calls=2),
        reply("stop", calls=1, access="read"),
        reply("stop", calls=1, problem="no such tool"),
    ]
    if has_budget:
        made += [reply("stop", calls=1, tokens=_DEAR), reply("tool_calls", text="text", tokens=_DEAR)]
    return tuple(made)


def _reply(
    turn: int,
    repeats: int | None,
    finish: FinishReason,
    *,
    text: str = "",
    calls: int = 0,
    access: Access = "write",
    on_in_doubt: OnInDoubt = "tell",
    problem: str = "",
    output_error: str = "",
    tokens: int = 1,
) -> ModelReplied:
    ids = [f"call {turn}.{number}" for number in range(calls)]
    return ModelReplied(
        Reply(text, tuple(ToolCall(id_, "tool", "{}") for id_ in ids), finish, usage=Usage(1, tokens)),
        tuple(
            Verdict(
                id_,
                f"digest {number}",
                not problem,
                problem=problem,
                access=access,
                repeats=repeats,
                on_in_doubt=on_in_doubt,
            )
            for number, id_ in enumerate(ids)
        ),
        output_error=output_error,
    )


def _receipts(run: RunState, opened: ModelReplied) -> Iterator[Event]:
    """The next call begins, or the first one ends before the others: where it is asked for, be it after a crash."""
    begun, left, survives = {intent.call_id for intent in run.started}, _left(run, opened), survives_crash(run)
    waiting = [call for call in left if call.id not in begun]
    if waiting and survives:
        yield CallStarted(waiting[0].id, waiting[0].name, "digest")
    if len(left) > 1 and (survives or run.limits.repeats is not None):
        yield CallFinished(ToolResult(left[0].id, left[0].name, "same"))


def survives_crash(run: RunState) -> bool:
    """Whether the run would go on after a crash, so that it matters which calls were begun."""
    return run.recoveries < run.limits.recoveries and run.stopping is None


def _left(run: RunState, opened: ModelReplied) -> list[ToolCall]:
    """The calls that have no result and that nobody decides about."""
    settled = {result.call_id for result in run.receipts} | {*run.in_doubt}
    return [call for call in opened.reply.calls if call.id not in settled]


def _results(run: RunState, opened: ModelReplied) -> Iterator[ToolsFinished]:
    calls = _left(run, opened)
    for content, aborted in (("same", None), (opened.reply.calls[0].id, None), ("same", "stop")):
        yield ToolsFinished(tuple(ToolResult(c.id, c.name, content) for c in calls), aborted)


def _decisions(run: RunState) -> Iterator[ApprovalDecided]:
    for call in run.waiting:
        yield ApprovalDecided(call.id, "rerun")
        yield ApprovalDecided(call.id, "result", "same")
        yield ApprovalDecided(call.id, "unknown")


def _own_events(machine: Machine, state: str) -> dict[type[Event], None]:
    rows = [row for row in machine.rows if state in machine.sources(row)]
    return dict.fromkeys(event for row in rows for event in row.events if event not in EVENTS)


def samples(kind: type[Event]) -> list[Event]:
    """An event for each combination of a few values of its fields.

    Raises:
        UsageError: A field's type has no values to choose from, or there are too many combinations.
    """
    return _made(kind)


def _made(kind: type[T]) -> list[T]:
    hints: dict[str, object] = get_type_hints(kind)
    choices = {field.name: _values(kind, field.name, hints[field.name]) for field in fields_of(kind)}
    count = prod(map(len, choices.values()))
    if count > _MOST:
        msg = f"{kind.__name__}: {count} combinations are too many to try; {_INSTEAD}"
        raise UsageError(msg)
    return [kind(**dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


def _values(kind: type, name: str, hint: object) -> list[object]:
    options = get_args(hint)
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    if is_record(hint):
        return _made(hint)
    if get_origin(hint) is Literal:
        return list(options)
    if get_origin(hint) in {Union, UnionType}:
        return [value for option in options for value in _values(kind, name, option)]
    if get_origin(hint) is tuple and options[1:] == (...,):
        return [(), *((value,) for value in _values(kind, name, options[0]))]
    msg = f"{kind.__name__}.{name}: no values to try for {hint!r}; {_INSTEAD}"
    raise UsageError(msg)


_MOST = 256
_INSTEAD = "hand explore(…, events=…) the events of each state that takes them"
_SCALARS: dict[type, list[object]] = {
    NoneType: [None],
    bool: [False, True],
    int: [0, 1],
    float: [0.0, 1.0],
    str: ["", "text"],
}
