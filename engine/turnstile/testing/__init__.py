"""What tests of an agent stand on: a scripted model, a clock that stands still, a server that misbehaves on order."""

from __future__ import annotations

from turnstile.testing.check_store import check_store
from turnstile.testing.clock import FrozenClock
from turnstile.testing.paths import assert_path
from turnstile.testing.scripted import ScriptedModel, call
from turnstile.testing.wire import WireRequest, WireServer

__all__ = ["FrozenClock", "ScriptedModel", "WireRequest", "WireServer", "assert_path", "call", "check_store"]
