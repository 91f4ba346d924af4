"""Proof that `check_store` notices a store that breaks a promise: for each promise there is one that does."""

import asyncio
import re
from collections.abc import Collection, Sequence
from contextlib import suppress

import pytest

from turnstile.core.errors import NoSuchRun, RunExists, RunFinished, RunIsLeased, SessionBusy
from turnstile.core.events import Event, RunStarted
from turnstile.core.values import evolve
from turnstile.ports import Deliver, Lease, Letter, Record, RunEntry, Summary
from turnstile.stores import MemoryStore
from turnstile.testing import check_store
from turnstile.testing.check_store import CHECKS, check_one


class InventsRuns(MemoryStore):
    """Has a record for runs that it never saw."""

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """A record from nowhere when there is none."""
        return await super().load(run_id) or (Record(RunStarted(run_id, "")),)


class Appends(MemoryStore):
    """Does something else with what is appended."""

    def changed(self, record: Record) -> Record:
        """What is kept of a record."""
        return record

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Keep changed records."""
        await super().append(lease, [self.changed(record) for record in records], summary, letters)


class ForgetsTimes(Appends):
    """Keeps events without their times."""

    def changed(self, record: Record) -> Record:
        """No times."""
        return evolve(record, at=0.0, duration_ms=0.0)


class ForgetsRows(Appends):
    """Keeps events without the row that took them."""

    def changed(self, record: Record) -> Record:
        """No row."""
        return evolve(record, row="")


class OverwritesRuns(MemoryStore):
    """Begins a run anew under an id that is taken."""

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """No refusal."""
        try:
            return await super().create(start, summary, deliver)
        except RunExists as taken:
            del self._runs[taken.run_id]
            return await super().create(start, summary, deliver)


class ChecksTooEarly(MemoryStore):
    """Looks whether an id is free, and takes it a moment later."""

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Look, let others go first, write."""
        assert isinstance(start.event, RunStarted)
        if start.event.run_id in self._runs:
            raise RunExists(start.event.run_id)
        await asyncio.sleep(0)
        self._runs.pop(start.event.run_id, None)
        return await super().create(start, summary, deliver)


class TakesTheTouched(MemoryStore):
    """Takes the run that was written to last for the newest one."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Let the session go on from the run that was written to."""
        await super().append(lease, records, summary, letters)
        session = self._runs[lease.run_id].start.session
        if session is not None:
            self._newest[session] = lease.run_id
        self._runs[lease.run_id] = self._runs.pop(lease.run_id)


class MixesRuns(MemoryStore):
    """Puts what is appended at once into one run."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """The run is that of whoever called last."""
        self.latest = lease
        await asyncio.sleep(0)
        await super().append(self.latest, records, summary, letters)


class AppendsOneByOne(MemoryStore):
    """Writes each record by itself."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Let others look in between."""
        for record in records:
            await super().append(lease, [record], summary, letters)
            await asyncio.sleep(0)


class StopsWithItsTask(MemoryStore):
    """Gives up an append when the task that awaits it is cancelled."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Wait first, and write if nobody has cancelled meanwhile."""
        await asyncio.sleep(0)
        await super().append(lease, records, summary, letters)


class TakesOver(MemoryStore):
    """Gives the lease to whoever claims a run, whether or not it is held."""

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """No refusal."""
        if run_id in self._runs:
            self._runs[run_id].let_go()
        return await super().claim(run_id, deliver)


class ClaimsTooEarly(MemoryStore):
    """Looks whether a lease is free, and takes it a moment later."""

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Look, let others go first, write."""
        if run_id in self._runs and self._runs[run_id].epoch is not None:
            raise RunIsLeased(run_id, "somebody")
        await asyncio.sleep(0)
        if run_id in self._runs:
            self._runs[run_id].let_go()
        return await super().claim(run_id, deliver)


class SwallowsLetters(MemoryStore):
    """Takes letters for runs that it does not have."""

    async def post(self, run_id: str, event: Event) -> str:
        """No refusal."""
        try:
            return await super().post(run_id, event)
        except NoSuchRun:
            return ""


class ReleasesAtOnce(MemoryStore):
    """Keeps what is appended a moment later, and does not wait for that when it releases."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Check the lease now, and write later."""
        kept = self._runs[lease.run_id]
        if kept.epoch != lease.epoch:
            raise RunIsLeased(lease.run_id, "somebody")
        for _ in range(100):
            await asyncio.sleep(0)
        kept.records += records


class NeverReleases(MemoryStore):
    """Keeps a lease that was released."""

    def release(self, lease: Lease) -> None:
        """Hold it still."""


class AsksForNoLease(MemoryStore):
    """Lets anybody write."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """The lease is that of whoever holds it."""
        held = self._runs[lease.run_id].epoch
        if held is None:
            self._runs[lease.run_id].records += records
        else:
            await super().append(Lease(lease.run_id, held), records, summary, letters)


class TakesLettersFirst(MemoryStore):
    """Takes letters away before it looks at the lease."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Not as one."""
        for number in letters:
            self._runs[lease.run_id].letters.pop(number, None)
        await super().append(lease, records, summary, letters)


