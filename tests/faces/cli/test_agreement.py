"""One run seen four ways: stepped on a terminal, in its log, in its result, and in its picture."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from turnstile.core.fold import trace
from turnstile.core.machine import loop
from turnstile.ports import Record
from turnstile.stores import SQLiteStore

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open

KEYS = r"\[q\] cancel"


def test_step_log_result_and_picture_tell_the_same_path(terminal: Open, here: Here, folder: Path) -> None:
    """Each of the four is trusted alone when a run must be explained, so they may not differ in a single move."""
    files = ("--log-json", "run.jsonl", "--diagram", "run.mmd", "--store", "runs.db", "--json")
    opened = terminal("run", "demo:agent", "hi", "--step", *files)
    for _ in range(4):
        opened.wait_for(KEYS)
        opened.type(" ")
    assert opened.finish() == 0

    stepped = re.findall(
        r"^(\d+) (\w+) --(\w+)--> (\w+)\r$", re.sub(r"\x1b\[\?*[0-9;]*[A-Za-z]|\r(?!\n)", "", opened.raw), re.MULTILINE
    )
    assert len(stepped) == 4

    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "transition"]
    assert [(str(line["seq"]), line["source"], line["trigger"], line["dest"]) for line in logged] == stepped

    result = json.loads(re.findall(r"^\{.*\}", opened.raw, re.MULTILINE)[0])
    assert result["path"] == [stepped[0][1], *(dest for _, _, _, dest in stepped)]
    assert {line["run_id"] for line in lines} == {result["run_id"]}

    agent = importlib.import_module("demo").agent  # the same agent again, in this process
    transitions = agent.run_sync("hi").transitions
    assert [str(move) for move in transitions] == [f"{n} {a} --{event}--> {b}" for n, a, event, b in stepped]
    assert [(move.row, move.reason) for move in transitions] == [(line["row"], line["reason"]) for line in logged]

    store = SQLiteStore(folder / "runs.db")
    records = asyncio.run(_load(store, result["run_id"]))
    assert [str(move) for move in trace(loop, [record.event for record in records])] == [str(m) for m in transitions]

    drawn = re.findall(r'^ +(\w+) -->\|"(.*)"\| (\w+)$', (folder / "run.mmd").read_text(), re.MULTILINE)
    numbered = sorted(
        (number, source, reason, dest)
        for source, label, dest in drawn
        for number, reason in re.findall(r"(\d+): (\w+)", label)
    )
    assert numbered == [(str(line["seq"]), line["source"], line["reason"], line["dest"]) for line in logged]

    again = here("diagram", "--run", result["run_id"], "--store", "runs.db")
    assert again.stdout == (folder / "run.mmd").read_text()


async def _load(store: SQLiteStore, run_id: str) -> tuple[Record, ...]:
    try:
        return await store.load(run_id)
    finally:
        await store.aclose()
