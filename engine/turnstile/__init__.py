"""Turnstile: an engine for LLM agents whose loop is an explicit finite state machine.

::

    from turnstile import Agent, tool

    @tool(access="read")
    def get_weather(city: str) -> str:
        \"\"\"Current weather of a city.\"\"\"
        return f"{city}: 26 °C"

    agent = Agent("openai:gpt-5-mini", tools=[get_weather])
    result = agent.run_sync("Is it warm in Beijing?")
    print(result.output, result.stop.reason)
"""

from __future__ import annotations

from turnstile.agent import Agent
from turnstile.core.context import KeepAll, LastTurns
from turnstile.core.effects import CallModel, RunTools
from turnstile.core.errors import (
    ConfigurationError,
    InsideEventLoop,
    InvalidJSON,
    MachineError,
    ModelNotFound,
    NoRow,
    RunBusy,
    RunExists,
    RunFailed,
    RunFinished,
    StopRun,
    ToolDefinitionError,
    TurnstileError,
    UsageError,
)
from turnstile.core.events import Event
from turnstile.core.limits import Limits, Price, Retry, StopReason
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.rows import AGAIN, LIVE, STAY, after, before, row
from turnstile.core.run_state import RunState, Stop
from turnstile.core.states import State
from turnstile.core.step import Transition
from turnstile.driver import Run
from turnstile.result import Result
from turnstile.tool import Tool, ToolContext, tool

__all__ = [
    "AGAIN",
    "LIVE",
    "STAY",
    "Agent",
    "CallModel",
    "ConfigurationError",
    "Event",
    "Exchange",
    "InsideEventLoop",
    "InvalidJSON",
    "KeepAll",
    "LastTurns",
    "Limits",
    "Machine",
    "MachineError",
    "ModelNotFound",
    "NoRow",
    "Price",
    "Reply",
    "Result",
    "Retry",
    "Run",
    "RunBusy",
    "RunExists",
    "RunFailed",
    "RunFinished",
    "RunState",
    "RunTools",
    "State",
    "Stop",
    "StopReason",
    "StopRun",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "ToolResult",
    "Transition",
    "TurnstileError",
    "Usage",
    "UsageError",
    "UserTurn",
    "after",
    "before",
    "loop",
    "row",
    "tool",
]


def __getattr__(name: str) -> str:
    if name == "__version__":  # read when asked for: importlib.metadata costs more than the rest of this import
        from importlib.metadata import version

        return version("turnstile-agent")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
