"""`turnstile fork`: a new run that shares its beginning with a stored one, and goes on from there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnstile.cli.faults import Misuse
from turnstile.cli.options import Settings
from turnstile.cli.preparing import Job, prepare
from turnstile.cli.progress import Progress
from turnstile.cli.running import report, to_the_end
from turnstile.cli.screen import Screen, prints_aside
from turnstile.cli.storing import origin, path_of
from turnstile.core.events import RunStarted
from turnstile.replay import fork


@dataclass(frozen=True, slots=True)
class Edits:
    """What is different about a fork.

    Attributes:
        at: Number of the last transition that it shares.
        prompt: In place of what the user asked.
        results: ``CALL=TEXT`` each: in place of what tools gave.
        accept_changes: Whether the agent's machine and tools may be others than the run's.
    """

    at: int
    prompt: str | None
    results: Sequence[str]
    accept_changes: bool


def fork_run(prefix: str, edits: Edits, agent: str | None, settings: Settings) -> int:
    """Write a fork, say its id, run it to its end, and give the exit status.

    Raises:
        TurnstileError: The command cannot work as it was given; nothing was written.
    """
    results = dict(_parted(each) for each in edits.results)
    run_id, start = asyncio.run(origin(prefix, settings.store))
    name = agent or start.origin
    if not name:
        raise Misuse(f"run {run_id!r} does not say how its agent is found; name it with --agent AGENT")
    settings = replace(settings, store=str(path_of(settings.store)))  # not a store that the agent may bring
    job = prepare(name, settings, Screen(quiet=settings.quiet))
    return asyncio.run(_fork(job, run_id, start, edits, results))


def _parted(given: str) -> tuple[str, str]:
    call_id, equals, text = given.partition("=")
    if not equals or not call_id:
        raise Misuse(f"--result is given as CALL=TEXT, with a call's id; got {given!r}")
    return call_id, text


async def _fork(job: Job, run_id: str, start: RunStarted, edits: Edits, results: dict[str, str]) -> int:
    progress = Progress(job.screen, streams=job.streams)
    names = tuple(client.name for client in job.models)
    try:
        if job.settings.model is None and names != start.models:
            job.screen.say(f"note: the run's own model was {', then '.join(start.models)}")
        forked = await fork(
            job.agent.store,
            job.agent,
            run_id,
            edits.at,
            model=None if names == start.models else job.models,
            prompt=edits.prompt,
            results=results,
            accept_changes=edits.accept_changes,
        )
        job.screen.say(f"run {forked}, forked from {run_id} at {edits.at}")
        options = job.options(progress, session=None)
        with job.tells_unsaved(progress), prints_aside(), progress:
            live = await job.agent.resume(forked, model=job.models, observers=options.get("observers", ()))
            async with live:
                interrupted = await to_the_end(live, job.screen, progress)
        return report(live.result, job, progress, interrupted=interrupted)
    finally:
        await job.aclose()
