"""Each checker of an invariant says nothing of a sound run, and speaks up about one that is broken in just its way."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from case import Case, Effort, Row
from invariants import INVARIANTS, violations
from journals import RUN, Hand, call, replied, result, sealed_rows, started
from ledger import Entry
from turnstile.core.approval import with_approval
from turnstile.core.codec import codec
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    EffectBegun,
    EffectLost,
    Event,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
)
from turnstile.core.limits import Limits
from turnstile.core.machine import loop
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.run_state import RunState
from turnstile.core.values import evolve

LOOK, PUT, SEND = call(1, "read"), call(2, "idempotent"), call(3, "write")
START = RunStarted(RUN, "Do it.", limits=Limits(tokens=10_000, tool_calls=3, turns=3), deadline=1000.0)


def working() -> Hand:
    """A run whose three calls are at work."""
    return (
        Hand(START)
        .ask()
        .take(replied(LOOK, PUT, SEND), EffectBegun(), started(LOOK), started(PUT), started(SEND))
        .work(LOOK)
        .work(PUT)
        .work(SEND)
    )


def worked() -> Hand:
    """A run that works, and answers."""
    hand = working().take(CallFinished(result(PUT))).take(ToolsFinished((result(LOOK), result(SEND))))
    return hand.take(ResultsAppended()).ask().take(replied(text="Done."))


def recovered() -> Hand:
    """A run whose process was lost while its calls were at work."""
    hand = working().take(CallFinished(result(PUT))).take(EffectLost())
    hand.take(EffectBegun(), started(LOOK)).work(LOOK).take(ToolsFinished((result(LOOK),)))
    return hand.take(ResultsAppended()).ask().take(replied(text="Done."))


def decided(*then: Event, decision: str = "rerun", **approval: str) -> Hand:
    """A run whose call in doubt a human decided about."""
    asked = replied(SEND)
    asked = evolve(asked, verdicts=tuple(evolve(verdict, on_in_doubt="ask") for verdict in asked.verdicts))
    hand = Hand(START, with_approval(loop)).ask().take(asked, EffectBegun(), started(SEND)).work(SEND)
    hand.take(EffectLost()).take(EffectBegun()).take(ToolsFinished(()))
    hand.take(ApprovalDecided(SEND.id, decision))  # type: ignore[arg-type]
    again = started(SEND, approval=str(hand.run.seq)) if decision == "rerun" else None
    return hand.take(EffectBegun(), *([evolve(again, **approval)] if again else []), *then)


def cancelled() -> Hand:
    """A run that was told to stop while its tools were at work."""
    return working().take(Cancelled()).take(ToolsFinished((result(LOOK), result(PUT), result(SEND))))


SOUND = {
    "worked": worked(),
    "recovered": recovered(),
    "cancelled": cancelled(),
    "working": working(),
    "let run again": decided().work(SEND).take(ToolsFinished((result(SEND),))),
    "denied": decided(ToolsFinished(()), ResultsAppended(), decision="unknown"),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_breaks_none(name: str) -> None:
    """A checker that cries wolf would be switched off."""
    assert violations(SOUND[name].case()) == []


def _with_event(case: Case, seq: int, event: Event) -> Case:
    """The run with one record replaced, and its chain made anew: broken in meaning, not in form."""
    events = [row.event for row in case.rows]
    events[seq - 1] = codec.encode(event)
    rows = sealed_rows(events, [row.row for row in case.rows])
    return replace(case, rows=rows, head=replace(case.head, seal=rows[-1].seal), exported=rows)


def _edited(hand: Hand, kind: type[Event], change: Callable[[Event], Event]) -> Case:
    """The run with the first record of a kind changed."""
    case = hand.case()
    seq = next(seq for seq, event in enumerate(case.events, 1) if isinstance(event, kind))
    return _with_event(case, seq, change(case.events[seq - 1]))


def _without_recovery_charge() -> Case:
    def recover_free(run: RunState, event: Event) -> RunState:
        return evolve(run, recoveries=run.recoveries + 1, charged_tokens=run.charged_tokens - run.reserved[0])

    free = before("recovered", row("recovered_free", loop.state("await_model"), EffectLost, [], AGAIN, recover_free))
    return Hand(START, loop.extend(rows=[free])).ask().take(EffectLost()).ask().case()


def _began_again() -> Entry:
    from turnstile.core.receipts import idempotency_key

    return Entry("began", RUN, SEND.id, SEND.name, idempotency_key(RUN, SEND.id))


def _late() -> Case:
    case = working().case()
    rows = (*case.rows[:-1], replace(case.rows[-1], at=1001.0))
    return replace(case, rows=rows)


def _other_head(**changes: object) -> Case:
    case = worked().case()
    return replace(case, head=replace(case.head, **changes))  # type: ignore[arg-type]


def _other_rows(change: Callable[[Case], tuple[Row, ...]]) -> Case:
    case = worked().case()
    return replace(case, rows=change(case))


def _unsettled() -> Case:
    case = worked().case()
    return _with_event(case, 8, ToolsFinished((result(LOOK),)))


def _changed(event: Event, **changes: str) -> Event:
    assert isinstance(event, CallStarted)
    return evolve(event, **changes)


def _replaced_last(hand: Hand) -> Case:
    case = hand.case()
    rows = sealed_rows(
        [*(row.event for row in case.rows), codec.encode(Cancelled())], [row.row for row in case.rows] + [""]
    )
    return replace(case, rows=rows)


def _twice_the_id() -> Case:
    hand = worked()
    return _with_event(hand.case(), 3, replied(LOOK, LOOK))


def _without_results() -> Case:
    class Silent(Case):
        @property
        def states(self) -> tuple[RunState, ...]:  # a fold that forgets what tools came to
            last = super().states[-1]
            return (*super().states[:-1], evolve(last, results=(result(SEND),)))

    case = working().case()
    return Silent(**{name: getattr(case, name) for name in Case.__dataclass_fields__})


BROKEN: dict[str, tuple[int, Callable[[], Case]]] = {
    "a record is missing": (1, lambda: _other_rows(lambda case: case.rows[:3] + case.rows[4:])),
    "the head names another record": (1, lambda: _other_head(seq=99)),
    "a record was changed": (
        2,
        lambda: _other_rows(lambda case: (*case.rows[:4], replace(case.rows[4], duration_ms=1.0), *case.rows[5:])),
    ),
    "the end was cut off": (2, lambda: _other_head(seal=b"another")),
    "an event that nothing takes": (3, lambda: _edited(worked(), ModelReplied, lambda _: ResultsAppended())),
    "a row that was not taken": (
        3,
        lambda: _other_rows(lambda case: (*case.rows[:2], replace(case.rows[2], row="answered"), *case.rows[3:])),
    ),
    "a summary of another run": (4, lambda: _other_head(summary=Hand(START).case().head.summary)),
    "an acknowledged record is gone": (5, lambda: worked().case([Entry("kept", RUN, seq=99)])),
    "an acknowledged record is another": (5, lambda: worked().case([Entry("kept", RUN, seq=3, digest="other")])),
    "an older writer wrote after a newer": (6, lambda: worked().case([Entry("kept", RUN, seq=1, epoch=2)])),
    "a record behind the end": (7, lambda: _replaced_last(worked())),
    "a secret in a record": (8, lambda: Hand(evolve(START, prompt="It is secret-1234.")).case()),
    "a secret in a file": (8, lambda: replace(worked().case(), written=(b"key=secret-1234",))),
    "a tool worked without an intent": (9, lambda: Hand(START).ask().take(replied(LOOK)).work(LOOK).case()),
    "a tool worked before its intent was kept": (
        9,
        lambda: Hand(START).ask().take(replied(LOOK)).work(LOOK).take(EffectBegun(), started(LOOK)).case(),
    ),
    "two calls with one id": (10, _twice_the_id),
    "an intent of other arguments": (
        11,
        lambda: _edited(worked(), CallStarted, lambda event: _changed(event, digest="other")),
    ),
    "a tool that was given other arguments": (
        11,
        lambda: working().case([replace(_began_again(), call=LOOK.id, digest="other")]),
    ),
    "a result of another tool": (
        11,
        lambda: _edited(worked(), CallFinished, lambda _: CallFinished(evolve(result(PUT), name="write"))),
    ),
    "a write that happened twice": (12, lambda: worked().case([_began_again()])),
    "a key that changes": (13, lambda: _edited(worked(), CallStarted, lambda event: _changed(event, key="other"))),
    "a tool that was given another key": (
        13,
        lambda: working().case([Entry("began", RUN, LOOK.id, LOOK.name, "other")]),
    ),
    "an export that differs": (14, lambda: replace(worked().case(), exported=cancelled().case().rows)),
    "a call that was settled twice": (15, lambda: working().take(*[CallFinished(result(PUT))] * 2).case()),
    "a request while a call is open": (15, _unsettled),
    "a call without a result": (16, _without_results),
    "an approval that was used": (17, lambda: decided(EffectLost(), EffectBegun(), started(SEND, approval="3")).case()),
    "a write that nobody let run again": (17, lambda: decided(approval="").case()),
    "another call than was let run": (17, lambda: decided(fingerprint="other").case()),
    "a denied call that was begun": (18, lambda: decided(started(SEND), decision="unknown").case()),
    "more tokens than the limit": (
        19,
        lambda: Hand(evolve(START, limits=Limits(tokens=500))).ask().take(replied(text="Done.", tokens=300)).case(),
    ),
    "a lost request that was not charged": (20, _without_recovery_charge),
    "work after the deadline": (21, _late),
    "work after a cancellation": (22, lambda: working().take(Cancelled(), started(LOOK)).case()),
    "a tool that began after a cancellation": (22, lambda: cancelled().case([_began_again()])),
    "a stop that takes too long": (22, lambda: replace(cancelled().case(), effort=Effort(to_stop=60.0))),
    "a step that takes too long": (23, lambda: replace(worked().case(), effort=Effort(seconds=3600.0))),
    "a step that takes too much memory": (23, lambda: replace(worked().case(), effort=Effort(peak_bytes=2**40))),
    "a request that cannot be made again": (
        24,
        lambda: _edited(worked(), EffectBegun, lambda _: EffectBegun("other", ((0, 1),))),
    ),
    "a request that no journal has": (24, lambda: worked().case([Entry("asked", RUN, digest="other")])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_named_for_what_is_broken(name: str) -> None:
    """A checker that never speaks up proves nothing; each does about a run that is broken in its way."""
    number, broken = BROKEN[name]
    assert list(INVARIANTS[number - 1](broken()))


def test_each_invariant_is_broken_by_some_run() -> None:
    """An invariant without a broken run beside it may hold for no reason."""
    assert {number for number, _ in BROKEN.values()} == {*range(1, 25)}


def test_the_checkers_are_numbered_as_they_are_listed() -> None:
    """A violation is looked up by its number."""
    assert [int((checker.__doc__ or "0").split(".")[0]) for checker in INVARIANTS] == [*range(1, 25)]
