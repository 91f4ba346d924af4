"""The states of the loop: five, each a frozen value that names what it asks of the outside; and one that few need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands.

    A run succeeds by ending in ``done`` (`Result.ok`). One that ends in any other final state has failed, in an
    extension's own as in ``failed``; so an extension's rows lead to ``done`` when all went well.

    Attributes:
        name: The state's name, a condition such as ``await_model``.
        asks: Name of the effect that the state asks the outside to perform; ``None`` asks nothing, and
            `ResultsAppended` follows at once.
        final: Whether a run ends here. No event moves a run out of a final state.
    """

    name: str
    asks: str | None = None
    final: bool = False

    def __str__(self) -> str:
        return self.name


await_model = State("await_model", asks="CallModel")
execute_tools = State("execute_tools", asks="RunTools")
append_results = State("append_results")
await_approval = State("await_approval", asks="AskHuman")
done = State("done", final=True)
failed = State("failed", final=True)

START = await_model
STATES = (await_model, execute_tools, append_results, done, failed)
"""The states of every machine; `turnstile.core.approval` adds ``await_approval`` to one whose agent needs it."""
