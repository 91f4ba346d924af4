"""The toolbox as a whole: its tools, as a model sees them and as a run remembers them."""

from __future__ import annotations

from typing import Any

import pytest

from turnstile.core.errors import ToolDefinitionError
from turnstile.core.messages import ToolSpec
from turnstile.ports import ToolRunner
from turnstile.shell.toolbox import Toolbox
from turnstile.tools import tool


def search(query: str) -> str:
    """Search for something."""
    return query


@tool(access="read")
def look(place: str) -> str:
    """Look at a place."""
    return place


def test_plain_functions_are_tools_too() -> None:
    """An agent with one small tool needs no decorator."""
    runner: ToolRunner = Toolbox([search, look])
    assert [spec.name for spec in runner.specs] == ["search", "look"]
    assert runner.specs[0] == ToolSpec(
        "search",
        "Search for something.",
        {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def test_two_tools_of_one_name_are_refused() -> None:
    """A server refuses every request with two tools of one name (wire case duplicate-tool-names)."""
    with pytest.raises(ToolDefinitionError, match=r"tool 'search': two tools have this name"):
        Toolbox([search, tool(look.function, name="search")])


def test_a_fingerprint_changes_with_what_a_tool_is() -> None:
    """A run must not be resumed with a tool that does something else under the same name."""

    def other(query: int) -> str:
        return str(query)

    variants: list[Any] = [
        tool(search),
        tool(search, description="Find something."),
        tool(search, access="read"),
        tool(search, max_calls=1),
        tool(other, name="search", description="Search for something."),
    ]
    prints = [Toolbox([variant]).fingerprints for variant in variants]
    assert {name for ((name, _),) in prints} == {"search"}
    assert len(set(prints)) == len(variants)
    assert Toolbox([search]).fingerprints == prints[0]
