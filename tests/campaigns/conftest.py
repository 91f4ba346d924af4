"""Gives each campaign its tally, and prints the table of all that ran."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tally import Tally, table

_tallies: list[Tally] = []


@pytest.fixture
def tally() -> Callable[[str], Tally]:
    """Begins the tally of a campaign, given its number and name; it stands in the table at the end."""

    def begin(campaign: str) -> Tally:
        _tallies.append(Tally(campaign))
        return _tallies[-1]

    return begin


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder for thousands of small files: in memory, where the system has such a place."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own within it, as tempfile makes it
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared, prefix="turnstile-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Write down nothing of what dead processes and cancelled runs have to say, which takes longer than they do."""
    caplog.set_level(logging.CRITICAL, "turnstile")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each campaign came to."""
    if _tallies:
        terminalreporter.section("campaigns")
        for line in table(_tallies):
            terminalreporter.write_line(line)
