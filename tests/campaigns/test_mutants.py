"""Campaign 13: the other campaigns are campaigned against; each mutant lacks one piece, and turns one of them red.

Nothing of the engine is patched: a piece is taken out where the engine lets others put in their own: a file system
without its sync, a store without its fence, a tool runner that asks nobody, a table whose row forgets to charge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from disk import Disk
from lives import Mutation
from plays import MACHINE
from stored import case_of, opened
from tally import Tally
from test_crashes import SIDES, live, look
from test_power_cuts import cut_power
from test_races import stop_past_the_lease
from turnstile import Agent
from turnstile.core.effects import RunTools
from turnstile.core.events import EffectLost, Event, Verdict
from turnstile.core.messages import Reply, ToolCall, ToolSpec
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.run_state import RunState
from turnstile.core.values import evolve
from turnstile.ports import Memo, ToolBatch, ToolRunner, ToolWork
from turnstile.shell.toolbox import Toolbox
from turnstile.stores import SQLiteStore

SEEDS = 3


class OtherRunner:
    """Hands all that a tool runner is asked on to another.

    Args:
        inner: The other.
    """

    def __init__(self, inner: ToolRunner) -> None:
        self.inner = inner

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """See `ToolRunner.specs`."""
        return self.inner.specs

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """See `ToolRunner.fingerprints`."""
        return self.inner.fingerprints

    def vet(self, reply: Reply, run: RunState, memo: Memo) -> tuple[Verdict, ...]:
        """See `ToolRunner.vet`."""
        return self.inner.vet(reply, run, memo)

    def opening(self, effect: RunTools, parallel: int) -> tuple[ToolCall, ...]:
        """See `ToolRunner.opening`."""
        return self.inner.opening(effect, parallel)

    async def run(self, effect: RunTools, work: ToolWork) -> ToolBatch:
        """See `ToolRunner.run`."""
        return await self.inner.run(effect, work)


class Unintended(OtherRunner):
    """A mutant: its calls begin without an intent."""

    def opening(self, effect: RunTools, parallel: int) -> tuple[ToolCall, ...]:
        """Name no call."""
        return ()

    async def run(self, effect: RunTools, work: ToolWork) -> ToolBatch:
        """Ask nobody whether a call may begin."""

        async def begin(_: ToolCall) -> bool:
            return True

        return await self.inner.run(effect, evolve(work, begin=begin))


class Unchecked(OtherRunner):
    """A mutant: its calls run with other arguments than were looked at."""

    async def run(self, effect: RunTools, work: ToolWork) -> ToolBatch:
        """Run the calls with their arguments changed meanwhile."""
        calls = tuple(evolve(call, arguments=call.arguments.replace("hello", "goodbye")) for call in effect.calls)
        return await self.inner.run(evolve(effect, calls=calls), work)


def unintended(agent: Agent[object]) -> None:
    """Take the intents of calls out of an agent."""
    agent.toolbox = cast("Toolbox", Unintended(agent.toolbox))


def unchecked(agent: Agent[object]) -> None:
    """Take what holds a call to its digest out of an agent."""
    agent.toolbox = cast("Toolbox", Unchecked(agent.toolbox))


def _recover_free(run: RunState, event: Event) -> RunState:
    tokens, dollars = run.reserved
    spent = evolve(run, charged_tokens=run.charged_tokens - tokens, charged_cost=run.charged_cost - dollars)
    return evolve(spent, recoveries=run.recoveries + 1)


FREE_ROW = row("recovered_free", MACHINE.state("await_model"), EffectLost, [], AGAIN, _recover_free)
FREE = MACHINE.extend(rows=[before("recovered", FREE_ROW)])


def unreserved(agent: Agent[object]) -> None:
    """Take what a lost request is charged out of an agent."""
    agent.machine = FREE


@pytest.mark.parametrize(
    ("mutate", "name", "number"),
    [
        (unintended, "run_tools", 9),
        (unchecked, "run_tools", 11),
        (unreserved, "EffectBegun", 20),
    ],
)
def test_a_mutant_turns_the_campaign_of_crashes_red(
    mutate: Mutation, name: str, number: int, memory: Path, tally: Callable[[str], Tally]
) -> None:
    """Without intents, digests or reservations the engine would still run; only a checker can tell."""
    counts, path = tally(f"13 {mutate.__name__}"), memory / "runs.db"
    store, machine = SQLiteStore(path), FREE if mutate is unreserved else MACHINE
    lives = [live(store, name, side, seed, mutate) for side in SIDES for seed in range(SEEDS)]
    asyncio.run(store.aclose())
    red = Tally("2 crash at a commit")
    with opened(path) as connection:
        for life, run_id in lives:
            red.count(run_id, look(case_of(connection, run_id, life.ledger.entries(), machine=machine)))
    counts.count(mutate.__name__, [] if f"invariant {number} " in str(red.wrong) else ["green"])
    counts.notes = f"turns 2 red: {len(red.wrong)} violations"
    counts.verdict()


def test_without_sync_the_campaign_of_power_cuts_is_red(memory: Path, tally: Callable[[str], Tally]) -> None:
    """A store that does not wait for the disk loses what it acknowledged, and the campaign sees it."""
    counts, red = tally("13 unsynced"), Tally("3 power cut")
    cut_power(red, Disk(syncs=False), memory, 100)
    counts.count("a disk that syncs nothing", [] if red.wrong else ["green"])
    counts.notes = f"turns 3 red: {len(red.wrong)} violations"
    counts.verdict()


def test_without_the_fence_the_campaign_of_races_is_red(memory: Path, tally: Callable[[str], Tally]) -> None:
    """A process that comes back would write into a run that another has ended."""
    counts, red = tally("13 unfenced"), Tally("5 stop past the lease")
    stop_past_the_lease(red, memory, 1, "unfenced")
    counts.count("a store that takes the lease anew", [] if "invariant " in str(red.wrong) else ["green"])
    counts.notes = f"turns 5 red: {len(red.wrong)} violations"
    counts.verdict()
