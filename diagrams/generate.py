"""Writes the pictures of this folder: ``python diagrams/generate.py``."""
# ruff: noqa: INP001 - a script in a folder that is no package

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnstile import loop
from turnstile.diagram import Diagram, diagram

PICTURES: dict[str, Callable[[], Diagram]] = {"machine": lambda: diagram(loop)}
SUFFIXES = (".mmd", ".dot", ".svg", ".png")


def write_all(folder: Path) -> None:
    """Write each picture in each format."""
    for name, draw in PICTURES.items():
        picture = draw()
        for suffix in SUFFIXES:
            picture.save(folder / f"{name}{suffix}")


if __name__ == "__main__":
    write_all(Path(__file__).parent)
