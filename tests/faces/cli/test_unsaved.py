"""A store that fails in the middle of a run: what was paid for is shown, said to be unsaved, and the run is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.cli.unsaved import WatchedStore
from turnstile.stores import MemoryStore
from turnstile.testing import check_store

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Here, Open

FILLING = """
import atexit
import resource

import demo
from turnstile.agent import Agent
from turnstile.core.errors import StoreFull
from turnstile.core.events import CallFinished, EffectBegun, ModelReplied, ToolsFinished
from turnstile.core.messages import Reply
from turnstile.stores import MemoryStore
from turnstile.testing import ScriptedModel, call


class Filling(MemoryStore):
    def __init__(self, event, times=0):
        super().__init__()
        self.event, self.times = event, times

    async def append(self, lease, records, summary, letters=()):
        if any(isinstance(record.event, self.event) for record in records):
            if not self.times:
                raise StoreFull("disk", f"run {lease.run_id!r} cannot be kept: it is full")
            self.times -= 1
        await super().append(lease, records, summary, letters)


def filling(*options):
    return Agent(ScriptedModel(demo.talk), tools=[demo.get_weather, demo.explode], store=Filling(*options))


begun, calls = filling(EffectBegun), filling(ModelReplied)
results, answer = filling((CallFinished, ToolsFinished)), filling(ModelReplied, 1)


def fill(request):
    "The disk has no more room from now on, until the process ends and what watches it writes its own files."
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    atexit.register(resource.setrlimit, resource.RLIMIT_FSIZE, before)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    return Reply("Paid for.")


real = Agent(ScriptedModel(fill))
"""


@pytest.fixture(autouse=True)
def _filling(folder: Path) -> None:
    (folder / "filling.py").write_text(FILLING)


@pytest.mark.parametrize(
    ("agent", "shows"),
    [
        ("begun", []),
        ("calls", ["unsaved, what the model said:", "Let me look.", "unsaved, not run: get_weather ×2, explode"]),
        (
            "results",
            [
                "unsaved, what the tools did:",
                "  get_weather ok: sunny in Oslo",
                "  get_weather ok: sunny in Rome",
                "  explode error: ValueError: no luck",
            ],
        ),
        ("answer", ["unsaved, what the model said:", "Answer 1: sunny."]),
    ],
)
def test_what_could_not_be_kept_is_shown(here: Here, agent: str, shows: list[str]) -> None:
    """A reply has been paid for and tools have changed the world, so neither may vanish with the disk's last byte."""
    result = here("run", f"filling:{agent}", "hi", "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    *shown, last = [line for line in result.stderr.splitlines() if line != "printed by a tool"]
    assert sorted(shown) == sorted(shows)  # results come in the order in which the tools end
    assert last.startswith("turnstile: store 'disk': run '")


def test_a_disk_that_fills_up_under_a_run(cli: Cli) -> None:
    """The real store on a file that cannot grow: the words, the run, and what to do."""
    result = cli("run", "filling:real", "hi", "--quiet", "--store", "runs.db")
    assert (result.returncode, result.stdout) == (2, "")
    *shown, last = result.stderr.splitlines()
    assert shown == ["unsaved, what the model said:", "Paid for."]
    assert "runs.db': run '" in last
    assert "then resume the run, of which all that was acknowledged is kept" in last


def test_what_was_seen_while_it_was_written_is_not_shown_again(terminal: Open) -> None:
    """Text that stands above already needs a word about it, not a second copy."""
    opened = terminal("chat", "filling:answer")
    opened.wait_for("you> ")
    opened.type("hi\n")
    opened.wait_for(r"Answer 1: sunny\.\s+unsaved, the reply above\s+turnstile: store 'disk': run")
    assert opened.finish() == 2


def test_a_watched_store_keeps_every_promise_of_the_one_it_watches() -> None:
    """A command that reads, resumes or deletes goes through it as well, and must notice no difference."""
    store = MemoryStore()
    check_store(WatchedStore(store))
    assert repr(WatchedStore(store)) == repr(store)
