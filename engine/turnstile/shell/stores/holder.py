"""Who holds a lease: one process of one boot of one host, and whether it is still there.

A process is known by its number and the time of its start, since numbers are used again; both mean something only on
the same boot of the same kernel and in the same pid namespace (proc(5), namespaces(7)). Where the system does not tell
these, as outside of Linux, nothing is ever said to be gone, and a contender has to watch the lease itself.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STATE, _STARTED = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted from behind the program's name (proc_pid_stat(5))


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that may hold leases.

    Attributes:
        host: Name of its host, for people.
        boot: That of the kernel's clock: the boot and the time namespace; empty where the system doesn't say.
        space: Its pid namespace.
        pid: Its number there.
        born: When it started, in the kernel's ticks; empty where the system doesn't say.
    """

    host: str
    boot: str
    space: str
    pid: int
    born: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host!r}"

    def shares_clock(self, other: Holder) -> bool:
        """Whether `boot_clock` means the same in both."""
        return bool(self.boot) and self.boot == other.boot

    def is_gone(self, seen_from: Holder) -> bool:
        """Whether it is known to have ended; what cannot be seen from there counts as still there."""
        if not self.shares_clock(seen_from) or self.space != seen_from.space:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is there, and another user's
            pass
        state, born = _stat(self.pid)
        return state in ("Z", "X") or bool(born and self.born and born != self.born)


def this_process() -> Holder:
    """The process that asks."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    return Holder(
        host=socket.gethostname(),
        boot=boot and f"{boot} {_link('/proc/self/ns/time')}",
        space=_link("/proc/self/ns/pid"),
        pid=os.getpid(),
        born=_stat(os.getpid())[1],
    )


def boot_clock() -> float:
    """Seconds since the boot, the same for all processes, and going on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _stat(pid: int) -> tuple[str, str]:
    """A process's state, and when it started; both empty when the system doesn't show them."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[_STATE], fields[_STARTED]) if len(fields) > _STARTED else ("", "")


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _link(path: str) -> str:
    with suppress(OSError):
        return str(Path(path).readlink())
    return ""
