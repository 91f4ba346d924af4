"""`turnstile runs show`: a stored run's path, with times, tokens, cost and what became of each tool call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from turnstile.cli.runs import standing, to_the_second
from turnstile.cli.screen import Screen, json_text, one_line
from turnstile.cli.storing import machine_of, opened, read_run
from turnstile.cli.wording import duration, spent
from turnstile.core.events import ChangesAccepted
from turnstile.core.messages import Message, Reply, UserTurn
from turnstile.core.step import Transition
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import asdict
from turnstile.driver import changed
from turnstile.replay import Receipt, Replay, receipts, summary_of

SHOWN = 76  # characters of a message's first line: with its beginning it fits into 80


def show(run_id: str, store: str | None, agent: str | None, *, as_json: bool, messages: bool) -> None:
    """Write a run's header and path to standard output."""
    replay, holder = asyncio.run(_load(run_id, store, agent))
    screen = Screen()
    if as_json:
        screen.answer(json_text(described(replay, holder)))
        return
    screen.answer("\n".join(_header(replay, holder)))
    if replay.transitions:
        screen.answer("")
        screen.answer("\n".join(_path(replay)))
    if messages:
        screen.answer("")
        for message in replay.run.messages:
            screen.answer(spoken(message))
    if replay.divergence is not None:
        screen.warn(f"note: {replay.divergence}; `turnstile replay {replay.run.run_id}` has more")


async def _load(prefix: str, path: str | None, agent: str | None) -> tuple[Replay, str]:
    machine = machine_of(agent)
    async with opened(path, machine) as store:
        replay = await read_run(store, prefix, machine)
        entry = await store.entry(replay.run.run_id)
        return replay, entry.holder if entry else ""


def _header(replay: Replay, holder: str) -> Iterator[str]:
    run, start, records = replay.run, replay.run.start, replay.records
    yield f"run {run.run_id}  {standing(summary_of(run))}"
    took = max(0.0, records[-1].at - records[0].at)
    yield f"  agent    {one_line(start.agent)}" + (f" ({one_line(start.origin)})" if start.origin else "")
    yield f"  model    {one_line(', then '.join(start.models))}"
    yield f"  began    {to_the_second(records[0].at)}, took {duration(took)}"
    yield f"  spent    {spent(run)}"
    if start.session is not None:
        yield f"  session  {one_line(start.session)}"
    if start.forked_from:
        yield f"  forked   from {one_line(start.forked_from)}"
    for place, (record, before) in enumerate(zip(records[1:], replay.states, strict=False), 2):
        if isinstance(record.event, ChangesAccepted):
            names = ", ".join(name for name, *_ in changed(before.fingerprints, record.event.fingerprints))
            yield f"  changed  {one_line(names, SHOWN - 30)}: accepted, as record {place} says"
    yield f"  prompt   {one_line(start.prompt, SHOWN - 8)}"
    stop = run.stop
    if stop is None:
        waits = ", ".join(call.id for call in run.waiting)
        yield f"  driven   by {one_line(holder)}" if holder else "  driven   by nobody"
        if waits:
            yield f"  waits    for a decision about {waits}"
        return
    if stop.detail:
        yield f"  detail   {one_line(stop.detail, 300)}"
    if stop.exhausted:
        yield f"  limit    {stop.exhausted}, after which it answered with what it had"


def _path(replay: Replay) -> Iterator[str]:
    """A line for each transition, with what became of the calls that it ended below it."""
    began, moves = replay.records[0].at, replay.transitions
    rows = [_row(move, began) for move in moves]
    used = [place for place in range(len(rows[0])) if any(row[place] for row in rows)]
    widths = {place: max(len(row[place]) for row in rows) for place in used}
    found = receipts(replay)
    for move, row in zip(moves, rows, strict=True):
        cells = [
            row[place].ljust(widths[place]) if place in (1, 2) else row[place].rjust(widths[place]) for place in used
        ]
        yield "  ".join(cells).rstrip()
        for receipt in found:
            if receipt.seq == move.seq:
                yield _told(receipt)
    for receipt in found:
        if not receipt.seq:
            yield _told(receipt)


