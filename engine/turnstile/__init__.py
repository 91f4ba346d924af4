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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnstile.agent import Agent
    from turnstile.core.context import KeepAll, LastTokens, LastTurns
    from turnstile.core.effects import AskHuman, CallModel, RunTools
    from turnstile.core.errors import (
        AmbiguousRun,
        Changed,
        CodecError,
        ConfigurationError,
        InsideEventLoop,
        InvalidJSON,
        MachineError,
        ModelNotFound,
        NoRow,
        NoSuchRun,
        RecordDamaged,
        RunBusy,
        RunExists,
        RunFailed,
        RunFinished,
        RunIsLeased,
        SessionBusy,
        StopRun,
        StoreDamaged,
        StoreError,
        StoreForeign,
        StoreFull,
        StoreLocked,
        StoreReadOnly,
        StoreTooNew,
        StoreUnreachable,
        ToolDefinitionError,
        TurnstileError,
        UsageError,
        WaitingForHuman,
    )
    from turnstile.core.events import Event
    from turnstile.core.limits import Limits, Price, Retry, StopReason
    from turnstile.core.machine import Machine, loop
    from turnstile.core.messages import Attachment, Exchange, Reply, ToolCall, ToolResult, Usage, UserTurn
    from turnstile.core.rows import AGAIN, LIVE, STAY, after, before, row
    from turnstile.core.run_state import RunState, Stop
    from turnstile.core.states import State
    from turnstile.core.step import Transition
    from turnstile.core.values import evolve
    from turnstile.driver import Recovery, Run
    from turnstile.result import Result
    from turnstile.tools import Tool, ToolContext, tool

__all__ = [
    "AGAIN",
    "LIVE",
    "STAY",
    "Agent",
    "AmbiguousRun",
    "AskHuman",
    "Attachment",
    "CallModel",
    "Changed",
    "CodecError",
    "ConfigurationError",
    "Event",
    "Exchange",
    "InsideEventLoop",
    "InvalidJSON",
    "KeepAll",
    "LastTokens",
    "LastTurns",
    "Limits",
    "Machine",
    "MachineError",
    "ModelNotFound",
    "NoRow",
    "NoSuchRun",
    "Price",
    "RecordDamaged",
    "Recovery",
    "Reply",
    "Result",
    "Retry",
    "Run",
    "RunBusy",
    "RunExists",
    "RunFailed",
    "RunFinished",
    "RunIsLeased",
    "RunState",
    "RunTools",
    "SessionBusy",
    "State",
    "Stop",
    "StopReason",
    "StopRun",
    "StoreDamaged",
    "StoreError",
    "StoreForeign",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnreachable",
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
    "WaitingForHuman",
    "after",
    "before",
    "evolve",
    "loop",
    "row",
    "tool",
]

_HOMES = {
    "turnstile.agent": ("Agent",),
    "turnstile.core.context": (
        "KeepAll",
        "LastTokens",
        "LastTurns",
    ),
    "turnstile.core.effects": (
        "AskHuman",
        "CallModel",
        "RunTools",
    ),
    "turnstile.core.errors": (
        "AmbiguousRun",
        "Changed",
        "CodecError",
        "ConfigurationError",
        "InsideEventLoop",
        "InvalidJSON",
        "MachineError",
        "ModelNotFound",
        "NoRow",
        "NoSuchRun",
        "RecordDamaged",
        "RunBusy",
        "RunExists",
        "RunFailed",
        "RunFinished",
        "RunIsLeased",
        "SessionBusy",
        "StopRun",
        "StoreDamaged",
        "StoreError",
        "StoreForeign",
        "StoreFull",
        "StoreLocked",
        "StoreReadOnly",
        "StoreTooNew",
        "StoreUnreachable",
        "ToolDefinitionError",
        "TurnstileError",
        "UsageError",
        "WaitingForHuman",
    ),
    "turnstile.core.events": ("Event",),
    "turnstile.core.limits": (
        "Limits",
        "Price",
        "Retry",
        "StopReason",
    ),
    "turnstile.core.machine": (
        "Machine",
        "loop",
    ),
    "turnstile.core.messages": (
        "Attachment",
        "Exchange",
        "Reply",
        "ToolCall",
        "ToolResult",
        "Usage",
        "UserTurn",
    ),
    "turnstile.core.rows": (
        "AGAIN",
        "LIVE",
        "STAY",
        "after",
        "before",
        "row",
    ),
    "turnstile.core.run_state": (
        "RunState",
        "Stop",
    ),
    "turnstile.core.states": ("State",),
    "turnstile.core.step": ("Transition",),
    "turnstile.core.values": ("evolve",),
    "turnstile.driver": (
        "Recovery",
        "Run",
    ),
    "turnstile.result": ("Result",),
    "turnstile.tools": (
        "Tool",
        "ToolContext",
        "tool",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Load a name's module when it is first asked for, so that importing the package costs next to nothing."""
        if name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        elif name == "__version__":
            from importlib.metadata import version

            value = version("turnstile-agent")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOME_OF))
