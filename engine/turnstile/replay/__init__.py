"""What a journal alone can tell: replay, export, fork, comparison and audit of stored runs.

::

    from turnstile.replay import diff, export, fork, read_export, replay

    records = await store.load(run_id)
    assert replay(records).divergence is None
    new_id = await fork(store, agent, run_id, at=4, prompt="Rather in spring")
    print(diff(replay(records), replay(await store.load(new_id))).path)

Nothing here asks a model or runs a tool; a fork is only written, and `Agent.resume` goes on with it.
"""

from turnstile.driver.keeper import summary_of
from turnstile.replay.auditing import Audit, audit
from turnstile.replay.changing import Change
from turnstile.replay.comparing import Comparison, Figures, Pair, diff
from turnstile.replay.exporting import Export, export, read_export, read_exports
from turnstile.replay.forking import fork
from turnstile.replay.receipts import Receipt, receipts
from turnstile.replay.replaying import Divergence, Replay, replay

__all__ = [
    "Audit",
    "Change",
    "Comparison",
    "Divergence",
    "Export",
    "Figures",
    "Pair",
    "Receipt",
    "Replay",
    "audit",
    "diff",
    "export",
    "fork",
    "read_export",
    "read_exports",
    "receipts",
    "replay",
    "summary_of",
]
