"""The estimate of a request's tokens, held against what a real server counted.

`measured_histories.json` holds conversations of the bundled agents, of a reader of prose and of a reader of code, and
the tokens of each of their requests: a llama.cpp server counted them with SmolLM2's tokenizer, tools and calls written
in the form that Hermes and Qwen models use. A token of it is 4.5 characters of English, 3 of JSON, and less than one of
Chinese.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstile.core.budget import DENSEST, THINNEST, estimate_input, measure, request_size
from turnstile.core.events import Event, ModelReplied, ResultsAppended, RunStarted, ToolsFinished, Verdict
from turnstile.core.history import length_of
from turnstile.core.machine import loop
from turnstile.core.messages import Exchange, Item, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import begin, step
from turnstile.core.values import evolve

CONVERSATIONS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "measured_histories.json").read_text("utf-8"))
WITHIN = 0.15


def events_of(turn: dict[str, Any], number: int) -> Iterator[Event]:
    """The events of one recorded turn."""
    calls = tuple(ToolCall(f"{number}.{n}", name, arguments) for n, (name, arguments) in enumerate(turn["calls"]))
    verdicts = tuple(Verdict(call.id, call.id, repeats=None) for call in calls)
    yield ModelReplied(Reply(turn["text"], calls, usage=Usage(turn["input_tokens"], turn["output_tokens"])), verdicts)
    if calls:
        results = zip(calls, turn["results"], strict=True)
        yield ToolsFinished(tuple(ToolResult(call.id, call.name, content) for call, content in results))
        yield ResultsAppended()


def requests(conversation: dict[str, Any]) -> Iterator[tuple[RunState, int]]:
    """The run before each request of a conversation's runs, and the tokens that the request turned out to have."""
    said: tuple[Item, ...] = ()
    for place, recorded in enumerate(conversation["runs"]):
        run = begin_run(RunStarted("r", recorded["prompt"], instructions=conversation["instructions"], history=said))
        for number, turn in enumerate(recorded["turns"]):
            yield run, turn["input_tokens"]
            for event in events_of(turn, place * 100 + number):
                run = step(loop, begin(run), event).run
        said = run.history[:]


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=[each["name"] for each in CONVERSATIONS])
def test_after_two_turns_an_estimate_is_close(conversation: dict[str, Any]) -> None:
    """In any language and in JSON, across the runs of a session too: a budget binds where it says."""
    estimates = [(estimate_input(run), counted) for run, counted in requests(conversation)]
    assert len(estimates) > 2
    for estimate, counted in estimates[2:]:
        assert estimate == pytest.approx(counted, rel=WITHIN), estimates


def test_other_scripts_count_for_more_than_their_characters() -> None:
    """A Chinese character is a token or two where an English one is a quarter; a lone surrogate must not stop a run."""
    assert [length_of(text) for text in ("", "abc", "é", "旋转", "\ud800")] == [0, 3, 2, 6, 3]


def test_a_measure_keeps_within_what_text_can_be() -> None:
    """A server that changes its counting, or a cache that hides tokens, must not make the next estimate absurd."""
    run = evolve(begin_run(RunStarted("r", "q")), measured=(1, 1000))
    longer = evolve(run, history=run.history.append(UserTurn("x" * 5000)))
    assert measure(longer, 10) == ((request_size(longer), 10), THINNEST)
    assert measure(longer, 1_000_000)[1] == DENSEST
    assert measure(evolve(longer, chars_per_token=4.0), 1000)[1] == THINNEST


def test_a_conversation_that_goes_on_is_measured_from_its_past() -> None:
    """The first request of a session's next run carries the whole session, so a guess would be worth little there."""
    said = (UserTurn("q" * 600), Exchange(Reply("a", usage=Usage(900))), UserTurn("b"), Exchange(Reply("c")))
    run = begin_run(RunStarted("r", "q2", history=said))
    assert run.measured == (616, 900)
    assert 900 < estimate_input(run) < 950
    assert begin_run(RunStarted("r", "q", history=said[2:])).measured == (0, 0)
