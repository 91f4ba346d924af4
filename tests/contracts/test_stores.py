"""What every store keeps: one suite for all that the library ships, and proof that the suite notices a broken one."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.core.errors import InsideEventLoop, RunExists
from turnstile.core.events import (
    Cancelled,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    RunStarted,
    ToolsFinished,
)
from turnstile.core.messages import Reply, ToolResult
from turnstile.ports import Record, Store
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import check_store

texts = st.text()
times = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | times | texts,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(texts, parts, max_size=3),
    max_leaves=8,
)
results = st.builds(ToolResult, texts, texts, texts, st.sampled_from(["ok", "error", "not_run"]), times)
events: st.SearchStrategy[Event] = (
    st.builds(MessageInjected, texts)
    | st.builds(Cancelled, texts)
    | st.builds(ModelFailed, st.sampled_from(["timeout", "budget"]), texts, st.none() | st.integers(100, 599))
    | st.builds(ToolsFinished, st.lists(results, max_size=3).map(tuple))
    | st.builds(lambda text, output: ModelReplied(Reply(text), output=output), texts, json_values)
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each store that the library ships."""
    if request.param == "memory":
        yield MemoryStore()
        return
    kept = SQLiteStore(tmp_path / "runs.db")
    yield kept
    asyncio.run(kept.aclose())


def test_keeps_every_promise(store: Store) -> None:
    """The driver relies on these promises and on no store in particular."""
    check_store(store)


_numbers = iter(range(1_000_000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one store serves all examples, a run each
@given(st.lists(st.builds(Record, events, times, times), max_size=5))
def test_gives_back_what_it_was_given(store: Store, records: list[Record]) -> None:
    """A run is a fold of its records, so each must come back equal, and in its place."""
    run_id = f"run {next(_numbers)}"
    start = Record(RunStarted(run_id, "prompt"))

    async def write_and_load() -> tuple[Record, ...]:
        await store.create(start)
        for record in records:
            await store.append(run_id, record)
        return await store.load(run_id)

    assert asyncio.run(write_and_load()) == (start, *records)


async def test_the_check_names_its_other_form_inside_an_event_loop() -> None:
    """An async test would call it so, and a bare RuntimeError of asyncio does not say what to do."""
    with pytest.raises(InsideEventLoop, match="to_thread"):
        check_store(MemoryStore())
    await asyncio.to_thread(check_store, MemoryStore())


class InventsRuns(MemoryStore):
    """Has a record for runs that it never saw."""

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """A record from nowhere when there is none."""
        return await super().load(run_id) or (Record(RunStarted(run_id, "")),)


class ForgetsTimes(MemoryStore):
    """Keeps events without their times."""

    async def append(self, run_id: str, record: Record) -> None:
        """The event alone."""
        await super().append(run_id, Record(record.event))


class OverwritesRuns(MemoryStore):
    """Begins a run anew under an id that is taken."""

    async def create(self, start: Record) -> None:
        """No refusal."""
        try:
            await super().create(start)
        except RunExists as taken:
            del self._runs[taken.run_id]
            await super().create(start)


class ChecksTooEarly(MemoryStore):
    """Looks whether an id is free, and takes it a moment later."""

    async def create(self, start: Record) -> None:
        """Look, let others go first, write."""
        assert isinstance(start.event, RunStarted)
        if start.event.run_id in self._runs:
            raise RunExists(start.event.run_id)
        await asyncio.sleep(0)
        self._runs[start.event.run_id] = [start]


class TakesTheTouched(MemoryStore):
    """Takes the run that was written to last for the newest one."""

    async def append(self, run_id: str, record: Record) -> None:
        """Let the session go on from the run that was written to."""
        await super().append(run_id, record)
        start = self._runs[run_id][0].event
        if isinstance(start, RunStarted) and start.session is not None:
            self._newest[start.session] = run_id


class MixesRuns(MemoryStore):
    """Puts what is appended at once into one run."""

    async def append(self, run_id: str, record: Record) -> None:
        """The run is that of whoever called last."""
        self.latest = run_id
        await asyncio.sleep(0)
        await super().append(self.latest, record)


class StopsWithItsTask(MemoryStore):
    """Gives up an append when the task that awaits it is cancelled."""

    async def append(self, run_id: str, record: Record) -> None:
        """Wait first, and write if nobody has cancelled meanwhile."""
        await asyncio.sleep(0)
        await super().append(run_id, record)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (InventsRuns, "An unknown run loads as no records"),
        (ForgetsTimes, "Every kind of event comes back as it was"),
        (OverwritesRuns, "one succeeds"),
        (ChecksTooEarly, "one succeeds"),
        (TakesTheTouched, "The newest run of a session"),
        (MixesRuns, "Runs that append at the same time"),
        (StopsWithItsTask, "An append that was called is kept"),
    ],
)
def test_the_check_notices(broken: Callable[[], Store], promise: str) -> None:
    """A check that passes whatever it is given would vouch for stores that lose runs."""
    with pytest.raises(AssertionError, match=promise):
        check_store(broken())
