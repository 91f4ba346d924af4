"""`check_store`: holds any store to what the driver relies on."""

from __future__ import annotations

import asyncio

from turnstile.core.errors import InsideEventLoop, RunExists
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    ChangesAccepted,
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
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult, ToolSpec, Usage, UserTurn
from turnstile.ports import Lease, Record, Store, Summary
from turnstile.testing.check_leases import LEASES
from turnstile.testing.check_lists import LISTS
from turnstile.testing.check_mailbox import MAILBOX
from turnstile.testing.store_case import AT_ONCE, LIVE, Case, Check, ignore, new_name, same

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
    EffectBegun("a1", ((0, 1), (4, 9))),
    ModelReplied(_REPLY, (Verdict("call 1", "a1", access="read", repeats=None), Verdict("call 2", "b2", valid=False))),
    CallStarted("call 1", "get_weather", "a1", "fingerprint", _TEXT, approval="3"),
    CallFinished(_RESULTS[0]),
    ChangesAccepted((("machine", "abc"), (_TEXT, "def"))),
    ToolsFinished(_RESULTS, aborted=""),
    ResultsAppended(),
    MessageInjected(_TEXT),
    ModelFailed("rate_limited", _TEXT, 429, "request", 1.5, 0.25),
    EffectLost(),
    ApprovalDecided("call 1", "result", content=_TEXT, waited=1.5),
    DeadlinePassed(),
    Cancelled(_TEXT),
    ModelReplied(Reply("42"), output={"answer": [42, 0.1, None, True, {"": "大理"}]}),
)


