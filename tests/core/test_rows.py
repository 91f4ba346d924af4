"""Rows: a line of the table, and the words to write it with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from turnstile.core.errors import MachineError
from turnstile.core.events import Cancelled, DeadlinePassed, Event, RunStarted
from turnstile.core.machine import loop
from turnstile.core.rows import LIVE, STAY, after, before, row
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.states import append_results, await_model, failed
from turnstile.core.values import evolve


@dataclass(frozen=True, slots=True)
class Reviewed(Event):
    """An extension's event."""

    good: bool

    def apply(self, run: RunState) -> RunState:
        """Count a nudge."""
        return evolve(run, nudges=run.nudges + 1)


def is_good(run: RunState, event: Reviewed) -> bool:
    """Whether it was."""
    return event.good


def keep(run: RunState, event: Event) -> RunState:
    """Change nothing."""
    return run


def which(run: RunState, event: Event) -> str:
    """A reason that depends on the event."""
    return type(event).__name__


KINDS = ("Cancelled", "DeadlinePassed")


def test_a_row_reads_as_a_line() -> None:
    """The same words stand in the code, in errors and in the report of an exploration."""
    one = row("good", await_model, Reviewed, [is_good], append_results)
    several = row(
        "stop",
        (await_model, append_results),
        (Cancelled, DeadlinePassed),
        [],
        failed,
        keep,
        reason=which,
        reasons=KINDS,
    )
    live = row("any", LIVE, Cancelled, [], STAY, keep)

    assert str(one) == "good: await_model --Reviewed [is_good]--> append_results"
    assert str(several) == "stop: await_model, append_results --Cancelled | DeadlinePassed--> failed"
    assert str(live) == "any: (any live) --Cancelled--> (stay)"
    assert (one.reason_name, several.reason_name, live.reason_name) == ("good", "which", "any")
    assert (one.reasons, several.reasons, live.reasons) == (("good",), KINDS, ("any",))
    assert (one.guard_names, one.event_names) == (("is_good",), ("Reviewed",))


def test_a_row_without_a_change_applies_its_event() -> None:
    """That is all an extension's event needs."""
    run = begin_run(RunStarted("run", "hi"))

    assert row("good", await_model, Reviewed, [], failed).change(run, Reviewed(good=True)).nudges == 1


def test_a_lambda_is_no_guard() -> None:
    """A transition names the guard that said no, and <lambda> is no name."""
    with pytest.raises(MachineError, match=r"row 'good': a guard is a named function, .* got a lambda"):
        row("good", await_model, Reviewed, [lambda run, event: True], failed)


def test_an_event_is_a_dataclass() -> None:
    """It is compared, stored and explored by its fields."""
    plain = type("Plain", (Event,), {})

    with pytest.raises(MachineError, match=r"row 'good': the event Plain is no dataclass; give it @dataclass"):
        row("good", await_model, plain, [], failed, keep)


def test_a_reason_that_depends_on_the_event_is_listed() -> None:
    """A picture shows the reasons that a log may give, and a fixed reason is the only one."""
    with pytest.raises(MachineError, match=r"row 'good': reasons=\(…\) lists what a reason that depends .*; got \(\)"):
        row("good", await_model, Cancelled, [], failed, keep, reason=which)
    with pytest.raises(MachineError, match=r"row 'good': reasons=\(…\) lists .* got \('other',\)"):
        row("good", await_model, Cancelled, [], failed, keep, reason="one", reasons=["other"])


def test_a_row_needs_something_that_it_does() -> None:
    """An event that changes nothing must say so."""
    with pytest.raises(MachineError, match=r"row 'good': give it a change, or its event a method apply\(run\)"):
        row("good", await_model, (Reviewed, Cancelled), [], failed)


def test_rows_are_put_where_they_are_said_to_be() -> None:
    """Their order is their meaning."""
    first, second = (row(name, await_model, Reviewed, [is_good], failed) for name in ("first", "second"))
    third, last = (row(name, await_model, Reviewed, [is_good], failed) for name in ("third", "last"))

    names = [r.name for r in loop.extend(rows=[before("refused", first, second), after("refused", third), last]).rows]

    place = names.index("refused")
    assert names[place - 2 : place + 2] == ["first", "second", "refused", "third"]
    assert names[-1] == "last"
    assert [name for name in names if name not in {"first", "second", "third", "last"}] == [r.name for r in loop.rows]
