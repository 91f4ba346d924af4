"""What is particular to the store in memory; what every store keeps is in tests/contracts."""

import pytest

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import EffectBegun, RunStarted
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
