"""Vetting: what is found out about each call before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.events import RunStarted, Verdict
from turnstile.core.limits import Limits
from turnstile.core.messages import Reply, ToolCall
from turnstile.core.run_state import begin_run
from turnstile.shell.toolbox import Toolbox
from turnstile.tools import tool

if TYPE_CHECKING:
    from tests.shell.toolbox.conftest import Stage

WEATHER = '{"city":"Oslo"}'


@tool(access="read", repeats=5)
def get_weather(city: str, days: int = 1) -> str:
    """Weather."""
    pytest.fail("vetting never runs a tool")


@tool(access="idempotent", repeats=None)
def poll() -> str:
    """Poll."""
    pytest.fail("vetting never runs a tool")


@tool
def cleanup(dry_run: bool = False) -> str:  # noqa: FBT001, FBT002 - as in the wire case
    """Clean up."""
    pytest.fail("vetting never runs a tool")


@tool(max_calls=2)
def charge(amount: int) -> str:
    """Charge."""
    pytest.fail("vetting never runs a tool")


@pytest.fixture
def box(stage: type[Stage]) -> Stage:
    """A stage with all tools of this file."""
    return stage(get_weather, poll, cleanup, charge)


def test_a_good_call_carries_what_its_tool_says(box: Stage) -> None:
    """Guards see only the verdict, so all that they need to know of a tool must stand in it."""
    weather, polling, clean = box.vet(("get_weather", WEATHER), ("poll", "{}"), ("cleanup", '{"dry_run":true}'))
    assert weather == Verdict("c1", weather.digest, access="read", repeats=5)
    assert polling == Verdict("c2", polling.digest, access="idempotent", repeats=None)
    assert clean == Verdict("c3", clean.digest, access="write", repeats=3)


def test_a_tool_that_says_nothing_of_repeats_has_the_runs() -> None:
    """A run that never stops for repeats must not do so because a tool was silent."""
    run = begin_run(RunStarted("run", "hello", limits=Limits(repeats=None)))
    verdicts = Toolbox([cleanup]).vet(Reply(calls=(ToolCall("a", "cleanup", ""), ToolCall("b", "none", ""))), run, {})
    assert [verdict.repeats for verdict in verdicts] == [None, None]


@pytest.mark.parametrize("arguments", ["", " \n", "{}", ' {"dry_run" : false} ', '"{}"', '{"dry_run":"false"}'])
def test_arguments_that_mean_something_are_taken(box: Stage, arguments: str) -> None:
    """Servers send nothing, blanks, or the object encoded once more (arguments-empty-string and its like)."""
    (verdict,) = box.vet(("cleanup", arguments))
    assert (verdict.valid, verdict.problem) == (True, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"dry_run": tru', "Expecting value at line 1 column 13; got '{\"dry_run\": tru'"),
        ('{"dry_run":true}{"dry_run":', "Extra data at line 1 column 17"),
        ('{"dry_run":true,"dry_run":false}', "the key 'dry_run' stands twice in one object"),
        ('{"dry_run": NaN}', "NaN is not JSON"),
        ('{"dry_run": 1e999}', "the number 1e999 is too large"),
        ("{'dry_run': True,}", "Expecting property name"),
        ("```json\n{}\n```", "Expecting value at line 1 column 1"),
        ("[" * 100_000, "nested deeper than 64 levels"),
        ("[1]", "a JSON object is expected; got '[1]'"),
        ("null", "a JSON object is expected; got 'null'"),
        ('"true"', "a JSON object is expected"),
        ('"[{}]"', "a JSON object is expected"),
        (json.dumps(json.dumps("{}")), "a JSON object is expected"),
        ('""', "Expecting value at line 1 column 1"),
        (json.dumps({"x" * 9_000: 1})[:-1] + ", " + json.dumps({"x" * 9_000: 1})[1:], "the key 'xxxxx"),
    ],
)
def test_broken_arguments_are_never_mended(box: Stage, arguments: str, words: str) -> None:
    """A mended call does what nobody asked for (wire case malformed-args-run-with-empty-dict and its family)."""
    (verdict,) = box.vet(("cleanup", arguments))
    assert (verdict.known, verdict.valid) == (True, False)
    assert verdict.problem.startswith("the arguments of cleanup are no JSON object: ")
    assert words in verdict.problem
    assert len(verdict.problem) < 800


def test_a_misfit_names_tool_and_field(box: Stage) -> None:
    """The model mends what it is told about, so it is told all."""
    (verdict,) = box.vet(("get_weather", '{"days":"many","town":"Oslo"}'))
    assert (verdict.known, verdict.valid) == (True, False)
    assert verdict.problem.splitlines() == [
        "the arguments of get_weather do not fit:",
        "- city: required, but missing",
        '- days: Input should be a valid integer, unable to parse string as an integer; got "many"',
        "- town: there is no such parameter; the parameters: city, days",
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("get_wether", "there is no tool 'get_wether'; did you mean get_weather? the tools are: "),
        ("get_weather<|channel|>commentary", "there is no tool 'get_weather<|channel|>commentary'; "),
        ("runt_5_shell__poll", "there is no tool 'runt_5_shell__poll'; the tools are: "),
        ("", "there is no tool ''; the tools are: get_weather, poll, cleanup, charge"),
        ("GET_WEATHER", "there is no tool 'GET_WEATHER'; the tools are: "),
    ],
)
def test_an_unknown_tool_is_never_matched_to_a_similar_one(box: Stage, name: str, problem: str) -> None:
    """The nearest name is advice for the model; running it would be a guess (tool-name-garbled-near-miss)."""
    (verdict,) = box.vet((name, '{"city":'))
    assert (verdict.known, verdict.valid) == (False, False)
    assert verdict.problem.startswith(problem)


def test_blanks_around_a_name_are_not_part_of_it(box: Stage) -> None:
    """Some servers pad names (wire case tool-name-null-or-padded), and no tool's name holds a blank."""
    padded, plain = box.vet((" get_weather\n", WEATHER), ("get_weather", WEATHER))
    assert (padded.known, padded.problem, padded.digest) == (True, "", plain.digest)


