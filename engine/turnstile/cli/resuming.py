"""`turnstile resume`: goes on with runs that their processes left, or lost."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnstile.cli.faults import DONE, FAILED, INTERRUPTED, WAITING, Misuse, ReaderGone
from turnstile.cli.options import Settings
from turnstile.cli.preparing import Job, prepare
from turnstile.cli.progress import Progress
from turnstile.cli.running import report, to_the_end
from turnstile.cli.screen import Screen, prints_aside
from turnstile.cli.storing import entries_of, foreign, opened, origin, path_of
from turnstile.cli.wording import command, found
from turnstile.core.errors import CodecError, RunFinished, RunIsLeased, TurnstileError
from turnstile.core.events import RunStarted
from turnstile.driver import Run


def resume(prefix: str, agent: str | None, settings: Settings, *, accept_changes: bool) -> int:
    """Go on with a run to its end, and give the exit status.

    Raises:
        TurnstileError: The command cannot work as it was given.
    """
    run_id, start = asyncio.run(origin(prefix, settings.store))
    try:
        return _resume(run_id, start, agent, settings, accept_changes=accept_changes)
    except RunFinished as error:
        raise Misuse(
            f"run {run_id!r} has ended ({error.state}), so there is nothing to resume; "
            f"`{command('runs show', run_id)}` tells how, "
            f"`{command('fork', run_id, options=('--at', 'SEQ'))}` goes on from earlier on"
        ) from error


def resume_all(agent: str | None, settings: Settings, *, accept_changes: bool) -> int:
    """Go on with every run that has not ended and that nobody drives, one after another; gives the worst exit status.

    What keeps one run from going on is said, and keeps no other. A run that somebody else took on meanwhile is theirs.

    Raises:
        TurnstileError: The store cannot be read.
    """
    screen = Screen(quiet=settings.quiet)
    left = asyncio.run(_left(settings.store, screen))
    statuses = [DONE]
    for place, run_id in enumerate(left, 1):
        screen.say(f"{place} of {len(left)}: run {run_id}")
        statuses.append(_one_of_all(run_id, agent, settings, screen, accept_changes=accept_changes))
        if statuses[-1] == INTERRUPTED:
            screen.warn(f"{len(left) - place} of {len(left)} runs are left as they were")
            return INTERRUPTED
    if not left:
        screen.say("no run was left: each has ended, or is driven by somebody")
    return _worst(statuses)


def _one_of_all(run_id: str, agent: str | None, settings: Settings, screen: Screen, *, accept_changes: bool) -> int:
    try:
        _, start = asyncio.run(origin(run_id, settings.store))
        return _resume(run_id, start, agent, settings, accept_changes=accept_changes)
    except ReaderGone:
        raise
    except RunIsLeased as error:
        screen.say(f"run {run_id} is driven by {error.holder} by now")
        return DONE
    except RunFinished as error:
        screen.say(f"run {run_id} has ended by now ({error.state})")
        return DONE
    except TurnstileError as error:
        screen.warn(f"run {run_id} does not go on: {error}")
    except Exception as error:  # noqa: BLE001 - a bug in one agent's own code keeps no other agent's runs
        traceback.print_exc()
        screen.warn(f"run {run_id} does not go on: its agent raised {error!r}")
    return FAILED


def _worst(statuses: Sequence[int]) -> int:
    """A failure before a wait before a good end."""
    return next((status for status in (FAILED, WAITING) if status in statuses), max(statuses))


async def _left(path: str | None, screen: Screen) -> list[str]:
    """The runs that have not ended and that nobody drives, the oldest first."""
    left: list[str] = []
    async with opened(path) as store:
        async for entry in entries_of(store, live=True):
            if entry.holder:
                screen.say(f"run {entry.run_id} is driven by {entry.holder}")
                continue
            left.append(entry.run_id)
    return left[::-1]


def _resume(run_id: str, start: RunStarted, agent: str | None, settings: Settings, *, accept_changes: bool) -> int:
    name = agent or start.origin
    if not name:
        raise Misuse(f"run {run_id!r} does not say how its agent is found; name it with --agent AGENT")
    settings = replace(settings, store=str(path_of(settings.store)))  # not a store that the agent may bring
    job = prepare(name, settings, Screen(quiet=settings.quiet))
    return asyncio.run(_drive(job, run_id, accept_changes=accept_changes))


async def _drive(job: Job, run_id: str, *, accept_changes: bool) -> int:
    progress = Progress(job.screen, streams=job.streams)
    try:
        live = await _opened(job, run_id, progress, accept_changes=accept_changes)
        if live.recovery is not None:
            job.screen.say(found(live.recovery, live.snapshot))
        session = live.snapshot.start.session
        if session is not None and await job.agent.store.newest(session) != run_id:
            job.screen.say(f"note: session {session!r} has gone on without this run, and will not hear of its end")
        with job.tells_unsaved(progress), prints_aside(), progress:
            async with live:
                interrupted = await to_the_end(live, job.screen, progress)
        return report(live.result, job, progress, interrupted=interrupted)
    finally:
        await job.aclose()


async def _opened(job: Job, run_id: str, progress: Progress, *, accept_changes: bool) -> Run[Any]:
    observers = job.options(progress, session=None).get("observers", ())
    try:
        return await job.agent.resume(run_id, model=job.models, observers=observers, accept_changes=accept_changes)
    except CodecError as error:
        raise foreign(error, run_id) from error
