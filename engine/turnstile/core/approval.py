"""``await_approval``: the state in which a human decides, for machines whose agent needs it.

An agent with a tool that asks a human about calls in doubt (``on_in_doubt="ask"``) has it in its machine; the machine of
every other agent has five states.
"""

from __future__ import annotations

from turnstile.core.changes import decide, keep_receipts
from turnstile.core.events import ApprovalDecided, ToolsFinished
from turnstile.core.guards import all_decided, in_doubt
from turnstile.core.machine import Machine
from turnstile.core.rows import before, row
from turnstile.core.states import await_approval, execute_tools

# fmt: off
# ruff: noqa: E501 - a row is one line, as in the table
ROWS = (
    row("in_doubt", execute_tools,  ToolsFinished,   [in_doubt],    await_approval, keep_receipts),
    row("decided",  await_approval, ApprovalDecided, [all_decided], execute_tools,  decide),
    row("waiting",  await_approval, ApprovalDecided, [],            await_approval, decide),
)
# fmt: on


def with_approval(machine: Machine) -> Machine:
    """The machine with the state in which a human decides; as it is, if it has that already."""
    if any(state.name == await_approval.name for state in machine.states):
        return machine
    return machine.extend(states=[await_approval], rows=[before("finished", ROWS[0]), *ROWS[1:]])
