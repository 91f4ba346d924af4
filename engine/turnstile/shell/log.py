"""`JsonLog`: path, cost and reason of each run as JSON, one object a line, written by structlog.

- What was said by user, model and tools is left out unless `content` is set. A server's own error message is written.
- Keys and tokens are replaced in every text that comes from outside; states, rows and guards are named by the program.
- A line cannot be forged: JSON escapes line breaks, and here also what hides or reorders text is escaped (DEL, C1
  controls, bidirectional and zero-width marks; see CVE-2021-42574). A reader of JSON gets the same text.
- A line is one write, so several processes may append to one file; what a full disk takes of one is no line, and said.
- The logger is private: structlog's global configuration belongs to the user.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from io import FileIO, TextIOWrapper
from types import TracebackType
from typing import IO, BinaryIO, Self, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from typing_extensions import Buffer

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import ModelFailed, RunStarted
from turnstile.core.messages import Exchange, Reply, ToolResult
from turnstile.core.redact import redact
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.ports import Notice

Target = str | os.PathLike[str] | IO[str] | IO[bytes]

SECOND_CHANCES = frozenset({"cut_call", "nudge", "repair_output", "wrap_up"})
"""Reasons of moves that mend what went wrong without a failed request or a lost effect, which show by themselves."""

FIELDS: dict[str, object] = {
    "event": "",
    "timestamp": "",
    "level": "",
    "run_id": "",
    "session_id": None,
    "agent": "",
    "seq": 0,
    "source": None,
    "dest": "",
    "trigger": "",
    "row": None,
    "reason": None,
    "refused": (),
    "asks": None,
    "turn": 0,
    "duration_ms": 0.0,
    "usage": None,
    "cost": None,
    "tools": (),
    "error": None,
    "trace_id": None,
    "span_id": None,
}
"""The fields of each line, in the order in which a person looks for them, with what they are where there is nothing."""

DEL = 0x7F  # a number, since looking for a byte as bytes first fails to be one, each time
LEAST_KEY = 8  # a shorter value of such a variable is a placeholder, and replacing it would hit plain words
KEY_VARIABLES = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # how names of variables end that hold one

_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class JsonLog:
    """An observer that writes one JSON object a line: one when a run starts, and one for each transition.

    Args:
        target: A file, which is appended to, and if new is its owner's only; ``"-"`` for standard output; or a stream.
        content: Whether to write what was said, too: prompts, answers, arguments, results and the stop's detail.
        now: The time when a run starts, in seconds since the epoch; a transition brings its own.

    Attributes:
        failure: Why the log ends before its runs do, such as a full disk; ``None`` while nothing is missing in it.

    Raises:
        ConfigurationError: The file cannot be opened, or the stream not written.
    """

    def __init__(self, target: Target, *, content: bool = False, now: Callable[[], float] = time.time) -> None:
        self._content = content
        self._now = now
        self._keys: tuple[str, ...] = ()
        # For what comes back line after line: names, and the ids of runs, of which ten thousand may be live at once.
        self._clean = lru_cache(1024)(self._scrub)
        self._run_id = lru_cache(32_768)(self._scrub)
        self._stream, self._opened = _open(target)
        self._lines = _private_logger(self._stream, self._describe)
        self._listening = True
        self.failure: OSError | None = None

    def observe(self, notice: Notice, run: RunState) -> None:
        """Write a line for a start or a transition; progress is not logged.

        Raises:
            OSError: It could not be written. Nothing more will be, and `failure` keeps saying why.
        """
        if not self._listening:
            return
        if isinstance(notice, Transition):
            event, move = "transition", notice
        elif isinstance(notice, RunStarted):
            self._look_for_keys()
            event, move = "run_started", Transition(0, "", "RunStarted", "", run.state, "", at=self._now())
        else:
            return
        try:
            self._lines.write(event, _level(move, run), move, run)
        except BrokenPipeError:  # whoever read the log has gone; that is no reason to trouble the run
            self._listening = False
        except OSError as error:
            self._listening = False
            self.failure = error
            raise

    def close(self) -> None:
        """Close what was opened here; nothing is written any more."""
        self._listening = False
        if self._opened:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self, _logger: WrappedLogger, level: str, line: EventDict) -> EventDict:
        """Fill in all that a line says; what a move has nothing of stays as `FIELDS` has it."""
        move: Transition = line.pop("move")
        run: RunState = line.pop("run")
        clean, start, usage = self._clean, run.start, move.usage
        line["timestamp"] = _timestamp(move.at)
        line["level"] = level
        line["run_id"] = self._run_id(start.run_id)
        if start.session is not None:
            line["session_id"] = clean(start.session)
        line["agent"] = clean(start.agent)
        line["seq"] = move.seq
        line["source"] = move.source or None
        line["dest"] = move.dest
        line["trigger"] = move.event
        line["row"] = move.row or None
        line["reason"] = clean(move.reason) or None
        if move.refused:
            line["refused"] = [{"row": refusal.row, "guard": refusal.guard} for refusal in move.refused]
        line["asks"] = clean(move.asks) or None
        line["turn"] = move.turn
        if move.duration_ms:
            line["duration_ms"] = round(move.duration_ms, 3)
        if usage:
            line["usage"] = {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
            }
        if move.cost is not None:
            line["cost"] = round(move.cost, 12)
        if results := _decided(move, run):
            line["tools"] = self._tools(results, run)
        if move.error:
            line["error"] = self._error(move.error)
        line["trace_id"], line["span_id"] = _trace()
        if self._content:
            line.update(self._said(move, run))
        return line

    def _tools(self, results: tuple[ToolResult, ...], run: RunState) -> list[dict[str, object]]:
        clean = self._clean
        tools: list[dict[str, object]] = [
            {
                "name": clean(result.name),
                "call_id": clean(result.call_id),
                "status": result.status,
                "duration_ms": round(result.duration_ms, 3),
            }
            for result in results
        ]
        if self._content and (reply := run.last_reply):
            for tool, call, result in zip(tools, reply.calls, results, strict=True):
                tool["arguments"], tool["result"] = self._scrub(call.arguments), self._scrub(result.content)
        return tools

    def _error(self, error: ModelFailed) -> dict[str, object]:
        return {
            "kind": error.kind,
            "status": error.status,
            "message": self._scrub(error.message) or None,
            "request_id": self._clean(error.request_id) or None,
        }

    def _said(self, move: Transition, run: RunState) -> dict[str, str]:
        """What was said, as far as this move brought it."""
        said = {}
        if move.event == "RunStarted":
            said["prompt"] = run.start.prompt
        elif move.event == "MessageInjected" and run.inbox:
            said["prompt"] = run.inbox[-1]
        elif move.event == "ModelReplied" and (reply := _reply_of(move, run)):
            said["text"] = reply.text
        if run.stop and run.stop.detail:
            said["detail"] = run.stop.detail
        return {name: self._scrub(text) for name, text in said.items()}

    def _look_for_keys(self) -> None:
        """Learn the keys in the environment, which a program may have set after the log was made."""
        named = [os.environ.get(name, "") for name in os.environ if name.endswith(KEY_VARIABLES)]
        keys = tuple([value for value in named if len(value) >= LEAST_KEY])
        if keys != self._keys:
            self._keys = keys
            self._clean.cache_clear()
            self._run_id.cache_clear()

    def _scrub(self, text: str) -> str:
        """The text without secrets, as text that UTF-8 can carry."""
        text = redact(text, self._keys)
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Lines(structlog.BoundLoggerBase):
    """structlog's chain of processors under one method of our own."""

    def write(self, event: str, level: str, move: Transition, run: RunState) -> None:
        """Make a line of a move, and write it."""
        self._proxy_to_logger(level, event, move=move, run=run)


