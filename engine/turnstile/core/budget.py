"""What the next request may cost at worst, so that a budget binds before the money is spent."""

from __future__ import annotations

from math import inf
from typing import Literal

from turnstile.core.events import ModelReplied
from turnstile.core.history import CHARS_PER_ITEM, length_of
from turnstile.core.messages import Reply
from turnstile.core.run_state import RunState

LimitName = Literal["token_limit", "cost_limit", ""]

CHARS_PER_TOKEN = 3  # OpenAI's help page "What are tokens" says 4 for English; code and other scripts need more tokens
SAMPLE = 500  # characters that an assumption about their tokens weighs as much as, once requests are measured
DENSEST, THINNEST = 0.5, 8.0  # characters a token: Chinese to a tokenizer without it, and English in long words
NOTHING = (0, 0.0)  # tokens and US dollars
LEAST_OUTPUT = 64  # a reply of fewer tokens is not worth its request
WRAP_UP_EXTRA = 256  # tokens of the engine's words when it asks for a last answer, "not run" to 8 calls included


def estimate_input(run: RunState) -> int:
    """Tokens of the next request, measured by the last whose tokens are known; what waits in the inbox goes with it."""
    chars, tokens = run.measured
    size = request_size(run) + sum(length_of(text) + CHARS_PER_ITEM for text in run.inbox)
    if size < chars:  # older items were left out since
        return max(1, tokens * size // chars)
    return max(1, tokens + int((size - chars) / (run.chars_per_token or CHARS_PER_TOKEN)))


def measure(run: RunState, tokens: int) -> tuple[tuple[int, int], float | None]:
    """What is known of sizes once a request's tokens are said: its size with them, and how many characters a token has.

    The latter comes from what the request had more than the one measured before it, since much of the first is said by
    the server and not by us; little text says little, and changes little.
    """
    size, (chars, counted) = request_size(run), run.measured
    known = run.chars_per_token
    if not counted or size <= chars:
        return (size, tokens), known
    added = tokens - counted + SAMPLE / (known or CHARS_PER_TOKEN)
    per_token = (size - chars + SAMPLE) / added if added > 0 else THINNEST
    return (size, tokens), min(THINNEST, max(DENSEST, per_token))


def request_size(run: RunState) -> int:
    """Size in characters of what the run's requests carry so far."""
    return run.start.tools_size + length_of(run.start.instructions) + run.history.size(run.window_start)


def charge(run: RunState, reply: Reply) -> int:
    """Tokens that a reply is charged: what its server said, else an estimate."""
    usage = reply.usage
    tokens_in = usage.input_tokens if usage and usage.input_tokens is not None else estimate_input(run)
    if usage and usage.output_tokens is not None:
        return tokens_in + usage.output_tokens
    written = sum(map(length_of, (reply.text, reply.reasoning, *(call.arguments for call in reply.calls))))
    return tokens_in + written // CHARS_PER_TOKEN + 1


def price(run: RunState, reply: Reply) -> float | None:
    """US dollars that a reply cost; ``None`` when its price or its tokens are unknown."""
    if reply.cost is not None:
        return reply.cost
    rate, usage = run.start.prices[run.model], reply.usage
    if rate is None or usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return rate.of(usage.input_tokens, usage.output_tokens)


def charge_cost(run: RunState, reply: Reply) -> float:
    """US dollars that a reply is charged: its price, else what it may have cost at most."""
    known = price(run, reply)
    if known is not None:
        return known
    rate, tokens = run.start.prices[run.model], charge(run, reply)
    return max(rate.of(tokens, 0), rate.of(0, tokens)) if rate else 0.0


def output_cap(run: RunState) -> int | None:
    """The most tokens that the next reply may have, so that no limit is passed; ``None`` when nothing bounds it."""
    caps = [cap for _, cap in _rooms(run)]
    if run.start.max_output is not None:
        caps.append(run.start.max_output)
    return min(caps) if caps else None


def over_budget(run: RunState) -> LimitName:
    """The limit that the next request could pass; empty when it fits."""
    rooms = _rooms(run)
    if not rooms:
        return ""
    least = min(LEAST_OUTPUT, run.start.max_output or LEAST_OUTPUT)
    no_room: list[LimitName] = [limit for limit, cap in rooms if cap < least]
    return no_room[0] if no_room else ""


def reservation(run: RunState) -> tuple[int, float]:
    """Tokens and US dollars that the next request may cost at worst; nothing where no limit binds it, or forbids it."""
    limits = run.start.limits
    if (limits.tokens is None and limits.cost is None) or over_budget(run):
        return NOTHING
    tokens_in, rate = estimate_input(run), run.start.prices[run.model]
    tokens_out = output_cap(run) or 0
    return tokens_in + tokens_out, rate.of(tokens_in, tokens_out) if rate else 0.0


def spent_after(run: RunState, event: ModelReplied) -> LimitName:
    """The limit that leaves no room for another request once this reply is counted; empty when there is room.

    The next request carries this reply, so it costs at least as many tokens as this one did.
    """
    limits = run.start.limits
    if limits.tokens is None and limits.cost is None:
        return ""
    charged = charge(run, event.reply)
    if limits.tokens is not None and run.charged_tokens + 2 * charged >= limits.tokens:
        return "token_limit"
    rate = run.start.prices[run.model]
    if limits.cost is not None and rate is not None:
        spent = run.charged_cost + charge_cost(run, event.reply)
        if spent + rate.of(charged, 0) >= limits.cost:
            return "cost_limit"
    return ""


def _rooms(run: RunState) -> list[tuple[LimitName, int]]:
    """For each budget that is set: how many tokens a reply may have under it, the request itself paid.

    With ``on_exhausted="wrap_up"`` one more request is held back: it carries this one, its reply and a few words, and
    its own reply may be as long again.
    """
    limits, rate = run.start.limits, run.start.prices[run.model]
    if limits.tokens is None and (limits.cost is None or rate is None):
        return []
    rooms: list[tuple[LimitName, int]] = []
    tokens_in = estimate_input(run)
    holds_back = limits.on_exhausted == "wrap_up" and not run.wrapping_up
    if limits.tokens is not None:
        left = limits.tokens - run.charged_tokens
        room = (left - 2 * tokens_in - WRAP_UP_EXTRA) // 3 if holds_back else left - tokens_in
        rooms.append(("token_limit", max(0, room)))
    if limits.cost is not None and rate is not None:
        dollars = limits.cost - run.charged_cost - rate.of(tokens_in, 0)
        each = rate.of(0, 1)
        if holds_back:
            dollars -= rate.of(tokens_in + WRAP_UP_EXTRA, 0)
            each = rate.of(1, 2)
        dearest = max(0.0, dollars) / each if each else inf if dollars >= 0 else 0.0
        if dearest < inf:
            rooms.append(("cost_limit", int(dearest)))
    return rooms
