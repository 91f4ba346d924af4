"""THE TABLE: every move that a run can make. A move that isn't a row here doesn't exist.

A row reads: in this state, when this happened, and all these guards say yes, go there. Rows of one state and event are tried from top to
bottom, and the first whose guards all hold is taken; the others are named in the transition, each with the guard that said no.

- What a reply holds decides; a label never adds or removes a call. Labels do decide error, length, refusal and pause.
- Every ``ModelReplied`` spends a turn, every ``AGAIN`` a counter, so every run ends.
- Rows to ``done`` and ``failed`` name the stop reason, and whatever call is open then is answered "not run" or "unknown".
- ``STAY`` leaves the running effect alone; ``AGAIN``, or a row that leads back to its own state, begins it anew.

`Machine.extend` adds states and rows; `turnstile.core.machine` builds the machine from what stands here.
"""

from __future__ import annotations

from turnstile.core.changes import (
    BUDGETS, LIMITS, STOPS, accept, answer, append, budget_reason, cut_call, give_up, hold_stop, inject, keep,
    limit_reason, next_model, nudge, open_calls, recover, repair_call, repair_output, retry, stop_reason, take_results,
    trim, wrap_up, wrap_up_unsent,
)  # fmt: skip
from turnstile.core.events import (
    Cancelled, DeadlinePassed, EffectLost, MessageInjected, ModelFailed, ModelReplied, ResultsAppended, ToolsFinished,
)  # fmt: skip
from turnstile.core.guards import (
    broke_promise, can_trim, fallback_left, follows_results, has_injected, is_answer, is_model_fault, is_over_budget,
    is_overflow, is_paused, is_stopping, is_transient, limit_hit, may_wrap_up, nudges_left, output_valid,
    recoveries_left, repairs_left, retries_left, tool_aborted, tools_running, turns_left, wants_tools, was_refused,
    was_truncated,
)  # fmt: skip
from turnstile.core.rows import AGAIN, LIVE, STAY, row
from turnstile.core.states import append_results, await_model, done, execute_tools, failed

# fmt: off
# ruff: noqa: E501, I001 - a row is one line, and its words take few lines, so that the table is seen at once
TABLE = (
    #   name               source                        event                        guards                                                      dest            change          reason
    row("stopping",        execute_tools,                (Cancelled, DeadlinePassed), [tools_running],                                            STAY,           hold_stop),
    row("cancelled",       LIVE,                         Cancelled,                   [],                                                         failed,         keep),
    row("time_limit",      LIVE,                         DeadlinePassed,              [],                                                         failed,         keep),
    row("injected",        LIVE,                         MessageInjected,             [],                                                         STAY,           inject),

    row("lost_stopping",   execute_tools,                EffectLost,                  [is_stopping],                                              failed,         keep,           reason=stop_reason, reasons=STOPS),
    row("recovered",       (await_model, execute_tools), EffectLost,                  [recoveries_left],                                          AGAIN,          recover),
    row("crash_loop",      (await_model, execute_tools), EffectLost,                  [],                                                         failed,         keep),

    row("wrap_up_unsent",  await_model,                  ModelFailed,                 [is_over_budget, may_wrap_up],                              await_model,    wrap_up_unsent, reason="wrap_up"),
    row("over_budget",     await_model,                  ModelFailed,                 [is_over_budget],                                           failed,         give_up,        reason=budget_reason, reasons=BUDGETS),
    row("trimmed",         await_model,                  ModelFailed,                 [is_overflow, can_trim],                                    await_model,    trim),
    row("retry",           await_model,                  ModelFailed,                 [is_transient, retries_left],                               await_model,    retry),
    row("filtered",        await_model,                  ModelFailed,                 [was_refused],                                              failed,         give_up,        reason="refused"),
    row("repair_call",     await_model,                  ModelFailed,                 [is_model_fault, repairs_left, turns_left],                 await_model,    repair_call),
    row("next_model",      await_model,                  ModelFailed,                 [fallback_left],                                            await_model,    next_model),
    row("overflow",        await_model,                  ModelFailed,                 [is_overflow],                                              failed,         give_up,        reason="context_overflow"),
    row("gave_up",         await_model,                  ModelFailed,                 [],                                                         failed,         give_up,        reason="infrastructure_error"),

    row("refused",         await_model,                  ModelReplied,                [was_refused],                                              failed,         accept),
    row("cut_call",        await_model,                  ModelReplied,                [was_truncated, wants_tools, repairs_left, turns_left],     append_results, cut_call),
    row("truncated",       await_model,                  ModelReplied,                [was_truncated],                                            failed,         accept),
    row("wrap_up",         await_model,                  ModelReplied,                [wants_tools, limit_hit, may_wrap_up],                      append_results, wrap_up),
    row("limit",           await_model,                  ModelReplied,                [wants_tools, limit_hit],                                   failed,         accept,         reason=limit_reason, reasons=LIMITS),
    row("run_tools",       await_model,                  ModelReplied,                [wants_tools],                                              execute_tools,  open_calls),
    row("paused",          await_model,                  ModelReplied,                [is_paused, turns_left],                                    await_model,    accept),
    row("paused_limit",    await_model,                  ModelReplied,                [is_paused],                                                failed,         accept,         reason=limit_reason, reasons=LIMITS),
    row("ask_injected",    await_model,                  ModelReplied,                [has_injected, turns_left],                                 await_model,    accept,         reason="injected"),
    row("nudge_promise",   await_model,                  ModelReplied,                [broke_promise, nudges_left, turns_left],                   await_model,    nudge,          reason="nudge"),
    row("incomplete",      await_model,                  ModelReplied,                [broke_promise],                                            failed,         accept),
    row("answered",        await_model,                  ModelReplied,                [is_answer, output_valid],                                  done,           answer),
    row("repair_output",   await_model,                  ModelReplied,                [is_answer, repairs_left, turns_left],                      await_model,    repair_output),
    row("invalid_output",  await_model,                  ModelReplied,                [is_answer],                                                failed,         accept),
    row("empty_answer",    await_model,                  ModelReplied,                [follows_results],                                          done,           accept),
    row("nudge_empty",     await_model,                  ModelReplied,                [nudges_left, turns_left],                                  await_model,    nudge,          reason="nudge"),
    row("no_answer",       await_model,                  ModelReplied,                [],                                                         failed,         accept,         reason="empty_answer"),

    row("stopped",         execute_tools,                ToolsFinished,               [is_stopping],                                              failed,         take_results,   reason=stop_reason, reasons=STOPS),
    row("tool_aborted",    execute_tools,                ToolsFinished,               [tool_aborted],                                             failed,         take_results),
    row("finished",        execute_tools,                ToolsFinished,               [],                                                         append_results, take_results),

    row("appended",        append_results,               ResultsAppended,             [],                                                         await_model,    append),
)