def _decided(move: Transition, run: RunState) -> tuple[ToolResult, ...]:
    """Results of the calls whose fate a move decided: they ran, or the run goes on or ends without them."""
    if move.tools:
        return move.tools
    if run.open is not None:
        return run.results if move.calls else ()
    if run.finished and (move.calls or move.source == "execute_tools"):
        last = run.history[-1]
        return last.results if isinstance(last, Exchange) else ()
    return ()


def _reply_of(move: Transition, run: RunState) -> Reply | None:
    """The reply that a move brought; ``None`` for an empty one, which isn't kept."""
    if run.open is not None:
        return run.open.reply
    items = (run.history[index] for index in range(len(run.history) - 1, -1, -1))
    last = next(
        item for item in items if isinstance(item, Exchange) or not item.synthetic
    )  # the question at the latest
    if not isinstance(last, Exchange) or last.reply.usage is not move.usage:
        return None
    return last.reply if tuple(call.name for call in last.reply.calls) == move.calls else None


def _level(move: Transition, run: RunState) -> str:
    if run.stop is not None:
        mended = run.stop.flags or run.stop.exhausted
        return "error" if move.dest == "failed" else "warning" if mended else "info"
    troubled = move.error is not None or move.event == "EffectLost" or move.reason in SECOND_CHANCES
    return "warning" if troubled or [result for result in move.tools if result.status != "ok"] else "info"


