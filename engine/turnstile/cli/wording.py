"""What a run does, in words for a terminal: what happened, what comes next, and why not otherwise."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from turnstile.cli.screen import one_line
from turnstile.core.effects import CallModel, Effect, RunTools
from turnstile.core.messages import Exchange, ToolResult
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.driver import Recovery
from turnstile.ports import Notice, ToolProgress
from turnstile.result import Result

EXPECTED = frozenset({"run_tools", "finished", "appended"})
"""Rows that a run takes when all is well on its way; the lines of calls and results tell as much."""

WAY_OUT = {
    "max_turns": "--max-turns N allows more",
    "truncated": "ask for less, or raise max_tokens in the agent's settings",
    "tool_call_limit": "Limits(tool_calls=…) of the agent allows more",
    "token_limit": "Limits(tokens=…) of the agent allows more",
    "cost_limit": "Limits(cost=…) of the agent allows more",
    "time_limit": "Limits(seconds=…) of the agent allows more",
    "stuck_loop": "the same calls brought the same results again and again; --log-json FILE --log-content shows them",
}
"""What a user can do about a stop reason, where that does not depend on what the server said."""


def narrate(notice: Notice, run: RunState) -> str:
    """One line for what just happened; empty for what is not worth one."""
    if isinstance(notice, Transition):
        return _narrate_move(notice, run)
    if isinstance(notice, ToolResult):
        return f"  {_outcome(notice)}"
    if isinstance(notice, ToolProgress):
        return f"  {one_line(notice.name)}: {one_line(notice.text)}"
    return ""


def _narrate_move(transition: Transition, run: RunState) -> str:
    if transition.row == "run_tools":
        return f"turn {transition.turn}: {counted(transition.calls)}"
    if run.finished or transition.row in EXPECTED:
        return ""
    line = f"{transition.source} → {transition.dest}: {transition.reason}"
    if transition.error is not None:
        line += f" ({_failure(transition)})"
    asks = transition.asks.removesuffix("RunTools ()")  # no call is left to run
    return f"{line}; next {asks}" if asks else line


def counted(names: Iterable[str]) -> str:
    """Names in order, each with how often it stands there: ``get_weather ×2, calculate``."""
    counts = Counter(one_line(name, 64) for name in names)
    return ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in counts.items())


def _outcome(result: ToolResult) -> str:
    line = f"{one_line(result.name, 64)} {result.status}"
    if result.status in {"ok", "error"}:
        line += f" {duration(result.duration_ms / 1000)}"
    return line if result.status == "ok" else f"{line}: {one_line(result.content)}"


def _failure(transition: Transition) -> str:
    error = transition.error
    parts = (error.kind, str(error.status or ""), one_line(error.message)) if error else ()
    return " ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """A time as people read it: ``12 ms``, ``3.4 s``, ``2 min 5 s``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def spent(run: RunState) -> str:
    """Turns, calls, tokens and cost so far, as far as they are known."""
    parts = [f"{run.turns} {'turn' if run.turns == 1 else 'turns'}"]
    if run.tool_calls:
        parts.append(f"{run.tool_calls} tool {'call' if run.tool_calls == 1 else 'calls'}")
    if run.usage.total_tokens:
        parts.append(f"{run.usage.total_tokens:,} tokens")
    if run.turns and not run.unpriced and run.cost:
        parts.append(f"${run.cost:.4f}")
    return ", ".join(parts)


def summary(result: Result[Any]) -> str:
    """One line for how a run ended, what it spent and what to do about it."""
    stop, run = result.stop, result.run
    reason = stop.reason if stop else "waiting" if result.waiting else "unfinished"
    line = f"{run.state} ({reason}): {spent(run)}, run {run.run_id}"
    if stop is None:
        return f"{line}{_decisions(result)}"
    if stop.exhausted:
        line += f"; it ran into its limit {stop.exhausted} and answered with what it had"
    if stop.flags:
        line += f"; mind: {', '.join(stop.flags)}"
    hints = [one_line(stop.detail, 300)] if stop.detail else []
    hints += [WAY_OUT[stop.reason]] if stop.reason in WAY_OUT else []
    return f"{line}; {'; '.join(hints)}" if hints else line


