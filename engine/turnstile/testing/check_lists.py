"""What `check_store` asks of lists of runs, and of forgetting them."""

from __future__ import annotations

from turnstile.core.errors import NoSuchRun, RunExists, RunIsLeased
from turnstile.core.events import Cancelled, MessageInjected
from turnstile.core.values import evolve
from turnstile.ports import Record, RunEntry, Summary
from turnstile.testing.store_case import ENDED, LIVE, Case, Check, new_name, refused, same

_MOST_OF_PROMPT = 200  # characters: about a hundred are asked for; a whole prompt does not belong into a list


async def an_entry_tells_how_a_run_stands(case: Case) -> None:
    """A run is listed as it stands after its newest append, with its prompt on one line, and who drives it."""
    session = new_name()
    lease = await case.begin(session=session, prompt="Is it\n\n warm?\x1b[0m" + "!" * 5000, at=1.5)
    stands = Summary("execute_tools", turns=3, tokens=2**40, cost=0.25)
    await case.store.append(lease, [Record(MessageInjected("x"), at=n) for n in (2.5, 3.5)], stands)
    [entry] = await case.store.runs(session=session)
    same(bool(entry.holder), True)
    same(entry.prompt.startswith("Is it warm?"), True)
    same((entry.prompt.isprintable(), entry.prompt[_MOST_OF_PROMPT:]), (True, ""))
    expected = RunEntry(lease.run_id, "checked", session, "", 1.5, 3.5, 3, stands)
    same(evolve(entry, prompt="", holder=""), expected)
    same(await case.store.entry(lease.run_id), entry)
    same(await case.store.entry(new_name()), None)
    await case.end(lease)
    [entry] = await case.other.runs(session=session)
    same(evolve(entry, prompt=""), evolve(expected, summary=ENDED))


async def lists_are_newest_first(case: Case) -> None:
    """Runs are listed in the order in which they began, the newest first, whatever was appended since."""
    leases = [await case.begin(at=1.0) for _ in range(4)]
    await case.store.append(leases[0], [Record(Cancelled(), at=9.0)], LIVE)
    ids = [lease.run_id for lease in reversed(leases)]
    same([entry.run_id for entry in await case.other.runs(most=10_000) if entry.run_id in ids], ids)


async def lists_come_in_pages(case: Case) -> None:
    """A page holds as many runs as were asked for, and the next one goes on before the last of them."""
    session = new_name()
    ids: list[str] = []
    for _ in range(5):
        lease = await case.begin(session=session)
        await case.end(lease)
        ids.insert(0, lease.run_id)
    pages = [
        await case.store.runs(session=session, most=2),
        await case.store.runs(session=session, most=2, before=ids[1]),
        await case.store.runs(session=session, most=2, before=ids[3]),
        await case.store.runs(session=session, most=2, before=ids[4]),
    ]
    same([[entry.run_id for entry in page] for page in pages], [ids[:2], ids[2:4], ids[4:], []])
    following = [entry.run_id for entry in await case.store.runs(before=ids[2], most=2)]
    same(following, ids[3:])
    await refused(NoSuchRun, case.store.runs(before=new_name()))


async def lists_can_leave_out_what_has_ended(case: Case) -> None:
    """A list of live runs has those that have not ended, held or not."""
    session = new_name()
    await case.end(await case.begin(session=session))
    left = await case.begin(session=session)
    await case.free(left)
    held = await case.begin(session=session)
    live = [(entry.run_id, bool(entry.holder)) for entry in await case.store.runs(session=session, live=True)]
    same(live, [(held.run_id, True), (left.run_id, False)])
    everywhere = [entry.run_id for entry in await case.store.runs(live=True, most=2)]
    same(everywhere, [held.run_id, left.run_id])


async def found_by_how_an_id_begins(case: Case) -> None:
    """Runs are found by the beginning of their id, letter by letter: sorted, as many as were asked for."""
    prefix = new_name()
    names = [f"{prefix}{end}" for end in ("", "%", "*b", "_", "a", "大", "大理")]
    for name in reversed(names):
        await case.begin(name)
    await case.begin(prefix.upper())
    same(await case.other.find(prefix), tuple(names))
    same(await case.store.find(prefix, 2), tuple(names[:2]))
    same(await case.store.find(f"{prefix}大"), tuple(names[-2:]))
    same(await case.store.find(f"{prefix}%"), (f"{prefix}%",))
    same(await case.store.find(new_name()), ())


async def deleted_is_gone(case: Case) -> None:
    """A deleted run is in no list and loads as nothing, its session goes on from the run before, and its id is free."""
    session = new_name()
    before = await case.begin(session=session)
    await case.free(before)
    lease = await case.begin(session=session)
    await case.free(lease)
    await case.store.post(lease.run_id, Cancelled("of the old run"))
    await case.store.delete(lease.run_id)
    same(await case.store.load(lease.run_id), ())
    same(await case.store.find(lease.run_id), ())
    same([entry.run_id for entry in await case.store.runs(session=session)], [before.run_id])
    same(await case.store.newest(session), before.run_id)
    await refused(NoSuchRun, case.store.delete(lease.run_id))
    box = case.mailbox()
    await case.begin(lease.run_id, session=session, deliver=box.deliver)
    await case.store.post(lease.run_id, Cancelled("of the new run"))
    same((await box.next()).event, Cancelled("of the new run"))


async def held_is_not_deleted(case: Case) -> None:
    """A run that somebody drives is not deleted: that is `RunIsLeased`, and nothing is lost."""
    lease = await case.begin()
    await refused(RunIsLeased, case.other.delete(lease.run_id))
    await case.store.append(lease, [Record(Cancelled())], LIVE)
    same(len(await case.store.load(lease.run_id)), 2)
    await refused(RunExists, case.begin(lease.run_id))


LISTS: tuple[Check, ...] = (
    an_entry_tells_how_a_run_stands,
    lists_are_newest_first,
    lists_come_in_pages,
    lists_can_leave_out_what_has_ended,
    found_by_how_an_id_begins,
    deleted_is_gone,
    held_is_not_deleted,
)