def _trace() -> tuple[str | None, str | None]:
    """Ids of OpenTelemetry's current span, as W3C Trace Context writes them, when the user's program has loaded it."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None, None
    context = opentelemetry.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else (None, None)


def _timestamp(at: float) -> str:
    """A time in ISO 8601, always of the same width, so that lines sort as text."""
    second = int(at)
    return f"{_to_the_second(second)}.{int((at - second) * 1_000_000):06d}Z"


@lru_cache(16)
def _to_the_second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _render(_logger: WrappedLogger, _level: str, line: EventDict) -> bytes:
    try:
        data = orjson.dumps(line)
    except TypeError:  # a count beyond 64 bits, which a server may claim
        data = json.dumps(line).encode()
    if data.isascii() and DEL not in data:
        return data
    return _UNSEEN.sub(_escape, data.decode()).encode()


def _escape(found: re.Match[str]) -> str:
    """The character as JSON escapes it, RFC 8259 §7: in UTF-16 units of four hexadecimal digits."""
    return "".join(rf"\u{unit}" for unit in found[0].encode("utf-16-be").hex(" ", 2).split())


def _as_text(_logger: WrappedLogger, _level: str, line: EventDict) -> str:
    return cast("bytes", line).decode()


def _private_logger(stream: IO[str] | IO[bytes], describe: Processor) -> _Lines:
    """A logger that writes to a stream of bytes or of text, whatever structlog is configured to do elsewhere."""
    binary = cast("BinaryIO", getattr(stream, "buffer", stream))
    logger: WrappedLogger
    processors: list[Processor] = [describe, _render]
    try:
        binary.write(b"")
        logger = structlog.BytesLogger(binary)
    except TypeError:  # a stream of text, such as io.StringIO or a notebook's
        logger = structlog.WriteLogger(cast("TextIO", stream))
        processors.append(_as_text)
    except (AttributeError, OSError, ValueError) as error:
        msg = f"the log is a path, '-' or a stream that is open for writing; got {stream!r} ({error})"
        raise ConfigurationError(msg) from error
    lines: _Lines = structlog.wrap_logger(logger, processors, wrapper_class=_Lines, context_class=dict).bind(**FIELDS)
    return lines


class _Whole(FileIO):
    """A file without a buffer that takes all it is given, or raises; a raw one may take a part and say nothing."""

    def write(self, data: Buffer, /) -> int:
        """Write it all, in one go if the system lets it."""
        left = memoryview(data)
        while left:
            left = left[os.write(self.fileno(), left) :]
        return memoryview(data).nbytes


def _open(target: Target) -> tuple[IO[str] | IO[bytes], bool]:
    """The stream to write to, and whether it was opened here: unbuffered, so that a broken pipe keeps nothing back."""
    if target == "-":
        return _standard_output()
    if not isinstance(target, str | os.PathLike):
        return target, False
    try:
        return _Whole(target, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)), True
    except OSError as error:
        msg = (
            f"the log {os.fspath(target)!r} cannot be opened for appending: {error.strerror}; "
            "give a file in a folder that exists and that you may write, or '-' for standard output"
        )
        raise ConfigurationError(msg) from error


def _standard_output() -> tuple[IO[str] | IO[bytes], bool]:
    if sys.stdout is None:
        msg = "the log cannot go to standard output, which is closed; give it a file"
        raise ConfigurationError(msg)
    if not isinstance(sys.stdout, TextIOWrapper):  # a notebook's own, whose file descriptor leads elsewhere
        return sys.stdout, False
    try:
        return _Whole(sys.stdout.fileno(), "ab", closefd=False), True
    except (OSError, ValueError):  # it has no descriptor, or a closed one
        return sys.stdout, False
