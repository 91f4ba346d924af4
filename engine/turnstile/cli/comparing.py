"""`turnstile diff`: two stored runs beside each other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from textwrap import wrap
from typing import TypeVar

from turnstile.cli.screen import Screen, clean, json_text, one_line
from turnstile.cli.showing import message_as_json, move_as_json, spoken
from turnstile.cli.storing import machine_of, opened, read_run
from turnstile.cli.wording import duration
from turnstile.core.messages import Message
from turnstile.core.step import Transition
from turnstile.core.strict_json import JsonValue
from turnstile.replay import Comparison, Figures, Pair, Replay, diff

T = TypeVar("T")

WIDTH = 80
SIDE = (WIDTH - 3) // 2
MOST_LINES = 12  # of one message; `runs show --messages` has all of it

Piece = tuple[str, str]
"""A text and its style."""


def compare(left: str, right: str, store: str | None, agent: str | None, *, as_json: bool) -> None:
    """Write where two runs part, and what each took, to standard output."""
    first, second = asyncio.run(_load(left, right, store, agent))
    compared = diff(first, second)
    if as_json:
        Screen().answer(json_text(_as_json(first, second, compared)))
        return
    _print([*_heads(first, second), *_figures(compared), *_path(compared), *_messages(compared)])


async def _load(left: str, right: str, path: str | None, agent: str | None) -> tuple[Replay, Replay]:
    machine = machine_of(agent)
    async with opened(path, machine) as store:
        return await read_run(store, left, machine), await read_run(store, right, machine)


def _print(lines: list[list[Piece]]) -> None:
    """Coloured on a terminal that wants colours (``NO_COLOR``), plain elsewhere."""
    if not sys.stdout.isatty():
        screen = Screen()
        for line in lines:
            screen.answer("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*[(clean(text), style) for text, style in line]))


def _beside(left: str, right: str, mark: str, style: tuple[str, str], label: str = "") -> list[Piece]:
    """Two texts in columns of their own, each with the label before it."""
    room = SIDE - len(label)
    return [
        (label + _fitted(left, room), style[0]),
        (f" {mark} ", "bold" if mark.strip() else ""),
        (label + _fitted(right, room), style[1]),
    ]


def _fitted(text: str, room: int) -> str:
    """A text on one line that takes just so many columns; Chinese takes two for a character."""
    from rich.cells import cell_len, set_cell_size

    line = one_line(text, WIDTH)
    return set_cell_size(line, room) if cell_len(line) <= room else f"{set_cell_size(line, room - 1)}…"


PLAIN, PARTED, TITLE = ("", ""), ("red", "green"), ("bold", "bold")


def _heads(first: Replay, second: Replay) -> Iterator[list[Piece]]:
    yield _beside(f"run {first.run.run_id}", f"run {second.run.run_id}", " ", TITLE)
    left, right = _begun(first), _begun(second)
    for name, value in left.items():
        yield _beside(value, right[name], *_marked(value == right[name]), label=f"{name:8}")


def _begun(replay: Replay) -> dict[str, str]:
    start = replay.run.start
    return {"agent": start.agent, "model": ", then ".join(start.models), "prompt": start.prompt}


def _marked(same: bool) -> tuple[str, tuple[str, str]]:  # noqa: FBT001 - it is the one thing to tell
    return (" ", PLAIN) if same else ("≠", PARTED)


def _figures(compared: Comparison) -> Iterator[list[Piece]]:
    left, right = (_worded(each) for each in compared.figures)
    for name, value in left.items():
        yield _beside(value, right[name], *_marked(value == right[name]), label=f"{name:8}")


def _worded(figures: Figures) -> dict[str, str]:
    return {
        "turns": str(figures.turns),
        "calls": str(figures.tool_calls),
        "tokens": f"{figures.tokens:,}",
        "cost": "unknown" if figures.cost is None else f"${figures.cost:.4f}",
        "time": duration(figures.seconds),
    }


def _path(compared: Comparison) -> Iterator[list[Piece]]:
    yield [("", "")]
    yield [("path", "bold")]
    for pair in compared.path:
        mark, style = _mark(pair), PLAIN if pair.same else PARTED
        yield _beside(_move(pair.left), _move(pair.right), mark, style)


def _mark(pair: Pair[Transition] | Pair[Message]) -> str:
    if pair.same:
        return " "
    if pair.left is None:
        return "+"
    return "-" if pair.right is None else "≠"


def _move(move: Transition | None) -> str:
    if move is None:
        return ""
    why = move.row if move.row == move.reason else f"{move.row}, {move.reason}"
    return f"{move.seq} {why} → {move.dest}"


def _messages(compared: Comparison) -> Iterator[list[Piece]]:
    yield [("", "")]
    yield [("messages", "bold")]
    for pair in compared.messages:
        if pair.same and pair.left is not None:
            yield [(f"  {one_line(spoken(pair.left), WIDTH - 2)}", "")]
            continue
        for message, mark, style in ((pair.left, "-", PARTED[0]), (pair.right, "+", PARTED[1])):
            for line in [] if message is None else _wrapped(message):
                yield [(f"{mark} {line}", style)]


def _wrapped(message: Message) -> list[str]:
    lines = [part for line in clean(spoken(message)).splitlines() for part in wrap(line, WIDTH - 2) or [""]]
    return (
        lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], f"… {len(lines) - MOST_LINES + 1} lines more"]
    )


def _as_json(first: Replay, second: Replay, compared: Comparison) -> dict[str, JsonValue]:
    return {
        "runs": [first.run.run_id, second.run.run_id],
        "same": compared.same,
        "figures": [dict(asdict(each)) for each in compared.figures],
        "path": [_pair_as_json(pair, move_as_json) for pair in compared.path],
        "messages": [_pair_as_json(pair, message_as_json) for pair in compared.messages],
    }


def _pair_as_json(pair: Pair[T], told: Callable[[T], JsonValue]) -> JsonValue:
    left, right = (None if each is None else told(each) for each in (pair.left, pair.right))
    return {"same": pair.same, "left": left, "right": right}
