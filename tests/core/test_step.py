"""One step: what a transition says, which effect comes next, and what an ending keeps."""

from __future__ import annotations

import pytest
from msgspec.structs import astuple

from turnstile.core.changes import accept, take_results
from turnstile.core.effects import Ask, CallModel, RunTools
from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import (
    RECEIPTS,
    CallFinished,
    CallStarted,
    Cancelled,
    ChangesAccepted,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.guards import is_answer, wants_tools
from turnstile.core.limits import Limits, Price
from turnstile.core.machine import Refusal, loop
from turnstile.core.messages import Exchange, FinishReason, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.rows import before, row
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.states import State, await_model, done
from turnstile.core.step import Step, begin, effect_of, note, step
from turnstile.core.values import evolve

UNKNOWN = "outcome unknown: "
NOT_RUN = "not run: "
LOST = "the process that ran it was lost"
BEGUN = CallStarted("a", "tool", "digest")


def started(turns: int = 10, *, recoveries: int = 3, nudges: int = 1, repairs: int = 2) -> RunState:
    """A run that has just started, its first request under way."""
    limits = Limits(turns=turns, recoveries=recoveries, nudges=nudges, repairs=repairs)
    return begin(begin_run(RunStarted("run", "hi", limits=limits, prices=(Price(1, 2),))))


def calling(*ids: str, finish: FinishReason = "tool_calls") -> ModelReplied:
    """A vetted reply that calls a tool for each id."""
    calls = tuple(ToolCall(id_, "tool", "{}") for id_ in ids)
    verdicts = tuple(Verdict(id_, "digest") for id_ in ids)
    return ModelReplied(Reply(calls=calls, finish=finish, usage=Usage(1000, 500)), verdicts)


def saying(text: str, finish: FinishReason = "stop", raw: str = "") -> ModelReplied:
    """A vetted reply without calls."""
    return ModelReplied(Reply(text, finish=finish, finish_raw=raw))


def results(*ids: str) -> ToolsFinished:
    """Their results."""
    return ToolsFinished(tuple(ToolResult(id_, "tool", "fine") for id_ in ids))


FINE = CallFinished(ToolResult("a", "tool", "fine"))


def take(run: RunState, *events: Event) -> Step:
    """The last of several steps, each effect begun before its event or receipt comes."""
    *earlier, last = events
    for event in earlier:
        run = note(ready(run), event) if isinstance(event, RECEIPTS) else step(loop, ready(run), event).run
    return step(loop, ready(run), last)


def ready(run: RunState) -> RunState:
    """The run with its effect under way, if its state has one."""
    return run if run.in_flight or effect_of(loop, run) is None else begin(run)


def test_a_transition_tells_all_of_a_move() -> None:
    """The log, the diagram of a run and `result.transitions` are made of it."""
    run, transition, effect = astuple(step(loop, started(), calling("a", "b"), at=17.0, duration_ms=2.5))

    assert str(transition) == "1 await_model --ModelReplied--> execute_tools"
    assert (transition.row, transition.reason, transition.turn) == ("run_tools", "run_tools", 1)
    assert transition.refused[0] == Refusal("refused", "was_refused")
    assert (transition.asks, transition.stays) == ("RunTools (tool, tool)", False)
    assert (transition.usage, transition.calls) == (Usage(1000, 500), ("tool", "tool"))
    assert (transition.cost, transition.tools, transition.error) == (0.002, (), None)
    assert (transition.at, transition.duration_ms) == (17.0, 2.5)
    assert effect == RunTools(*_open(run))
    assert (run.state, run.seq, run.in_flight) == ("execute_tools", 1, False)


def _open(run: RunState) -> tuple[tuple[ToolCall, ...], tuple[Verdict, ...]]:
    assert run.open is not None
    return run.open.reply.calls, run.open.verdicts


def test_a_transition_holds_results_and_failures() -> None:
    """A line of the log shows what came, not only where it led."""
    failure = ModelFailed("timeout", delay=0.5)
    assert step(loop, started(), failure).transition.error == failure
    assert take(started(), calling("a"), results("a")).transition.tools == results("a").results
    assert step(loop, started(), failure).transition.cost is None


def test_a_transition_holds_the_results_that_came_before_the_others_too() -> None:
    """Whoever reads the log wants to see all that a batch came to, in the order of its calls."""
    both = take(started(), calling("b", "a"), BEGUN, FINE, results("b")).transition
    stopped = take(started(), calling("b", "a"), BEGUN, FINE, Cancelled(), results("b")).transition

    assert both.tools == stopped.tools == results("b", "a").results


def test_receipts_say_how_far_a_batch_is() -> None:
    """They move nothing, so they take no row and no number."""
    run = begin(step(loop, started(), calling("a", "b")).run)

    noted = note(note(run, BEGUN), FINE)

    assert (noted.started, noted.receipts, noted.seq) == ((BEGUN,), (FINE.result,), run.seq)
    assert note(evolve(run, in_flight=False), EffectBegun()) == run
    assert note(run, ChangesAccepted((("machine", "1"),))).accepted == (("machine", "1"),)
    effect = effect_of(loop, noted)
    assert isinstance(effect, RunTools)
    assert ([call.id for call in effect.calls], [v.call_id for v in effect.verdicts]) == (["b"], ["b"])


def test_an_event_is_no_receipt() -> None:
    """One that a row takes must be judged, and not merely noted."""
    names = "EffectBegun, CallStarted, CallFinished, ChangesAccepted"
    with pytest.raises(UsageError, match=f"a receipt is one of {names}; got Cancelled"):
        note(started(), Cancelled())


def test_a_row_that_stays_leaves_the_effect_alone() -> None:
    """What the user says meanwhile must not send the request twice."""
    run, transition, effect = astuple(step(loop, started(), MessageInjected("and quickly")))

    assert (transition.stays, transition.asks, transition.dest) == (True, "", "await_model")
    assert (run.in_flight, run.inbox, effect) == (True, ("and quickly",), CallModel())


def test_a_row_that_leads_back_begins_the_effect_anew() -> None:
    """A retry is a request of its own, after its wait."""
    run, transition, effect = astuple(step(loop, started(), ModelFailed("overloaded", delay=0.25)))

    assert (transition.stays, run.in_flight) == (False, False)
    assert effect == CallModel(attempt=2, delay=0.25)
    assert transition.asks == "CallModel (attempt 2, after 0.25 s)"


def test_an_event_that_no_row_takes_changes_nothing() -> None:
    """Judged first, changed second: the run is as it was."""
    run = started()
    before = evolve(run)

    with pytest.raises(NoRow):
        step(loop, run, ResultsAppended())

    assert run == before


def test_results_of_other_calls_are_refused() -> None:
    """Whoever runs the tools has a bug, and the run that it would have spoilt is as it was."""
    run = begin(step(loop, started(), calling("a", "b")).run)
    before = evolve(run)

    for wrong in (results("a"), results("b", "a"), results("a", "b", "c")):
        with pytest.raises(ValueError, match="one result for each call"):
            step(loop, run, wrong)

    for wrong in (results("a"), results(), results("b", "b"), results("a", "b"), results("c")):
        with pytest.raises(ValueError, match=r"expected one result for each of the calls \['a', 'b'\]; got \['a'"):
            step(loop, note(run, FINE), wrong)

    assert run == before
    assert step(loop, run, results("a", "b")).run.state == "append_results"
    assert step(loop, note(run, FINE), results("b")).run.results == results("a", "b").results


@pytest.mark.parametrize(
    ("events", "reason", "detail", "content"),
    [
        ([Cancelled("enough")], "cancelled", "enough", None),
        ([DeadlinePassed()], "time_limit", "", None),
        ([calling("a"), Cancelled("enough")], "stopping", "", UNKNOWN + "interrupted"),
        ([calling("a"), BEGUN, Cancelled("enough")], "stopping", "", UNKNOWN + "interrupted"),
        ([calling("a"), Cancelled("enough"), results("a")], "cancelled", "enough", "fine"),
        ([calling("a"), Cancelled("enough"), EffectLost()], "cancelled", "enough", UNKNOWN + "cancelled"),
        ([calling("a"), BEGUN, Cancelled("enough"), EffectLost()], "cancelled", "enough", UNKNOWN + "cancelled"),
        ([calling("a"), DeadlinePassed(), Cancelled("late")], "stopping", "", UNKNOWN + "interrupted"),
        ([calling("a"), DeadlinePassed(), Cancelled("late"), results("a")], "time_limit", "", "fine"),
        ([calling("a"), results("a"), Cancelled("enough")], "cancelled", "enough", "fine"),
        ([calling("a"), EffectLost(), EffectLost()], "crash_loop", "", UNKNOWN + LOST),
        ([calling("a"), EffectLost(), BEGUN, EffectLost()], "crash_loop", "", UNKNOWN + LOST),
        ([calling("a"), BEGUN, EffectLost(), EffectLost()], "crash_loop", "", UNKNOWN + LOST),
        (
            [calling("a", "b"), BEGUN, FINE, Cancelled("enough"), EffectLost()],
            "cancelled",
            "enough",
            NOT_RUN + "cancelled",
        ),
        ([calling("b", "a"), BEGUN, FINE, Cancelled("enough"), EffectLost()], "cancelled", "enough", "fine"),
        (
            [calling("b", "a"), BEGUN, FINE, ToolsFinished(results("b").results, "no go")],
            "tool_aborted",
            "no go",
            "fine",
        ),
        ([EffectLost(), EffectLost()], "crash_loop", "", None),
        ([calling("a"), ToolsFinished(results("a").results, "no go")], "tool_aborted", "no go", "fine"),
        ([saying("no", "refusal", "filtered")], "refused", "the server said 'filtered'", None),
        ([saying("no", "refusal")], "refused", "", None),
        ([calling("a", finish="refusal")], "refused", "", "not run: the model declined"),
        ([ModelFailed("authentication", "bad key", 401)], "infrastructure_error", "authentication 401 bad key", None),
        ([ModelFailed("content_filter")], "refused", "content_filter", None),
        ([ModelReplied(Reply("x"), output_error="no number")], "invalid_output", "no number", None),
        ([saying("", "tool_calls", "tool_use")], "incomplete", "the server said 'tool_use'", None),
        ([saying("half", "length")], "truncated", "", None),
        ([saying("", "length")], "truncated", "", None),
        (
            [ModelReplied(Reply("", (), "length", reasoning="hm"))],
            "truncated",
            "its reasoning used up the tokens that the reply could have",
            None,
        ),
        ([calling("a", finish="length")], "truncated", "", "not run: the reply was cut by its token limit"),
        ([saying("")], "empty_answer", "the request had about 6 tokens, by its length", None),
        ([calling("a"), results("a"), ResultsAppended(), calling("b")], "max_turns", "", "not run: turn limit reached"),
    ],
)
def test_an_ending_says_why_and_answers_what_is_open(
    events: list[Event], reason: str, detail: str, content: str | None
) -> None:
    """Always stops, always says why, and leaves a history that can be gone on with."""
    run, transition, _ = astuple(take(started(turns=2, recoveries=1, nudges=0, repairs=0), *events))

    assert transition.reason == reason
    if run.stop is not None:
        assert (run.stop.reason, run.stop.detail) == (reason, detail)
        assert (run.open, run.results, run.stopping) == (None, (), None)
        assert type(run.stop.reason) is str
    answers = [message.content for message in run.messages if isinstance(message, ToolResult)]
    assert answers[-1:] == ([] if content is None else [content])


def test_an_empty_reply_after_results_is_a_flagged_ending() -> None:
    """The work is done, and nobody should take the empty text for an answer."""
    run = take(started(), calling("a"), results("a"), ResultsAppended(), ModelReplied(Reply(" \n"))).run

    assert run.stop is not None
    assert (run.state, run.stop.reason, run.stop.flags) == ("done", "empty_answer", ("empty_answer",))


def test_an_injected_message_waits_until_no_call_is_open() -> None:
    """Between a call and its result nothing may be said."""
    run = take(started(), calling("a"), MessageInjected("also this"), results("a"), ResultsAppended()).run
    assert run.inbox == ("also this",)

    begun = begin(run)

    assert begun.inbox == ()
    assert begun.history[-2:] == (Exchange(calling("a").reply, results("a").results), UserTurn("also this"))


def test_what_was_injected_too_late_for_the_answer_is_asked() -> None:
    """An answer to half of the question is none."""
    run, transition, effect = astuple(take(started(), MessageInjected("also this"), ModelReplied(Reply("first"))))

    assert (transition.row, effect) == ("ask_injected", CallModel())
    assert begin(run).history[-2:] == (Exchange(Reply("first")), UserTurn("also this"))


def test_what_a_limit_left_unsent_is_kept() -> None:
    """Nothing that the user said is lost without a trace."""
    run = take(started(turns=1), MessageInjected("also this"), ModelReplied(Reply("first"))).run

    assert (run.state, run.inbox) == ("done", ("also this",))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (ModelReplied(Reply("", finish="tool_calls")), "You announced a tool call, but the reply holds none."),
        (ModelReplied(Reply()), "The reply was empty. Please answer."),
        (ModelReplied(Reply("x"), output_error="no number"), "does not have the form that is needed: no number."),
        (ModelFailed("generation_failed", "bad json"), "The last tool call was malformed and was rejected: bad json."),
        (ModelFailed("generation_failed"), "was rejected: no reason was given."),
    ],
)
def test_the_engine_says_what_is_wrong_in_the_users_place(event: Event, said: str) -> None:
    """A model repairs what it is told, and a reader sees that it was not the user who spoke."""
    last = step(loop, started(), event).run.history[-1]

    assert isinstance(last, UserTurn)
    assert last.synthetic
    assert said in last.text


