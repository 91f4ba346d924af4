"""The events that are tried: enough of each to make every guard say yes and no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from turnstile.core.alphabet import STARTS, events_in, samples
from turnstile.core.errors import UsageError
from turnstile.core.events import (
    EVENTS,
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ModelReplied,
    ResultsAppended,
)
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall
from turnstile.core.run_state import begin_run, evolve
from turnstile.core.step import begin

RUN = begin_run(STARTS[0])


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """An extension's event with a field of each kind of type."""

    good: bool
    how: Literal["long", "short"]
    where: ToolCall | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Heavy(Event):
    """An extension's event that holds too much to be made from its types."""

    reply: Reply


def kinds(events: list[Event]) -> set[type[Event]]:
    """What kinds of events there are."""
    return {type(event) for event in events}


def test_an_effect_brings_its_events_only_once_it_has_begun() -> None:
    """A crash, an order and a message may come at any time; a reply needs a request."""
    anytime = {Cancelled, DeadlinePassed, MessageInjected}

    assert kinds(list(events_in(loop, RUN, {}))) == anytime | {EffectBegun, EffectLost}
    assert ModelReplied in kinds(list(events_in(loop, begin(RUN), {})))
    appending = evolve(RUN, state="append_results")
    assert kinds(list(events_in(loop, appending, {}))) == anytime | {ResultsAppended}


def test_all_events_of_the_engine_are_tried_somewhere() -> None:
    """What is left out would not be explored."""
    calling = next(e for e in events_in(loop, begin(RUN), {}) if isinstance(e, ModelReplied) and e.reply.calls)
    states = [begin(RUN), begin(evolve(RUN, state="execute_tools", open=calling)), evolve(RUN, state="append_results")]

    tried = [event for run in states for event in events_in(loop, run, {})]

    assert kinds(tried) == set(EVENTS)


def test_given_events_take_the_place_of_those_of_an_effect() -> None:
    """What comes from outside is tried all the same."""
    tried = list(events_in(loop, begin(RUN), {"await_model": lambda run: [Looked(good=True, how="long", where=None)]}))

    assert kinds(tried) == {Cancelled, DeadlinePassed, MessageInjected, EffectLost, Looked}


def test_an_extensions_event_is_tried_in_all_combinations() -> None:
    """Its guards were written by somebody else, so each field has to say each thing."""
    events = samples(Looked)

    assert len(events) == 2 * 2 * (2**3 + 1) * 3
    assert len(set(events)) == len(events)


def test_too_many_combinations_are_refused() -> None:
    """An exploration that takes an hour is not made."""
    with pytest.raises(UsageError, match=r"Reply: \d+ combinations are too many to try; hand explore\(…, events=…\)"):
        samples(Heavy)
