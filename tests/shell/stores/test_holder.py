"""Holders of leases: who is known to be gone, and that nobody else is taken for gone."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from turnstile.shell.stores.holder import Holder, _link, _stat, boot_clock, this_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is told of processes is Linux's")
ME = this_process()


@pytest.fixture
def ended() -> int:
    """Number of a process that has ended and been waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_running_process_is_there() -> None:
    """Whoever is taken for gone loses its run."""
    assert not ME.is_gone(ME)
    parent = replace(ME, pid=os.getppid(), born="")
    assert not parent.is_gone(ME)  # though nothing is known of its start


def test_another_users_process_is_there() -> None:
    """The system refuses to signal it, which says that it is there."""
    first = replace(ME, pid=1, born="")
    if os.geteuid() != 0:
        assert not first.is_gone(ME)
        return
    os.setresuid(65534, 65534, 0)
    try:
        assert not first.is_gone(ME)
    finally:
        os.setresuid(0, 0, 0)


def test_an_ended_process_is_gone(ended: int) -> None:
    """A killed agent's run must be free at once, not after a wait."""
    assert replace(ME, pid=ended).is_gone(ME)


def test_a_process_that_nobody_waited_for_is_gone() -> None:
    """A parent may be slow to notice that its agent was killed; what is left of it writes nothing."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is left as it is
    assert replace(ME, pid=process.pid).is_gone(ME)
    process.wait()


def test_a_number_that_is_used_again_is_another_process() -> None:
    """Numbers of processes come round, and the new one knows nothing of the run."""
    assert replace(ME, born="1").is_gone(ME)


@pytest.mark.parametrize("other", [replace(ME, boot="another"), replace(ME, boot=""), replace(ME, space="another")])
def test_what_cannot_be_seen_is_not_gone(other: Holder, ended: int) -> None:
    """A number means nothing on another host, or in another container."""
    assert not replace(other, pid=ended).is_gone(ME)
    assert not replace(ME, pid=ended).is_gone(other)


def test_clocks_are_shared_within_a_boot() -> None:
    """Ages of leases are compared only where one clock runs, and a system that doesn't say has none."""
    assert ME.shares_clock(replace(ME, space="another", pid=1))
    assert not ME.shares_clock(replace(ME, boot="another"))
    assert not replace(ME, boot="").shares_clock(replace(ME, boot=""))


def test_the_clock_goes_on() -> None:
    """It must not be the one that people set."""
    before = boot_clock()
    assert boot_clock() >= before > 0


def test_a_holder_reads_as_one() -> None:
    """It stands in the error of whoever wanted the run."""
    assert str(replace(ME, pid=4711, host="web-1")) == "process 4711 on host 'web-1'"


def test_what_the_system_does_not_show_is_empty(ended: int) -> None:
    """Some systems hide other users' processes, and some have nothing to show at all."""
    assert _stat(ended) == ("", "")
    assert _link("/proc/self/ns/none") == ""
