"""Budgets bind before the money is spent, and what a last answer costs is held back from the start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.budget import (
    LEAST_OUTPUT,
    NOTHING,
    WRAP_UP_EXTRA,
    charge,
    charge_cost,
    estimate_input,
    output_cap,
    over_budget,
    price,
    request_size,
    reservation,
    spent_after,
)
from turnstile.core.events import (
    Cancelled,
    DeadlinePassed,
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
from turnstile.core.limits import Limits, Price
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import begin, step
from turnstile.core.values import evolve

CHARS_A_TOKEN = 4  # more than our estimate assumes: English text, by OpenAI's help page "What are tokens"
PENNY = 1e-9  # sums of floats

limits = st.builds(
    Limits,
    turns=st.just(9),
    tokens=st.none() | st.integers(0, 30_000),
    cost=st.none() | st.floats(0, 0.1),
    repeats=st.none(),
    on_exhausted=st.sampled_from(["fail", "wrap_up"]),
)
rates = st.none() | st.builds(Price, st.floats(0, 10), st.floats(0, 10))
starts = st.builds(
    RunStarted,
    st.just("run"),
    st.text(max_size=50),
    instructions=st.sampled_from(["", "x" * 3000]),
    limits=limits,
    prices=st.tuples(rates),
    max_output=st.none() | st.integers(1, 4000),
    tools_size=st.integers(0, 2000),
)


def dearest(run: RunState, part: float, calls: int, *, is_told: bool) -> Event:
    """What a request may bring: refused by the engine, or a reply that takes its part of all it was allowed."""
    limit = over_budget(run)
    if limit:
        return ModelFailed("budget", limit=limit)
    cap = output_cap(run)
    output = int(part * (4000 if cap is None else min(cap, 4000)))
    ids = [f"call {run.turns}.{number}" for number in range(min(calls, output // 8))]
    text = "x" * ((CHARS_A_TOKEN if is_told else 3) * output - 40 * len(ids))
    usage = Usage(estimate_input(run), output) if is_told else None
    reply = Reply(text, tuple(ToolCall(id_, "tool", "{}") for id_ in ids), usage=usage)
    return ModelReplied(reply, tuple(Verdict(id_, "digest", repeats=None) for id_ in ids))


def play(start: RunStarted, data: st.DataObject, *, is_told: bool = True) -> Iterator[RunState]:
    """A run whose requests cost all they may, at each moment."""
    run = begin_run(start)
    while not run.finished:
        if run.state == "await_model":
            part, calls = data.draw(st.sampled_from([0.0, 0.5, 1.0])), data.draw(st.integers(0, 8))
            event = dearest(begin(run), part, calls, is_told=is_told)
        elif run.open is not None and run.state == "execute_tools":
            content = "x" * data.draw(st.integers(0, 3000))
            event = ToolsFinished(tuple(ToolResult(c.id, c.name, content) for c in run.open.reply.calls))
        else:
            event = ResultsAppended()
        run = step(loop, begin(run), event).run
        yield run


@given(starts, st.data())
def test_what_is_spent_never_passes_a_limit(start: RunStarted, data: st.DataObject) -> None:
    """Settled and at worst still to come, a run stays within its tokens and its dollars, the first request included."""
    for run in play(start, data):
        if start.limits.tokens is not None:
            assert run.charged_tokens <= start.limits.tokens
        if start.limits.cost is not None:
            assert run.charged_cost <= start.limits.cost + PENNY


@given(starts, st.data())
def test_what_is_under_way_is_held_back(start: RunStarted, data: st.DataObject) -> None:
    """A run may be lost at any moment, so what is spent and what is on its way stay within a limit together."""
    for run in play(start, data):
        begun = begin(run)
        tokens, dollars = begun.reserved
        assert start.limits.tokens is None or begun.charged_tokens + tokens <= start.limits.tokens
        assert start.limits.cost is None or begun.charged_cost + dollars <= start.limits.cost + PENNY
        assert run.reserved == NOTHING


@given(starts, st.sampled_from([EffectLost(), Cancelled(), DeadlinePassed()]))
def test_an_answer_that_nobody_waits_for_is_charged_at_its_worst(start: RunStarted, event: Event) -> None:
    """The provider may bill it all the same; what a request really took is not known any more."""
    begun = begin(begin_run(start))

    lost = step(loop, begun, event).run

    assert (lost.charged_tokens, lost.charged_cost) == begun.reserved
    assert (lost.reserved, lost.cost, lost.usage) == (NOTHING, 0.0, Usage())


def test_what_is_held_back_is_what_a_request_may_take() -> None:
    """Its input as estimated and its output as capped, at the price of the model; nothing where no limit asks."""
    limits, rate = Limits(tokens=10_000, cost=1.0), Price(1, 10)
    run = begin_run(RunStarted("run", "hi", limits=limits, prices=(rate,), max_output=500))
    tokens_in = estimate_input(run)

    assert reservation(run) == (tokens_in + 500, rate.of(tokens_in, 500))
    assert reservation(evolve(run, start=evolve(run.start, prices=(None,)))) == (tokens_in + 500, 0.0)
    assert reservation(evolve(run, charged_tokens=9_999)) == NOTHING
    assert reservation(evolve(run, start=evolve(run.start, limits=Limits()))) == NOTHING


def test_what_was_held_back_is_free_once_the_reply_is_there() -> None:
    """Then it is known what it took; until then a word of the user changes nothing."""
    run = begin(begin_run(RunStarted("run", "hi", limits=Limits(tokens=10_000), max_output=500)))
    told = step(loop, run, MessageInjected("also this")).run
    again = step(loop, run, ModelFailed("timeout", delay=0.0)).run
    replied = step(loop, run, ModelReplied(Reply("text", usage=Usage(10, 5)))).run

    assert told.reserved == run.reserved != NOTHING
    assert (again.reserved, again.charged_tokens) == (NOTHING, 0)
    assert (replied.reserved, replied.charged_tokens) == (NOTHING, 15)


@given(starts, st.data())
def test_a_limit_holds_where_no_server_says_what_it_took(start: RunStarted, data: st.DataObject) -> None:
    """Some servers leave usage out; what a reply is charged is then estimated, and bound like the rest."""
    for run in play(start, data, is_told=False):
        if start.limits.tokens is not None:
            assert run.charged_tokens <= start.limits.tokens + run.turns  # one token a reply for rounding
        assert run.usage == Usage()


@given(st.integers(0, 300), st.integers(0, 9000), st.integers(1, 8), st.none() | st.floats(1, 9))
def test_a_last_answer_can_always_be_paid(slack: int, size: int, calls: int, output_price: float | None) -> None:
    """A run that is to wrap up keeps enough for it, though its last reply took all that a scant budget allowed."""
    tokens_in = estimate_input(begin_run(RunStarted("run", "hi", tools_size=size)))
    if output_price is None:
        rate, tokens, cost = None, 2 * tokens_in + WRAP_UP_EXTRA + 3 * LEAST_OUTPUT + slack, None
    else:
        rate, tokens = Price(1, output_price), None
        cost = rate.of(2 * tokens_in + WRAP_UP_EXTRA + LEAST_OUTPUT, 2 * LEAST_OUTPUT + slack) + PENNY
    limits = Limits(turns=1, tokens=tokens, cost=cost, on_exhausted="wrap_up")
    run = begin(begin_run(RunStarted("run", "hi", limits=limits, prices=(rate,), tools_size=size)))
    assert over_budget(run) == ""

    run = step(loop, run, dearest(run, 1.0, calls, is_told=True)).run
    run = step(loop, run, ResultsAppended()).run

    assert run.wrapping_up
    assert over_budget(begin(run)) == ""


def started(
    limits: Limits, rate: Price | None = None, *, prompt: str = "hi", max_output: int | None = None
) -> RunState:
    """A run that has just started."""
    return begin_run(RunStarted("run", prompt, limits=limits, prices=(rate,), max_output=max_output))


def replied(text: str = "", *, calls: int = 0, usage: Usage | None = None, cost: float | None = None) -> ModelReplied:
    """A vetted reply."""
    made = tuple(ToolCall(str(number), "tool", "{}") for number in range(calls))
    reply = Reply(text, made, usage=usage, cost=cost)
    return ModelReplied(reply, tuple(Verdict(call.id, "digest") for call in made))


def test_nothing_bounds_a_reply_without_limits() -> None:
    """A cap that nobody asked for would cut answers short."""
    assert output_cap(started(Limits())) is None
    assert output_cap(started(Limits(cost=1.0))) is None
    assert output_cap(started(Limits(), max_output=500)) == 500
    assert over_budget(started(Limits())) == ""


def test_the_tightest_bound_counts() -> None:
    """A reply has to fit all of them."""
    run = started(Limits(tokens=1000, cost=0.000_4), Price(1, 1))
    tokens_in = estimate_input(run)

    assert output_cap(run) == 400 - tokens_in
    assert output_cap(evolve(run, charged_cost=0.000_3)) == 100 - tokens_in
    assert output_cap(started(Limits(tokens=1000), max_output=7)) == 7


@pytest.mark.parametrize(
    ("limits", "rate", "limit"),
    [
        (Limits(tokens=0), None, "token_limit"),
        (Limits(tokens=LEAST_OUTPUT), None, "token_limit"),
        (Limits(tokens=10 * LEAST_OUTPUT), None, ""),
        (Limits(cost=0.0), Price(1, 1), "cost_limit"),
        (Limits(cost=0.0), Price(1, 0), "cost_limit"),
        (Limits(cost=1.0), Price(1, 0), ""),
        (Limits(cost=0.0), Price(0, 0), ""),
        (Limits(cost=0.0), None, ""),
        (Limits(cost=0.001), Price(1, 1), ""),
        (Limits(cost=0.001, on_exhausted="wrap_up"), Price(1, 1), ""),
        (Limits(cost=0.000_4, on_exhausted="wrap_up"), Price(1, 1), "cost_limit"),
        (Limits(tokens=0, cost=0.0), Price(1, 1), "token_limit"),
    ],
)
def test_a_request_that_could_pass_a_limit_is_named(limits: Limits, rate: Price | None, limit: str) -> None:
    """It is refused before it is sent, and the refusal says which limit."""
    assert over_budget(started(limits, rate)) == limit


def test_a_short_answer_may_be_all_that_is_wanted() -> None:
    """With a maximum below the usual least, that maximum is enough room."""
    tokens = estimate_input(started(Limits())) + 5

    assert over_budget(started(Limits(tokens=tokens), max_output=5)) == ""
    assert over_budget(started(Limits(tokens=tokens))) == "token_limit"


def test_an_estimate_grows_from_the_last_measured_request() -> None:
    """What the server counted is known; only what came since is guessed."""
    run = started(Limits(), prompt="x" * 284)
    assert estimate_input(run) == 100

    measured = evolve(run, measured=(request_size(run), 60))
    assert estimate_input(measured) == 60
    assert estimate_input(evolve(measured, history=run.history.append(UserTurn("x" * 284)))) == 160
    assert estimate_input(evolve(measured, inbox=("x" * 284,))) == 160


def test_what_waits_in_the_inbox_is_counted_before_and_after_it_is_sent() -> None:
    """The cap of a reply is drawn before its request begins."""
    run = evolve(started(Limits(tokens=1000)), inbox=("also this", "and that"))

    assert estimate_input(begin(run)) == estimate_input(run)
    assert output_cap(begin(run)) == output_cap(run)


def test_an_estimate_shrinks_in_proportion_when_items_are_left_out() -> None:
    """Characters a token differ from text to text; what is left has the same as what was."""
    run = started(Limits())
    history = run.history.append(*[UserTurn("x" * 984)] * 9)
    measured = evolve(run, history=history, measured=(history.size(), 2000))

    assert estimate_input(measured) == 2000
    half = evolve(measured, window_start=5)
    assert estimate_input(half) == 2000 * half.history.size(5) // history.size()


@pytest.mark.parametrize(
    ("event", "tokens", "paid", "charged"),
    [
        (replied("x" * 30, usage=Usage(100, 10)), 110, 0.000_12, 0.000_12),
        (replied("x" * 30, usage=Usage(100, None)), 111, None, 0.000_222),
        (replied("x" * 30, usage=Usage(None, 10)), 16, None, 0.000_032),
        (replied("x" * 30), 17, None, 0.000_034),
        (replied(calls=3, usage=Usage(100, None)), 103, None, 0.000_206),
        (replied("x" * 30, usage=Usage(100, 10), cost=0.5), 110, 0.5, 0.5),
    ],
)
def test_what_a_reply_is_charged(event: ModelReplied, tokens: int, paid: float | None, charged: float) -> None:
    """What is known is taken as it is; what isn't is charged as much as it may have cost."""
    run = started(Limits(), Price(1, 2))

    assert charge(run, event.reply) == tokens
    assert price(run, event.reply) == pytest.approx(paid)
    assert charge_cost(run, event.reply) == pytest.approx(charged)


