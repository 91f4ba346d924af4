"""The machine: what it judges, and the tables that it refuses to be built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from turnstile.core.changes import keep
from turnstile.core.errors import MachineError, NoRow
from turnstile.core.events import Cancelled, EffectBegun, Event, ModelReplied, ResultsAppended, RunStarted
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Reply
from turnstile.core.rows import AGAIN, LIVE, STAY, Row, before, row
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.states import STATES, State, append_results, await_model, done, execute_tools, failed
from turnstile.core.table import TABLE
from turnstile.core.values import evolve

RUN = begin_run(RunStarted("run", "hi"))
review = State("review", asks="Review")
idle = State("idle")


def never(run: RunState, event: Event) -> bool:
    """Say no."""
    return False


async def perform(run: RunState) -> Event:
    """Give the event that follows a review."""
    return ResultsAppended()


def to(state: State) -> Row:
    """A row to a state, of its name."""
    return row(state.name, await_model, ModelReplied, [never], state, keep)


def reviewing() -> Machine:
    """The machine with one more state."""
    return loop.extend(states=[review], rows=[before("run_tools", to(review))], performs={"Review": perform})


def test_judging_names_the_row_and_why_not_the_others() -> None:
    """Why not is asked as often as why."""
    taken, refused = loop.judge(RUN, ModelReplied(Reply("hello")))

    assert taken.name == "answered"
    assert [str(refusal) for refusal in refused] == [
        "refused (not was_refused)",
        "cut_call (not was_truncated)",
        "truncated (not was_truncated)",
        "wrap_up (not wants_tools)",
        "limit (not wants_tools)",
        "run_tools (not wants_tools)",
        "paused (not is_paused)",
        "paused_limit (not is_paused)",
        "ask_injected (not has_injected)",
        "nudge_promise (not broke_promise)",
        "incomplete (not broke_promise)",
    ]


@pytest.mark.parametrize(
    ("state", "event", "refused"),
    [
        ("append_results", ModelReplied(Reply("late")), ()),
        ("done", Cancelled(), ()),
        ("await_model", EffectBegun(), ()),
        ("await_model", RunStarted("run", "hi"), ()),
    ],
)
def test_an_event_without_a_row_is_one_error(state: str, event: Event, refused: Sequence[object]) -> None:
    """The library below has three ways to say so; above there is one, with all that a report needs."""
    with pytest.raises(NoRow) as caught:
        loop.judge(evolve(RUN, state=state), event)

    assert (caught.value.state, caught.value.event, caught.value.refused) == (state, type(event).__name__, refused)


def test_an_event_that_every_guard_refuses_says_which() -> None:
    """A table with a gap is mended by seeing which guards said no."""
    only = row("only", append_results, ResultsAppended, [never], await_model, keep)
    machine = Machine(rows=[*TABLE[:-1], only])

    with pytest.raises(NoRow) as caught:
        machine.judge(evolve(RUN, state="append_results"), ResultsAppended())

    assert caught.value.refused == (("only", "never"),)


def test_any_live_is_spelt_out_over_the_extended_states() -> None:
    """A state that somebody adds can be cancelled unasked."""
    machine = reviewing()
    cancelled = next(row for row in machine.rows if row.name == "cancelled")

    assert machine.sources(cancelled) == ("await_model", "execute_tools", "append_results", "review")
    assert loop.sources(cancelled) == ("await_model", "execute_tools", "append_results")
    assert machine.judge(evolve(RUN, state="review"), Cancelled())[0].name == "cancelled"


def test_a_source_may_be_given_by_its_name() -> None:
    """An extension knows a state by the name in the table."""
    by_name = row("by name", "append_results", ResultsAppended, [], await_model, keep)

    assert Machine(rows=[*TABLE[:-1], by_name]).sources(by_name) == ("append_results",)


def test_extending_leaves_the_machine_as_it_is() -> None:
    """Two agents in one process may extend the same machine differently."""
    reviewing()

    assert [state.name for state in loop.states] == [state.name for state in STATES]
    assert loop.rows == TABLE


def test_extending_twice_keeps_both() -> None:
    """Approval and compaction are two extensions of one machine."""
    other = State("other", asks="Other")

    machine = reviewing().extend(states=[other], rows=[before("review", to(other))], performs={"Other": perform})

    assert [state.name for state in machine.states[-2:]] == ["review", "other"]
    assert set(machine.performs) == {"Review", "Other"}


def test_the_fingerprint_tells_machines_apart_that_could_move_a_run_differently() -> None:
    """A run is not resumed by another table unasked."""
    lost = State("lost", final=True)
    onward = row("added", append_results, ResultsAppended, [never], await_model, keep)
    to_end = row("added", append_results, ResultsAppended, [never], done, keep)
    prints = {
        loop.fingerprint,
        loop.extend(rows=[before("appended", onward)]).fingerprint,
        loop.extend(rows=[before("appended", to_end)]).fingerprint,
        loop.extend(states=[lost], rows=[before("run_tools", to(lost))]).fingerprint,
        Machine(rows=TABLE[1:]).fingerprint,
    }

    assert len(prints) == 5
    assert Machine().fingerprint == loop.fingerprint


Build = Callable[[], Machine]


def table(*rows: Row) -> Build:
    """Building a machine of these rows."""
    return lambda: Machine(rows=rows)


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (
            lambda: Machine(states=[*STATES, State("done")]),
            "the state 'done' stands twice; give each a name of its own",
        ),
        (
            lambda: loop.extend(rows=[row("retry", await_model, Cancelled, [], failed, keep)]),
            "the row 'retry' stands twice; give each a name of its own",
        ),
        (
            lambda: Machine(states=[execute_tools, done]),
            "every run starts in 'await_model', which is none of the states execute_tools, done; extend a machine",
        ),
        (
            lambda: loop.extend(states=[review]),
            "state 'review' asks for 'Review', which nobody performs; pass performs={'Review': …}",
        ),
        (
            lambda: loop.extend(performs={"CallModel": perform}),
            "performs={'CallModel': …}: the engine performs 'CallModel' itself; ask for an effect of another name",
        ),
        (
            lambda: loop.extend(performs={"Revue": perform}),
            "performs={'Revue': …}: no state asks for 'Revue'; add State(…, asks='Revue'), or leave it out",
        ),
        (
            lambda: loop.extend(states=[review], performs={"Review": perform}),
            "no row leads from 'await_model' to the state 'review', by whatever way; add a row to it",
        ),
        (
            lambda: loop.extend(states=[idle], rows=[before("run_tools", to(idle))]),
            "state 'idle' asks nothing, so ResultsAppended comes at once; add a row that takes it there",
        ),
        (
            lambda: loop.extend(rows=[before("nothing", row("new", await_model, Cancelled, [], failed, keep))]),
            "no row 'nothing' to stand beside; the rows are stopping, cancelled,",
        ),
        (
            table(row("new", State("nowhere"), Cancelled, [], failed, keep)),
            "row 'new' names the state 'nowhere'; the states are await_model,",
        ),
        (
            table(row("new", await_model, Cancelled, [], "nowhere", keep)),
            "row 'new' names the state 'nowhere'; the states are await_model,",
        ),
        (
            table(row("new", await_model, Cancelled, [], LIVE, keep)),
            "row 'new' names the state '(any live)'; the states are await_model,",
        ),
        (
            table(row("new", STAY, Cancelled, [], failed, keep)),
            "row 'new' names the state '(stay)'; the states are await_model,",
        ),
        (
            table(row("new", (await_model, done), Cancelled, [], failed, keep)),
            "row 'new' leaves 'done', which is final",
        ),
        (
            table(row("new", (), Cancelled, [], failed, keep)),
            "row 'new' leaves no state, or takes no event; name at least one of each",
        ),
        (
            table(
                row("all", LIVE, Cancelled, [], failed, keep),
                row("new", await_model, Cancelled, [never], AGAIN, keep),
            ),
            "row 'new' can never be reached: row 'all' takes all before it",
        ),
        (
            table(
                row("one", await_model, Cancelled, [never], failed, keep),
                row("two", await_model, dataclass(type("Cancelled", (Event,), {})), [], failed, keep),
            ),
            "the event 'Cancelled' stands twice; give each a name of its own",
        ),
    ],
)
def test_an_inconsistent_table_is_refused(build: Build, problem: str) -> None:
    """A mistake in a table must show when it is written, not when a run stands in the gap."""
    with pytest.raises(MachineError) as caught:
        build()

    assert str(caught.value).startswith(problem)


def test_a_row_that_is_closed_for_some_of_its_states_is_allowed() -> None:
    """It is reached from the others."""
    loop.extend(rows=[before("cancelled", row("first", await_model, Cancelled, [], failed, keep))])


def test_a_state_that_only_closed_rows_lead_to_is_never_reached() -> None:
    """The row is tried in another state, and there it leads nowhere: what it says of this one is not so."""
    first = row("first", await_model, ModelReplied, [], done, keep)
    second = row("second", (await_model, review), ModelReplied, [], review, keep)

    with pytest.raises(MachineError, match="no row leads from 'await_model' to the state 'review'"):
        Machine([await_model, review, done], [first, second], {"Review": perform})


def test_a_state_may_be_reached_by_several_moves() -> None:
    """The way to it is what counts, not that the first state leads there."""
    last = State("last", final=True)
    onward = row("onward", review, ResultsAppended, [], last, keep)

    machine = reviewing().extend(states=[last], rows=[onward])

    assert machine.judge(evolve(RUN, state="review"), ResultsAppended())[0].dest == "last"
