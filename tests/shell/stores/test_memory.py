"""What is particular to the store in memory; what every store keeps is in tests/contracts."""

import pytest

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import EffectBegun, RunStarted
from turnstile.ports import Record
from turnstile.stores import MemoryStore


async def test_lets_the_oldest_run_go() -> None:
    """A long-lived process that nobody told otherwise must not fill its memory."""
    store = MemoryStore(keep=2)
    for name in ("first", "second", "third"):
        await store.create(Record(RunStarted(name, "prompt")))
    await store.append("first", Record(EffectBegun()))
    assert await store.load("first") == ()
    assert [len(await store.load(name)) for name in ("second", "third")] == [1, 1]


def test_keeps_at_least_one_run() -> None:
    """A store that keeps nothing would let go of the run that is under way."""
    with pytest.raises(ConfigurationError, match="at least 1 run; got keep=0"):
        MemoryStore(keep=0)
