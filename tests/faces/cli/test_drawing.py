"""`turnstile diagram`: of a machine or of a stored run, in four formats, to a file or to standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open

STARTS = {"mermaid": b"flowchart", "dot": b"digraph", "svg": b"<svg", "png": b"\x89PNG"}


@pytest.mark.parametrize("written_as", STARTS)
def test_a_machine_is_drawn_on_standard_output(here: Here, written_as: str) -> None:
    """Another program can take the picture from a pipe, in each format."""
    result = here("diagram", "--format", written_as)
    assert result.exit_code == 0
    assert result.stdout_bytes.startswith(STARTS[written_as])


@pytest.mark.parametrize(
    ("output", "options", "start"),
    [
        ("machine.svg", [], "svg"),
        ("machine.png", [], "png"),
        ("machine.dot", [], "dot"),
        ("machine.mmd", [], "mermaid"),
        ("machine.txt", ["--format", "dot"], "dot"),
    ],
)
def test_a_files_name_says_the_format_unless_told(
    here: Here, folder: Path, output: str, options: list[str], start: str
) -> None:
    """Who writes `-o machine.svg` has said what it should be; --format is for names that don't."""
    assert here("diagram", "demo:agent", "-o", output, *options).exit_code == 0
    assert (folder / output).read_bytes().startswith(STARTS[start])


def test_without_options_it_is_mermaid_text(here: Here) -> None:
    """The shortest command gives what a README or an issue can hold."""
    result = here("diagram")
    assert result.stdout.startswith("flowchart")
    assert "await_model" in result.stdout


def test_a_stored_run_is_drawn_with_its_times_and_reasons(here: Here, folder: Path) -> None:
    """The journal alone must be enough to see which way a run went, long after its process ended."""
    run_id = json.loads(here("run", "demo:agent", "hi", "--store", "runs.db", "--json").stdout)["run_id"]
    result = here("diagram", "demo:agent", "--run", run_id, "--store", "runs.db", "--format", "mermaid")
    assert result.exit_code == 0
    assert "1: run_tools" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "machine.jpeg"], "'machine.jpeg' does not say what to write; let it end in .mmd"),
        (["-o", "no/such/machine.svg"], "no folder 'no/such' for 'no/such/machine.svg'"),
        (["-o", ".", "--format", "dot"], "'.' cannot be written: Is a directory"),
        (["--store", "runs.db"], "--store names where a run is kept; add --run ID"),
        (["--run", "abc"], "to look for runs in; give --store the file that they were run with"),
        (["--run", "abc", "--store", "none.db"], "no store 'none.db' to look for runs in"),
        (["--run", "abc", "--store", "demo.py"], "demo.py"),
        (["--run", "abc", "--store", "runs.db"], "'abc'"),
        (["nobody"], "no agent 'nobody'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_the_way_out(here: Here, arguments: list[str], says: str) -> None:
    """Each slip has its own way out, and none may leave a half-written file or a new, empty store."""
    assert here("run", "demo:agent", "hi", "--store", "runs.db").exit_code == 0
    result = here("diagram", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_of_an_extended_machine_is_drawn_with_its_agent(here: Here) -> None:
    """An extension's states and events stand in the journal, too, and its agent knows how to read them."""
    told = here("run", "extended:agent", "hi", "--store", "runs.db", "--json").stdout
    result = here("diagram", "extended:agent", "--run", json.loads(told)["run_id"], "--store", "runs.db")
    assert result.exit_code == 0
    assert "2: reviewed" in result.stdout


@pytest.mark.parametrize(
    ("agent", "says"), [("extended:agent", "reviewed"), ("extended:doubting", "name its agent, too")]
)
def test_a_run_of_another_machine_names_what_is_missing(here: Here, agent: str, says: str) -> None:
    """Drawn with the built-in table, such a run would come out wrong, so it is refused."""
    run_id = json.loads(here("run", agent, "hi", "--store", "runs.db", "--json").stdout)["run_id"]
    result = here("diagram", "--run", run_id, "--store", "runs.db")
    assert result.exit_code == 2
    assert says in result.stderr


def test_svg_without_the_extra_says_what_to_install(folder: Path, environment: dict[str, str]) -> None:
    """The picture formats are an extra; whoever lacks it must be told its name, before anything is done."""
    hide = "import sys; sys.modules['mmdr'] = None; from turnstile.cli import main; main()"
    command = [sys.executable, "-c", hide, "diagram", "--format", "svg"]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'turnstile-agent[diagrams]'" in result.stderr


def test_a_png_is_not_poured_over_a_terminal(terminal: Open) -> None:
    """Bytes of a picture would set a terminal to anything, so a file is asked for."""
    opened = terminal("diagram", "--format", "png")
    opened.wait_for("a PNG is no text for a terminal; add -o FILE")
    assert opened.finish() == 2
