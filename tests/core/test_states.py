"""The states: the five of the design, and what each asks for."""

from __future__ import annotations

from turnstile.core.states import START, STATES


def test_there_are_five_states() -> None:
    """An agent without approval and summaries draws, logs and verifies exactly these."""
    assert [(str(state), state.asks, state.final) for state in STATES] == [
        ("await_model", "CallModel", False),
        ("execute_tools", "RunTools", False),
        ("append_results", None, False),
        ("done", None, True),
        ("failed", None, True),
    ]
    assert START.name == "await_model"
