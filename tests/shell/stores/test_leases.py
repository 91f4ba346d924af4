"""When a lease counts as held: each case with clocks that the test sets."""

from dataclasses import dataclass, replace

import pytest

from turnstile.core.errors import StoreDamaged
from turnstile.shell.stores.holder import Holder, this_process
from turnstile.shell.stores.leases import Row, Watch, read_row

ME = replace(this_process(), boot="this boot")
ELSEWHERE = Holder("web-2", "another boot", "another space", 4711, "99")


@dataclass
class Hand:
    """A clock whose hand is moved."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Where it stands."""
        return self.now


def row(holder: Holder, *, renewals: int = 0, renewed: float = 1000.0) -> Row:
    """A lease of 15 seconds."""
    return Row(1, 1, renewals, renewed, 15.0, holder)


@pytest.mark.parametrize(("age", "held"), [(0.0, True), (14.9, True), (15.0, False), (1e6, False)])
def test_a_holder_of_this_boot_is_judged_at_once(age: float, *, held: bool) -> None:
    """Its age is known by the clock that both have, also in another container, so nobody has to watch it."""
    for holder in (ME, replace(ME, space="another", pid=1)):
        assert Watch(ME, boot=Hand(1000.0 + age)).is_held(row(holder)) is held


def test_a_dead_holder_of_this_boot_is_replaced_at_once() -> None:
    """Whatever its lease says."""
    assert Watch(ME, boot=Hand()).is_held(row(replace(ME, born="1"))) is False


def test_a_holder_elsewhere_is_watched() -> None:
    """Its clock means nothing here: only that its counter stands still for the time of its lease tells anything."""
    clock = Hand()
    watch = Watch(ME, clock=clock)
    for clock.now in (1000.0, 1005.0, 1014.9):
        assert watch.is_held(row(ELSEWHERE, renewed=5.0)) is None
    clock.now = 1015.0
    assert watch.is_held(row(ELSEWHERE, renewed=5.0)) is False


def test_a_sign_of_life_is_enough() -> None:
    """A counter that moves once means that somebody drives the run."""
    clock = Hand()
    watch = Watch(ME, clock=clock)
    assert watch.is_held(row(ELSEWHERE)) is None
    clock.now = 2000.0
    assert watch.is_held(row(ELSEWHERE, renewals=1)) is True


def test_a_new_lease_is_watched_anew() -> None:
    """Somebody else may have taken it over meanwhile, whose counter begins at the same number."""
    clock = Hand()
    watch = Watch(ME, clock=clock)
    watch.is_held(row(ELSEWHERE))
    clock.now = 1015.0
    assert watch.is_held(replace(row(ELSEWHERE), epoch=2)) is None


def test_a_damaged_lease_is_named() -> None:
    """A lease that cannot be read must not pass for a free one."""
    with pytest.raises(StoreDamaged, match=r"a lease is \(1, 'x'\); restore"):
        read_row((1, "x"), "runs.db")