def _decisions(result: Result[Any]) -> str:
    """What a run that waits for a human is to be told; empty when it waits for nobody."""
    if not result.waiting:
        return ""
    run_id = result.run_id
    lines = ["", "waiting for you: what was begun here may have done its work, or not; decide about it"]
    for call in result.waiting:
        lines += [
            f"  {one_line(f'{call.name} {call.arguments}', 70)}",
            f"    to run it again:    {command('approve', run_id, call.id)}",
            f"    if you know better: {command('approve', run_id, call.id, options=('--result', 'TEXT'))}",
            f"    if nobody knows:    {command('deny', run_id, call.id)}",
        ]
    return "\n".join([*lines, f"  then go on:           {command('resume', run_id)}"])


def command(verb: str, *ids: str, options: Sequence[str] = ()) -> str:
    """A command to type: ids come from servers and programs, and no shell may take one for something else."""
    end = ["--"] if any(each.startswith("-") for each in ids) else []
    return shlex.join(["turnstile", *verb.split(), *options, *end, *ids])


def found(recovery: Recovery, run: RunState) -> str:
    """What a resumed run's last process left behind, on a few lines."""
    lines = [f"run {run.run_id} goes on in {run.state} after {_count(run.seq, 'transition')}"]
    if recovery.request_lost and run.retries:
        lines.append("the retry of a model request was waited for, or under way: it is sent when its time has come")
    elif recovery.request_lost:
        lines.append("a model request was under way: it is sent again")
    for what, calls in (
        ("finished, and kept", recovery.finished),
        ("under way, and run again", recovery.rerun),
        ("in doubt, and not run again", recovery.in_doubt),
        ("not begun, and run now", recovery.unstarted),
    ):
        if calls:
            lines.append(f"{what}: {', '.join(f'{call.name} ({call.id})' for call in calls)}")
    return "\n  ".join(lines)


def kept(result: Result[Any], store: str) -> str:
    """What an interrupted run leaves behind, and where."""
    start = len(result.run.start.history)
    exchanges = [item for item in result.run.history[start:] if isinstance(item, Exchange)]
    results = [given for item in exchanges for given in item.results if given.status in {"ok", "error"}]
    what = f"kept {_count(result.run.turns, 'turn')} and {_count(len(results), 'tool result')} of run {result.run_id}"
    return f"{what} in {store}" if store else f"{what} in memory only, which ends with this process"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def taken(transition: Transition) -> str:
    """A transition on two lines: the move, and the row with its reason and what it brought."""
    facts = [f"row {transition.row}"]
    facts += [f"reason {transition.reason}"] if transition.reason != transition.row else []
    facts += [f"error {_failure(transition)}"] if transition.error else []
    facts += [f"calls {counted(transition.calls)}"] if transition.calls else []
    facts += ["the effect goes on"] if transition.stays else []
    facts += [duration(transition.duration_ms / 1000)] if transition.duration_ms else []
    lines = [str(transition), f"    {' · '.join(facts)}"]
    lines += [f"    {_outcome(result)}" for result in transition.tools]
    return "\n".join(lines)


def why_not(transition: Transition) -> str:
    """The rows tried before the one taken, each with the guard that said no; rows in a line share their guard."""
    if not transition.refused:
        return f"    {transition.row} was the first row to try"
    groups = groupby(transition.refused, key=lambda refusal: refusal.guard)
    lines = [f"    {guard} said no to {', '.join(each.row for each in rows)}" for guard, rows in groups]
    return "\n".join([*lines, f"    so {transition.row} was taken"])


def upcoming(effect: Effect | None, run: RunState) -> str:
    """What the next step will do outside: the request, or each call with its arguments."""
    if effect is None:
        return "    next: nothing outside; the results become part of the history"
    if isinstance(effect, CallModel):
        model = run.start.models[effect.model]
        items = _count(len(run.history) - run.window_start, "item")
        return f"    next: {effect} to {one_line(model)}, with {items} of history"
    if not isinstance(effect, RunTools):
        return f"    next: {effect}"
    calls = [
        f"      {one_line(call.name, 64)} {one_line(call.arguments)}"
        + (f"  cannot run: {one_line(verdict.problem)}" if verdict.problem else "")
        for call, verdict in zip(effect.calls, effect.verdicts, strict=True)
    ]
    return "\n".join([f"    next: RunTools, {_count(len(calls), 'call')}", *calls])


def path(transitions: Sequence[Transition]) -> list[str]:
    """The states that a run was in, in order; a transition that stays adds none."""
    states = [transitions[0].source] if transitions else []
    return states + [transition.dest for transition in transitions if not transition.stays]
