"""Diagrams: what they say of a machine and of a run, in each format."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from turnstile import Event, Limits, Machine, Reply, Result, State, ToolCall, ToolResult, Usage, before, loop, row
from turnstile.core.approval import with_approval
from turnstile.core.errors import ConfigurationError
from turnstile.core.events import (
    Cancelled,
    ModelFailed,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.states import append_results, await_model
from turnstile.core.step import Transition, begin, step
from turnstile.diagram import Diagram, diagram
from turnstile.diagram.picture import Arrow, Node

FOLDER = Path(__file__).parents[2] / "diagrams"
SCRIPT = runpy.run_path(str(FOLDER / "generate.py"))

CALLS = ModelReplied(
    Reply("", (ToolCall("c", "add", "{}"),), "tool_calls", usage=Usage(900, 100)), (Verdict("c", "d", repeats=None),)
)
RESULTS = ToolsFinished((ToolResult("c", "add", "3"),))
ROUND = ((CALLS, 1200.0), (RESULTS, 250.0), (ResultsAppended(), 0.0))
ANSWER = (ModelReplied(Reply("It is 3.", usage=Usage(1500, 50))), 2400.0)


def play(*events: tuple[Event, float], machine: Machine = loop, limits: Limits | None = None) -> list[Transition]:
    """The transitions of a run that these events move, each with the time that it took."""
    return played(*events, machine=machine, limits=limits)[1]


def played(
    *events: tuple[Event, float], machine: Machine = loop, limits: Limits | None = None
) -> tuple[RunState, list[Transition]]:
    """The same run, with its last state."""
    run = begin_run(RunStarted("r1", "1 + 2?", limits=limits or Limits(turns=99)))
    moves = []
    for event, duration_ms in events:
        taken = step(machine, begin(run), event, duration_ms=duration_ms)
        run = taken.run
        moves.append(taken.transition)
    return run, moves


def arrows(drawn: Diagram) -> dict[tuple[str, str], Arrow]:
    """The arrows by what they join."""
    return {(arrow.source, arrow.dest): arrow for arrow in drawn.picture.arrows}


def nodes(drawn: Diagram) -> dict[str, Node]:
    """The states by name."""
    return {node.name: node for node in drawn.picture.nodes}


# A machine


def test_all_rows_between_two_states_are_one_arrow() -> None:
    """Five states with fifty arrows are a black ball; with eleven they are a picture."""
    joined = [(arrow.source, arrow.dest) for arrow in diagram(loop).picture.arrows]

    assert len(joined) == len(set(joined)) == 11


def test_each_row_of_the_table_is_on_the_arrow_of_its_states() -> None:
    """A picture that leaves a row out, or draws one too many, is not a picture of this machine."""
    drawn = arrows(diagram(loop))
    said = {ends: set(re.findall(r"\w+", " ".join(arrow.lines))) for ends, arrow in drawn.items()}
    expected: dict[tuple[str, str], set[str]] = {}
    for line in loop.rows:
        for source in loop.sources(line):
            dest = source if line.dest in ("(stay)", "(again)") else line.dest
            expected.setdefault((source, dest), set()).update([*line.reasons, *line.event_names])

    assert said == expected


def test_reasons_are_told_by_event() -> None:
    """A reader asks what happens when the model fails, not what all reasons are."""
    assert arrows(diagram(loop))["await_model", "await_model"].lines == (
        "MessageInjected: injected",
        "EffectLost: recovered",
        "ModelFailed: wrap_up,",
        "trimmed, retry, repair_call,",
        "next_model",
        "ModelReplied: paused,",
        "injected, nudge,",
        "repair_output",
    )


def test_reasons_that_depend_on_the_event_are_all_told() -> None:
    """Whoever reads max_turns in a log looks for it in the picture, and a row's name stands in no log's reason."""
    told = " ".join(arrows(diagram(loop))["await_model", "failed"].lines)

    assert "ModelReplied: refused, truncated, max_turns, token_limit, cost_limit, tool_call_limit, stuck_loop," in told
    assert "paused_limit" not in told
    assert "cancelled, time_limit [is_stopping]" in " ".join(
        arrows(diagram(loop, guards=True))["execute_tools", "failed"].lines
    )


def test_an_extensions_own_end_is_no_success() -> None:
    """A picture in green and a result that is not ok would contradict each other."""
    shelved = State("shelved", final=True)
    machine = loop.extend(
        states=[shelved],
        rows=[before("answered", row("shelve", await_model, ModelReplied, [needs_approval], shelved, unchanged))],
    )

    assert nodes(diagram(machine))["shelved"].tone == "bad"


def test_events_with_the_same_reasons_share_their_lines() -> None:
    """Saying the same twice makes a label longer and nothing clearer."""
    assert arrows(diagram(loop))["execute_tools", "execute_tools"].lines[:2] == (
        "Cancelled, DeadlinePassed:",
        "stopping",
    )


def test_guards_are_shown_on_request() -> None:
    """Whoever extends the table wants to see what decides between two rows."""
    drawn = arrows(diagram(loop, guards=True))

    assert drawn["await_model", "execute_tools"].lines == ("run_tools [wants_tools]",)
    assert drawn["execute_tools", "append_results"].lines == ("finished",)


def test_final_states_and_the_ways_there_have_their_own_colours() -> None:
    """At a glance: green is an answer, red is a failure."""
    drawn = diagram(loop)

    assert {name: node.tone for name, node in nodes(drawn).items()} == {
        "await_model": "live",
        "execute_tools": "live",
        "append_results": "live",
        "done": "good",
        "failed": "bad",
    }
    assert {dest: arrow.tone for (_, dest), arrow in arrows(drawn).items() if dest in ("done", "failed")} == {
        "done": "good",
        "failed": "bad",
    }


@dataclass(frozen=True)
class Decided(Event):
    """A human decided."""

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


def needs_approval(run: RunState, event: Event) -> bool:
    """Whether a human is asked."""
    return True


def unchanged(run: RunState, event: Event) -> RunState:
    """Change nothing."""
    return run


async def ask(run: RunState) -> Event:
    """Ask a human."""
    return Decided()


def extended(asking: State) -> Machine:
    """A machine with one more state, which asks a human."""
    return loop.extend(
        states=[asking],
        rows=[
            before("run_tools", row("ask", await_model, ModelReplied, [needs_approval], asking, unchanged)),
            row("decided", asking, Decided, [], append_results),
        ],
        performs={"Review": ask},
    )


def test_an_extended_machine_is_drawn_with_what_it_adds() -> None:
    """Diagrams follow an extension unasked: its states, its rows, and the rows of any live state."""
    drawn = diagram(extended(State("await_review", asks="Review")))

    assert nodes(drawn)["await_review"].lines == ("await_review", "Review")
    assert arrows(drawn)["await_model", "await_review"].lines == ("ModelReplied: ask",)
    assert arrows(drawn)["await_review", "append_results"].lines == ("Decided: decided",)
    assert ("await_review", "failed") in arrows(drawn)


def test_the_state_in_which_a_human_decides_is_drawn_where_a_machine_has_it() -> None:
    """Whoever sees it knows that a run may wait; nobody sees it who has no tool that asks."""
    drawn = diagram(with_approval(loop))

    assert nodes(drawn)["await_approval"].lines == ("await_approval", "AskHuman")
    assert arrows(drawn)["execute_tools", "await_approval"].lines == ("ToolsFinished: in_doubt",)
    assert arrows(drawn)["await_approval", "execute_tools"].lines == ("ApprovalDecided: decided",)
    assert "ApprovalDecided: waiting" in arrows(drawn)["await_approval", "await_approval"].lines
    assert "await_approval" not in nodes(diagram(loop))


# A run


def test_a_way_that_was_taken_says_when_why_and_what_it_took() -> None:
    """The picture of a run is its path: the numbers give the order, the sums the cost."""
    drawn = arrows(diagram(play(*ROUND, *ROUND, ANSWER)))

    assert {ends: arrow.lines for ends, arrow in drawn.items() if arrow.taken} == {
        ("await_model", "execute_tools"): ("1, 4: run_tools", "2.4 s, 2,000 tokens"),
        ("execute_tools", "append_results"): ("2, 5: finished", "500 ms"),
        ("append_results", "await_model"): ("3, 6: appended",),
        ("await_model", "done"): ("7: answered", "2.4 s, 1,550 tokens"),
    }


def test_what_was_not_taken_is_pale_and_silent() -> None:
    """The path stands out when nothing else speaks."""
    drawn = diagram(play(ANSWER))
    silent = [arrow for arrow in drawn.picture.arrows if not arrow.taken]

    assert len(silent) == 10
    assert {(arrow.tone, arrow.lines) for arrow in silent} == {("pale", ())}
    assert {name for name, node in nodes(drawn).items() if node.tone == "pale"} == {
        "execute_tools",
        "append_results",
        "failed",
    }


def test_many_moves_are_counted() -> None:
    """A run of thirty rounds must not write thirty numbers on an arrow."""
    drawn = arrows(diagram(play(*ROUND * 30, ANSWER)))

    assert drawn["append_results", "await_model"].lines == ("3, 6, 9 … 90 (×30): appended",)


def test_different_reasons_for_one_way_are_told_apart() -> None:
    """A retry and a change of model lead the same way and mean different things."""
    retry = ModelFailed("rate_limited", status=429, delay=0.5)
    malformed = ModelFailed("generation_failed")

    drawn = arrows(diagram(play((retry, 0.0), (malformed, 0.0), (retry, 0.0), ANSWER)))

    assert drawn["await_model", "await_model"].lines == ("1, 3: retry", "2: repair_call")


@pytest.mark.parametrize(
    ("events", "state", "lines"),
    [
        pytest.param([ANSWER], "done", ("done", "answered"), id="an answer"),
        pytest.param([(Cancelled(), 0.0)], "failed", ("failed", "cancelled"), id="cancelled"),
        pytest.param(
            [(ModelFailed("authentication", status=401), 90.0)],
            "failed",
            ("failed", "infrastructure_error", "authentication 401"),
            id="a failed request",
        ),
        pytest.param([*ROUND[:1]], "execute_tools", ("execute_tools", "not finished"), id="still under way"),
        pytest.param([], "await_model", ("await_model", "not finished"), id="not begun"),
    ],
)
def test_the_last_state_is_marked_with_the_reason(
    events: list[tuple[Event, float]], state: str, lines: tuple[str, ...]
) -> None:
    """Why did it stop is the first question to a run."""
    drawn = nodes(diagram(play(*events)))

    assert [name for name, node in drawn.items() if node.last] == [state]
    assert drawn[state].lines == lines


def test_a_result_is_drawn_with_the_limit_that_it_wrapped_up_for() -> None:
    """A run that answered because its turns were over ends in done, and the picture says what was exhausted."""
    limits = Limits(turns=1, on_exhausted="wrap_up")
    run, moves = played((CALLS, 0.0), (ResultsAppended(), 0.0), ANSWER, limits=limits)
    result = Result(run, tuple(moves), lambda output: output)

    assert nodes(diagram(result))["done"].lines == ("done", "answered", "max_turns")


def test_the_result_of_an_unfinished_run_is_drawn() -> None:
    """A run that is debugged step by step is looked at before it has ended."""
    run, moves = played(*ROUND[:2])

    assert nodes(diagram(Result(run, tuple(moves), str)))["append_results"].last


def test_a_run_of_another_table_is_drawn_with_the_states_that_it_knew() -> None:
    """An old journal stays readable after an extension was taken away."""
    moves = play((CALLS, 0.0), (Decided(), 0.0), machine=extended(State("await_review", asks="Review")))

    drawn = diagram(moves)

    assert "await_review" in nodes(drawn)
    assert arrows(drawn)["await_review", "append_results"].taken


# Formats


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
@pytest.mark.parametrize("suffix", [".mmd", ".dot"])
def test_the_committed_pictures_are_those_of_the_table(name: str, suffix: str, tmp_path: Path) -> None:
    """A picture that was not drawn again after a change of the table would tell a reader something untrue."""
    SCRIPT["PICTURES"][name]().save(tmp_path / f"now{suffix}")
    now = (tmp_path / f"now{suffix}").read_text(encoding="utf-8")

    assert now == (FOLDER / f"{name}{suffix}").read_text(encoding="utf-8"), "run `python diagrams/generate.py`"


def test_all_pictures_are_written_in_all_formats(tmp_path: Path) -> None:
    """The script that keeps the folder up to date must keep working."""
    SCRIPT["write_all"](tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}{suffix}" for name in SCRIPT["PICTURES"] for suffix in (".mmd", ".dot", ".svg", ".png")
    }


ODD = State('say "hi" <b>#1;</b>\\', asks="Review")


def test_mermaid_takes_any_name() -> None:
    """A name that means something in Mermaid would break the whole text, or be taken as markup."""
    text = diagram(extended(ODD)).mermaid

    assert '    state_5("say #34;hi#34; #60;b#62;#35;1;#60;/b#62;#92;<br/>Review"):::live\n' in text


@pytest.mark.parametrize("name", ["end", "Default", "start", "state_0", "等待"])
def test_mermaid_goes_by_number_where_a_name_would_not_do(name: str) -> None:
    """A state called "end" would end the flowchart."""
    text = diagram(extended(State(name, asks="Review"))).mermaid

    assert f'    state_5("{name}<br/>Review"):::live\n' in text
    assert "    await_model -->" in text


def test_dot_takes_any_name() -> None:
    """Quotes and angle brackets mean something in DOT, too."""
    text = diagram(extended(ODD)).dot

    assert r'"say \"hi\" <b>#1;</b>\\" [label=<say &quot;hi&quot; &lt;b&gt;#1;&lt;/b&gt;\<br/>Review>,' in text


def test_dot_shows_what_a_run_took() -> None:
    """Graphviz users see the same run: thick ways, dashed ways, and a border around the end."""
    text = diagram(play(ANSWER)).dot

    assert re.search(r'"done" \[label=<done<br/>answered>, .*penwidth=4\]', text)
    assert re.search(r'"await_model" -> "done" \[label=.*1: answered.*penwidth=3\]', text)
    assert re.search(r'"await_model" -> "failed" \[color="#8c959f", penwidth=1, style=dashed\]', text)


def shown(svg: str) -> str:
    """All text of an SVG."""
    return " ".join(text.strip() for text in ET.fromstring(svg).itertext() if text.strip())  # noqa: S314 - our own


def test_an_svg_shows_all_states_and_what_stands_on_the_arrows() -> None:
    """A renderer that drops labels would give a picture without reasons."""
    text = shown(diagram(play(*ROUND, ANSWER)).svg())

    for part in (
        "await_model",
        "CallModel",
        "execute_tools",
        "append_results",
        "failed",
        "1: run_tools",
        "1.2 s, 1,000 tokens",
    ):
        assert part in text


def test_an_svg_shows_odd_names_as_they_are() -> None:
    """What is escaped in the Mermaid text must come out as it was."""
    assert "#1;</b>\\" in shown(diagram(extended(ODD)).svg())


def test_text_is_drawn_smaller_than_it_was_measured() -> None:
    """Where Helvetica is missing its stand-in is wider, and would run over the edge of its box."""
    svg = diagram(loop).svg()

    assert "font-size:12px" in svg
    assert "font-size:15px" not in svg


def test_a_png_has_the_size_that_was_asked_for() -> None:
    """Twice the pixels make twice the width: the header of a PNG holds it at byte 16."""
    drawn = diagram(play(ANSWER))
    widths = [int.from_bytes(drawn.png(scale)[16:20], "big") for scale in (1, 2)]

    assert drawn.png()[:8] == b"\x89PNG\r\n\x1a\n"
    assert abs(widths[1] - 2 * widths[0]) <= 1


@pytest.mark.parametrize("name", ["picture.gif", "picture"])
def test_a_file_of_another_kind_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    """The ending chooses the format, so an unknown one is a mistake and not a default."""
    with pytest.raises(ConfigurationError, match=r"as \.mmd, \.dot, \.svg or \.png; got '(\.gif|)'"):
        diagram(loop).save(tmp_path / name)


def test_without_the_extra_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import error from inside would not say what to install."""
    monkeypatch.setitem(sys.modules, "mmdr", None)

    with pytest.raises(ConfigurationError, match=re.escape("pip install 'turnstile-agent[diagrams]'")):
        diagram(loop).svg()


def test_text_formats_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mermaid and DOT are text, so that they are there for everyone."""
    monkeypatch.setitem(sys.modules, "mmdr", None)

    assert diagram(loop).mermaid.startswith("flowchart TD")
    assert diagram(loop).dot.startswith("digraph")
