"""`turnstile run --step`: one transition a key press, with what is about to happen and what happened."""

from __future__ import annotations

from typing import Any

from turnstile.cli.interrupts import Interrupts
from turnstile.cli.keys import END, Keys
from turnstile.cli.progress import Progress
from turnstile.cli.screen import Screen
from turnstile.cli.wording import spent, taken, upcoming, why_not
from turnstile.core.step import Transition
from turnstile.driver import Run

HELP = "    [Enter] one transition  [w] why not another  [c] run on  [q] cancel"


async def by_key(live: Run[Any], keys: Keys, screen: Screen, progress: Progress) -> bool:
    """Drive a run by key presses; tells whether Ctrl-C ended it."""

    def ask() -> None:
        live.cancel("interrupted from the keyboard")
        screen.warn("cancelling (Ctrl-C again leaves at once)")
        keys.end()

    def restore() -> None:
        progress.pause()
        keys.restore()

    last: Transition | None = None
    stops = True
    with keys, Interrupts(ask, restore) as interrupts:
        while not live.finished:
            progress.pause()
            screen.warn(f"{live.state} ({spent(live.snapshot)})\n{upcoming(live.effect, live.snapshot)}")
            stops = stops and not interrupts.happened and await _goes_on(live, keys, screen, last)
            progress.resume(live.snapshot)
            last = await live.step()
            progress.pause()
            screen.warn(taken(last))
    return interrupts.happened


async def _goes_on(live: Run[Any], keys: Keys, screen: Screen, last: Transition | None) -> bool:
    """Wait for the key that lets the next transition happen; tells whether to wait again after it."""
    screen.warn(HELP)
    while True:
        key = await keys.press()
        if key in {"\n", "\r", " "}:
            return True
        if key == "c":
            return False
        if key == "w":
            screen.warn(why_not(last) if last else "    nothing has happened yet")
        if key == "q" or key in END:
            live.cancel("cancelled by the user between two steps")
            return False
