"""Digests of requests: the same for the same request however it was come by, and another for every other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.context import KeepAll, LastTokens, LastTurns
from turnstile.core.effects import CallModel
from turnstile.core.errors import UsageError
from turnstile.core.events import RunStarted
from turnstile.core.history import History
from turnstile.core.messages import Attachment, Exchange, Item, Reply, ToolCall, ToolResult, ToolSpec, Usage, UserTurn
from turnstile.core.requests import DIGITS, Ranges, RequestDigests, ranges_of, selected
from turnstile.core.values import evolve

SPEC = ToolSpec("add", "Add.", {"type": "object"})
START = RunStarted("run", "hi", tools=(SPEC,), settings={"temperature": 0})
EFFECT = CallModel()
CALL = ToolCall("a", "add", "{}")
RESULT = ToolResult("a", "add", "2")
REPLY = Reply("text", (CALL,))
IMAGE = Attachment("image/png", data="QQ==")
ASKED = UserTurn("hi", attachments=(IMAGE,))
ITEMS = (ASKED, Exchange(REPLY, (RESULT,)))


SAID: list[Item] = [*ITEMS, UserTurn("go on", synthetic=True), Exchange(Reply("text"))]


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[CallModel, History, Ranges]]:
    """The requests of a run: its history grows, and each carries any items of it."""
    items = draw(st.lists(st.sampled_from(SAID), min_size=1, max_size=6))
    lengths = sorted(draw(st.lists(st.integers(1, len(items)), min_size=1, max_size=4)))
    history, found = History(), list[tuple[CallModel, History, Ranges]]()
    for length in lengths:
        history = history.append(*items[len(history) : length])
        ranges = draw(st.just(((0, length),)) | stretches(length))
        found.append((draw(st.sampled_from([EFFECT, CallModel(model=1), CallModel(tools=False)])), history, ranges))
    return found


def stretches(length: int) -> st.SearchStrategy[Ranges]:
    """Which of so many items are carried: any, as ranges."""

    def together(carried: Sequence[bool]) -> Ranges:
        runs = [list(same) for is_in, same in groupby(range(length), key=lambda place: carried[place]) if is_in]
        return tuple((places[0], places[-1] + 1) for places in runs)

    return st.lists(st.booleans(), min_size=length, max_size=length).map(together)


def digest(start: RunStarted = START, effect: CallModel = EFFECT, items: Sequence[Item] = ITEMS) -> str:
    """The digest of a request that carries these items and no more."""
    return RequestDigests(start).of(effect, History(items), ((0, len(items)),))


@given(requests())
def test_a_digest_made_bit_by_bit_is_the_one_made_from_scratch(made: list[tuple[CallModel, History, Ranges]]) -> None:
    """A process that goes on with a run and one that reads it anew must agree on what was sent."""
    running = RequestDigests(START)

    for effect, history, ranges in made:
        assert running.of(effect, history, ranges) == RequestDigests(START).of(effect, history, ranges)


def in_history(call: ToolCall = CALL, result: ToolResult = RESULT, reply: Reply = REPLY) -> tuple[Item, ...]:
    """The items, with another call, another result or another reply."""
    return (ASKED, Exchange(evolve(reply, calls=(call,)), (result,)))


OTHERS = [
    digest(evolve(START, instructions="Be brief.")),
    digest(evolve(START, tools=())),
    digest(evolve(START, tools=(SPEC, SPEC))),
    digest(evolve(START, tools=(evolve(SPEC, name="sum"),))),
    digest(evolve(START, tools=(evolve(SPEC, description="Sum."),))),
    digest(evolve(START, tools=(evolve(SPEC, parameters={}),))),
    digest(evolve(START, settings=None)),
    digest(evolve(START, settings={"temperature": 1})),
    digest(evolve(START, output_schema={"type": "string"})),
    digest(effect=CallModel(model=1)),
    digest(effect=CallModel(tools=False)),
    digest(effect=CallModel(max_output=100)),
    digest(items=ITEMS[:1]),
    digest(items=ITEMS[1:]),
    digest(items=ITEMS[::-1]),
    digest(items=(*ITEMS, UserTurn("more"))),
    digest(items=(evolve(ASKED, text="ho"), ITEMS[1])),
    digest(items=(evolve(ASKED, synthetic=True), ITEMS[1])),
    digest(items=(evolve(ASKED, attachments=()), ITEMS[1])),
    digest(items=(evolve(ASKED, attachments=(evolve(IMAGE, media_type="image/gif"),)), ITEMS[1])),
    digest(items=(evolve(ASKED, attachments=(evolve(IMAGE, data="QUE="),)), ITEMS[1])),
    digest(items=(evolve(ASKED, attachments=(evolve(IMAGE, data="", url="QQ=="),)), ITEMS[1])),
    digest(items=(evolve(ASKED, attachments=(evolve(IMAGE, name="a.png"),)), ITEMS[1])),
    digest(items=in_history(reply=evolve(REPLY, text="other"))),
    digest(items=in_history(reply=evolve(REPLY, reasoning="hm"))),
    digest(items=in_history(reply=evolve(REPLY, finish="tool_calls"))),
    digest(items=in_history(reply=evolve(REPLY, wire="w"))),
    digest(items=in_history(reply=evolve(REPLY, native="{}"))),
    digest(items=in_history(evolve(CALL, id="b"), evolve(RESULT, call_id="b"))),
    digest(items=in_history(evolve(CALL, name="sum"))),
    digest(items=in_history(evolve(CALL, arguments="[]"))),
    digest(items=in_history(result=evolve(RESULT, content="3"))),
    digest(items=in_history(result=evolve(RESULT, status="error"))),
]


def test_each_part_of_a_request_is_in_its_digest() -> None:
    """A replay that sends something else would otherwise be taken for the run."""
    assert len({digest(), *OTHERS}) == 1 + len(OTHERS)
    assert {len(found) for found in OTHERS} == {DIGITS}


def test_what_no_request_holds_is_not_in_its_digest() -> None:
    """A fork has an id of its own, and a request that is sent again is the same request."""
    again = CallModel(attempt=2, delay=1.5)
    measured = in_history(result=evolve(RESULT, duration_ms=3.5))
    told = in_history(reply=evolve(REPLY, usage=Usage(1, 2), request_id="r", finish_raw="end"))

    assert digest(evolve(START, run_id="fork", forked_from="run@3"), again) == digest()
    assert {digest(items=items) for items in (ITEMS, measured, told)} == {digest()}


@given(requests())
def test_ranges_say_which_items_a_request_carries(made: list[tuple[CallModel, History, Ranges]]) -> None:
    """The journal holds the ranges in place of the items, so they have to give the same items."""
    for _, history, ranges in made:
        carried = selected(history, ranges)

        assert list(carried) == [item for first, end in ranges for item in history[first:end]]
        assert list(selected(history, ranges_of(history, carried))) == list(carried)


@pytest.mark.parametrize("policy", [KeepAll(), LastTurns(1), LastTurns(2), LastTokens(20)])
def test_a_selection_of_every_policy_is_ranges(policy: KeepAll | LastTurns | LastTokens) -> None:
    """A window keeps the question that leads it, so it may be two stretches."""
    history = History([UserTurn("one"), Exchange(Reply("1")), UserTurn("two"), *ITEMS, Exchange(Reply("x" * 50))])
    for start in range(len(history)):
        items = policy.select(history, start)

        assert list(selected(history, ranges_of(history, items))) == list(items)
    assert ranges_of(history, KeepAll().select(history, 4)) == ((3, 6),)
    assert ranges_of(history, KeepAll().select(history, 5)) == ((3, 4), (5, 6))
    assert selected(history, ((0, len(history)),)) is history


def test_items_that_are_not_of_the_history_are_refused() -> None:
    """A policy that makes up items, or turns them round, would make requests that nobody can make again."""
    history = History(ITEMS)

    for items in ((UserTurn("made up"),), ITEMS[::-1], (*ITEMS, ITEMS[1])):
        with pytest.raises(UsageError, match="a context policy selects items of the history, in its order; got"):
            ranges_of(history, items)


def test_a_text_that_utf_8_cannot_hold_has_a_digest() -> None:
    """A model's odd text must not cost the run."""
    assert digest(items=(UserTurn("\ud800"),)) != digest(items=(UserTurn("\\ud800"),))
