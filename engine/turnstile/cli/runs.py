"""`turnstile runs list`, `delete`, `export` and `audit`: the stored runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from turnstile.cli.faults import DONE, FAILED, Misuse
from turnstile.cli.screen import Screen, json_text, one_line
from turnstile.cli.storing import entries_of, machine_of, opened, path_of, run_of
from turnstile.core.errors import NoSuchRun, StoreDamaged, TurnstileError
from turnstile.core.machine import Machine
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import asdict, evolve
from turnstile.ports import RunEntry, Store, Summary
from turnstile.replay import Audit, replay, summary_of
from turnstile.replay import audit as audit_run
from turnstile.replay import export as export_run
from turnstile.replay.replaying import OLDER
from turnstile.stores import SQLiteStore


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a list shows.

    Attributes:
        limit: How many at most.
        before: Only runs that began before this one.
        session: Only those of this session.
        live: Only those that have not ended.
    """

    limit: int
    before: str | None
    session: str | None
    live: bool


def list_runs(store: str | None, wanted: Wanted, *, as_json: bool) -> None:
    """Write the stored runs to standard output, the newest first."""
    if store is None and not path_of(None).exists():  # nothing was ever run
        _show((), as_json=as_json, more=False)
        return
    entries = asyncio.run(_entries(store, wanted))
    _show(entries, as_json=as_json, more=len(entries) == wanted.limit)


async def _entries(path: str | None, wanted: Wanted) -> tuple[RunEntry, ...]:
    async with opened(path) as store:
        before = None if wanted.before is None else await run_of(store, wanted.before)
        entries = await store.runs(most=wanted.limit, before=before, session=wanted.session, live=wanted.live)
        return tuple([await _summed(store, entry) for entry in entries])


async def _summed(store: Store, entry: RunEntry) -> RunEntry:
    """An entry with its summary, also of a run that is older than summaries, if its journal can be read."""
    if entry.summary.state not in OLDER:
        return entry
    try:
        run = replay(await store.load(entry.run_id)).run
    except TurnstileError:
        return entry
    return evolve(entry, summary=summary_of(run), prompt=entry.prompt or one_line(run.start.prompt))


def _show(entries: Sequence[RunEntry], *, as_json: bool, more: bool) -> None:
    screen = Screen()
    if as_json:
        screen.answer(json_text([_as_json(entry) for entry in entries]))
        return
    if not entries:
        screen.warn("no runs")
        return
    if sys.stdout.isatty():
        _table([_row(entry, moment(entry.started)) for entry in entries])
        if more:
            screen.warn(f"older ones: turnstile runs list --before {entries[-1].run_id}")
        return
    for entry in entries:
        screen.answer("\t".join(_row(entry, to_the_second(entry.started))))


def _as_json(entry: RunEntry) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = asdict(entry)
    values.pop("summary")
    return {**values, **asdict(entry.summary)}


LEAST = 12  # columns of a terminal for what may be long
NO_TIME = "no date"  # where there should be one
COLUMNS = ("id", "when", "agent", "state", "driven by", "turns", "tokens", "cost", "prompt")


def _row(entry: RunEntry, when: str) -> tuple[str, ...]:
    summary = entry.summary
    return (
        entry.run_id,
        when,
        one_line(entry.agent, 20),
        standing(summary),
        one_line(entry.holder, 80),
        str(summary.turns) if summary.state else "",
        f"{summary.tokens:,}" if summary.tokens else "",
        f"${summary.cost:.4f}" if summary.cost else "",
        one_line(entry.prompt, 200),
    )


def standing(summary: Summary) -> str:
    """How a run stands, in a few words: its state, and why it ended if it has."""
    return f"{summary.state}: {summary.reason}" if summary.reason else summary.state


def moment(at: float) -> str:
    """A time as the user's clock shows it, in the eleven characters that a list has for it."""
    when, now = _local(at), datetime.now().astimezone()
    if when is None:
        return NO_TIME
    return when.strftime("%m-%d %H:%M" if when.year == now.year else "%Y-%m-%d")


def to_the_second(at: float) -> str:
    """A time as the user's clock shows it."""
    when = _local(at)
    return NO_TIME if when is None else when.strftime("%Y-%m-%d %H:%M:%S")


def _local(at: float) -> datetime | None:
    """A time in the user's zone; ``None`` for what a damaged store or an absurd clock left, which is no date."""
    try:
        return datetime.fromtimestamp(at).astimezone()
    except (OverflowError, ValueError, OSError):  # OverflowError and OSError: the platform's; ValueError: the year
        return None


