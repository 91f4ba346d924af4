"""Effects as they read in a log and on a diagram."""

from __future__ import annotations

import pytest

from turnstile.core.effects import Ask, AskHuman, CallModel, Effect, RunTools
from turnstile.core.messages import ToolCall


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (CallModel(), "CallModel"),
        (CallModel(max_output=100), "CallModel"),
        (CallModel(model=1), "CallModel (model 2)"),
        (CallModel(attempt=2, delay=0.4567), "CallModel (attempt 2, after 0.46 s)"),
        (CallModel(tools=False), "CallModel (tools off)"),
        (RunTools((ToolCall("1", "add", "{}"), ToolCall("2", "get", "{}")), ()), "RunTools (add, get)"),
        (AskHuman((ToolCall("1", "pay", "{}"), ToolCall("2", "get", "{}"))), "AskHuman (pay, get)"),
        (Ask("Review"), "Review"),
    ],
)
def test_an_effect_says_what_is_about_to_happen(effect: Effect, text: str) -> None:
    """Whoever steps a run reads this before pressing the key: what is usual goes without saying."""
    assert str(effect) == text
