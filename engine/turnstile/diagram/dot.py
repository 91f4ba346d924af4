"""A picture as DOT text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from turnstile.diagram.picture import FILLS, GROUND, INK, LINES, Picture

FONT = 'fontname="Helvetica,Arial,sans-serif"'


def dot(picture: Picture) -> str:
    """The picture as a graph for Graphviz."""
    lines = [
        "digraph turnstile {",
        '    graph [rankdir=LR, bgcolor="transparent", nodesep=0.5, ranksep=0.7]',
        f'    node [shape=box, style="rounded,filled", {FONT}, fontsize=12, margin="0.2,0.1"]',
        f'    edge [{FONT}, fontsize=10, fontcolor="{INK}", arrowsize=0.7]',
        f'    "(start)" [shape=point, width=0.15, color="{LINES["live"]}"]',
    ]
    for node in picture.nodes:
        fill, border, text = FILLS[node.tone]
        look = f'fillcolor="{fill}", color="{border}", fontcolor="{text}", penwidth={4 if node.last else 1}'
        lines.append(f"    {_quoted(node.name)} [label=<{_text(node.lines)}>, {look}]")
    lines.append(f'    "(start)" -> {_quoted(picture.nodes[0].name)} [color="{LINES["live"]}"]')
    for arrow in picture.arrows:
        text = f'<table border="0" bgcolor="{GROUND}"><tr><td>{_text(arrow.lines)}</td></tr></table>'
        label = f"label=<{text}>, " if arrow.lines else ""
        look = f'color="{LINES[arrow.tone]}", penwidth={3 if arrow.taken else 1}'
        dashed = ", style=dashed" if arrow.tone == "pale" else ""
        lines.append(f"    {_quoted(arrow.source)} -> {_quoted(arrow.dest)} [{label}{look}{dashed}]")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(lines: Iterable[str]) -> str:
    return "<br/>".join(escape(line) for line in lines)
