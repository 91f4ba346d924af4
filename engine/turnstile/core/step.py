"""`step`: one event in, one transition out. Pure: it judges first and changes second, and gives all or raises."""

from __future__ import annotations

from turnstile.core.budget import NOTHING, output_cap, price, reservation
from turnstile.core.changes import charge_lost, finish
from turnstile.core.effects import Ask, AskHuman, CallModel, Effect, RunTools
from turnstile.core.errors import UsageError
from turnstile.core.events import (
    RECEIPTS,
    CallFinished,
    CallStarted,
    ChangesAccepted,
    EffectBegun,
    Event,
    ModelFailed,
    ModelReplied,
    ToolsFinished,
)
from turnstile.core.machine import Machine, Refusal
from turnstile.core.messages import Exchange, ToolResult, Usage, UserTurn
from turnstile.core.rows import AGAIN, STAY
from turnstile.core.run_state import RunState
from turnstile.core.states import START
from turnstile.core.values import Value, evolve


class Transition(Value, frozen=True):
    """The record of one move.

    Attributes:
        seq: Its number in the run, from 1.
        source: State before.
        event: Name of the event.
        row: Name of the row taken.
        dest: State after; equal to `source` when the row stays.
        reason: Why, in the table's words; for a final state, the stop reason.
        refused: The rows tried before, each with its first guard that said no.
        turn: Replies accepted so far, this one included.
        asks: The effect that starts next, as text; empty when none does.
        stays: Whether the running effect goes on.
        usage: Tokens of the reply, when the event brought one whose tokens are known.
        cost: Its price in US dollars, when it is known.
        tools: Results of the calls, when the event brought them; for a reply, nothing.
        calls: Names of the tools that the reply calls.
        error: The failed request, when the event was one.
        at: When the event arrived, in seconds since the epoch.
        duration_ms: How long the effect took that brought the event, in milliseconds.
    """

    seq: int
    source: str
    event: str
    row: str
    dest: str
    reason: str
    refused: tuple[Refusal, ...] = ()
    turn: int = 0
    asks: str = ""
    stays: bool = False
    usage: Usage | None = None
    cost: float | None = None
    tools: tuple[ToolResult, ...] = ()
    calls: tuple[str, ...] = ()
    error: ModelFailed | None = None
    at: float = 0.0
    duration_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.seq} {self.source} --{self.event}--> {self.dest}"


class Step(Value, frozen=True):
    """What one event makes of a run: its next state, the transition, and the effect to perform next."""

    run: RunState
    transition: Transition
    effect: Effect | None


def step(machine: Machine, run: RunState, event: Event, *, at: float = 0.0, duration_ms: float = 0.0) -> Step:
    """Take exactly one transition.

    Args:
        machine: The table.
        run: The run before.
        event: What happened, vetted.
        at: When it arrived, in seconds since the epoch.
        duration_ms: How long the effect took that brought it.

    Raises:
        NoRow: No row takes the event in this state; the run is as it was.
    """
    row, refused = machine.judge(run, event)
    stays = row.dest == STAY
    dest = machine.state(run.state if stays or row.dest == AGAIN else row.dest)
    reason = row.reason if isinstance(row.reason, str) else str(row.reason(run, event))
    moved = row.change(run, event)
    if run.reserved != NOTHING and not stays and not isinstance(event, ModelReplied | ModelFailed):
        moved = charge_lost(moved)
    if dest.final:
        moved = finish(moved, event, reason)
    moved = evolve(
        moved,
        state=dest.name,
        seq=run.seq + 1,
        in_flight=run.in_flight and stays,
        reserved=run.reserved if stays else NOTHING,
    )
    effect = effect_of(machine, moved)
    reply = event.reply if isinstance(event, ModelReplied) else None
    is_batch = reply is None and isinstance(event, ToolsFinished)
    transition = Transition(
        seq=moved.seq,
        source=run.state,
        event=type(event).__name__,
        row=row.name,
        dest=dest.name,
        reason=reason,
        refused=refused,
        turn=moved.turns,
        asks="" if stays or effect is None else str(effect),
        stays=stays,
        usage=reply.usage if reply else None,
        cost=price(run, reply) if reply else None,
        tools=_results(moved) if is_batch else (),
        calls=tuple([call.name for call in reply.calls]) if reply else (),
        error=event if not (reply or is_batch) and isinstance(event, ModelFailed) else None,
        at=at,
        duration_ms=duration_ms,
    )
    return Step(moved, transition, effect)


def _results(run: RunState) -> tuple[ToolResult, ...]:
    """What the calls came to that have just ended: of a run that ended with them, as it stands in the history."""
    if run.open is not None:
        return run.results or run.receipts
    last = run.history[-1]
    return last.results if isinstance(last, Exchange) else ()


def note(run: RunState, receipt: Event) -> RunState:
    """The run after a record that no row takes (`RECEIPTS`)."""
    if isinstance(receipt, EffectBegun):
        return begin(run)
    if isinstance(receipt, CallStarted):
        return evolve(run, started=(*run.started, receipt))
    if isinstance(receipt, CallFinished):
        return evolve(run, receipts=(*run.receipts, receipt.result))
    if isinstance(receipt, ChangesAccepted):
        return evolve(run, accepted=receipt.fingerprints)
    raise UsageError(f"a receipt is one of {', '.join(kind.__name__ for kind in RECEIPTS)}; got {receipt!r}")


def begin(run: RunState) -> RunState:
    """The run with its state's effect under way.

    What the user said meanwhile goes out with a request, and what that may cost at worst is held back for it.
    """
    if run.state != START.name:
        return evolve(run, in_flight=True)
    if run.inbox:
        history = run.history.append(*(UserTurn(text) for text in run.inbox))
        run = evolve(run, history=history, inbox=())
    return evolve(run, in_flight=True, reserved=reservation(run))


def effect_of(machine: Machine, run: RunState) -> Effect | None:
    """What the run's state asks of the outside; ``None`` when it asks nothing."""
    asks = machine.state(run.state).asks
    if asks is None:
        return None
    if asks == "CallModel":
        failure = run.failure
        return CallModel(
            model=run.model,
            attempt=run.retries + 1,
            delay=(failure.delay or 0.0) if failure and run.retries else 0.0,
            tools=run.wrapping_up is None,
            max_output=output_cap(run),
        )
    if asks == "RunTools":
        return _tools_left(run)
    return AskHuman(run.waiting) if asks == "AskHuman" else Ask(asks)


def _tools_left(run: RunState) -> RunTools:
    """The open calls that have no result and wait for nobody; none where an extension's state asks and none is open."""
    if run.open is None:
        return RunTools((), ())
    calls, verdicts = run.open.reply.calls, run.open.verdicts
    if run.receipts or run.in_doubt:
        settled = {result.call_id for result in run.receipts} | {*run.in_doubt}
        left = [place for place, call in enumerate(calls) if call.id not in settled]
        calls, verdicts = tuple([calls[place] for place in left]), tuple([verdicts[place] for place in left])
    return RunTools(calls, verdicts)
