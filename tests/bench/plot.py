"""Draws how many times Turnstile's cost each contender costs, row by row, from the JSON that a bench wrote.

Usage: ``python plot.py RESULTS.json PLOT.svg``, in the environment that has matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from peers import PEERS
from report import advantage, from_json
from rows import OURS, ROWS

INK = "#24292f"
PAPER = "white"  # drawn on paper of its own, so that it reads on a dark page too
STYLES = {  # colours of Okabe and Ito, which colour-blind readers can tell apart; each has a shape of its own besides
    "bare": ("#000000", "|"),
    "langgraph": ("#0072b2", "o"),
    "pydantic_ai": ("#d55e00", "s"),
    "openai_agents": ("#009e73", "D"),
    "burr": ("#cc79a7", "v"),
    "smolagents": ("#e69f00", "P"),
}


def draw(source: Path, target: Path) -> None:
    """Write the plot of a bench's results."""
    table = from_json(json.loads(source.read_text()))
    rows = [row for row in ROWS if any(advantage(table, row, name) for name in STYLES)]
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "text.color": INK}
    )
    figure = Figure(figsize=(11, 0.42 * len(rows) + 1.8), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    for name, (colour, shape) in STYLES.items():
        points = [(times, place) for place, row in enumerate(rows) if (times := advantage(table, row, name))]
        if points:
            across, down = zip(*points, strict=True)
            size = 120 if shape == "|" else 45
            axes.scatter(across, down, s=size, c=colour, marker=shape, label=PEERS[name].title, zorder=3)
    axes.axvline(1, color=INK, linewidth=1.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_yticks(range(len(rows)), [row.full_title.replace("`", "") for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="both", color="#d0d7de", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(
        f"What each costs, as a multiple of {PEERS[OURS].title} (the line at 1×; further right is costlier)",
        fontsize=11,
    )
    figure.legend(loc="outside lower center", ncols=len(STYLES), frameon=False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
