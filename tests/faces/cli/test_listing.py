"""The lists of agents, tools and models: lines for pipes, tables for people, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open


def test_agents_are_listed_with_their_tools_and_problems(here: Here) -> None:
    """An agent that cannot be loaded must be seen, with why, and must not hide the others."""
    listed = {entry["agent"]: entry for entry in json.loads(here("agents", "list", "--json").stdout)}
    assert listed["bundled"] == {
        "agent": "bundled",
        "tools": "get_weather, explode",
        "turns": 10,
        "problem": "",
        "loads from": "demo:bundled",
    }
    assert "no module 'needy'" in listed["needy"]["problem"]


def test_tools_of_an_agent_are_one_line_each(here: Here) -> None:
    """A pipe gets a line for each tool, which cut and awk can take apart."""
    result = here("tools", "list", "demo:agent")
    assert result.stdout == "demo:agent\tget_weather\tWeather of a city.\ndemo:agent\texplode\tAlways fails.\n"


def test_tools_in_json_have_their_schemas(here: Here) -> None:
    """A program wants to know what a tool takes, not only that it is there."""
    first, _ = json.loads(here("tools", "list", "demo:agent", "--json").stdout)
    assert first["tool"] == "get_weather"
    assert first["parameters"]["properties"]["city"]["type"] == "string"


def test_tools_of_all_installed_agents(here: Here) -> None:
    """Without an agent, what is installed is what there is; one that cannot be loaded is named and left out."""
    result = here("tools", "list", "--json")
    assert result.exit_code == 0
    assert {("bundled", "get_weather"), ("bundled", "explode")} <= {
        (entry["agent"], entry["tool"]) for entry in json.loads(result.stdout)
    }
    assert "left out: no module 'needy' for agent 'needy'" in result.stderr


def test_no_tools_is_said(here: Here, folder: Path) -> None:
    """An empty answer would look like a fault."""
    (folder / "bare.py").write_text("from turnstile.agent import Agent\nagent = Agent()\n")
    result = here("tools", "list", "bare:agent")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no tools\n")


def test_models_tell_whose_key_is_set_and_never_the_key(here: Here) -> None:
    """Which provider would be asked depends on the environment, so the list shows what is set, but no secret."""
    secrets = {"DEEPSEEK_API_KEY": "sk-very-secret", "OLLAMA_BASE_URL": "http://me:hidden@localhost/v1"}
    shown = here("models", "list", "--json", **secrets).stdout
    listed = {entry["provider"]: entry for entry in json.loads(shown)}
    assert (listed["deepseek"]["key"], listed["deepseek"]["set"]) == ("DEEPSEEK_API_KEY", "yes")
    assert (listed["openai"]["key"], listed["openai"]["set"]) == ("OPENAI_API_KEY", "")
    assert listed["ollama"]["address"] == "$OLLAMA_BASE_URL"
    assert "secret" not in shown
    assert "hidden" not in shown


def test_a_person_sees_a_table(terminal: Open) -> None:
    """At a terminal, columns with heads are what can be read."""
    opened = terminal("tools", "list", "demo:agent")
    opened.wait_for("what it does")
    opened.wait_for(r"demo:agent +get_weather +Weather of a city\.")
    assert opened.finish() == 0
