"""`Result`: what a run came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from turnstile.core.errors import RunFailed
from turnstile.core.messages import Exchange, Message, ToolCall, Usage
from turnstile.core.run_state import RunState, Stop
from turnstile.core.step import Transition
from turnstile.core.strict_json import JsonValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What a run came to, or how far it got.

    Attributes:
        run: The run's last state, all of it.
        transitions: Every move it made, in order.
    """

    run: RunState
    transitions: tuple[Transition, ...]
    convert: Callable[[JsonValue], T] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the run ended in ``done``."""
        return self.run.state == "done"

    @property
    def output(self) -> T:
        """The answer, as the agent's output type.

        Raises:
            RunFailed: There is none; `partial` has what the model wrote last.
        """
        stop = self.run.stop
        if not self.ok:
            reason, detail = (stop.reason, stop.detail) if stop else ("unfinished", f"it is in {self.run.state}")
            raise RunFailed(self.run_id, reason, detail)
        try:
            return self.convert(self.run.output)
        except ValueError as error:  # an empty answer, where a type was asked for
            raise RunFailed(self.run_id, stop.reason if stop else "done", "the model gave no output") from error

    @property
    def partial(self) -> str:
        """What the model wrote last, whether or not the run ended well; empty when it wrote nothing."""
        if self.run.open and self.run.open.reply.text:
            return self.run.open.reply.text
        history = self.run.history
        items = (history[index] for index in range(len(history) - 1, len(self.run.start.history), -1))
        return next((item.reply.text for item in items if isinstance(item, Exchange) and item.reply.text), "")

    @property
    def stop(self) -> Stop | None:
        """Why the run ended; ``None`` while it hasn't, such as one that waits for a human."""
        return self.run.stop

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that a human must decide about before the run goes on; empty when it waits for nobody."""
        return self.run.waiting

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, valid as another run's ``history``; what the engine said is marked synthetic."""
        return self.run.messages

    @property
    def undelivered(self) -> tuple[str, ...]:
        """What was injected and never sent, since the run ended first."""
        return self.run.inbox

    @property
    def usage(self) -> Usage:
        """Tokens of all replies, as far as servers said."""
        return self.run.usage

    @property
    def cost(self) -> float | None:
        """US dollars for all replies; ``None`` when the price of one is unknown."""
        return None if self.run.unpriced else self.run.cost
