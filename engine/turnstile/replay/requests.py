"""`Requests`: what a run sent to models, made again from its journal."""

from __future__ import annotations

from turnstile.core.effects import CallModel
from turnstile.core.events import EffectBegun, RunStarted
from turnstile.core.machine import Machine
from turnstile.core.requests import RequestDigests, selected
from turnstile.core.run_state import RunState
from turnstile.core.step import effect_of
from turnstile.ports import ModelRequest


class Requests:
    """The requests of one run, in order.

    Args:
        machine: The table.
        start: The run's first record.
    """

    def __init__(self, machine: Machine, start: RunStarted) -> None:
        self._machine = machine
        self._digests = RequestDigests(start)
        self._memo: dict[tuple[str, int], bytes] = {}

    def again(self, before: RunState, run: RunState, event: EffectBegun, at: float) -> tuple[ModelRequest, str] | None:
        """The request that a record tells of, and its digest; ``None`` when the run cannot have sent it.

        Args:
            before: The run before the effect began.
            run: The run once it had.
            event: The record's event.
            at: Its time.
        """
        start, effect = run.start, effect_of(self._machine, before)
        if not isinstance(effect, CallModel) or any(end > len(run.history) for _, end in event.items):
            return None
        request = ModelRequest(
            instructions=start.instructions,
            items=selected(run.history, event.items),
            tools=start.tools,
            tools_on=effect.tools,
            max_output=effect.max_output,
            settings=start.settings if isinstance(start.settings, dict) else {},
            output_schema=start.output_schema if isinstance(start.output_schema, dict) else None,
            memo=self._memo,
            now=at,
        )
        return request, self._digests.of(effect, run.history, event.items)
