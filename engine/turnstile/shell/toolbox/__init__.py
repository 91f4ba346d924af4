"""`Toolbox`: the tools of an agent; judges calls before they run, and runs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from turnstile.core.effects import RunTools
from turnstile.core.errors import ToolDefinitionError
from turnstile.core.events import Verdict
from turnstile.core.messages import Reply, ToolCall, ToolResult, ToolSpec
from turnstile.core.run_state import RunState
from turnstile.core.strict_json import JsonValue, digest
from turnstile.ports import Memo, ToolBatch, ToolWork
from turnstile.shell.toolbox.batch import Batch
from turnstile.shell.toolbox.call import Job
from turnstile.shell.toolbox.text import fit
from turnstile.shell.toolbox.vetting import AnyTool, Finding, find_out
from turnstile.tools import MAX_RESULT_CHARS, Tool

GRACE = 1.0  # seconds; RELIABILITY: a cancelled run ends within 1 s where tools cooperate


class Toolbox:
    """The tools of an agent.

    It serves any number of runs at once, in any threads, and keeps nothing of them.

    Args:
        tools: Tools, and functions to make tools of.
        grace: Seconds that a tool may go on after it was told to stop; then it is given up, and its outcome is unknown.
        monotonic: Tells the time in seconds, for durations.

    Raises:
        ToolDefinitionError: Two tools have one name, or one cannot be offered to a model as it is.
    """

    def __init__(
        self,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        *,
        grace: float = GRACE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tools: dict[str, AnyTool] = {}
        for given in tools:
            made = given if isinstance(given, Tool) else Tool(given)
            if made.name in self._tools:
                raise ToolDefinitionError(made.name, "two tools have this name; give one another with tool(name=…)")
            self._tools[made.name] = made
        self._grace = grace
        self._monotonic = monotonic
        self._given_up: set[asyncio.Task[None]] = set()

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """The tools."""
        return tuple(self._tools.values())

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them.

        Raises:
            ToolDefinitionError: A parameter's type has no schema.
        """
        return tuple(ToolSpec(made.name, made.description, made.parameters) for made in self._tools.values())

    @cached_property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Each tool's name, and a digest of all that makes it what it is for a run."""
        return tuple((made.name, digest(made.name, _nature(made))) for made in self._tools.values())

    def vet(self, reply: Reply, run: RunState, memo: Memo) -> tuple[Verdict, ...]:
        """A verdict for each call of a reply, in call order; nothing runs.

        The memo has then what was found out about the calls that may run, and nothing of the reply before.
        """
        memo.clear()
        verdicts: list[Verdict] = []
        allowed: dict[str, int] = {}  # calls by tool
        for call in reply.calls:
            found = find_out(self._tools, call)
            problem, made = found.problem, found.tool
            if made is not None and not problem:
                problem = _used_up(made, run, allowed)
                if not problem:
                    allowed[made.name] = allowed.get(made.name, 0) + 1
                    memo[call] = found
            verdicts.append(_verdict(call, found, problem, run))
        return tuple(verdicts)

    def opening(self, effect: RunTools, parallel: int) -> tuple[ToolCall, ...]:
        """The calls that `run` starts at once: in order, as many as may run at once, a sequential one alone."""
        first: list[ToolCall] = []
        for call, verdict in zip(effect.calls, effect.verdicts, strict=True):
            made = self._tools.get(call.name.strip())
            if verdict.problem or made is None:
                continue
            if first and made.sequential:
                break
            first.append(call)
            if made.sequential or len(first) == parallel:
                break
        return tuple(first)

    async def run(self, effect: RunTools, work: ToolWork) -> ToolBatch:
        """Run the calls, at once as far as they may; never raises for what a tool does.

        When its task is cancelled, it ends what it started, gives up what doesn't end within the grace period, and lets
        the cancellation go on.
        """
        results: list[ToolResult | None] = []
        jobs: list[Job] = []
        for index, (call, verdict) in enumerate(zip(effect.calls, effect.verdicts, strict=True)):
            problem, found = verdict.problem, None
            if not problem:
                # Not vetted here when a run is resumed in another process: then it is looked at now.
                known = work.memo.pop(call, None)
                found = known if isinstance(known, Finding) else find_out(self._tools, call)
                problem = found.problem
            if found is None or found.tool is None or problem:
                result = ToolResult(call.id, call.name, fit(problem, self._most_chars(call)), "error")
                results.append(result)
                work.notify(result)
            else:
                results.append(None)
                jobs.append(Job(index, call, found.tool, found.arguments))
        batch = Batch(results, jobs, work, grace=self._grace, monotonic=self._monotonic, given_up=self._given_up)
        return await batch.run()

    def _most_chars(self, call: ToolCall) -> int:
        made = self._tools.get(call.name.strip())
        return MAX_RESULT_CHARS if made is None else made.max_result_chars


def _used_up(made: AnyTool, run: RunState, allowed: Mapping[str, int]) -> str:
    """That a tool was called as often as it may be, by the calls so far and those allowed now; empty if it wasn't."""
    if made.max_calls is None:
        return ""
    spent = allowed.get(made.name, 0) + sum(count for name, count in run.calls_by_tool if name.strip() == made.name)
    if spent < made.max_calls:
        return ""
    return f"{made.name} may be called {made.max_calls} times in a run, and was; go on without it"


def _verdict(call: ToolCall, found: Finding, problem: str, run: RunState) -> Verdict:
    made = found.tool
    if made is None:
        return Verdict(call.id, found.digest, known=False, valid=False, problem=problem, repeats=run.limits.repeats)
    return Verdict(
        call.id,
        found.digest,
        valid=not found.problem,
        problem=problem,
        access=made.access,
        repeats=run.limits.repeats if made.repeats == "as_run" else made.repeats,
        on_in_doubt=made.on_in_doubt,
    )


def _nature(made: AnyTool) -> JsonValue:
    return {
        "description": made.description,
        "parameters": dict(made.parameters),
        "access": made.access,
        "timeout": made.timeout,
        "max_result_chars": made.max_result_chars,
        "max_calls": made.max_calls,
        "repeats": made.repeats,
        "sequential": made.sequential,
        "on_in_doubt": made.on_in_doubt,
    }
