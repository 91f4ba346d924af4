"""`check_store`: holds any store to what the driver relies on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from turnstile.core.errors import InsideEventLoop, RunExists
from turnstile.core.events import (
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.ports import Record, Store

AT_ONCE = 20  # as many as a busy program's runs: enough that records of several runs share a commit

_TEXT = 'line\nbreak, tab\t, NUL \x00, "quotes", \\, ü, 大理, 🐢, lone \ud83d'
_REPLY = Reply(
    _TEXT,
    (ToolCall("call 1", "get_weather", '{"city": "大理"}'), ToolCall("call 2", "get_weather", "{not JSON")),
    "tool_calls",
    "tool_use",
    _TEXT,
    Usage(10, 2**40, None, 0),
    1e-9,
    "model",
    "request",
)
_RESULTS = (ToolResult("call 1", "get_weather", _TEXT, "ok", 0.1), ToolResult("call 2", "get_weather", "", "error"))
_EVENTS = (
    EffectBegun(),
    ModelReplied(_REPLY, (Verdict("call 1", "a1", access="read", repeats=None), Verdict("call 2", "b2", valid=False))),
    ToolsFinished(_RESULTS, aborted=""),
    ResultsAppended(),
    MessageInjected(_TEXT),
    ModelFailed("rate_limited", _TEXT, 429, "request", 1.5, 0.25),
    EffectLost(),
    DeadlinePassed(),
    Cancelled(_TEXT),
    ModelReplied(Reply("42"), output={"answer": [42, 0.1, None, True, {"": "大理"}]}),
)


def check_store(store: Store) -> None:
    """Check that a store keeps every promise of `turnstile.ports.Store`; the runs that the check writes stay in it.

    Each promise is checked in an event loop of its own, since `Agent.run_sync` has one for each call.

    Args:
        store: The store, open and ready.

    Raises:
        AssertionError: A promise that it does not keep, in words.
        InsideEventLoop: An event loop is running here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        for check in CHECKS:
            asyncio.run(_run(check, store))
        return
    raise InsideEventLoop("check_store(store)", "await asyncio.to_thread(check_store, store)")


async def unknown_is_empty(store: Store) -> None:
    """An unknown run loads as no records, and an unknown session has no newest run."""
    _same(await store.load(_new()), ())
    _same(await store.newest(_new()), None)


async def kept_as_written(store: Store) -> None:
    """Every kind of event comes back as it was, with its times, in the order in which it was appended."""
    start = RunStarted(
        run_id=_new(),
        prompt=_TEXT,
        instructions=_TEXT,
        history=(UserTurn(_TEXT), Exchange(_REPLY, _RESULTS), UserTurn("go on", synthetic=True)),
        session=_new(),
        limits=Limits(turns=3, cost=0.1, on_exhausted="wrap_up"),
        retry=Retry(2, 0.1),
        deadline=1_700_000_000.125,
        models=("first", "second"),
        prices=(Price(0.1, 0.2), None),
        fingerprints=(("machine", "abc"), ("get_weather", "def")),
    )
    records = [Record(event, at=1_700_000_000.1 + n, duration_ms=n / 3) for n, event in enumerate((start, *_EVENTS))]
    await store.create(records[0])
    for record in records[1:]:
        await store.append(start.run_id, record)
    _same(await store.load(start.run_id), tuple(records))


async def id_is_taken_once(store: Store) -> None:
    """Of many that create a run under one id at once, one succeeds; the others get `RunExists` and change nothing."""
    run_id = _new()
    starts = [Record(RunStarted(run_id, f"prompt {n}")) for n in range(AT_ONCE)]
    outcomes = await asyncio.gather(*map(store.create, starts), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, RunExists) and outcome.run_id == run_id]
    _same((outcomes.count(None), len(refused)), (1, AT_ONCE - 1))
    _same(await store.load(run_id), (starts[outcomes.index(None)],))


async def newest_of_a_session(store: Store) -> None:
    """The newest run of a session is the one created last, whatever was appended since, and at equal times too."""
    session, other = _new(), _new()
    runs = [_new() for _ in range(4)]
    for run_id, its in zip(runs, (session, session, other, None), strict=True):
        await store.create(Record(RunStarted(run_id, "prompt", session=its), at=1.0))
    await store.append(runs[0], Record(EffectBegun(), at=2.0))
    _same((await store.newest(session), await store.newest(other)), (runs[1], runs[2]))


async def runs_stay_apart(store: Store) -> None:
    """Runs that append at the same time get their own records each, in their own order."""
    runs = [_new() for _ in range(AT_ONCE)]

    async def drive(run_id: str) -> tuple[Record, ...]:
        records = [Record(RunStarted(run_id, "prompt"))]
        records += [Record(MessageInjected(f"{run_id} {n}")) for n in range(AT_ONCE)]
        await store.create(records[0])
        for record in records[1:]:
            await store.append(run_id, record)
        return tuple(records)

    written = await asyncio.gather(*map(drive, runs))
    for run_id, records in zip(runs, written, strict=True):
        _same(await store.load(run_id), records)


async def append_outlives_its_task(store: Store) -> None:
    """An append that was called is kept, in its place, although the task that awaited it was cancelled."""
    start = RunStarted(_new(), "prompt")
    texts = [f"message {n}" for n in range(AT_ONCE)]
    await store.create(Record(start))
    for text in texts:
        task = asyncio.ensure_future(store.append(start.run_id, Record(MessageInjected(text))))
        await asyncio.sleep(0)  # it is called now
        task.cancel()
    await store.append(start.run_id, Record(Cancelled()))
    kept = [record.event for record in await store.load(start.run_id)]
    _same(kept, [start, *map(MessageInjected, texts), Cancelled()])


Check = Callable[[Store], Awaitable[None]]
CHECKS: tuple[Check, ...] = (
    unknown_is_empty,
    kept_as_written,
    id_is_taken_once,
    newest_of_a_session,
    runs_stay_apart,
    append_outlives_its_task,
)


async def _run(check: Check, store: Store) -> None:
    try:
        await check(store)
    except AssertionError as error:
        raise AssertionError(f"{store!r} breaks a promise: {check.__doc__}\n{error}") from None


def _same(got: object, expected: object) -> None:
    if got != expected:
        raise AssertionError(f"expected {expected!r}\n     got {got!r}")


def _new() -> str:
    """A name that no store has seen."""
    return f"check-{secrets.token_hex(6)}"