class CountsByRun(MemoryStore):
    """Counts the leases of each run, and begins anew when it was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self._epochs: dict[str, int] = {}

    def _take(self, run_id: str, deliver: Deliver) -> Lease:
        self._epochs[run_id] = self._epochs.get(run_id, 0) + 1
        kept = self._runs[run_id]
        kept.epoch, kept.deliver = self._epochs[run_id], deliver
        return Lease(run_id, kept.epoch)

    async def delete(self, run_id: str) -> None:
        """Forget its count too."""
        await super().delete(run_id)
        del self._epochs[run_id]


class CountsAllLeases(MemoryStore):
    """Counts the leases of all runs together, so that nobody can tell whether another had the run meanwhile."""

    def _take(self, run_id: str, deliver: Deliver) -> Lease:
        self._runs[run_id].epochs += 1
        return super()._take(run_id, deliver)


class ReleasesForAnybody(MemoryStore):
    """Lets the present holder go whoever asks for it."""

    def release(self, lease: Lease) -> None:
        """The lease is that of whoever holds it."""
        if lease.run_id in self._runs:
            self._runs[lease.run_id].let_go()


class KeepsEndedRunsHeld(MemoryStore):
    """Forgets to release the lease of a run that has ended."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Hold it again."""
        await super().append(lease, records, summary, letters)
        self._runs[lease.run_id].epoch = lease.epoch


class KnowsNoSessions(MemoryStore):
    """Lets runs of one session go on at once."""

    def _refuse_rivals(self, run_id: str, session: str | None) -> None:
        pass


class MissesWhatWasSaid(MemoryStore):
    """Lets a run begin that has not heard the newest of its session."""

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """As if nobody had looked."""
        assert isinstance(start.event, RunStarted)
        return await super().create(evolve(start, event=evolve(start.event, previous=None)), summary, deliver)


class BlocksForWhatIsLeft(MemoryStore):
    """Takes a run that nobody drives for one that is under way."""

    def _refuse_rivals(self, run_id: str, session: str | None) -> None:
        for other, kept in self._runs.items():
            if session is not None and kept.start.session == session and other != run_id and not kept.summary.reason:
                raise SessionBusy(session)


class DeliversNothing(MemoryStore):
    """Keeps letters until the run is claimed anew."""

    async def post(self, run_id: str, event: Event) -> str:
        """As if the holder could not be reached."""
        kept = self._known(run_id)
        deliver, kept.deliver = kept.deliver, None
        holder = await super().post(run_id, event)
        kept.deliver = deliver
        return holder


class DeliversOnlyNew(MemoryStore):
    """Does not hand over the letters that wait."""

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Say nothing of them."""
        kept = self._known(run_id)
        waiting, kept.letters = kept.letters, {}
        lease = await super().claim(run_id, deliver)
        kept.letters = waiting
        return lease


class NeverTakesLetters(MemoryStore):
    """Leaves letters in the mailbox though they are part of the journal."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """The letters stay."""
        await super().append(lease, records, summary)


class TakesAnyLetter(MemoryStore):
    """Takes letters out of the mailbox of whatever run."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """By their numbers alone."""
        await super().append(lease, records, summary, letters)
        for kept in self._runs.values():
            for number in letters:
                kept.letters.pop(number, None)


class WritesToTheDead(MemoryStore):
    """Takes letters for runs that have ended."""

    async def post(self, run_id: str, event: Event) -> str:
        """No refusal."""
        try:
            return await super().post(run_id, event)
        except RunFinished:
            return ""


class KeepsOldLetters(MemoryStore):
    """Leaves the letters of a run that has ended."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Put them back."""
        kept = self._runs[lease.run_id]
        waiting: dict[int, Letter] = dict(kept.letters)
        await super().append(lease, records, summary, letters)
        kept.letters.update((number, letter) for number, letter in waiting.items() if number not in letters)


class ForgetsSummaries(MemoryStore):
    """Lists runs as they stood at their start."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """The old summary stays."""
        kept = self._runs[lease.run_id]
        before = kept.summary
        await super().append(lease, records, summary, letters)
        kept.summary = before


class ListsOldestFirst(MemoryStore):
    """Lists runs the other way round."""

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """The oldest first."""
        return tuple(reversed(await super().runs(most=most, before=before, session=session, live=live)))


class RepeatsThePagesLast(MemoryStore):
    """Begins the next page with the last of the one before."""

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """From that run on."""
        found = list(await super().runs(most=10_000, session=session, live=live))
        first = next((n for n, entry in enumerate(found) if entry.run_id == before), 0)
        return tuple(found[first : first + most])


class ListsTheDead(MemoryStore):
    """Lists what has ended too."""

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """All of them."""
        return await super().runs(most=most, before=before, session=session)


class FindsAnyCase(MemoryStore):
    """Finds ids as SQL's LIKE does."""

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """Big letters for small ones."""
        return tuple(sorted(run_id for run_id in self._runs if run_id.lower().startswith(prefix.lower()))[:most])