def test_calls_of_a_cut_reply_do_not_run() -> None:
    """Their arguments may parse and still be half of what was meant."""
    run = take(started(), calling("a", finish="length"), ResultsAppended()).run

    last = run.history[-1]
    assert isinstance(last, Exchange)
    assert (last.results[0].status, run.repairs, run.tool_calls) == ("not_run", 1, 0)
    assert "make it again, shorter" in last.results[0].content


def test_wrapping_up_asks_once_more_with_tools_off() -> None:
    """What was paid for so far is worth one more request."""
    start = RunStarted("run", "hi", limits=Limits(turns=1, on_exhausted="wrap_up"))
    run, transition, effect = astuple(take(begin(begin_run(start)), calling("a"), ResultsAppended()))

    assert effect == CallModel(tools=False)
    assert transition.asks == "CallModel (tools off)"
    assert "The turn limit of this run is reached, so tools are off now." in str(run.history[-1])

    ended = step(loop, begin(run), ModelReplied(Reply("as far as I got"))).run
    assert ended.stop is not None
    assert (ended.state, ended.stop.reason, ended.stop.exhausted) == ("done", "answered", "max_turns")


def test_the_next_model_has_all_its_attempts() -> None:
    """The first one's failures are not its own."""
    start = RunStarted("run", "hi", models=("a", "b"), prices=(None, None))
    run = begin(begin_run(start))
    for _ in range(3):
        run = begin(step(loop, run, ModelFailed("overloaded", delay=0.0)).run)

    _, transition, effect = astuple(step(loop, run, ModelFailed("overloaded", delay=0.0)))

    assert (transition.row, effect) == ("next_model", CallModel(model=1))


