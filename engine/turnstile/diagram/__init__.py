"""Pictures of a machine and of a run: Mermaid and DOT as text, SVG and PNG.

All moves between two states are one arrow. On a machine's picture it lists their reasons, by event. On a run's picture
it says when it was taken, why, and what time and tokens that took; arrows that were not taken are pale.

The rows are drawn, not what `transitions` draws of them: that knows no reasons, and writes an event once for each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnstile.core.errors import ConfigurationError
from turnstile.core.machine import Machine, loop
from turnstile.core.step import Transition
from turnstile.diagram.dot import dot
from turnstile.diagram.image import png, svg
from turnstile.diagram.mermaid import mermaid
from turnstile.diagram.picture import Picture, of_machine, of_run
from turnstile.result import Result

__all__ = ["Diagram", "diagram"]


@dataclass(frozen=True, slots=True)
class Diagram:
    """A picture that can be written in several formats."""

    picture: Picture

    @property
    def mermaid(self) -> str:
        """The picture as Mermaid text, for a README, an issue or a notebook."""
        return mermaid(self.picture)

    @property
    def dot(self) -> str:
        """The picture as DOT text, for Graphviz."""
        return dot(self.picture)

    def svg(self) -> str:
        """The picture as SVG text, on a transparent ground.

        Raises:
            ConfigurationError: The extra ``diagrams`` is not installed.
        """
        return svg(self.mermaid)

    def png(self, scale: float = 2.0) -> bytes:
        """The picture as PNG, on a transparent ground.

        Args:
            scale: Pixels for each of the SVG's; 2 is sharp on today's screens.

        Raises:
            ConfigurationError: The extra ``diagrams`` is not installed.
        """
        return png(self.svg(), scale)

    def save(self, path: str | Path) -> None:
        """Write the picture in the format that the file's name ends with: ``.mmd``, ``.dot``, ``.svg`` or ``.png``.

        Raises:
            ConfigurationError: It ends with another, or the extra ``diagrams`` is needed and not installed.
        """
        path = Path(path)
        match path.suffix:
            case ".mmd":
                content = self.mermaid.encode()
            case ".dot":
                content = self.dot.encode()
            case ".svg":
                content = self.svg().encode()
            case ".png":
                content = self.png()
            case other:
                msg = f"a diagram is saved as .mmd, .dot, .svg or .png; got {other!r} in {str(path)!r}"
                raise ConfigurationError(msg)
        path.write_bytes(content)


def diagram(
    drawn: Machine | Result[Any] | Iterable[Transition], *, machine: Machine = loop, guards: bool = False
) -> Diagram:
    """The picture of a machine, or of a run on the picture of its machine.

    Args:
        drawn: A machine; or a run, as its result or its transitions.
        machine: The machine that the run was made with.
        guards: Whether a machine's picture says which guards must hold.
    """
    if isinstance(drawn, Machine):
        return Diagram(of_machine(drawn, guards=guards))
    if isinstance(drawn, Result):
        stop = drawn.stop
        return Diagram(of_run(drawn.transitions, machine, stop.exhausted if stop else None))
    return Diagram(of_run(tuple(drawn), machine))
