"""The driver: the one loop that performs effects and takes transitions. It sees ports, never adapters."""

from __future__ import annotations

from turnstile.driver.perform import Outside
from turnstile.driver.resuming import Recovery, changed, reopen, retold
from turnstile.driver.run import Run

__all__ = ["Outside", "Recovery", "Run", "changed", "reopen", "retold"]