def test_trimming_leaves_out_the_older_half_of_what_is_sent() -> None:
    """A request that was too long is sent once more, shorter, and not a third time."""
    said = tuple(UserTurn(str(number)) for number in range(7))
    run = begin(begin_run(RunStarted("run", "hi", history=said)))

    trimmed = step(loop, run, ModelFailed("context_overflow"))

    assert (trimmed.transition.row, trimmed.run.window_start) == ("trimmed", 4)
    assert step(loop, begin(trimmed.run), ModelFailed("context_overflow")).transition.row == "overflow"


def test_calls_are_counted_in_all_and_for_each_tool() -> None:
    """Both have limits."""
    run = take(started(), calling("a", "b"), results("a", "b"), ResultsAppended(), calling("c")).run

    assert (run.tool_calls, run.calls_by_tool) == (3, (("tool", 3),))


def test_an_extension_state_asks_by_the_name_it_gives() -> None:
    """The machine doesn't know what it means; who performs it does."""
    review = State("review", asks="Review")

    async def perform(run: RunState) -> Event:
        return ResultsAppended()

    to_review = row("review", await_model, ModelReplied, [wants_tools], review, accept)
    machine = loop.extend(states=[review], rows=[before("run_tools", to_review)], performs={"Review": perform})
    assert effect_of(machine, evolve(started(), state="review")) == Ask("Review")
    assert effect_of(loop, evolve(started(), state="append_results")) is None


def test_an_extension_state_may_run_tools_when_none_are_open() -> None:
    """A state that asks for the engine's own effect gets it, from the engine."""
    again = State("again", asks="RunTools")
    machine = loop.extend(
        states=[again],
        rows=[
            before("answered", row("again", await_model, ModelReplied, [is_answer], again, accept)),
            row("ran", again, ToolsFinished, [], done, take_results),
        ],
    )

    run, transition, effect = astuple(step(machine, started(), ModelReplied(Reply("text"))))

    assert (effect, transition.asks) == (RunTools((), ()), "RunTools ()")
    assert step(machine, run, ToolsFinished(())).run.state == "done"


class Judged(ModelReplied, frozen=True):
    """A reply of an extension's own, which rows of its own take."""


def test_an_event_made_of_an_engines_own_says_as_much() -> None:
    """Its tokens are counted in the run, so the log and the journal must not be without them."""
    machine = loop.extend(rows=[before("answered", row("judged", await_model, Judged, [], done, accept))])

    run, transition, _ = astuple(step(machine, started(), Judged(Reply("text", usage=Usage(10, 5)))))

    assert (transition.event, transition.usage, run.usage) == ("Judged", Usage(10, 5), Usage(10, 5))
