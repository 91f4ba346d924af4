"""`turnstile agents list`, `tools list`, `models list`: what there is, for people and for programs.

A person at a terminal sees a table; a pipe gets a line for each, with tabs between its fields; ``--json`` gives all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from turnstile.cli.finding import find
from turnstile.cli.installed import installed
from turnstile.cli.screen import Screen, json_text, one_line
from turnstile.core.errors import TurnstileError
from turnstile.core.strict_json import JsonValue

Entry = dict[str, JsonValue]


def agents() -> list[Entry]:
    """The installed agents; one that cannot be loaded says why."""
    return [{"agent": name, **_about(name), "loads from": point.value} for name, point in installed().items()]


def _about(name: str) -> Entry:
    try:
        agent = find(name).agent
        tools_of = ", ".join(spec.name for spec in agent.toolbox.specs)
    except TurnstileError as error:
        return {"tools": "", "turns": None, "problem": str(error)}
    return {"tools": tools_of, "turns": agent.limits.turns, "problem": ""}


def tools(name: str | None) -> list[Entry]:
    """The tools of one agent, or of all installed ones that can be loaded.

    Raises:
        TurnstileError: There is no agent of that name, or its tools cannot be offered.
    """
    if name is not None:
        return _tools_of(name)
    entries: list[Entry] = []
    for each in installed():
        try:
            entries += _tools_of(each)
        except TurnstileError as error:
            Screen().warn(f"left out: {error}")
    return entries


def _tools_of(name: str) -> list[Entry]:
    return [
        {"agent": name, "tool": spec.name, "what it does": spec.description, "parameters": dict(spec.parameters)}
        for spec in find(name).agent.toolbox.specs
    ]


def models() -> list[Entry]:
    """The providers, with the model that is used when only a key is known, and the variable that holds the key."""
    from turnstile.models import PROVIDERS

    return [
        {
            "provider": provider.name,
            "default model": provider.default_model,
            "key": provider.key(os.environ)[0] or (provider.keys[0] if provider.needs_key else ""),
            "set": "yes" if provider.key(os.environ)[1] else "",
            # An address of the user's own may hold a password, so its variable is named instead.
            "address": f"${provider.url_variable}" if provider.url_variable in os.environ else provider.base_url,
            "documentation": provider.source,
        }
        for provider in PROVIDERS
    ]


def show(entries: Sequence[Entry], *, as_json: bool, nothing: str) -> None:
    """Write a list to standard output, in the form that its reader needs; nested values are for programs only."""
    screen = Screen()
    if as_json:
        screen.answer(json_text(list(entries)))
        return
    if not entries:
        screen.warn(nothing)
        return
    columns = [key for key in entries[0] if any(entry[key] and not isinstance(entry[key], dict) for entry in entries)]
    rows = [["" if entry[key] is None else one_line(str(entry[key]), 1000) for key in columns] for entry in entries]
    if sys.stdout.isatty():
        _table(columns, rows)
    else:
        for row in rows:
            screen.answer("\t".join(row))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(Text, row))  # as text: what stands in brackets is no markup
    Console(file=sys.stdout).print(table)
