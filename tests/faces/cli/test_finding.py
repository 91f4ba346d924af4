"""Finding an agent: each way to name it wrongly ends in one line, the way out, and exit status 2."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here

HEAD = "from turnstile.agent import Agent\n"
MODULES = {
    "broken.py": HEAD + "\nagent = Agent(\n",
    "raising.py": "print('on import')\nraise ValueError('no\\nluck')\n",
    "leaving.py": "raise SystemExit\n",
    "escaping.py": "class Gone(BaseException): pass\nraise Gone('away')\n",
    "speechless.py": "class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute\n",
    "hostile.py": "class Bad:\n    __repr__ = None\n    agent = property(lambda bad: 1 / 0)\nbad = Bad()\n",
    "needy.py": "import not_there_at_all\n",
    "outdated.py": "import json.gone\n",
    "nothing.py": "agent = 3\n",
    "several.py": HEAD + "weather_agent = Agent(); other = Agent(); number = 5\nclass Holder: agent = weather_agent\n",
}


@pytest.fixture
def modules(folder: Path) -> Path:
    """Modules with everything that can be wrong with one."""
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bundeld", "no agent 'bundeld'; did you mean 'bundled'"),
        ("xyzzy", "no agent 'xyzzy'; the installed ones are .*bundled.*named as module:attribute"),
        ("no_such:agent", "no module 'no_such' for 'no_such:agent'.*check the name and the folder"),
        ("several.deeper:agent", "no module 'several.deeper' for 'several.deeper:agent'"),
        ("several.py:other", "'several.py' in .* is not a module's name; write several:other"),
        ("./several.py:other", "write several:other"),
        (":agent", "write module:attribute"),
        ("several:", "module 'several' has no ''; its agents are weather_agent, other"),
        ("several:wether_agent", "module 'several' has no 'wether_agent'; did you mean 'weather_agent'"),
        ("several:number", "'several:number' is no Agent but the int 5; "),
        ("nothing:agent", "is no Agent but the int 3; the module holds no agent: assign one"),
        ("broken:agent", r"'broken:agent' cannot be loaded: SyntaxError: .*\(broken.py, line \d\); mend the module"),
        ("raising:agent", r"ValueError: no luck \(raising.py, line 2\); mend the module"),
        ("leaving:agent", r"SystemExit \(leaving.py, line 1\)"),
        ("escaping:agent", r"'escaping:agent' cannot be loaded: Gone: away \(escaping.py, line 2\); mend the module"),
        ("speechless:agent", r"'speechless:agent' cannot be loaded: Mute \(speechless.py, line 3\); mend the module"),
        ("hostile:bad", "'hostile:bad' is no Agent but the Bad; the module holds no agent"),
        ("hostile:bad.agent", r"cannot be read: ZeroDivisionError: division by zero \(hostile.py, line 3\); mend the"),
        ("outdated:agent", r"ModuleNotFoundError: No module named 'json.gone'.* \(outdated.py, line 1\); mend"),
        ("needy:agent", "'needy:agent' needs the module 'not_there_at_all', which is not installed; install it"),
        ("needy", "agent 'needy' needs the module 'not_there_at_all', which is not installed; install it"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line_and_the_way_out(here: Here, modules: Path, name: str, says: str) -> None:
    """Each mistake in naming an agent is common, and each has a different way out that the line must name."""
    result = here("run", name, "hi")
    assert result.exit_code == 2
    assert result.stdout == ""
    line = result.stderr.splitlines()[-1]
    assert re.search(says, line), line
    assert "Traceback" not in result.stderr


def test_ctrl_c_while_an_agents_module_loads_is_no_fault_of_it(here: Here, folder: Path) -> None:
    """Models and data may take long to load; who does not want to wait has found no mistake in the module."""
    (folder / "slow_to_load.py").write_text("raise KeyboardInterrupt\n")
    result = here("run", "slow_to_load:agent", "hi")
    assert (result.exit_code, result.stderr) == (130, "")


def test_what_a_module_prints_on_import_is_no_answer(here: Here, modules: Path) -> None:
    """A script that reads standard output must get the answer alone, whatever the agent's modules say."""
    result = here("run", "raising:agent", "hi")
    assert result.stdout == ""
    assert "on import" in result.stderr


def test_an_agent_within_something_is_reached_by_dots(here: Here, modules: Path) -> None:
    """Agents live in classes and namespaces, too; an entry point may name them so, and so may a user."""
    assert here("tools", "list", "several:Holder.agent").exit_code == 0


def test_the_current_folder_is_importable(folder: Path, environment: dict[str, str]) -> None:
    """The installed command does not start from the current folder as `python -m` does, and users keep agents there."""
    del environment["PYTHONPATH"]
    command = [str(Path(sys.executable).with_name("turnstile")), "run", "demo:agent", "hi"]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "Answer 1: sunny.\n")
