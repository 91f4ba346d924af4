"""`turnstile cancel`, `approve` and `deny`: tell a run something, whoever drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from turnstile.cli.faults import DONE, Misuse
from turnstile.cli.screen import Screen
from turnstile.cli.storing import foreign, machine_of, opened, run_of
from turnstile.cli.wording import command
from turnstile.core.errors import CodecError, RunFinished
from turnstile.core.machine import Machine
from turnstile.letters import Told, approve, cancel, deny, settle
from turnstile.ports import Store

Telling = Callable[[Store, str, Machine | None], Awaitable[Told]]


def cancel_run(prefix: str, why: str, store: str | None, agent: str | None, *, quiet: bool) -> int:
    """Ask a run to stop."""
    return _tell(
        prefix, store, agent, lambda kept, run_id, machine: cancel(kept, run_id, why, machine=machine), quiet=quiet
    )


def approve_call(
    prefix: str, call_id: str, result: str | None, store: str | None, agent: str | None, *, quiet: bool
) -> int:
    """Let a call in doubt run again, or give its result."""
    if result is not None:
        return _tell(
            prefix,
            store,
            agent,
            lambda kept, run_id, machine: settle(kept, run_id, call_id, result, machine=machine),
            quiet=quiet,
        )
    return _tell(
        prefix,
        store,
        agent,
        lambda kept, run_id, machine: approve(kept, run_id, call_id, machine=machine),
        quiet=quiet,
    )


def deny_call(prefix: str, call_id: str, why: str, store: str | None, agent: str | None, *, quiet: bool) -> int:
    """Do not let a call in doubt run again."""
    return _tell(
        prefix,
        store,
        agent,
        lambda kept, run_id, machine: deny(kept, run_id, call_id, why, machine=machine),
        quiet=quiet,
    )


def _tell(prefix: str, path: str | None, agent: str | None, telling: Telling, *, quiet: bool) -> int:
    told = asyncio.run(_told(prefix, path, agent, telling))
    run_id = told.run.run_id
    line = f"run {run_id}: {told}"
    if not told.holder and not told.run.finished:
        line += f"; `{command('resume', run_id)}` goes on with it"
    Screen(quiet=quiet).say(line)
    return DONE


async def _told(prefix: str, path: str | None, agent: str | None, telling: Telling) -> Told:
    machine = machine_of(agent)
    async with opened(path, machine) as store:
        run_id = await run_of(store, prefix)
        try:
            return await telling(store, run_id, machine)
        except RunFinished as error:
            raise Misuse(f"run {run_id!r} has ended ({error.state}); there is nobody to tell") from error
        except CodecError as error:
            raise foreign(error, run_id) from error
