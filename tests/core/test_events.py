"""Events: frozen facts whose parts fit each other."""

from __future__ import annotations

import pytest

from turnstile.core.approval import with_approval
from turnstile.core.events import EVENTS, RECEIPTS, Cancelled, ModelReplied, RunStarted, Verdict
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall

CALLS = (ToolCall("a", "tool", "{}"), ToolCall("b", "tool", "{}"))


@pytest.mark.parametrize("ids", [[], ["a"], ["b", "a"], ["a", "b", "c"]])
def test_a_vetted_reply_has_one_verdict_for_each_call(ids: list[str]) -> None:
    """A call that nobody looked at must not be run."""
    assert ModelReplied(Reply(calls=CALLS), (Verdict("a", ""), Verdict("b", ""))).verdicts[1].call_id == "b"
    with pytest.raises(ValueError, match=r"one verdict for each call, in call order: expected \['a', 'b'\], got"):
        ModelReplied(Reply(calls=CALLS), tuple(Verdict(id_, "") for id_ in ids))


def test_the_events_are_those_that_the_table_takes() -> None:
    """What the list leaves out would be explored and stored by nobody."""
    assert {event for row in with_approval(loop).rows for event in row.events} == set(EVENTS)
    assert not {RunStarted, *RECEIPTS} & set(EVENTS)


def test_events_are_frozen() -> None:
    """A journal tells what happened; nobody changes that afterwards."""
    with pytest.raises(AttributeError):
        Cancelled("a").why = "b"  # type: ignore[misc]
