"""`Mail`: what a run is told waits in order, is taken when it can be, and its letters are used up once."""

from __future__ import annotations

import logging
import weakref

import pytest

from turnstile.core.events import (
    ApprovalDecided,
    Cancelled,
    DeadlinePassed,
    EffectLost,
    MessageInjected,
    ModelReplied,
    RunStarted,
    Verdict,
)
from turnstile.core.messages import Reply, ToolCall
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.values import evolve
from turnstile.driver.mail import Entry, Mail
from turnstile.ports import Letter

RUN = begin_run(RunStarted("r", "go"))
CALLS = (ToolCall("a", "pay", "{}"), ToolCall("b", "pay", "{}"))
IN_DOUBT = evolve(
    RUN,
    state="execute_tools",
    open=ModelReplied(Reply("", CALLS), tuple(Verdict(call.id, "") for call in CALLS)),
    in_doubt=("a", "b"),
)
WAITING = evolve(IN_DOUBT, state="await_approval")


def mail_of(*letters: Letter) -> Mail:
    """Mail that has these letters."""
    mail = Mail("r")
    for letter in letters:
        mail(letter)
    return mail


def test_what_came_first_is_taken_first() -> None:
    """A run hears in the order in which it was told, and what is taken waits no more."""
    mail = Mail("r")
    assert not mail.waiting
    mail.put(MessageInjected("first"))
    mail(Letter(7, MessageInjected("second")))
    assert mail.waiting
    assert mail.next(RUN, done=False) == Entry(MessageInjected("first"))
    mail.take(Entry(MessageInjected("first")))
    assert mail.next(RUN, done=False) == Entry(MessageInjected("second"), 7)
    assert mail.next(RUN, done=False) == Entry(MessageInjected("second"), 7)
    mail.take(Entry(MessageInjected("second"), 7))
    assert mail.next(RUN, done=False) is None
    assert not mail.waiting


def test_what_was_lost_is_known_before_all_else() -> None:
    """A letter that waits for a lost run must find it where its loss has left it."""
    mail = mail_of(Letter(1, Cancelled()))
    mail.put_first(EffectLost())
    assert mail.next(RUN, done=False) == Entry(EffectLost())


class Bell:
    """Counts how often it was rung."""

    rung = 0

    def ring(self) -> None:
        """Count once more."""
        self.rung += 1


def test_a_letter_that_comes_twice_counts_once() -> None:
    """The store may deliver again what it has delivered; the run is woken once for it, taken or not."""
    mail, bell = Mail("r"), Bell()
    mail.run = weakref.ref(bell)
    mail(Letter(1, MessageInjected("once")))
    mail(Letter(1, MessageInjected("once")))
    mail.take(Entry(MessageInjected("once"), 1))
    mail(Letter(1, MessageInjected("once")))
    assert not mail.waiting
    assert bell.rung == 1


def test_no_letter_is_lost_for_one_that_was_faster() -> None:
    """Two threads that post at once may deliver in the other order."""
    mail = mail_of(Letter(2, MessageInjected("second")), Letter(1, MessageInjected("first")))
    assert mail.take(Entry(MessageInjected("second"), 2)) == MessageInjected("second")
    assert mail.next(RUN, done=False) == Entry(MessageInjected("first"), 1)


def test_letters_are_used_up_with_what_keeps_them() -> None:
    """A letter is forgotten when the journal has its event, and not when it is only taken."""
    mail = mail_of(Letter(1, MessageInjected("a")), Letter(2, MessageInjected("b")))
    mail.put(MessageInjected("mine"))
    mail.take(Entry(MessageInjected("a"), 1))
    kept = mail.taken
    mail.take(Entry(MessageInjected("b"), 2))
    mail.take(Entry(MessageInjected("mine")))
    assert (kept, mail.taken) == ((1,), (1, 2))
    mail.forget(kept)
    assert mail.taken == (2,)


@pytest.mark.parametrize("order", [Cancelled(), DeadlinePassed()])
def test_what_an_effect_brought_comes_before_an_order_to_stop(order: Cancelled | DeadlinePassed) -> None:
    """A reply that was paid for and results that are there are not dropped for having come at the same moment."""
    mail = Mail("r")
    mail.put(order)
    assert mail.next(RUN, done=True) is None
    assert mail.next(RUN, done=False) == Entry(order)


def test_what_is_said_does_not_wait_for_an_effect() -> None:
    """It goes with the next request, so it must be in before that is made."""
    mail = Mail("r")
    mail.put(MessageInjected("quick"))
    assert mail.next(RUN, done=True) == Entry(MessageInjected("quick"))


def test_a_decision_waits_until_the_run_does() -> None:
    """A letter that came before the run asks is kept, and holds up nothing that comes after it."""
    mail = mail_of(Letter(1, ApprovalDecided("a", "rerun")), Letter(2, MessageInjected("hello")))
    assert mail.next(IN_DOUBT, done=False) == Entry(MessageInjected("hello"), 2)
    assert mail.next(WAITING, done=False) == Entry(ApprovalDecided("a", "rerun"), 1)


@pytest.mark.parametrize("orders", [("rerun", "unknown"), ("unknown", "rerun")])
@pytest.mark.parametrize("run", [IN_DOUBT, WAITING])
def test_deny_wins(orders: tuple[str, str], run: RunState) -> None:
    """Of two people the careful one is heard, in whichever order their letters came; the other's is used up."""
    decided = {"rerun": ApprovalDecided("a", "rerun"), "unknown": ApprovalDecided("a", "unknown")}
    mail = mail_of(*(Letter(number, decided[each]) for number, each in enumerate(orders)))
    number = orders.index("unknown")
    if run is IN_DOUBT:
        assert mail.next(run, done=False) is None
    assert mail.next(WAITING, done=False) == Entry(decided["unknown"], number)
    mail.take(Entry(decided["unknown"], number))
    assert mail.next(evolve(WAITING, in_doubt=("b",)), done=False) is None
    assert not mail.waiting
    assert {*mail.taken} == {0, 1}


def test_a_denial_is_about_one_call() -> None:
    """What is said of one call lets another run."""
    mail = mail_of(Letter(1, ApprovalDecided("a", "rerun")), Letter(2, ApprovalDecided("b", "unknown")))
    assert mail.next(WAITING, done=False) == Entry(ApprovalDecided("a", "rerun"), 1)


@pytest.mark.parametrize("decision", ["rerun", "result", "unknown"])
def test_a_decision_that_nobody_waits_for_is_dropped(decision: str, caplog: pytest.LogCaptureFixture) -> None:
    """It must not lie in the mailbox until a later call happens to have that id; the log says that it came."""
    caplog.set_level(logging.INFO, "turnstile")
    mail = mail_of(Letter(1, ApprovalDecided("c", decision)))  # type: ignore[arg-type]
    assert mail.next(WAITING, done=False) is None
    assert not mail.waiting
    assert mail.taken == (1,)
    assert "run r has no use for" in caplog.text
