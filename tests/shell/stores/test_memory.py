"""What is particular to the store in memory; what every store keeps is in tests/contracts."""

import pytest

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.events import Cancelled, EffectBegun, RunStarted
from turnstile.ports import Letter, Record, Summary
from turnstile.stores import MemoryStore

NAMES = ("first", "second", "third")
LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


async def test_lets_the_oldest_run_go() -> None:
    """A long-lived process that nobody told otherwise must not fill its memory."""
    store = MemoryStore(keep=2)
    lease, *_ = [await store.create(Record(RunStarted(name, "prompt")), LIVE, ignore) for name in NAMES]
    await store.append(lease, [Record(EffectBegun())], LIVE)
    assert await store.load("first") == ()
    assert [len(await store.load(name)) for name in ("second", "third")] == [1, 1]


def test_keeps_at_least_one_run() -> None:
    """A store that keeps nothing would let go of the run that is under way."""
    with pytest.raises(ConfigurationError, match="at least 1 run; got keep=0"):
        MemoryStore(keep=0)


async def test_a_session_goes_on_from_its_newest_run_that_is_kept() -> None:
    """Of a run that was let go nothing is known any more, and its session begins anew."""
    store = MemoryStore(keep=2)
    starts = [Record(RunStarted(name, "prompt", session=name)) for name in NAMES]
    for start in starts:
        store.release(await store.create(start, LIVE, ignore))
    assert [await store.newest(name) for name in NAMES] == [None, "second", "third"]


async def test_a_run_that_was_let_go_is_no_longer_held() -> None:
    """Its end says so for a run that is long forgotten."""
    store = MemoryStore(keep=1)
    lease = await store.create(Record(RunStarted("first", "prompt")), LIVE, ignore)
    await store.create(Record(RunStarted("second", "prompt")), LIVE, ignore)
    store.release(lease)
    assert [entry.run_id for entry in await store.runs()] == ["second"]


async def test_a_holder_whose_loop_has_ended_hinders_nobody_who_posts() -> None:
    """The letter waits for who claims the run next."""
    store = MemoryStore()

    def gone(letter: Letter) -> None:
        raise RuntimeError("Event loop is closed")

    got: list[Letter] = []
    lease = await store.create(Record(RunStarted("first", "prompt")), LIVE, gone)
    assert await store.post("first", Cancelled())
    store.release(lease)
    await store.claim("first", got.append)
    assert [letter.event for letter in got] == [Cancelled()]


async def test_only_letters_are_posted() -> None:
    """Nobody outside of a run can know what its model said."""
    store = MemoryStore()
    await store.create(Record(RunStarted("first", "prompt")), LIVE, ignore)
    with pytest.raises(UsageError, match=r"takes Cancelled, MessageInjected, ApprovalDecided; got EffectBegun"):
        await store.post("first", EffectBegun())
