"""The key under which a tool does one thing once, however often a call of it is begun."""

from __future__ import annotations

import hashlib

KEY_LENGTH = 32  # hexadecimal digits: 128 bits, as many as a UUID has, and as short


def idempotency_key(run_id: str, call_id: str) -> str:
    """The same whenever this call is begun, another for every other call."""
    named = f"{len(run_id)}:{run_id}{call_id}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_LENGTH]
