"""The log: what stands in a line, what never does, and where lines go."""

from __future__ import annotations

import io
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import (
    Cancelled,
    EffectLost,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.limits import Limits, Price
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall, ToolResult, Usage
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import begin, step
from turnstile.log import JsonLog
from turnstile.ports import Notice, ToolStarted

DOCUMENTED = """
event timestamp level run_id session_id agent seq source dest trigger row reason refused asks turn duration_ms usage
cost tools error trace_id span_id
"""
FIELDS = DOCUMENTED.split()
START = RunStarted("r1", "Is it warm?", agent="assistant", session="s1", prices=(Price(1.0, 2.0),))
CALL = ToolCall("c1", "get_weather", '{"city": "Beijing"}')
CALLS = ModelReplied(Reply("Looking.", (CALL,), "tool_calls", usage=Usage(100, 20)), (Verdict("c1", "d1"),))
RESULT = ToolsFinished((ToolResult("c1", "get_weather", "23 degrees", duration_ms=12.3456),))
ANSWER = ModelReplied(Reply("It is 23 degrees.", usage=Usage(150, 30)))
TURN = (CALLS, RESULT, ResultsAppended(), ANSWER)

Line = dict[str, object]


def play(*events: Event, start: RunStarted = START, began: bool = True) -> list[tuple[Notice, RunState]]:
    """What an observer hears of a run that these events move."""
    run = begin_run(start)
    heard: list[tuple[Notice, RunState]] = [(start, run)]
    for event in events:
        taken = step(loop, begin(run) if began else run, event, at=1_700_000_000.25, duration_ms=3.00049)
        run = taken.run
        heard.append((taken.transition, run))
    return heard


def write(heard: list[tuple[Notice, RunState]], *, content: bool = False) -> bytes:
    """The log of what was heard."""
    stream = io.BytesIO()
    log = JsonLog(stream, content=content, now=lambda: 1_700_000_000.0)
    for notice, run in heard:
        log.observe(notice, run)
    return stream.getvalue()


def lines(*events: Event, content: bool = False, start: RunStarted = START, began: bool = True) -> list[Line]:
    """The lines of a run, the one that tells of its start included."""
    return [orjson.loads(line) for line in write(play(*events, start=start, began=began), content=content).splitlines()]


def test_each_line_has_the_same_fields_in_the_same_order() -> None:
    """Readers of a log rely on its fields, and people on seeing the event first."""
    assert [list(line) for line in lines(*TURN)] == [FIELDS] * 5


def test_the_log_alone_tells_path_cost_and_reason() -> None:
    """This is what the log is for: nothing else is at hand when a run is looked into afterwards."""
    start, *moves = lines(*TURN)

    assert start["event"] == "run_started"
    assert (start["seq"], start["source"], start["dest"]) == (0, None, "await_model")
    assert [move["dest"] for move in moves] == ["execute_tools", "append_results", "await_model", "done"]
    assert [move["source"] for move in moves] == [line["dest"] for line in (start, *moves[:-1])]
    assert [move["row"] for move in moves] == ["run_tools", "finished", "appended", "answered"]
    assert sum(move["cost"] or 0 for move in moves) == pytest.approx(0.00035)  # type: ignore[misc]
    assert moves[-1]["reason"] == "answered"


def test_a_transition_is_told_in_full() -> None:
    """One line is compared whole, so that no field changes its form unnoticed."""
    line = lines(*TURN)[1]

    assert {name: line[name] for name in FIELDS if name != "refused"} == {
        "event": "transition",
        "timestamp": "2023-11-14T22:13:20.250000Z",
        "level": "info",
        "run_id": "r1",
        "session_id": "s1",
        "agent": "assistant",
        "seq": 1,
        "source": "await_model",
        "dest": "execute_tools",
        "trigger": "ModelReplied",
        "row": "run_tools",
        "reason": "run_tools",
        "asks": "RunTools (get_weather)",
        "turn": 1,
        "duration_ms": 3.0,
        "usage": {"input_tokens": 100, "output_tokens": 20, "cached_tokens": None, "reasoning_tokens": None},
        "cost": 0.00014,
        "tools": [],
        "error": None,
        "trace_id": None,
        "span_id": None,
    }
    assert {"row": "limit", "guard": "limit_hit"} in line["refused"]  # type: ignore[operator]


def test_a_call_is_told_once_it_is_decided() -> None:
    """The line of the results says how each call ended and how long it took."""
    assert [line["tools"] for line in lines(*TURN)] == [
        [],
        [],
        [{"name": "get_weather", "call_id": "c1", "status": "ok", "duration_ms": 12.346}],
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("events", "limits", "began"),
    [
        pytest.param((CALLS,), Limits(turns=1), True, id="a limit forbids it"),
        pytest.param((CALLS,), Limits(turns=1, on_exhausted="wrap_up"), True, id="the run wraps up"),
        pytest.param((CALLS, Cancelled()), Limits(), False, id="the run is cancelled before it starts"),
    ],
)
def test_a_call_that_never_ran_is_told_too(events: tuple[Event, ...], limits: Limits, began: bool) -> None:  # noqa: FBT001
    """A call that a limit or a cancellation took away would otherwise be missing from the log."""
    last = lines(*events, start=RunStarted("r1", "?", limits=limits), began=began)[-1]

    assert last["tools"] == [{"name": "get_weather", "call_id": "c1", "status": "not_run", "duration_ms": 0.0}]


def test_a_decided_call_is_not_told_again_when_the_run_ends() -> None:
    """Tools would be counted twice if a later failure repeated the results before it."""
    after_results = lines(CALLS, RESULT, ResultsAppended(), ModelFailed("authentication"))
    between = lines(CALLS, RESULT, Cancelled())

    assert after_results[-1]["tools"] == between[-1]["tools"] == []


RETRY = ModelFailed("rate_limited", "slow down", status=429, request_id="req_1", delay=0.5)


@pytest.mark.parametrize(
    ("events", "level"),
    [
        pytest.param(TURN, "info", id="an answer"),
        pytest.param((RETRY,), "warning", id="a retry"),
        pytest.param((EffectLost(),), "warning", id="a recovery"),
        pytest.param((ModelReplied(Reply("")),), "warning", id="a nudge"),
        pytest.param(
            (CALLS, ToolsFinished((ToolResult("c1", "get_weather", "?", "error"),))), "warning", id="a tool's error"
        ),
        pytest.param((*TURN[:3], ModelReplied(Reply(""))), "warning", id="an empty answer"),
        pytest.param((ModelFailed("authentication"),), "error", id="a failed request that ends it"),
        pytest.param((Cancelled(),), "error", id="a cancelled run"),
    ],
)
def test_the_level_says_how_bad_it_is(events: tuple[Event, ...], level: str) -> None:
    """Alerts are set on levels: error is a failed run, warning is trouble on the way."""
    assert lines(*events)[-1]["level"] == level


def test_a_failed_request_is_told_with_what_a_provider_asks_for() -> None:
    """A provider's support wants kind, status and request id."""
    assert lines(RETRY)[-1]["error"] == {
        "kind": "rate_limited",
        "status": 429,
        "message": "slow down",
        "request_id": "req_1",
    }


SAID = (MessageInjected("CANARY inbox"), CALLS, RESULT, ResultsAppended(), ANSWER)


def test_nothing_that_was_said_is_written_unless_asked_for() -> None:
    """A log is kept longer and read by more people than a conversation should be."""
    say = Reply("CANARY", (ToolCall("c1", "add", "CANARY"),))
    finished = ToolsFinished((ToolResult("c1", "add", "CANARY"),), aborted="CANARY")
    heard = play(
        MessageInjected("CANARY"),
        ModelReplied(say, (Verdict("c1", "d", problem="CANARY"),)),
        finished,
        start=RunStarted("r1", "CANARY", instructions="CANARY"),
    )

    assert b"CANARY" not in write(heard)
    assert b"CANARY" not in write(play(Cancelled("CANARY")))


def test_with_content_a_line_has_what_was_said() -> None:
    """Whoever debugs an agent wants to read the conversation in the log."""
    start, injected, called, ran, appended, answered = lines(*SAID, content=True)

    assert start["prompt"] == "Is it warm?"
    assert injected["prompt"] == "CANARY inbox"
    assert called["text"] == "Looking."
    assert ran["tools"][0]["arguments"] == '{"city": "Beijing"}'  # type: ignore[index]
    assert ran["tools"][0]["result"] == "23 degrees"  # type: ignore[index]
    assert "text" not in appended
    assert answered["text"] == "It is 23 degrees."


def test_with_content_a_stop_has_its_detail() -> None:
    """Who cancelled, and what a tool said when it ended the run, stands in the detail only."""
    assert lines(Cancelled("tired of it"), content=True)[-1]["detail"] == "tired of it"


def test_with_content_an_empty_reply_is_not_told_in_the_words_of_an_earlier_one() -> None:
    """An empty reply leaves nothing in the history, where the replies before it still stand."""
    first = lines(ModelReplied(Reply("")), content=True)[-1]
    later = lines(*TURN[:3], ModelReplied(Reply("")), content=True)[-1]
    again = lines(ModelReplied(Reply(""), ()), ModelReplied(Reply("Yes.")), content=True)[-1]

    assert "text" not in first
    assert "text" not in later
    assert again["text"] == "Yes."


def test_a_server_that_echoes_a_key_does_not_bring_it_into_the_log() -> None:
    """Logs are copied into tickets; some servers repeat the key that they refuse."""
    message = "Incorrect API key provided: sk-proj-0123456789abcdef"

    assert lines(ModelFailed("authentication", message))[-1]["error"] == {
        "kind": "authentication",
        "status": None,
        "message": "Incorrect API key provided: [redacted]",
        "request_id": None,
    }


def test_keys_in_the_environment_are_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without a known form is known by the variable that holds it, one set after the log was made included."""
    stream = io.BytesIO()
    log = JsonLog(stream)
    heard = play(ModelFailed("authentication", "no such key: plain-words-as-key"))
    log.observe(*heard[0])
    monkeypatch.setenv("SOME_API_KEY", "plain-words-as-key")
    for notice, run in heard:
        log.observe(notice, run)

    assert b"plain-words" not in stream.getvalue()
    assert b"no such key: [redacted]" in stream.getvalue()


def test_a_secret_is_found_wherever_text_from_outside_stands() -> None:
    """A model can write a key as a tool's name, and a user one as the name of a session."""
    secret = "sk-0123456789abcdef"
    call = ToolCall(f"c-{secret}", f"t-{secret}", secret)
    heard = play(
        MessageInjected(secret),
        ModelReplied(Reply(secret, (call,)), (Verdict(call.id, secret),)),
        ToolsFinished((ToolResult(call.id, call.name, secret),), aborted=secret),
        start=RunStarted(secret, secret, agent=secret, session=secret),
    )
    failed = play(ModelFailed("server", secret, request_id=secret, delay=1.0), Cancelled(secret))

    assert secret.encode() not in write(heard, content=True) + write(failed, content=True)


UNSEEN = "\x00\n\r\x1b[2K\x7f\x85\u2028\u2029\u202e\u2066\u200b\ufeff\U000e0041"


def test_data_cannot_forge_or_hide_a_line() -> None:
    """A model that writes line breaks or marks that reorder text must not fool who reads the log on a terminal."""
    raw = write(play(ANSWER, start=RunStarted("r1", f'x"}}{UNSEEN}\n{{"event":"forged"}}')), content=True)
    text = raw.decode()

    assert len(text.splitlines()) == 2
    assert not [mark for mark in UNSEEN if not mark.isprintable() and mark != "\n" and mark in text]
    assert orjson.loads(raw.splitlines()[0])["prompt"] == f'x"}}{UNSEEN}\n{{"event":"forged"}}'


@given(st.text(st.characters()))
def test_any_text_is_one_line_of_json(text: str) -> None:
    """Whatever is said, half a surrogate pair included, a line stays a line that a strict reader takes."""
    raw = write(play(start=RunStarted(text, text)), content=True)

    assert len(raw.decode().splitlines()) == 1
    assert orjson.loads(raw)["event"] == "run_started"


def test_an_absurd_count_is_written() -> None:
    """A server may claim more tokens than 64 bits hold, and the log must not break over it."""
    line = write(play(ModelReplied(Reply("Yes.", usage=Usage(10**30, 1)))))

    assert b'"input_tokens": 1000000000000000000000000000000' in line


def test_only_starts_and_transitions_are_written() -> None:
    """Progress is for who watches; in the log it would bury the path."""
    assert write([(ToolStarted("c1", "add"), begin_run(START))]) == b""


def test_the_same_run_gives_the_same_bytes() -> None:
    """A log can be compared with another only when nothing of its own is in it."""
    assert len({write(play(*TURN)) for _ in range(10)}) == 1


def test_lines_sort_by_time_as_text() -> None:
    """Logs of several processes are merged with sort, so a whole second must be as long as any other time."""
    heard = play(ANSWER, start=START)

    assert [orjson.loads(line)["timestamp"] for line in write(heard).splitlines()] == [
        "2023-11-14T22:13:20.000000Z",
        "2023-11-14T22:13:20.250000Z",
    ]


def test_a_line_names_the_span_that_it_belongs_to() -> None:
    """Whoever traces with OpenTelemetry finds the run by the ids that W3C Trace Context gives it."""
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        line = lines(ANSWER)[-1]

    assert (line["trace_id"], line["span_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")


WITHOUT_TRACING = """
import sys
from turnstile.core.events import RunStarted
from turnstile.core.run_state import begin_run
from turnstile.log import JsonLog

start = RunStarted("r1", "?")
JsonLog("-").observe(start, begin_run(start))
sys.exit("opentelemetry" in sys.modules)
"""


def test_tracing_is_not_loaded_for_the_log() -> None:
    """OpenTelemetry is the user's choice: a program that hasn't loaded it logs no ids and doesn't pay for it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRACING], capture_output=True, check=True)

    assert orjson.loads(done.stdout)["trace_id"] is None


def test_the_users_own_structlog_stays_as_it_is() -> None:
    """A library that configures structlog would change the log of the program that uses it."""
    before = structlog.get_config()
    lines(*TURN)

    assert structlog.get_config() == before
    assert not structlog.is_configured()


def test_a_file_is_appended_to_and_is_its_owners_only(tmp_path: Path) -> None:
    """A second run must not wipe the first one's log, and with content it holds what was said."""
    path = tmp_path / "run.log"
    for _ in range(2):
        with JsonLog(path) as log:
            log.observe(*play()[0])

    assert len(path.read_bytes().splitlines()) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("place", ["missing/run.log", "."])
def test_a_file_that_cannot_be_opened_is_told_with_the_way_out(tmp_path: Path, place: str) -> None:
    """The command line shows this text as it is."""
    path = str(tmp_path / place)

    with pytest.raises(ConfigurationError, match=re.escape(repr(path)) + r".*or '-' for standard output"):
        JsonLog(path)


@pytest.mark.parametrize("make", [lambda: 5, lambda: open(os.devnull, "rb")])  # noqa: PTH123, SIM115
def test_what_cannot_be_written_is_refused_at_once(make: Callable[[], io.BytesIO]) -> None:
    """A log that fails at its first line would be dropped in the middle of a run."""
    target = make()
    try:
        with pytest.raises(ConfigurationError, match="a path, '-' or a stream that is open for writing"):
            JsonLog(target)
    finally:
        getattr(target, "close", lambda: None)()


def test_a_stream_of_text_takes_lines_too() -> None:
    """A notebook, and who tests with io.StringIO, has no stream of bytes."""
    stream = io.StringIO()
    JsonLog(stream).observe(*play()[0])

    assert orjson.loads(stream.getvalue())["event"] == "run_started"


def test_a_stream_of_text_over_bytes_is_written_as_utf_8() -> None:
    """The encoding of a terminal must not decide what a log can hold."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    JsonLog(stream, content=True).observe(*play(start=RunStarted("r1", "天气"))[0])

    assert orjson.loads(raw.getvalue())["prompt"] == "天气"


def test_a_temporary_file_is_a_stream() -> None:
    """What tempfile gives wraps a file and is none by its type."""
    with tempfile.NamedTemporaryFile() as file:
        JsonLog(file).observe(*play()[0])
        file.seek(0)

        assert orjson.loads(file.read())["event"] == "run_started"


def test_a_stream_of_the_users_stays_open() -> None:
    """Who opened a stream closes it."""
    stream = io.BytesIO()
    JsonLog(stream).close()

    assert not stream.closed


@pytest.mark.parametrize("room", [0, 1, 200])
def test_a_disk_that_fills_is_told_once_and_for_all(tmp_path: Path, room: int) -> None:
    """A log that ends too early must say so, also when the disk had room for the beginning of a line."""
    log, heard = JsonLog(tmp_path / "run.log"), play()[0]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            log.observe(*heard)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.observe(*heard)
    log.close()

    assert log.failure is failed.value
    assert (tmp_path / "run.log").stat().st_size == room


def test_after_closing_nothing_is_written(tmp_path: Path) -> None:
    """A run that goes on after its log was closed must not fail for it."""
    path = tmp_path / "run.log"
    log = JsonLog(path)
    log.close()
    log.observe(*play()[0])

    assert path.read_bytes() == b""


def test_standard_output_takes_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """The command line's --log-json - is this."""
    with JsonLog("-") as log:
        log.observe(*play()[0])
    print("the program's own words still go there")  # noqa: T201

    first, second = capfd.readouterr().out.splitlines()
    assert orjson.loads(first)["event"] == "run_started"
    assert second == "the program's own words still go there"


def test_a_replaced_standard_output_takes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A program may put a stream without a file descriptor in its place."""
    JsonLog("-").observe(*play()[0])

    assert orjson.loads(capsys.readouterr().out)["event"] == "run_started"


def test_a_notebooks_standard_output_takes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's stream has no bytes, and its file descriptor, if it has one, leads to the server's terminal."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    JsonLog("-").observe(*play()[0])

    assert orjson.loads(stream.getvalue())["event"] == "run_started"


def test_a_closed_standard_output_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no standard output at all when a shell started it with >&-."""
    monkeypatch.setattr(sys, "stdout", None)

    with pytest.raises(ConfigurationError, match="standard output, which is closed; give it a file"):
        JsonLog("-")


INTO_A_PIPE = """
from turnstile.core.events import RunStarted
from turnstile.core.run_state import begin_run
from turnstile.log import JsonLog

input()
start = RunStarted("r1", "?")
log = JsonLog("-")
for _ in range(3):
    log.observe(start, begin_run(start))
"""


def test_a_reader_that_left_does_not_trouble_the_run() -> None:
    """A log piped into head ends without a traceback, and the run goes on, at its exit too."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", INTO_A_PIPE], **pipes) as program:  # type: ignore[call-overload]
        program.stdout.close()
        program.stdin.write(b"\n")
        program.stdin.close()

        assert program.stderr.read() == b""
        assert program.wait() == 0
