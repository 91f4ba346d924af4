"""Sessions: what was said in a conversation before this run."""

from __future__ import annotations

from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import RunStarted
from turnstile.core.fold import fold
from turnstile.core.history import History
from turnstile.core.values import evolve
from turnstile.driver.perform import Outside


async def going_on(outside: Outside, start: RunStarted) -> RunStarted:
    """The first record of a run that goes on with its session: with what its newest run said, all calls answered.

    Raises:
        UsageError: Another machine made that run.
    """
    assert start.session is not None  # noqa: S101 - who calls has asked
    newest = await outside.store.newest(start.session)
    if newest is None:
        return evolve(start, previous="")
    records = await outside.store.load(newest)
    try:
        said = fold(outside.machine, (record.event for record in records)).messages
    except NoRow as error:
        msg = (
            f"session {start.session!r} cannot go on: its run {newest!r} was made by another machine than this agent's"
        )
        raise UsageError(msg) from error
    return evolve(start, history=History.of(said)[:], previous=newest)
