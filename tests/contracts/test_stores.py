"""What every store keeps: one suite for all that the library ships."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.core.errors import InsideEventLoop
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
from turnstile.ports import Letter, Record, Store, Summary
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


def test_keeps_every_promise_to_another_process_too(tmp_path: Path) -> None:
    """A second store on the same file stands for what another process has."""
    store, other = SQLiteStore(tmp_path / "runs.db"), SQLiteStore(tmp_path / "runs.db")
    check_store(store, other)
    for each in (store, other):
        asyncio.run(each.aclose())


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


_numbers = iter(range(1_000_000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one store serves all examples, a run each
@given(st.lists(st.builds(Record, events, times, times, st.sampled_from(["", "run_tools"])), max_size=5))
def test_gives_back_what_it_was_given(store: Store, records: list[Record]) -> None:
    """A run is a fold of its records, so each must come back equal, and in its place."""
    run_id = f"run {next(_numbers)}"
    start = Record(RunStarted(run_id, "prompt"))

    async def write_and_load() -> tuple[Record, ...]:
        lease = await store.create(start, Summary("await_model"), ignore)
        for record in records:
            await store.append(lease, [record], Summary("await_model"))
        store.release(lease)
        return await store.load(run_id)

    assert asyncio.run(write_and_load()) == (start, *records)


async def test_the_check_names_its_other_form_inside_an_event_loop() -> None:
    """An async test would call it so, and a bare RuntimeError of asyncio does not say what to do."""
    with pytest.raises(InsideEventLoop, match="to_thread"):
        check_store(MemoryStore())
    await asyncio.to_thread(check_store, MemoryStore())
