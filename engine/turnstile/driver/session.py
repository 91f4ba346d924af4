"""Sessions: what was said in a conversation before this run."""

from __future__ import annotations

from turnstile.core.errors import NoRow, UsageError
from turnstile.core.fold import fold
from turnstile.core.history import History
from turnstile.core.messages import Item
from turnstile.driver.perform import Outside


async def said_before(outside: Outside, session: str) -> tuple[Item, ...]:
    """The conversation of a session so far: that of its newest run, whose calls are all answered."""
    newest = await outside.store.newest(session)
    if newest is None:
        return ()
    records = await outside.store.load(newest)
    try:
        said = fold(outside.machine, (record.event for record in records)).messages
    except NoRow as error:
        msg = f"session {session!r} cannot go on: its run {newest!r} was made by another machine than this agent's"
        raise UsageError(msg) from error
    return History.of(said)[:]
