"""What every test stands on: no network beyond this machine, no keys, and in CI the same examples each time.

The guard is an audit hook, so it sees every socket whichever library opens it, and code under test cannot swallow it: a
test that reached out fails although the error was handled. Processes started by a test are not guarded; what they may
reach is given to them as a base URL on loopback.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No deadline: how long an example takes depends on the machine, and no test may.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

_reached: list[str] = []


def _is_local(host: str) -> bool:
    """Tell whether a host is this machine: a loopback address, the unspecified address, or the name localhost."""
    if host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _host(event: str, args: tuple[object, ...]) -> str | None:
    """Take the host from an audit event of the socket module (docs.python.org/3/library/audit_events.html)."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        name = args[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        name = args[1][0]
    else:  # every other event, and Unix sockets, whose address is a path
        return None
    return name.decode() if isinstance(name, bytes) else name if isinstance(name, str) else None


def _guard(event: str, args: tuple[object, ...]) -> None:
    """Refuse to look up or reach any other machine, and remember that it was tried."""
    if not event.startswith("socket."):
        return
    host = _host(event, args)
    if host is not None and not _is_local(host):
        _reached.append(host)
        message = f"network is off in tests: {event} reached for {host!r}; expected a server on loopback"
        raise ConnectionRefusedError(message)


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def _stay_on_this_machine() -> Iterator[None]:
    """Fail a test that reached for another machine, even when the code under test handled the refusal."""
    _reached.clear()
    yield
    assert not _reached, f"the test reached for {_reached!r}; give it a server on loopback"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away keys, proxies and Turnstile's own settings, so that no test depends on who runs it.

    The command line's own store would be in that person's folder, so a test that uses it must say where it is.
    """
    for name in tuple(os.environ):
        if name.startswith("TURNSTILE_") or name.upper().endswith(("_API_KEY", "_PROXY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TURNSTILE_DB", "no folder: the test sets TURNSTILE_DB/runs.db")
