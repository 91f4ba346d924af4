"""The README tells the figures of the bench's last whole run, whose results are kept beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not (HERE / "results" / "bench.json").exists(), reason="no whole bench has been kept yet")
def test_the_readme_tells_what_the_last_bench_measured() -> None:
    """A promise of speed that no measurement backs is worth nothing."""
    done = subprocess.run([sys.executable, HERE / "readme.py", "--check"], check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