def _table(rows: Sequence[Sequence[str]]) -> None:
    """The rows under their names, without columns that are empty; the prompt has the room that is left."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    used = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows)]
    for name, place in ((COLUMNS[place], place) for place in used):
        width = max(cell_len(name), *(cell_len(row[place]) for row in rows))
        long = name in {"driven by", "prompt"}
        table.add_column(
            name,
            no_wrap=not long,  # rich takes room away only where lines may be broken
            justify="right" if name in {"turns", "tokens", "cost"} else "left",
            min_width=LEAST if long else width,
        )
    for row in rows:
        table.add_row(
            *(Text(row[place], overflow="ellipsis", no_wrap=True) for place in used)
        )  # as text: what stands in brackets is no markup
    Console(file=sys.stdout).print(table)


def delete(ids: Sequence[str], store: str | None, *, yes: bool) -> int:
    """Forget runs, once the user has said yes, and give the exit status: 1 when the user says no.

    Raises:
        TurnstileError: One is not there, or is being driven; those before it are gone.
    """
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise Misuse("deleting cannot be undone, and there is no terminal to ask at; add --yes")
    meant = asyncio.run(_meant(ids, store))
    screen = Screen()
    if not yes and not _agrees(meant):  # asked between two event loops, since one would keep Ctrl-C to itself
        screen.warn("nothing was deleted")
        return FAILED
    asyncio.run(_delete(meant, store, screen))
    return DONE


async def _meant(ids: Sequence[str], path: str | None) -> list[str]:
    """The runs that are meant, each once; all are looked for before any is deleted."""
    async with opened(path) as store:
        return list(dict.fromkeys([await run_of(store, each) for each in ids]))


async def _delete(ids: Sequence[str], path: str | None, screen: Screen) -> None:
    async with opened(path) as store:
        for run_id in ids:
            await store.delete(run_id)
            screen.warn(f"deleted run {run_id}")


def _agrees(ids: Sequence[str]) -> bool:
    try:
        sys.stderr.write(f"delete {', '.join(ids)} for good? [y/N] ")
        sys.stderr.flush()
        return input().strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\n")
        return False


def export(run_id: str | None, store: str | None, output: str | None, *, every: bool) -> int:
    """Write a run, or all, as JSON lines, and give the exit status: a damaged run is named, and the rest written.

    Raises:
        TurnstileError: There is nothing to export, or nowhere to write it.
    """
    if (run_id is None) != every:
        raise Misuse("name the run to export, or all with --all" if run_id is None else "give a run's ID or --all")
    if output is not None and not Path(output).parent.is_dir():
        raise Misuse(f"no folder {str(Path(output).parent)!r} for {output!r}; make it, or write somewhere else")
    return asyncio.run(_export(run_id, store, output))


async def _export(run_id: str | None, path: str | None, output: str | None) -> int:
    screen, sound = Screen(), True
    async with opened(path) as store:
        meant = None if run_id is None else await run_of(store, run_id)
        with _target(output, screen) as write:
            async for each in _ids(store, meant):
                try:
                    exported = await export_run(store, each)
                except NoSuchRun:
                    if run_id is not None:
                        raise
                    continue  # deleted since it was listed
                write(exported.text)
                damage = exported.damage
                if damage is not None:
                    sound = False
                    screen.warn(f"turnstile runs export: {damage}")
    return DONE if sound else FAILED


@contextmanager
def _target(output: str | None, screen: Screen) -> Iterator[Callable[[bytes], object]]:
    """What writes to the file, or to standard output.

    Raises:
        Misuse: It cannot be written.
    """
    if output is None:
        yield screen.answer_bytes
        return
    try:
        with Path(output).open("wb") as file:
            yield file.write
    except OSError as error:
        raise Misuse(f"{output!r} cannot be written: {error.strerror}; give a file that is yours to write") from error


async def _ids(store: SQLiteStore, run_id: str | None) -> AsyncIterator[str]:
    """The id of one run, or those of all."""
    if run_id is not None:
        yield run_id
        return
    async for entry in entries_of(store):
        yield entry.run_id


def audit(run_id: str | None, store: str | None, agent: str | None) -> int:
    """Check a run, or all runs and the file that keeps them, and give the exit status: 1 when something is wrong.

    Raises:
        TurnstileError: The store cannot be read at all.
    """
    return asyncio.run(_audit(run_id, store, agent))


async def _audit(run_id: str | None, path: str | None, agent: str | None) -> int:
    screen, machine = Screen(), machine_of(agent)
    runs = records = 0
    async with opened(path, machine) as store:
        problems = [] if run_id is not None else [*await store.check()]
        try:
            async for entry in _audited(store, run_id):
                try:
                    found = await _found(store, entry, machine)
                except NoSuchRun:  # deleted since it was listed
                    continue
                runs, records = runs + 1, records + found.records
                if found.problem and not any(found.problem.endswith(problem) for problem in problems):
                    problems.append(found.problem)
        except StoreDamaged as damage:  # the list itself, so that nobody knows which runs there are
            if not any(str(damage).endswith(problem) for problem in problems):
                problems.append(str(damage))
    for problem in dict.fromkeys(problems):  # whoever looks at a file that is cut short finds the same
        screen.answer(one_line(problem, 1000))
    if not problems:
        screen.answer(f"{_count(runs, 'run')}, {_count(records, 'record')}: all as it was written")
    return FAILED if problems else DONE


async def _found(store: Store, entry: RunEntry, machine: Machine | None) -> Audit:
    """What is wrong with a run; one that went on after it was listed is looked at anew, as it stands by now."""
    while True:
        found = await audit_run(store, entry.run_id, machine, entry)
        now = await store.entry(entry.run_id)
        if not found.problem or now is None or now.records == entry.records:
            return found
        entry = now


async def _audited(store: SQLiteStore, run_id: str | None) -> AsyncIterator[RunEntry]:
    """The run that is meant, or all."""
    if run_id is None:
        async for entry in entries_of(store):
            yield entry
        return
    one = await store.entry(await run_of(store, run_id))
    if one is not None:
        yield one


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
