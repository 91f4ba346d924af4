"""`changes_of`: what is different about an agent since a run was begun with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnstile.agent import Agent, nature_of
from turnstile.core.events import RunStarted
from turnstile.core.messages import ToolSpec
from turnstile.core.strict_json import JsonValue


@dataclass(frozen=True, slots=True)
class Change:
    """Something of an agent that is another now than when the run was begun.

    Attributes:
        what: ``instructions``, ``models``, ``settings``, ``output_schema``, ``tool NAME``, or
            ``fingerprint of NAME``.
        recorded: What the journal has; empty where it isn't there.
        now: What the agent has; empty where it isn't there.
    """

    what: str
    recorded: str
    now: str


def changes_of(start: RunStarted, agent: Agent[Any]) -> tuple[Change, ...]:
    """What is different about an agent since a run was begun; instructions made by a function are not asked for."""
    was, now = _recorded(start), _of_agent(agent)
    if agent.model is None:
        now["models"] = was["models"]
    if not isinstance(agent.instructions, str):
        now["instructions"] = was["instructions"]
    if start.settings is None:  # the run is older than these fields
        now = {what: text for what, text in now.items() if what in was}
    both = ((what, was.get(what, ""), now.get(what, "")) for what in {**was, **now})
    return tuple(Change(*each) for each in both if each[1] != each[2])


def _recorded(start: RunStarted) -> dict[str, str]:
    found = {"models": ", ".join(start.models), "instructions": start.instructions}
    if start.settings is not None:
        found |= _what_models_are_told(start.settings, start.output_schema, start.tools)
    return found | {f"fingerprint of {name}": mark for name, mark in start.fingerprints if name != "model"}


def _of_agent(agent: Agent[Any]) -> dict[str, str]:
    models = [agent.model] if isinstance(agent.model, str) or not isinstance(agent.model, Sequence) else agent.model
    names = [model if isinstance(model, str) else model.name for model in models if model is not None]
    parts = (agent.instructions if isinstance(agent.instructions, str) else "", agent.output.instructions)
    found = {"models": ", ".join(names), "instructions": "\n\n".join(part for part in parts if part)}
    schema = None if agent.output.schema is None else dict(agent.output.schema)
    found |= _what_models_are_told(agent.settings, schema, agent.toolbox.specs)
    return found | {f"fingerprint of {name}": mark for name, mark in nature_of(agent, names) if name != "model"}


def _what_models_are_told(settings: JsonValue, schema: JsonValue, tools: tuple[ToolSpec, ...]) -> dict[str, str]:
    found = {"settings": _text(settings), "output_schema": _text(schema)}
    return found | {f"tool {spec.name}": f"{spec.description} {_text(dict(spec.parameters))}" for spec in tools}


def _text(value: JsonValue) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)
