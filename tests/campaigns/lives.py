"""`Life`: a play through as many processes as it takes, all of them in ours, so that thousands can be tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from crashing import Crashing, Death, Mortal, Process, Remembered
from ledger import Ledger
from plays import Play, Stage, agent_of
from through import Noting
from turnstile import Agent, Run
from turnstile.core.errors import NoSuchRun, RunFinished
from turnstile.core.events import Event
from turnstile.ports import Store
from turnstile.testing import FrozenClock

DECISIONS: tuple[Any, ...] = ({"rerun": True}, {"unknown": True}, {"result": "It was sent."})

Mutation = Callable[[Agent[Any]], None]


def whole(agent: Agent[Any]) -> None:
    """Take nothing out of an agent."""


class Life:
    """One run through as many processes as it takes.

    A process is an event loop: it dies by being dropped in the middle of a commit, so that nothing in it hears of it.

    Args:
        store: The store of the next process.
        run_id: The run.
        play: What happens.
        draw: What is left to chance.
        ledger: Where all is written down; in memory by default.
        mutate: Takes something out of the agent of each process.

    Attributes:
        deaths: Where processes died.
        drove: Whether a process came to drive it.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        play: Play,
        draw: Random,
        *,
        ledger: Ledger | None = None,
        mutate: Mutation = whole,
    ) -> None:
        self.ledger = ledger or Remembered([])
        self._mutate = mutate
        self.deaths: list[str] = []
        self.drove = False
        self.store = store
        self._run_id = run_id
        self._play = play
        self._draw = draw
        self._clock = FrozenClock()
        self._kept: list[Event] = []
        self._posted: list[str] = []

    def process(self, death: Death | None) -> bool:
        """Begin the run or go on with it, in a process of its own; whether it lived to the end."""
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # what fails in a dead process is nobody's matter
        try:
            process = loop.run_until_complete(self._until_death(death))
            if process.dead:
                self.deaths.append(str(process.death))
            for lease in process.leases if process.dead else ():
                self.store.release(lease)  # as others may do who see that the process is gone
            return not process.dead
        finally:
            _bury(loop)

    async def _until_death(self, death: Death | None) -> Process:
        process = Process(death)
        living = asyncio.ensure_future(self._live(process))
        died = asyncio.ensure_future(process.died.wait())
        await asyncio.wait([living, died], return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
        return process

    async def _live(self, process: Process) -> None:
        ledger = Mortal(self.ledger, process)
        store = Noting(Crashing(self.store, process, self._kept), ledger)
        stage = Stage(self._clock, ledger, self._draw, self._kept, store, self._posted)
        agent = agent_of(self._play, store, stage)
        self._mutate(agent)
        with suppress(RunFinished):
            try:
                run: Run[Any] = await agent.resume(self._run_id, deps=stage)
            except NoSuchRun:
                run = agent.start(self._play.prompt, run_id=self._run_id, deps=stage)
            stage.run = run
            async with run:
                self.drove = True
                while not run.finished:
                    for waiting in run.waiting:
                        run.settle(waiting.id, **self._draw.choice(DECISIONS))
                    await run.finish()


def _bury(loop: asyncio.AbstractEventLoop) -> None:
    """End what is left of a process; its store and its ledger take nothing from it any more."""
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=0.1))
    loop.close()