def check_store(store: Store, other: Store | None = None, *, patience: float = 30.0) -> None:
    """Check that a store keeps every promise of `turnstile.ports.Store`; the runs that the check writes stay in it.

    Each promise is checked in an event loop of its own, since `Agent.run_sync` has one for each call.

    Args:
        store: The store, open and ready.
        other: Another store for the same place, such as another process would have. It is asked wherever somebody else
            is; without it, the same store is.
        patience: Seconds after which what should have come by itself, such as a letter, counts as never coming.

    Raises:
        AssertionError: A promise that it does not keep, in words.
        InsideEventLoop: An event loop is running here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        for check in CHECKS:
            asyncio.run(check_one(check, store, other or store, patience))
        return
    raise InsideEventLoop("check_store(store)", "await asyncio.to_thread(check_store, store)")


async def unknown_is_empty(case: Case) -> None:
    """An unknown run loads as no records, and an unknown session has no runs."""
    same(await case.store.load(new_name()), ())
    same(await case.store.newest(new_name()), None)
    same(await case.store.runs(session=new_name()), ())


async def kept_as_written(case: Case) -> None:
    """Every kind of event comes back as it was, with its times and its row, in the order in which it was appended."""
    start = RunStarted(
        run_id=new_name(),
        prompt=_TEXT,
        instructions=_TEXT,
        history=(UserTurn(_TEXT), Exchange(_REPLY, _RESULTS), UserTurn("go on", synthetic=True)),
        session=new_name(),
        limits=Limits(turns=3, cost=0.1, on_exhausted="wrap_up"),
        retry=Retry(2, 0.1),
        deadline=1_700_000_000.125,
        models=("first", "second"),
        prices=(Price(0.1, 0.2), None),
        fingerprints=(("machine", "abc"), ("get_weather", "def")),
        tools=(ToolSpec("get_weather", _TEXT, {"type": "object", "properties": {}}),),
        settings={"temperature": 0.5, _TEXT: [None, True]},
        forked_from="other@3",
    )
    records = [
        Record(event, at=1_700_000_000.1 + n, duration_ms=n / 3, row=f"row_{n}" if n % 2 else "")
        for n, event in enumerate((start, *_EVENTS))
    ]
    lease = await case.store.create(records[0], LIVE, ignore)
    await case.store.append(lease, records[1:3], LIVE)
    for record in records[3:]:
        await case.store.append(lease, [record], LIVE)
    await case.free(lease)
    same(await case.other.load(start.run_id), tuple(records))


async def id_is_taken_once(case: Case) -> None:
    """Of many that create a run under one id at once, one succeeds; the others get `RunExists` and change nothing."""
    run_id = new_name()
    creating = [case.begin(run_id, prompt=f"prompt {n}", other=bool(n % 2)) for n in range(AT_ONCE)]
    outcomes = await asyncio.gather(*creating, return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, RunExists) and outcome.run_id == run_id]
    created = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Lease)]
    same((len(created), len(refusals)), (1, AT_ONCE - 1))
    [start] = await case.store.load(run_id)
    same(start.event, RunStarted(run_id, f"prompt {created[0]}", agent="checked"))


async def newest_of_a_session(case: Case) -> None:
    """The newest run of a session is the one created last, whatever was appended since, and at equal times too."""
    session, other = new_name(), new_name()
    leases = []
    for its in (session, session, other, None):
        leases.append(await case.begin(session=its, at=1.0))
        await case.free(leases[-1])
    again = await case.claim(leases[0].run_id)
    await case.store.append(again, [Record(EffectBegun(), at=2.0)], LIVE)
    newest = await case.store.newest(session), await case.other.newest(other)
    same(newest, (leases[1].run_id, leases[2].run_id))


async def runs_stay_apart(case: Case) -> None:
    """Runs that append at the same time get their own records each, in their own order."""

    async def drive(number: int) -> tuple[str, list[Record]]:
        lease = await case.begin(prompt=f"prompt {number}")
        records = [Record(MessageInjected(f"{lease.run_id} {n}")) for n in range(AT_ONCE)]
        for record in records:
            await case.store.append(lease, [record], Summary("await_model", turns=number))
        return lease.run_id, records

    written = await asyncio.gather(*map(drive, range(AT_ONCE)))
    for run_id, records in written:
        same(list(await case.store.load(run_id))[1:], records)
    turns = {entry.run_id: entry.summary.turns for entry in await case.store.runs(most=AT_ONCE)}
    same(turns, {run_id: number for number, (run_id, _) in enumerate(written)})


async def an_append_is_one(case: Case) -> None:
    """The records of one append are kept together: who loads meanwhile finds all of them, or none."""
    lease = await case.begin()
    batch = [Record(MessageInjected(str(n))) for n in range(AT_ONCE)]
    appends = [asyncio.ensure_future(case.store.append(lease, batch, LIVE)) for _ in range(AT_ONCE)]
    while not all(append.done() for append in appends):
        found = await case.other.load(lease.run_id)
        same(len(found) % AT_ONCE, 1)
        await asyncio.sleep(0)
    await asyncio.gather(*appends)
    same((await case.store.load(lease.run_id))[1:], tuple(batch * AT_ONCE))


async def append_outlives_its_task(case: Case) -> None:
    """An append that was called is kept, in its place, when the task that awaited it hears that it is cancelled."""
    lease = await case.begin()
    texts = [f"message {n}" for n in range(AT_ONCE)]
    tasks: list[asyncio.Future[None]] = []
    for text in texts:
        tasks.append(asyncio.ensure_future(case.store.append(lease, [Record(MessageInjected(text))], LIVE)))
        await asyncio.sleep(0)  # it is called now
        tasks[-1].cancel()
    await asyncio.wait(tasks)
    same([record.event for record in await case.other.load(lease.run_id)][1:], [*map(MessageInjected, texts)])
    await case.store.append(lease, [Record(Cancelled())], LIVE)
    kept = [record.event for record in await case.store.load(lease.run_id)]
    same(kept[1:], [*map(MessageInjected, texts), Cancelled()])


CHECKS: tuple[Check, ...] = (
    unknown_is_empty,
    kept_as_written,
    id_is_taken_once,
    newest_of_a_session,
    runs_stay_apart,
    an_append_is_one,
    append_outlives_its_task,
    *LEASES,
    *MAILBOX,
    *LISTS,
)


async def check_one(check: Check, store: Store, other: Store, patience: float) -> None:
    """Check one promise.

    Raises:
        AssertionError: It is not kept.
    """
    case = Case(store, other, patience)
    try:
        await check(case)
    except AssertionError as error:
        raise AssertionError(f"{store!r} breaks a promise: {check.__doc__}\n{error}") from None
    except Exception as error:
        raise AssertionError(f"{store!r} breaks a promise: {check.__doc__}\n     got {error!r}") from error
    finally:
        case.leave()
