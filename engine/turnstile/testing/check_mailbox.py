"""What `check_store` asks of the mailbox: each letter reaches who drives the run, until it is part of the journal."""

from __future__ import annotations

from turnstile.core.errors import RunFinished
from turnstile.core.events import ApprovalDecided, Cancelled, Event, MessageInjected
from turnstile.ports import Record
from turnstile.testing.store_case import LIVE, Case, Check, refused, same

_LETTERS: tuple[Event, ...] = (
    MessageInjected('line\nbreak, "quotes", 大理, lone \ud83d'),
    ApprovalDecided("call 1", "result", content="42", waited=1.5),
    Cancelled("enough"),
)


async def letters_reach_the_holder(case: Case) -> None:
    """Letters to a run that is driven reach its driver, in order and unchanged; who posts is told who that is."""
    box = case.mailbox()
    lease = await case.begin(deliver=box.deliver)
    for letter in _LETTERS:
        same(bool(await case.other.post(lease.run_id, letter)), True)
    same([(await box.next()).event for _ in _LETTERS], list(_LETTERS))


async def letters_wait(case: Case) -> None:
    """Letters to a run that nobody drives wait for who claims it, and who posts is told that nobody does."""
    lease = await case.begin()
    await case.free(lease)
    for letter in _LETTERS:
        same(await case.store.post(lease.run_id, letter), "")
    box = case.mailbox()
    await case.claim(lease.run_id, box.deliver)
    same([(await box.next()).event for _ in _LETTERS], list(_LETTERS))


async def letters_are_taken_once(case: Case) -> None:
    """A letter that was taken with an append is gone; one that wasn't reaches the next who drives the run."""
    box, later = case.mailbox(), case.mailbox()
    lease = await case.begin(deliver=box.deliver)
    for letter in _LETTERS:
        await case.store.post(lease.run_id, letter)
    taken, left, also_taken = [await box.next() for _ in _LETTERS]
    records = [Record(taken.event), Record(also_taken.event)]
    await case.store.append(lease, records, LIVE, [taken.number, also_taken.number])
    await case.free(lease)
    await case.claim(lease.run_id, later.deliver)
    await case.store.post(lease.run_id, Cancelled("last"))
    same([(await later.next()).event for _ in range(2)], [left.event, Cancelled("last")])


async def letters_stay_with_their_run(case: Case) -> None:
    """A letter reaches its own run, and no other run can take it away."""
    box, other = case.mailbox(), case.mailbox()
    lease = await case.begin(deliver=box.deliver)
    apart = await case.begin(deliver=other.deliver)
    await case.store.post(apart.run_id, Cancelled("apart"))
    letter = await other.next()
    await case.store.append(lease, [Record(MessageInjected("mine"))], LIVE, [letter.number])
    await case.store.post(lease.run_id, Cancelled("mine"))
    same((await box.next()).event, Cancelled("mine"))
    await case.free(apart)
    again = case.mailbox()
    await case.claim(apart.run_id, again.deliver)
    same(await again.next(), letter)


async def the_end_empties_the_mailbox(case: Case) -> None:
    """A run that has ended takes no letters (`RunFinished`), and those that waited are gone."""
    box, later = case.mailbox(), case.mailbox()
    lease = await case.begin(deliver=box.deliver)
    await case.store.post(lease.run_id, Cancelled("too late"))
    await box.next()
    await case.end(lease)
    error = await refused(RunFinished, case.other.post(lease.run_id, Cancelled()))
    assert isinstance(error, RunFinished)  # noqa: S101 - for the type checker
    same((error.run_id, error.state), (lease.run_id, "done"))
    again = await case.claim(lease.run_id, later.deliver)
    await case.store.append(again, [Record(MessageInjected("go on"))], LIVE)
    await case.store.post(lease.run_id, Cancelled("in time"))
    same((await later.next()).event, Cancelled("in time"))


MAILBOX: tuple[Check, ...] = (
    letters_reach_the_holder,
    letters_wait,
    letters_are_taken_once,
    letters_stay_with_their_run,
    the_end_empties_the_mailbox,
)
