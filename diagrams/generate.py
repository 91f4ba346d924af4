"""Writes the pictures of this folder: ``python diagrams/generate.py``."""
# ruff: noqa: INP001 - a script in a folder that is no package

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from turnstile import Limits, Usage, evolve, loop
from turnstile.diagram import Diagram, diagram
from turnstile.testing import WireServer
from turnstile_tools.agents import assistant, mini, travel

# Offline scripts take no tokens, and never the same time twice; with these a picture is the same whenever it is drawn.
FIGURES: dict[str, dict[str, Any]] = {
    "ModelReplied": {"duration_ms": 1_500.0, "usage": Usage(1_200, 150)},
    "ToolsFinished": {"duration_ms": 400.0},
}

TRIP = "I'm in Shanghai, have 4 days off in October, like nature and quiet small towns"
WARM = "Is it warm in Beijing?"
ALL_AT_ONCE = "What time is it? Also compute (1024 + 768) * 2, and tell me the weather in Beijing and Shanghai."


def run_of(module: ModuleType, prompt: str, limits: Limits | None = None) -> Diagram:
    """The picture of a run of a bundled agent's offline script, which reaches for nothing beyond this machine."""
    with (
        WireServer([{"status": 503, "repeat": 99}]) as weather,
        mock.patch.dict(os.environ, TURNSTILE_OPEN_METEO_URL=weather.url),
    ):
        result = module.agent.run_sync(prompt, model=module.offline_model(), limits=limits)
    return diagram(evolve(move, **FIGURES.get(move.event, {})) for move in result.transitions)


PICTURES: dict[str, Callable[[], Diagram]] = {
    "machine": lambda: diagram(loop),
    "travel": lambda: run_of(travel, TRIP),
    "assistant": lambda: run_of(assistant, WARM),
    "mini": lambda: run_of(mini, ALL_AT_ONCE),
    "limit": lambda: run_of(travel, TRIP, Limits(turns=2)),
}
SUFFIXES = (".mmd", ".dot", ".svg", ".png")


def write_all(folder: Path) -> None:
    """Write each picture in each format."""
    for name, draw in PICTURES.items():
        picture = draw()
        for suffix in SUFFIXES:
            picture.save(folder / f"{name}{suffix}")


if __name__ == "__main__":
    write_all(Path(__file__).parent)
