"""Digests of model requests, so that a journal says what was sent without holding it twice.

A request is all that a model client is given: the instructions, tools, settings and output schema that a run starts
with, the items of its history that are carried, and what differs from one request to the next. Who makes the request
again, by folding the journal, gets the same digest, or knows that it would not be the same request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from turnstile.core.effects import CallModel
from turnstile.core.errors import UsageError
from turnstile.core.events import RunStarted
from turnstile.core.history import History
from turnstile.core.messages import Item, UserTurn
from turnstile.core.strict_json import JsonValue

Ranges = tuple[tuple[int, int], ...]
"""Which items of a history: first and end of each stretch, in order."""

DIGITS = 32  # hexadecimal: 128 bits, enough to tell requests apart


class RequestDigests:
    """The digests of a run's requests; each costs as much as what the request has more than the one before.

    Args:
        start: The run's first record.
    """

    __slots__ = ("_begun", "_hash", "_ranges")

    def __init__(self, start: RunStarted) -> None:
        fixed = _line(
            [
                start.instructions,
                [[spec.name, spec.description, dict(spec.parameters)] for spec in start.tools],
                start.settings,
                start.output_schema,
            ]
        )
        self._ranges: Ranges = ()
        self._begun = self._hash = hashlib.sha256(fixed)

    def of(self, effect: CallModel, history: History, ranges: Ranges) -> str:
        """The digest of a request that carries these items of the history."""
        known = self._ranges
        grows = bool(known) and len(known) == len(ranges) and known[:-1] == ranges[:-1]
        if grows and known[-1][0] == ranges[-1][0] and known[-1][1] <= ranges[-1][1]:
            self._add(history, known[-1][1], ranges[-1][1])
        else:
            self._hash = self._begun.copy()
            for first, end in ranges:
                self._add(history, first, end)
        self._ranges = ranges
        whole = self._hash.copy()
        whole.update(f"{effect.model} {effect.tools} {effect.max_output}".encode())
        return whole.hexdigest()[:DIGITS]

    def _add(self, history: History, first: int, end: int) -> None:
        for place in range(first, end):
            self._hash.update(_line(_parts(history[place])))


def ranges_of(history: History, items: Sequence[Item]) -> Ranges:
    """Where the items that a request carries stand in the history.

    Raises:
        UsageError: They are not whole items of the history, in its order.
    """
    if items is history:
        return ((0, len(history)),)
    ranges: list[tuple[int, int]] = []
    place = len(history)
    for item in reversed(items):
        place -= 1
        while place >= 0 and history[place] is not item:
            place -= 1
        if place < 0:
            msg = f"a context policy selects items of the history, in its order; got {item!r:.200}, which is none"
            raise UsageError(msg)
        if ranges and ranges[-1][0] == place + 1:
            ranges[-1] = (place, ranges[-1][1])
        else:
            ranges.append((place, place + 1))
    return tuple(reversed(ranges))


def selected(history: History, ranges: Ranges) -> Sequence[Item]:
    """The items of a history that stand there."""
    if ranges == ((0, len(history)),):
        return history
    return tuple(item for first, end in ranges for item in history[first:end])


def _parts(item: Item) -> JsonValue:
    """All of an item that a request can hold."""
    if isinstance(item, UserTurn):
        files: list[JsonValue] = [[file.media_type, file.data, file.url, file.name] for file in item.attachments]
        return ["user", item.text, item.synthetic, files]
    reply = item.reply
    calls: list[JsonValue] = [[call.id, call.name, call.arguments] for call in reply.calls]
    results: list[JsonValue] = [[result.call_id, result.content, result.status] for result in item.results]
    return ["model", reply.text, reply.reasoning, reply.finish, reply.wire, reply.native, calls, results]


def _line(value: JsonValue) -> bytes:
    import orjson  # loaded when first needed: importing turnstile stays light

    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # what it cannot write, such as lone surrogates and large numbers
        return json.dumps(value).encode() + b"\n"
