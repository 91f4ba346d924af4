"""The assertion on a run's path."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from turnstile.core.step import Transition
from turnstile.testing import assert_path


@dataclass
class Moves:
    """A result with these transitions."""

    transitions: tuple[Transition, ...]


def move(source: str, event: str, dest: str, reason: str = "", *, stays: bool = False) -> Transition:
    """One move."""
    return Transition(1, source, event, reason, dest, reason, stays=stays)


RUN = Moves(
    (
        move("await_model", "ModelFailed", "await_model", "retry"),
        move("await_model", "ModelReplied", "execute_tools", "run_tools"),
        move("execute_tools", "MessageInjected", "execute_tools", "injected", stays=True),
        move("execute_tools", "ToolsFinished", "append_results", "finished"),
        move("append_results", "ResultsAppended", "await_model", "appended"),
        move("await_model", "ModelReplied", "done", "answered"),
    )
)


def test_the_path_is_the_first_source_and_every_destination() -> None:
    """A retry enters its state anew; what stays is no step."""
    assert_path(RUN, "await_model await_model execute_tools append_results await_model done")


def test_another_path_is_shown_beside_the_expected_one() -> None:
    """The text is all that a failed test in CI leaves behind."""
    with pytest.raises(AssertionError) as caught:
        assert_path(RUN, "await_model execute_tools append_results failed")
    assert str(caught.value).splitlines() == [
        "the run took another path than expected",
        "  expected        taken           why",
        "≠                 await_model",
        "  await_model     await_model     ModelFailed: retry",
        "  execute_tools   execute_tools   ModelReplied: run_tools",
        "  append_results  append_results  ToolsFinished: finished",
        "≠ failed          await_model     ResultsAppended: appended",
        "≠                 done            ModelReplied: answered",
    ]


def test_a_run_that_has_not_moved_has_no_path() -> None:
    """Nothing is expected, or all of it is missing."""
    assert_path(Moves(()), "")
    with pytest.raises(AssertionError, match="≠ await_model"):
        assert_path(Moves(()), "await_model done")
