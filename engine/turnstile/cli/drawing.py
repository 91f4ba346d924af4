"""`turnstile diagram`: the picture of a machine, of a run that a store keeps, or of a run as it ends."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnstile.cli.faults import Misuse
from turnstile.cli.finding import find
from turnstile.cli.screen import Screen
from turnstile.cli.storing import opened, read_run
from turnstile.core.machine import Machine, loop
from turnstile.diagram import Diagram
from turnstile.diagram import diagram as picture_of
from turnstile.replay import Replay
from turnstile.result import Result

FORMATS = {".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot"}
"""What a file is written as, by what its name ends with."""


def diagram(name: str | None, run_id: str | None, store: str | None, wanted: str | None, output: str | None) -> None:
    """Write a picture to a file or to standard output.

    Raises:
        TurnstileError: There is nothing to draw, or nowhere to write it.
    """
    written_as = format_of(output, wanted)
    machine = find(name).agent.machine if name is not None else None
    if run_id is not None:
        again = asyncio.run(_load(store, run_id, machine))
        write(picture_of(again.transitions, machine=again.machine), written_as, output)
        return
    if store is not None:
        raise Misuse("--store names where a run is kept; add --run ID, or leave it out to draw the machine")
    write(picture_of(machine or loop), written_as, output)


async def _load(path: str | None, run_id: str, machine: Machine | None) -> Replay:
    """The run with all its moves.

    Raises:
        Misuse: The machine is not the one that it was made with.
    """
    async with opened(path, machine) as store:
        again = await read_run(store, run_id, machine)
    if again.divergence is not None and again.divergence.what == "row":
        raise Misuse(
            f"run {again.run.run_id!r} was made with another machine ({again.divergence}); name its agent, too"
        )
    return again


def format_of(output: str | None, wanted: str | None = None) -> str:
    """What a picture is to be written as; says so before any work is done if it cannot be.

    Raises:
        Misuse: Nothing says which format, the folder is missing, or what draws it is not installed.
    """
    if output is not None and not Path(output).parent.is_dir():
        raise Misuse(f"no folder {str(Path(output).parent)!r} for {output!r}; make it, or write somewhere else")
    by_name = "mermaid" if output is None else FORMATS.get(Path(output).suffix.lower())
    written_as = wanted or by_name
    if written_as is None:
        raise Misuse(f"{output!r} does not say what to write; let it end in {', '.join(FORMATS)}, or add --format")
    if written_as in {"svg", "png"} and find_spec("mmdr") is None:
        raise Misuse(f"{written_as} needs the extra `diagrams`: pip install 'turnstile-agent[diagrams]'")
    if written_as == "png" and output is None and sys.stdout.isatty():
        raise Misuse("a PNG is no text for a terminal; add -o FILE")
    return written_as


def draw_run(result: Result[Any], machine: Machine, output: str) -> None:
    """Write the picture of a run to a file, in the format that its name says.

    Raises:
        Misuse: It cannot be written.
    """
    write(picture_of(result, machine=machine), format_of(output), output)


def write(picture: Diagram, written_as: str, output: str | None) -> None:
    """Write a picture to a file, or to standard output.

    Raises:
        Misuse: It cannot be written.
    """
    if written_as == "png":
        content = picture.png()
    else:
        content = {"mermaid": lambda: picture.mermaid, "dot": lambda: picture.dot, "svg": picture.svg}[
            written_as
        ]().encode()
    if output is None:
        Screen().answer_bytes(content)
        return
    try:
        Path(output).write_bytes(content)
    except OSError as error:
        raise Misuse(f"{output!r} cannot be written: {error.strerror}; give a file that is yours to write") from error
