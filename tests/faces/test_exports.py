"""The public names: what the design fixes is there, and nothing else by accident."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import turnstile
from turnstile.core import errors

PUBLIC = {
    "turnstile": {
        # the agent and its runs
        *("Agent", "Limits", "Retry", "Price", "Run", "Result", "RunState", "Stop", "StopReason", "Transition"),
        "Recovery",
        # tools
        *("tool", "Tool", "ToolContext", "StopRun"),
        # what is said
        *("UserTurn", "Attachment", "Reply", "Exchange", "ToolCall", "ToolResult", "Usage"),
        # the machine and what extends it
        *("loop", "Machine", "State", "Event", "row", "before", "after", "LIVE", "AGAIN", "STAY", "evolve"),
        *("AskHuman", "CallModel", "RunTools", "KeepAll", "LastTokens", "LastTurns"),
        # errors
        *(
            name
            for name, value in vars(errors).items()
            if isinstance(value, type) and value.__module__ == errors.__name__
        ),
    },
    "turnstile.models": {
        *("OpenAIChat", "ChatOptions", "AnthropicMessages", "AnthropicOptions", "ServerOptions"),
        *("PROVIDERS", "Provider", "Available", "first_available", "resolve"),
    },
    "turnstile.stores": {"MemoryStore", "SQLiteStore"},
    "turnstile.log": {"JsonLog"},
    "turnstile.letters": {"Told", "approve", "cancel", "deny", "inject", "settle"},
    "turnstile.replay": {
        *("Audit", "Change", "Comparison", "Divergence", "Export", "Figures", "Pair", "Receipt", "Replay"),
        *("audit", "diff", "export", "fork", "read_export", "read_exports", "receipts", "replay", "summary_of"),
    },
    "turnstile.testing": {
        *("ScriptedModel", "call", "FrozenClock", "WireServer", "WireRequest", "assert_path", "check_store"),
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_all_is_what_is_documented(module: str) -> None:
    """A name that slips in is a promise nobody meant; one that slips out breaks somebody."""
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize("module", PUBLIC)
def test_each_public_name_is_there(module: str) -> None:
    """A name in `__all__` that cannot be had breaks ``from module import *``."""
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        assert name in dir(loaded)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Loading names late must not change what a misspelt one gives."""
    with pytest.raises(AttributeError, match="Agnet"):
        _ = turnstile.Agnet  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_distribution() -> None:
    """A bug report can say which Turnstile it was."""
    assert turnstile.__version__.count(".") == 2


@pytest.mark.parametrize("heavy", ["httpx", "structlog", "pydantic", "rich", "typer", "orjson", "apsw", "mmdr"])
def test_importing_turnstile_loads_nothing_heavy(heavy: str) -> None:
    """A program pays for HTTP, schemas and pictures when it first uses them."""
    code = f"import sys; from turnstile import Agent, tool; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
