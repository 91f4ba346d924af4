"""What `check_store` asks of leases: one writer a run, one run a session, and no word from who has lost a lease."""

from __future__ import annotations

import asyncio

from turnstile.core.errors import NoSuchRun, RunIsLeased, SessionBusy
from turnstile.core.events import Cancelled, EffectBegun, MessageInjected, RunStarted
from turnstile.ports import Lease, Record
from turnstile.testing.store_case import (
    AT_ONCE,
    ENDED,
    LIVE,
    Case,
    Check,
    ignore,
    new_name,
    refused,
    same,
)


async def created_is_held(case: Case) -> None:
    """Who creates a run holds its lease, and whoever else claims the run gets `RunIsLeased`, which says by whom."""
    lease = await case.begin()
    error = await refused(RunIsLeased, case.other.claim(lease.run_id, ignore))
    assert isinstance(error, RunIsLeased)  # noqa: S101 - for the type checker
    same((error.run_id, bool(error.holder)), (lease.run_id, True))


async def claimed_once(case: Case) -> None:
    """Of many that claim a run at once, one gets its lease; the others get `RunIsLeased`."""
    lease = await case.begin()
    await case.end(lease)
    claims = [case.claim(lease.run_id, other=bool(n % 2)) for n in range(AT_ONCE)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    same(sum(isinstance(outcome, RunIsLeased) for outcome in outcomes), AT_ONCE - 1)
    same(sum(isinstance(outcome, Lease) for outcome in outcomes), 1)


async def unknown_is_refused(case: Case) -> None:
    """A run that isn't there can be neither claimed nor deleted, nor take letters."""
    for doing in (
        case.store.claim(new_name(), ignore),
        case.store.delete(new_name()),
        case.store.post(new_name(), Cancelled()),
    ):
        await refused(NoSuchRun, doing)


async def release_comes_after_appends(case: Case) -> None:
    """A lease is released after what was appended before, so that who claims the run next finds all of it."""
    lease = await case.begin()
    texts = [f"message {n}" for n in range(AT_ONCE)]
    appends = []
    for text in texts:
        records = [Record(MessageInjected(text))]
        appends.append(asyncio.ensure_future(case.store.append(lease, records, LIVE)))
    await asyncio.sleep(0)  # all are called now
    case.store.release(lease)

    async def is_claimed() -> bool:
        try:
            await case.claim(lease.run_id, other=True)
        except RunIsLeased:
            return False
        return True

    await case.until(is_claimed, "a run whose lease was released cannot be claimed")
    found = await case.other.load(lease.run_id)
    same([record.event for record in found[1:]], [MessageInjected(text) for text in texts])
    await asyncio.gather(*appends)


async def stale_lease_changes_nothing(case: Case) -> None:
    """An append under a lease that another has by now raises `RunIsLeased`, and keeps and takes away nothing."""
    old = await case.begin()
    await case.free(old)
    box = case.mailbox()
    new = await case.claim(old.run_id, other=True)
    await case.store.post(old.run_id, Cancelled("stay"))
    before = await case.store.load(old.run_id), await case.store.find(old.run_id)
    letters = range(1000)  # whatever number the letter has in a store that counts from where it likes
    records = [Record(EffectBegun()), Record(MessageInjected("late"))]
    await refused(RunIsLeased, case.store.append(old, records, ENDED, letters))
    same((await case.store.load(old.run_id), await case.store.find(old.run_id)), before)
    await case.free(new, other=True)
    await case.claim(old.run_id, box.deliver)
    same((await box.next()).event, Cancelled("stay"))


async def released_lease_is_over(case: Case) -> None:
    """A lease that was released writes no more, though nobody has claimed the run since."""
    lease = await case.begin()
    await case.free(lease)
    await refused(RunIsLeased, case.store.append(lease, [Record(EffectBegun())], LIVE))
    same(len(await case.store.load(lease.run_id)), 1)


async def epochs_rise(case: Case) -> None:
    """Each lease of a run has the epoch after that of the one before, and a higher one when the run was begun anew."""
    lease = await case.begin()
    epochs = [lease.epoch]
    for n in range(3):
        await case.free(lease, other=n % 2 == 0 and n > 0)
        lease = await case.claim(lease.run_id, other=n % 2 == 1)
        epochs.append(lease.epoch)
    await case.free(lease)
    await case.store.delete(lease.run_id)
    anew = await case.begin(lease.run_id)
    same(epochs, list(range(epochs[0], epochs[0] + 4)))
    same(anew.epoch > epochs[-1], True)
    await refused(RunIsLeased, case.store.append(lease, [Record(EffectBegun())], LIVE))


async def stale_release_frees_nothing(case: Case) -> None:
    """Releasing a lease that another has by now leaves it with the other."""
    old = await case.begin()
    await case.free(old)
    new = await case.claim(old.run_id)
    case.store.release(old)
    await case.store.append(new, [Record(EffectBegun())], LIVE)
    await refused(RunIsLeased, case.other.claim(old.run_id, ignore))


async def the_end_releases(case: Case) -> None:
    """A summary with a reason ends the run and its lease: nothing more is written under it, and nobody holds it."""
    lease = await case.begin()
    await case.end(lease, [Record(Cancelled())])
    await refused(RunIsLeased, case.store.append(lease, [Record(EffectBegun())], LIVE))
    same(len(await case.store.load(lease.run_id)), 2)
    await case.claim(lease.run_id, other=True)


async def one_run_a_session(case: Case) -> None:
    """While a run of a session is under way, another is neither created nor claimed: that is `SessionBusy`."""
    session = new_name()
    first = await case.begin(session=session)
    refused_run = Record(RunStarted(new_name(), "prompt", session=session))
    await refused(SessionBusy, case.other.create(refused_run, LIVE, ignore))
    assert isinstance(refused_run.event, RunStarted)  # noqa: S101 - for the type checker
    same(await case.store.load(refused_run.event.run_id), ())
    await case.free(first)
    await case.begin(session=session)
    await refused(SessionBusy, case.other.claim(first.run_id, ignore))


async def nothing_is_missed_in_a_session(case: Case) -> None:
    """A run that goes on from another than its session's newest is not created: it has not heard what that one said."""
    session = new_name()
    first = RunStarted(new_name(), "prompt", session=session, previous="")
    await case.end(await case.store.create(Record(first), LIVE, ignore))
    for previous in ("", new_name()):
        missing = RunStarted(new_name(), "prompt", session=session, previous=previous)
        await refused(SessionBusy, case.other.create(Record(missing), LIVE, ignore))
        same(await case.store.load(missing.run_id), ())
    heard = RunStarted(new_name(), "prompt", session=session, previous=first.run_id)
    await case.end(await case.other.create(Record(heard), LIVE, ignore))


async def others_do_not_block(case: Case) -> None:
    """A run that has ended, that nobody holds, or that is of another session or of none, keeps no session busy."""
    session = new_name()
    await case.end(await case.begin(session=session))
    await case.free(await case.begin(session=session))
    await case.begin(session=new_name())
    await case.begin()
    await case.begin()
    await case.begin(session=session)


LEASES: tuple[Check, ...] = (
    created_is_held,
    claimed_once,
    unknown_is_refused,
    release_comes_after_appends,
    stale_lease_changes_nothing,
    released_lease_is_over,
    epochs_rise,
    stale_release_frees_nothing,
    the_end_releases,
    one_run_a_session,
    nothing_is_missed_in_a_session,
    others_do_not_block,
)