def test_a_hostile_name_stays_short(box: Stage) -> None:
    """A name of a megabyte must cost neither time to compare nor room in the context."""
    (verdict,) = box.vet(("get_weather" * 100_000, "{}"))
    assert verdict.problem.startswith("there is no tool 'get_weatherget_weather")
    assert len(verdict.problem) < 300


def test_many_tools_are_not_all_listed() -> None:
    """A list of hundreds of names would cost more than it helps."""
    box = Toolbox([tool(poll.function, name=f"poll_{number}") for number in range(60)])
    run = begin_run(RunStarted("run", "hello"))
    (verdict,) = box.vet(Reply(calls=(ToolCall("a", "x", ""),)), run, {})
    assert verdict.problem.endswith("poll_49, …")
    (verdict,) = Toolbox().vet(Reply(calls=(ToolCall("a", "x", ""),)), run, {})
    assert verdict.problem == "there is no tool 'x'; the tools are: (none)"


def test_a_digest_sees_the_call_and_not_how_it_is_written(box: Stage) -> None:
    """A loop is a loop though the model writes its keys in another order (wire case reordered-parallel-batch-loop)."""
    first, second, other, tool_too, twice = box.vet(
        ("get_weather", '{"city":"Oslo","days":2}'),
        ("get_weather", '{ "days": 2, "city": "\\u004fslo" }'),
        ("get_weather", '{"city":"Oslo","days":3}'),
        ("cleanup", '{"city":"Oslo","days":2}'),
        ("get_weather", json.dumps('{"city":"Oslo","days":2}')),
    )
    assert first.digest == second.digest == twice.digest
    assert len({first.digest, other.digest, tool_too.digest}) == 3


def test_invalid_calls_have_digests_too(box: Stage) -> None:
    """A model that repeats a broken call is stuck as well (wire case loop-of-invalid-json-calls)."""
    one, same, other, empty = box.vet(("f", '{"a":'), ("f", '{"a":'), ("f", '{"b":'), ("f", ""))
    assert one.digest == same.digest
    assert len({one.digest, other.digest, empty.digest}) == 3
    assert one.repeats == 3


def test_calls_of_a_tool_are_bounded_over_the_run_and_within_a_reply(box: Stage) -> None:
    """A bound on what a tool may spend holds for a batch too, where all calls are judged before one runs."""
    box.called(charge=1, poll=7)
    good, over, polling = box.vet(("charge", '{"amount":1}'), ("charge", '{"amount":2}'), ("poll", ""))
    assert good.problem == ""
    assert (over.valid, over.problem) == (True, "charge may be called 2 times in a run, and was; go on without it")
    assert polling.problem == ""


def test_a_call_that_cannot_run_uses_up_nothing(box: Stage) -> None:
    """A model that first errs must still get what its tool is allowed."""
    verdicts = box.vet(
        ("charge", "{"), ("charge", '{"amount":1}'), (" charge", '{"amount":2}'), ("charge", '{"amount":3}')
    )
    assert [verdict.problem[:6] for verdict in verdicts] == ["the ar", "", "", "charge"]


def test_only_what_was_found_out_of_the_newest_reply_is_kept(box: Stage) -> None:
    """A limit may end a run between vetting and running, so its arguments must not stay in memory for good."""
    for call in ("first", "second"):
        calls = (ToolCall(call, "poll", ""), ToolCall(f"{call}'s other", "none", ""))
        box.box.vet(Reply(calls=calls), box.run, box.memo)
    assert [*box.memo] == [ToolCall("second", "poll", "")]


names = st.sampled_from(["get_weather", "cleanup", "charge", "poll "]) | st.text(st.characters(exclude_categories=()))
texts = st.text(st.characters(exclude_categories=())) | st.sampled_from([WEATHER, '{"amount":1}', "{}"])


@given(st.lists(st.tuples(names, texts), max_size=4))
def test_whatever_a_model_writes_gets_one_verdict_a_call(calls: list[tuple[str, str]]) -> None:
    """Any bytes from a model lead to a legal transition, so vetting judges and never raises."""
    box = Toolbox([get_weather, poll, cleanup, charge])
    asked = Reply(calls=tuple(ToolCall(str(number), *call) for number, call in enumerate(calls)))
    verdicts = box.vet(asked, begin_run(RunStarted("run", "hello")), {})
    assert [verdict.call_id for verdict in verdicts] == [call.id for call in asked.calls]
    assert all(len(verdict.digest) == 64 for verdict in verdicts)
    assert all(verdict.problem or (verdict.known and verdict.valid) for verdict in verdicts)
    assert all(len(verdict.problem) < 2_000 for verdict in verdicts)
