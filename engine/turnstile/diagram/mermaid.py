"""A picture as Mermaid text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnstile.diagram.picture import FILLS, LINES, Node, Picture

# What means something in a flowchart, whatever the case ("end" breaks the whole text), and the name of our own mark.
WORDS = (
    "call class classdef click default direction end flowchart graph href interpolate linkstyle start style subgraph"
)
RESERVED = frozenset(WORDS.split())


def mermaid(picture: Picture) -> str:
    """The picture as a flowchart, for a README, an issue or a notebook."""
    ids = {node.name: _identifier(node.name, number) for number, node in enumerate(picture.nodes)}
    lines = ["flowchart TD", "    start@{ shape: sm-circ }"]
    lines += [f'    {ids[node.name]}("{_text(node.lines)}"):::{_class(node)}' for node in picture.nodes]
    lines.append(f"    start --> {ids[picture.nodes[0].name]}")
    for arrow in picture.arrows:
        shaft = "-.->" if arrow.tone == "pale" else "-->"
        label = f'|"{_text(arrow.lines)}"|' if arrow.lines else ""
        lines.append(f"    {ids[arrow.source]} {shaft}{label} {ids[arrow.dest]}")
    lines += _styles(picture)
    return "\n".join(lines) + "\n"


def _identifier(name: str, number: int) -> str:
    """The state's name where Mermaid takes it as a name, else its number."""
    plain = re.fullmatch(r"(?!state_)[a-z]\w*", name, re.ASCII | re.IGNORECASE) and name.lower() not in RESERVED
    return name if plain else f"state_{number}"


def _class(node: Node) -> str:
    return f"last_{node.tone}" if node.last else node.tone


def _styles(picture: Picture) -> list[str]:
    """Colours of states by class, and of arrows by number; arrow 0 is the one from the start."""
    styles = {"start": f"    style start fill:{LINES['live']},stroke:{LINES['live']}"}
    for node in picture.nodes:
        fill, border, text = FILLS[node.tone]
        look = f"fill:{fill},stroke:{border},color:{text},stroke-width:{4 if node.last else 1}px"
        styles[_class(node)] = f"    classDef {_class(node)} {look}"
    numbers: dict[str, list[str]] = {f"stroke:{LINES['live']}": ["0"]}
    for number, arrow in enumerate(picture.arrows, start=1):
        thick = ",stroke-width:3px" if arrow.taken else ",opacity:0.5" if arrow.tone == "pale" else ""
        numbers.setdefault(f"stroke:{LINES[arrow.tone]}{thick}", []).append(str(number))
    return [*styles.values(), *(f"    linkStyle {','.join(which)} {look}" for look, which in numbers.items())]


def _text(lines: Iterable[str]) -> str:
    """Lines of text as Mermaid writes them in quotes: a character that could mean something goes by its number."""
    return "<br/>".join(re.sub(r"[^\w ,.:;×…/()\[\]-]", lambda found: f"#{ord(found[0])};", line) for line in lines)
