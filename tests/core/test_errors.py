"""The tree of errors: each carries its data, and the docstring that users read is the tree that there is."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from turnstile.core import errors
from turnstile.core.errors import NoRow, RunFailed, TurnstileError

CLASSES = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, TurnstileError)
}


def documented_tree() -> dict[str, str]:
    """Each error's name with its parent's, read from the drawing in the module's docstring."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│ ├└─]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    """Users choose what to catch by looking at it."""
    assert documented_tree() == {name: kind.__bases__[0].__name__ for name, kind in CLASSES.items()}


@pytest.mark.parametrize("kind", CLASSES.values())
def test_each_error_says_what_it_means(kind: type[TurnstileError]) -> None:
    """An error without a sentence is looked up in the code."""
    assert kind.__doc__
    assert kind.__doc__[0].isupper()


def test_an_event_without_a_row_is_told_with_all_that_was_tried() -> None:
    """It is our bug, so the report has to hold what we need."""
    error = NoRow("done", "Cancelled", ())
    assert str(error) == (
        "no row takes Cancelled in state 'done'; rows tried: none: the table has no row for this pair"
    )

    error = NoRow("open", "Reviewed", (("yes", "is_good"), ("no", "is_bad")))
    assert str(error) == "no row takes Reviewed in state 'open'; rows tried: yes (not is_good); no (not is_bad)"
    assert (error.state, error.event, error.refused) == ("open", "Reviewed", (("yes", "is_good"), ("no", "is_bad")))


def test_a_failed_run_says_why() -> None:
    """The reason is the first thing that anybody asks."""
    error = RunFailed("run-1", "cancelled", "by the user")
    assert str(error) == "run 'run-1' failed: cancelled (by the user)"
    assert str(RunFailed("run-1", "max_turns", "")) == "run 'run-1' failed: max_turns"
    assert (error.run_id, error.reason, error.detail) == ("run-1", "cancelled", "by the user")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.ToolDefinitionError("add", "no docstring"), "tool 'add': no docstring"),
        (
            errors.RunExists("run-1"),
            "run 'run-1' exists already; choose another run_id, or leave it out to get a new one",
        ),
        (
            errors.RunFinished("run-1", "done"),
            "run 'run-1' is done; it takes no further step (look at run.finished before stepping)",
        ),
        (
            errors.RunBusy("run-1"),
            "run 'run-1' is being stepped by another task; one task drives a run at a time",
        ),
        (
            errors.InsideEventLoop("agent.run_sync()", "await agent.run()"),
            "agent.run_sync() cannot be used inside a running event loop; use `await agent.run()` there",
        ),
        (
            errors.NoSuchRun("runs.db", "run-1"),
            "store 'runs.db' has no run 'run-1'; check its id",
        ),
        (errors.StoreError("runs.db", "is locked"), "store 'runs.db': is locked"),
        (
            errors.RecordDamaged("runs.db", "run-1", 7, "bad hash"),
            "store 'runs.db': record 7 of run 'run-1' is damaged: bad hash; restore the store from a copy",
        ),
        (
            errors.RunIsLeased("run-1", "process 7 on host 'web-1'"),
            (
                "run 'run-1' is driven by process 7 on host 'web-1'; wait for its end, or send it word: "
                "turnstile cancel run-1, approve or deny"
            ),
        ),
        (
            errors.WaitingForHuman("run-1", ("a", "b")),
            (
                "run 'run-1' waits for a decision about 'a', 'b'; decide with run.settle(call_id, …), "
                "or turnstile approve run-1 CALL, or deny"
            ),
        ),
        (
            errors.AmbiguousRun("run", ("run-1", "run-2")),
            "'run' may be any of the runs run-1, run-2; give more of its id",
        ),
        (
            errors.Changed("run-1", (("machine", "1", "2"), ("tool add", None, "3"), ("tool sum", "4", None))),
            (
                "run 'run-1' was begun under other things: machine was 1, is 2; tool add was not there, is 3; "
                "tool sum was 4, is not there; resume it where they are as they were, or accept the changes "
                "(accept_changes=True, --accept-changes), which the journal then says"
            ),
        ),
        (errors.CodecError("Cancelled", "why", "missing"), "record Cancelled, field why: missing"),
        (errors.CodecError("", "", "not UTF-8"), "record: not UTF-8"),
    ],
)
def test_an_error_names_the_thing_and_the_way_out(error: TurnstileError, text: str) -> None:
    """The text is all that most people see of it."""
    assert str(error) == text


@pytest.mark.parametrize("kind", CLASSES.values())
def test_an_error_crosses_processes_whole(kind: type[TurnstileError]) -> None:
    """A run may be made in a pool of processes, whose errors are pickled; one that cannot be read hangs the pool."""
    samples: dict[str, object] = {"seq": 7, "refused": (("row", "guard"),), "changes": (("tool add", "1", None),)}
    names = inspect.signature(kind).parameters if inspect.isfunction(kind.__init__) else ["problem"]
    error = kind(*[samples.get(name, name) for name in names])
    error.add_note("seen in passing")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(again) is kind
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