class ForgetsOnlyTheRun(MemoryStore):
    """Leaves the session at a run that is gone."""

    async def delete(self, run_id: str) -> None:
        """Say nothing to the session."""
        before = dict(self._newest)
        await super().delete(run_id)
        self._newest = before


class DeletesWhatIsHeld(MemoryStore):
    """Deletes runs that are under way."""

    async def delete(self, run_id: str) -> None:
        """No refusal."""
        if run_id in self._runs:
            self._runs[run_id].let_go()
        await super().delete(run_id)


BROKEN: dict[str, tuple[type[MemoryStore], ...]] = {
    "unknown_is_empty": (InventsRuns,),
    "kept_as_written": (ForgetsTimes, ForgetsRows),
    "id_is_taken_once": (OverwritesRuns, ChecksTooEarly),
    "newest_of_a_session": (TakesTheTouched,),
    "runs_stay_apart": (MixesRuns,),
    "an_append_is_one": (AppendsOneByOne,),
    "append_outlives_its_task": (StopsWithItsTask,),
    "created_is_held": (TakesOver,),
    "claimed_once": (ClaimsTooEarly,),
    "unknown_is_refused": (SwallowsLetters,),
    "release_comes_after_appends": (ReleasesAtOnce, NeverReleases),
    "stale_lease_changes_nothing": (AsksForNoLease, TakesLettersFirst),
    "released_lease_is_over": (AsksForNoLease,),
    "epochs_rise": (CountsByRun, CountsAllLeases),
    "stale_release_frees_nothing": (ReleasesForAnybody,),
    "the_end_releases": (KeepsEndedRunsHeld, AsksForNoLease),
    "one_run_a_session": (KnowsNoSessions,),
    "nothing_is_missed_in_a_session": (MissesWhatWasSaid,),
    "others_do_not_block": (BlocksForWhatIsLeft,),
    "letters_reach_the_holder": (DeliversNothing,),
    "letters_wait": (DeliversOnlyNew, NeverReleases),
    "letters_are_taken_once": (NeverTakesLetters, DeliversOnlyNew),
    "letters_stay_with_their_run": (TakesAnyLetter,),
    "the_end_empties_the_mailbox": (WritesToTheDead, KeepsOldLetters),
    "an_entry_tells_how_a_run_stands": (ForgetsSummaries,),
    "lists_are_newest_first": (ListsOldestFirst, TakesTheTouched),
    "lists_come_in_pages": (RepeatsThePagesLast,),
    "lists_can_leave_out_what_has_ended": (ListsTheDead,),
    "found_by_how_an_id_begins": (FindsAnyCase,),
    "deleted_is_gone": (ForgetsOnlyTheRun,),
    "held_is_not_deleted": (DeletesWhatIsHeld,),
}
PROMISES = {check.__name__: check for check in CHECKS}


def test_there_is_a_broken_store_for_each_promise() -> None:
    """A promise that is added without one would be vouched for by nothing."""
    assert list(BROKEN) == list(PROMISES)


@pytest.mark.parametrize(("promise", "broken"), [(name, store) for name, stores in BROKEN.items() for store in stores])
def test_the_check_notices(promise: str, broken: type[MemoryStore]) -> None:
    """A check that passes whatever it is given would vouch for stores that lose runs."""
    check = PROMISES[promise]
    store = broken()
    with pytest.raises(AssertionError, match=re.escape(f"breaks a promise: {check.__doc__}")):
        asyncio.run(check_one(check, store, store, patience=0.05))


@pytest.mark.parametrize("broken", sorted({store for stores in BROKEN.values() for store in stores}, key=repr))
def test_the_whole_check_notices(broken: type[MemoryStore]) -> None:
    """Whoever writes a store calls the whole, whose checks must not hide what one of them would find."""
    with pytest.raises(AssertionError, match="breaks a promise"):
        check_store(broken(), patience=0.05)


class Raises(MemoryStore):
    """Fails in a way that no store should."""

    async def newest(self, session: str) -> str | None:
        """Fail."""
        raise ZeroDivisionError(session)


def test_an_error_of_any_kind_breaks_a_promise() -> None:
    """Whoever writes a store wants to know which promise it was at when it failed."""
    with pytest.raises(AssertionError, match=r"(?s)An unknown run loads as no records.*ZeroDivisionError"):
        check_store(Raises())


class ReleasesLater(MemoryStore):
    """Releases a lease when it gets round to it, as a store behind a network does."""

    def release(self, lease: Lease) -> None:
        """Not now."""
        with suppress(RuntimeError):  # the check has ended
            asyncio.get_running_loop().call_later(0.002, super().release, lease)


class DeliversTwice(MemoryStore):
    """Hands letters over more than once, as a store may."""

    def _take(self, run_id: str, deliver: Deliver) -> Lease:
        def twice(letter: Letter) -> None:
            deliver(letter)
            deliver(letter)

        return super()._take(run_id, twice)


@pytest.mark.parametrize("sound", [ReleasesLater, DeliversTwice])
def test_the_check_asks_for_no_more_than_was_promised(sound: type[MemoryStore]) -> None:
    """A store that does all it has to must pass, though it is unlike ours."""
    check_store(sound())
