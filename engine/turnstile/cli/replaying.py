"""`turnstile replay`: a stored or exported run made again offline, and where it would go another way now."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnstile.agent import Agent
from turnstile.cli.faults import DONE, FAILED, Misuse
from turnstile.cli.finding import find
from turnstile.cli.screen import Screen, json_text, one_line
from turnstile.cli.showing import message_as_json, move_as_json
from turnstile.cli.storing import foreign, opened, run_of
from turnstile.core.codec import Codec, codec
from turnstile.core.errors import CodecError, NoSuchRun
from turnstile.core.messages import flatten
from turnstile.core.strict_json import JsonValue
from turnstile.ports import ModelRequest, Record, Summary
from turnstile.replay import Replay, read_exports, replay

SIDE = 300  # characters of each side of a difference


def replay_runs(named: str, store: str | None, agent: str | None, *, as_json: bool, requests: bool) -> int:
    """Make a run again, or each of an exported file, and give the exit status: 1 when one would go another way.

    Raises:
        TurnstileError: It cannot be read.
    """
    found = None if agent is None else find(agent).agent
    kept = _exported(named, found) if _is_file(named) else [asyncio.run(_stored(named, store, found))]
    screen, again = Screen(), [replay(records, agent=found, summary=summary) for records, summary in kept]
    for each in again:
        if requests:
            for request in each.requests:
                screen.answer(json_text(request_as_json(request)))
        elif as_json:
            screen.answer(json_text(_as_json(each)))
        else:
            _tell(each, screen)
    return DONE if all(each.divergence is None for each in again) else FAILED


def _is_file(named: str) -> bool:
    try:
        return Path(named).is_file()
    except OSError:  # its name is too long for one, or it is out of the user's reach
        return False


_Kept = tuple[tuple[Record, ...], Summary | None]


def _exported(path: str, agent: Agent[Any] | None) -> list[_Kept]:
    reads = codec if agent is None else Codec.of(agent.machine)
    kept: list[_Kept] = []
    for each in read_exports(path):
        try:
            kept.append((each.records(reads), None))
        except CodecError as error:
            raise foreign(error, each.run_id) from error
    return kept


async def _stored(prefix: str, path: str | None, agent: Agent[Any] | None) -> _Kept:
    try:
        async with opened(path, agent.machine if agent else None) as store:
            run_id = await run_of(store, prefix)
            entry = await store.entry(run_id)
            try:
                records = await store.load(run_id)
                # A run that goes on meanwhile has more records by now than its summary tells of.
                return (records[: entry.records], entry.summary) if entry else (records, None)
            except CodecError as error:
                raise foreign(error, run_id) from error
    except (Misuse, NoSuchRun) as error:
        if "/" in prefix or prefix.endswith(".jsonl"):
            raise Misuse(f"no file {prefix!r} to replay") from error
        raise


def _tell(again: Replay, screen: Screen) -> None:
    run, count = again.run, len(again.transitions)
    sent = f"{len(again.requests)} {'request' if len(again.requests) == 1 else 'requests'} made again"
    if run.start.settings is None:
        sent = "its requests are not on record"  # it is older than their digests
    line = f"run {run.run_id}: {count} {'transition' if count == 1 else 'transitions'}, {sent}"
    different = again.divergence
    if different is None:
        screen.answer(f"{line}, no divergence")
    else:
        screen.answer(f"{line}, then it diverges at record {different.seq}: another {different.what}")
        screen.answer(_sides(different.recorded, different.now))
    for change in again.changes:
        screen.answer(f"{change.what} of the agent changed since")
        screen.answer(_sides(change.recorded, change.now))


def _sides(recorded: str, now: str) -> str:
    return f"  recorded  {one_line(recorded, SIDE) or 'nothing'}\n  now       {one_line(now, SIDE) or 'nothing'}"


def _as_json(again: Replay) -> dict[str, JsonValue]:
    return {
        "run_id": again.run.run_id,
        "state": again.run.state,
        "transitions": [move_as_json(move) for move in again.transitions],
        "requests": [*again.digests],
        "divergence": dict(asdict(again.divergence)) if again.divergence else None,
        "changes": [dict(asdict(change)) for change in again.changes],
    }


def request_as_json(request: ModelRequest) -> dict[str, JsonValue]:
    """A request for a program, in no provider's words."""
    return {
        "instructions": request.instructions,
        "messages": [message_as_json(message) for message in flatten(list(request.items))],
        "tools": [
            {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
            for spec in request.tools
        ],
        "tools_on": request.tools_on,
        "max_output": request.max_output,
        "settings": dict(request.settings),
        "output_schema": None if request.output_schema is None else dict(request.output_schema),
    }
