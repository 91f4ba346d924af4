"""The README, run from its first block to its last, as somebody who reads it would."""

from __future__ import annotations

import doctest
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from turnstile.testing import WireRequest, WireServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# What sets up needs the network, which tests may not use, and changes the environment that they run in. So these check
# that what the README asks of make, pip and venv is there to be asked for.
STAND_INS = {
    "make": 'grep -Eq "^([a-z-]+ )*$1( [a-z-]+)*:" "{root}/Makefile"',
    "python3": '[ "$*" = "-m venv .venv" ]',
    "pip": 'extra=${{3#".["}}; [ "$1 $2" = "install -e" ] && grep -q "^${{extra%"]"}} = " "{root}/pyproject.toml"',
    "jq": '"{python}" "$0.command" "$@"',
}
JQ = """
import json
import sys

import jq

flags, program, file = sys.argv[1:]
for result in jq.compile(program).input_text(open(file, encoding="utf-8").read(), slurp="s" in flags):
    print(result if "r" in flags else json.dumps(result, ensure_ascii=False, separators=(",", ":")))
"""


class Block(NamedTuple):
    """A fenced block: its language, its text, and the number of the line before its first."""

    language: str
    text: str
    line: int


def blocks() -> Iterator[Block]:
    """All fenced blocks of the README, in order."""
    for found in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", README, re.MULTILINE):
        yield Block(found[1], found[2], README.count("\n", 0, found.start()) + 1)


def same(expected: str, printed: str) -> bool:
    """Whether a block was printed, whatever time things took; "..." stands for any text."""
    expected, printed = (re.sub(r'(?<="ms":)\d+', "0", text) for text in (expected, printed))
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def replied(request: WireRequest) -> Mapping[str, object]:
    """What a model would say to the README's question: a call first, and words once it has the result."""
    messages = json.loads(request.content)["messages"]
    function = {"name": "get_weather", "arguments": '{"city": "Beijing"}'}
    message: dict[str, object] = {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    if messages[-1]["role"] == "tool":
        message = {"content": "Yes, it is 26 °C and sunny in Beijing."}
    return {"body": {"choices": [{"message": message, "finish_reason": "stop"}]}}


class Reader:
    """Somebody who does what the README says, in an empty folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        programs = folder / "programs"
        programs.mkdir()
        for name, line in STAND_INS.items():
            program = programs / name
            program.write_text(f"#!/bin/sh\n{line.format(root=ROOT, python=sys.executable)}\n", encoding="utf-8")
            program.chmod(0o700)
        (programs / "jq.command").write_text(JQ, encoding="utf-8")
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "activate").touch()
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        # The tests are running already, and this is one of them: pytest gets a small one to run.
        one = f'-c "{ROOT}/pyproject.toml" "{__file__}::test_links_lead_somewhere"'
        own = {"PATH": path, "PYTEST_ADDOPTS": one, "TURNSTILE_DB": str(folder / "kept.db")}
        self._environment = {**os.environ, **environment, **own}
        self._folder = folder
        self._names: dict[str, object] = {"__name__": "readme"}

    def runs(self, block: Block) -> str:
        """Run a block, and give what it prints to standard output."""
        if block.language == "sh":
            return self._shell(block)
        if title := re.match(r"# (\w+\.py)\n", block.text):
            (self._folder / title[1]).write_text(block.text, encoding="utf-8")
            return ""
        with redirect_stdout(io.StringIO()) as printed:
            code = compile("\n" * block.line + block.text, "README.md", "exec", dont_inherit=True)
            exec(code, self._names)  # noqa: S102 - our own
        return printed.getvalue()

    def _shell(self, block: Block) -> str:
        done = subprocess.run(
            ["sh", "-eu", "-c", block.text],  # noqa: S607 - a reader's shell, wherever it is
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"README.md, line {block.line}: status {done.returncode}, {done.stderr}"
        return done.stdout


def test_every_block_runs_and_prints_what_stands_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that doesn't run costs each reader more than no example."""
    monkeypatch.syspath_prepend(tmp_path)
    printed = ""
    with WireServer([replied] * 4) as models, WireServer([{"status": 503, "repeat": 99}]) as weather:
        reader = Reader(tmp_path, {"OPENAI_BASE_URL": models.url, "TURNSTILE_OPEN_METEO_URL": weather.url})
        for block in blocks():
            if block.language == "text":
                assert same(block.text, printed), f"README.md, line {block.line}: it printed\n{printed}"
            else:
                printed = reader.runs(block)
    sys.modules.pop("weather")

    assert len(models.requests) == 4
    assert {path.name for path in tmp_path.iterdir()} > {"run.jsonl", "run.svg", "weather.mmd"}


def test_there_is_no_block_of_another_kind() -> None:
    """One in a language that nothing runs would be an example that nothing holds to."""
    assert {block.language for block in blocks()} == {"python", "sh", "text"}


def test_links_lead_somewhere() -> None:
    """A file that was moved leaves its readers with a dead link."""
    links = re.findall(r"\]\((?!https:)([^)]+)\)", README)

    assert "diagrams/machine.svg" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_without_make_the_demo_is_the_same() -> None:
    """The README says that it is, in two places that may drift apart."""
    (command,) = re.findall(r"^turnstile run travel \"I'm in .*$", README, re.MULTILINE)

    assert command in (ROOT / "Makefile").read_text(encoding="utf-8")
