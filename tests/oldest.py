"""The oldest releases that the project says it works with, as constraints for pip: one environment is tested with them.

A bound that nobody tries grows wrong in silence: what is written needs a newer release, and who has the older one finds
out. What tests are run with is as old, so that all of it fits together.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)")
_EXTRAS = ("calculator", "diagrams", "prices", "timezones", "test")


def oldest(project: Path = _PROJECT) -> list[str]:
    """A constraint for each requirement of an installation with all extras, and of its tests.

    Raises:
        SystemExit: A requirement has no lower bound.
    """
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras = about["optional-dependencies"]
    wanted = [*about["dependencies"], *(each for extra in _EXTRAS for each in extras[extra])]
    wanted = [requirement for requirement in wanted if not requirement.startswith(about["name"])]
    bounds = [(requirement, _BOUND.match(requirement)) for requirement in wanted]
    unbound = [requirement for requirement, bound in bounds if bound is None]
    if unbound:
        sys.exit(f"each requirement names the oldest release that it works with, as 'name>=1.2'; got {unbound!r}")
    return [f"{bound['name']}=={bound['version']}" for _, bound in bounds if bound is not None]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in oldest()))
