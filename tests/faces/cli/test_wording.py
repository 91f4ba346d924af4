"""The words for what a run does, where the other tests don't come by."""

from __future__ import annotations

import asyncio

import pytest

from turnstile.agent import Agent
from turnstile.cli.faults import WAITING
from turnstile.cli.finding import Found
from turnstile.cli.options import Settings
from turnstile.cli.preparing import Job, choose
from turnstile.cli.progress import Progress
from turnstile.cli.running import report
from turnstile.cli.screen import Screen
from turnstile.cli.wording import duration, spent, taken, why_not
from turnstile.core.limits import Price
from turnstile.core.messages import Reply, Usage
from turnstile.core.step import Transition
from turnstile.testing import ScriptedModel


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 ms"), (0.0123, "12 ms"), (3.44, "3.4 s"), (59.9, "59.9 s"), (125, "2 min 5 s")]
)
def test_durations_are_read_at_a_glance(seconds: float, words: str) -> None:
    """Milliseconds for what is quick, minutes for what is not: nobody should count digits."""
    assert duration(seconds) == words


def test_a_known_price_is_told() -> None:
    """Money is the limit that people ask about first, so it stands with the tokens as soon as it is known."""
    model = ScriptedModel([Reply("Hello.", usage=Usage(1_000, 500))], price=Price(input=1, output=2))
    result = Agent(model).run_sync("hi")
    assert spent(result.run) == "1 turn, 1,500 tokens, $0.0020"


def test_a_move_that_stays_says_that_the_effect_goes_on() -> None:
    """A message from outside moves nothing, and must not look as if the request had begun anew."""

    async def injected() -> Transition:
        async with Agent(ScriptedModel(["Hello.", "Again."])).start("hi") as run:
            run.inject("by the way")
            return await run.step()

    transition = asyncio.run(injected())
    assert taken(transition) == "1 await_model --MessageInjected--> await_model\n    row injected · the effect goes on"
    assert why_not(transition) == "    injected was the first row to try"


def test_a_run_that_waits_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """A script must be able to tell a run that waits for a human from one that failed."""
    agent = Agent(ScriptedModel(["Hello."]))
    found, settings, screen = Found(agent, "demo:agent"), Settings(store="memory"), Screen()
    job = Job(found, choose(found, None, {}), settings, screen)
    result = agent.start("hi").result
    assert report(result, job, Progress(screen), interrupted=False) == WAITING
    assert f"await_model (unfinished): 0 turns, run {result.run_id}" in capsys.readouterr().err
