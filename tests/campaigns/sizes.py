"""How large each campaign is: small enough for every change, or as large as a release asks for.

``TURNSTILE_CAMPAIGNS=release`` in the environment (``make campaigns``) picks the large sizes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

SEED = 20_100  # of every draw: a campaign that fails does so again, with the case that it names


@dataclass(frozen=True, slots=True)
class Size:
    """How many cases a campaign has, in CI and for a release."""

    ci: int
    release: int

    @property
    def cases(self) -> int:
        """How many it has in this run of the tests."""
        return self.release if RELEASE else self.ci


# Read at import: a fixture takes Turnstile's own settings out of every test's environment.
RELEASE = os.environ.get("TURNSTILE_CAMPAIGNS") == "release"

KILLS = Size(60, 20_000)
CRASHES = Size(20, 1_000)  # seeds for each row of the table, before and after the commit
POWER_CUTS = Size(5_000, 1_000_000)
DISK_FAILURES = Size(300, 5_000)
RACES = Size(50, 2_000)
PAUSES = Size(5, 200)
CANCELS = Size(1, 1_000)  # for each await and class of tool