def test_a_reply_of_unknown_price_costs_nothing_that_could_be_counted() -> None:
    """A limit in dollars needs a model whose price is known."""
    assert charge_cost(started(Limits()), replied("x").reply) == 0
    assert charge_cost(started(Limits(), Price(3, 0)), replied("x").reply) > 0


@pytest.mark.parametrize(
    ("limits", "rate", "limit"),
    [
        (Limits(tokens=200), None, "token_limit"),
        (Limits(tokens=201), None, ""),
        (Limits(cost=0.000_199), Price(1, 1), "cost_limit"),
        (Limits(cost=0.000_201), Price(1, 1), ""),
        (Limits(cost=0.0), None, ""),
        (Limits(), None, ""),
    ],
)
def test_tools_are_not_run_when_nobody_could_read_their_results(limits: Limits, rate: Price | None, limit: str) -> None:
    """The next request carries this reply, so it costs at least as much."""
    assert spent_after(started(limits, rate), replied(usage=Usage(90, 10))) == limit


def test_a_run_counts_what_it_cost() -> None:
    """Known costs are shown, unknown ones are said to be unknown."""
    run = begin(started(Limits(), Price(1, 2)))
    run = step(loop, run, replied(usage=Usage(100, 10), calls=1)).run
    assert run.cost == pytest.approx(0.000_12)
    assert (run.unpriced, run.usage, run.charged_tokens) == (0, Usage(100, 10), 110)
    assert run.measured == (request_size(begin(started(Limits()))), 100)

    unknown = step(loop, begin(started(Limits(), Price(1, 2))), replied("x")).run
    assert (unknown.cost, unknown.unpriced, unknown.usage, unknown.measured) == (0, 1, Usage(), (0, 0))
    assert unknown.charged_cost > 0
