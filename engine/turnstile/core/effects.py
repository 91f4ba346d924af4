"""What a state asks of the outside, as values; the driver performs them."""

from __future__ import annotations

from turnstile.core.events import Verdict
from turnstile.core.messages import ToolCall
from turnstile.core.values import Value


class CallModel(Value, frozen=True):
    """Ask a model for the next reply.

    Attributes:
        model: Index of the model among the run's models.
        attempt: 1 for the first time that this request is sent, one more with each retry.
        delay: Seconds to wait before sending.
        tools: Whether the model may call tools.
        max_output: The most tokens that the reply may have; ``None`` leaves it to the model.
    """

    model: int = 0
    attempt: int = 1
    delay: float = 0.0
    tools: bool = True
    max_output: int | None = None

    def __str__(self) -> str:
        parts: list[str] = []
        if self.model:
            parts.append(f"model {self.model + 1}")
        if self.attempt > 1:
            parts.append(f"attempt {self.attempt}")
        if self.delay:
            parts.append(f"after {self.delay:.2f} s")
        if not self.tools:
            parts.append("tools off")
        return f"CallModel ({', '.join(parts)})" if parts else "CallModel"


class RunTools(Value, frozen=True):
    """Run the calls of the open reply that have no result yet.

    Attributes:
        calls: The calls, in order.
        verdicts: What was found out about each before.
    """

    calls: tuple[ToolCall, ...]
    verdicts: tuple[Verdict, ...]

    def __str__(self) -> str:
        return f"RunTools ({', '.join([call.name for call in self.calls])})"


class AskHuman(Value, frozen=True):
    """Wait for a human to decide about calls.

    Attributes:
        calls: The calls.
    """

    calls: tuple[ToolCall, ...]

    def __str__(self) -> str:
        return f"AskHuman ({', '.join([call.name for call in self.calls])})"


class Ask(Value, frozen=True):
    """What an extension's state asks for, by the name that the state gives it."""

    name: str

    def __str__(self) -> str:
        return self.name


Effect = CallModel | RunTools | AskHuman | Ask