def _row(move: Transition, began: float) -> tuple[str, ...]:
    why = move.row if move.row == move.reason else f"{move.row}: {move.reason}"
    return (
        str(move.seq),
        f"{move.source} → {move.dest}",
        why,
        duration(move.at - began) if move.at >= began else "shared",  # a fork has what came before it from another run
        duration(move.duration_ms / 1000) if move.duration_ms else "",
        f"{move.usage.total_tokens:,} tok" if move.usage else "",
        f"${move.cost:.4f}" if move.cost else "",
    )


def _told(receipt: Receipt) -> str:
    """What became of a call, in one line."""
    result = receipt.result
    line = f"     {one_line(receipt.call.name, 32)} {one_line(receipt.call.id, 32)}: {receipt.outcome}"
    if receipt.outcome == "finished" and result is not None:
        line += f", {result.status} in {duration(result.duration_ms / 1000)}"
    return line + (f" (begun {receipt.begun} times)" if receipt.begun > 1 else "")


def spoken(message: Message) -> str:
    """A message for people, whole: who says it, and what."""
    if isinstance(message, UserTurn):
        lines = ["engine:" if message.synthetic else "user:", message.text]
        lines += [f"[{file.media_type} {file.name or file.url}]" for file in message.attachments]
    elif isinstance(message, Reply):
        lines = ["model:", message.text, *(f"calls {call.name} {call.arguments}" for call in message.calls)]
    else:
        lines = [f"{message.name} {message.status}:", message.content]
    return " ".join(lines[:2]) + "".join(f"\n  {line}" for line in lines[2:])


def described(replay: Replay, holder: str = "") -> dict[str, JsonValue]:
    """A run for a program: what it was begun with, how it stands, its path, its calls and what was said."""
    run, start = replay.run, replay.run.start
    summary: dict[str, JsonValue] = asdict(summary_of(run))
    return {
        "run_id": run.run_id,
        "agent": start.agent,
        "models": [*start.models],
        "session": start.session,
        "forked_from": start.forked_from or None,
        "holder": holder,
        "prompt": start.prompt,
        "started": replay.records[0].at,
        "at": replay.records[-1].at,
        "records": len(replay.records),
        **summary,
        "detail": run.stop.detail if run.stop else "",
        "output": run.output,
        "path": [move_as_json(move) for move in replay.transitions],
        "calls": [_receipt_as_json(receipt) for receipt in receipts(replay)],
        "messages": [message_as_json(message) for message in run.messages],
    }


def move_as_json(move: Transition) -> JsonValue:
    """A transition for a program."""
    return {
        "seq": move.seq,
        "source": move.source,
        "event": move.event,
        "row": move.row,
        "dest": move.dest,
        "reason": str(move.reason),
        "at": move.at,
        "duration_ms": move.duration_ms,
        "tokens": move.usage.total_tokens if move.usage else None,
        "cost": move.cost,
    }


def _receipt_as_json(receipt: Receipt) -> JsonValue:
    return {
        "call_id": receipt.call.id,
        "name": receipt.call.name,
        "arguments": receipt.call.arguments,
        "turn": receipt.turn,
        "seq": receipt.seq or None,
        "outcome": receipt.outcome,
        "begun": receipt.begun,
    }


def message_as_json(message: Message) -> JsonValue:
    """A message for a program."""
    if isinstance(message, UserTurn):
        return {"role": "user", "text": message.text, "synthetic": message.synthetic}
    if isinstance(message, Reply):
        calls: Sequence[JsonValue] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls
        ]
        return {"role": "model", "text": message.text, "calls": [*calls]}
    return {
        "role": "tool",
        "call_id": message.call_id,
        "name": message.name,
        "status": message.status,
        "text": message.content,
    }
