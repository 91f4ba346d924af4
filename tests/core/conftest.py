"""How hypothesis makes the core's values, so that `st.from_type` gives events that a shell could have vetted."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from turnstile.core.events import ApprovalDecided, ModelFailed, ModelReplied, RunStarted, ToolsFinished, Verdict
from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.messages import Attachment, Exchange, Reply, ToolCall, ToolResult, ToolSpec, Usage, UserTurn

# Lone surrogates are text too; a pair of them is no two characters in JSON.
texts = st.text(st.characters(exclude_categories=()), max_size=8).filter(
    lambda text: not re.search("[\ud800-\udbff][\udc00-\udfff]", text)
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(min_value=0, max_value=1e9)
counts = st.integers(min_value=0, max_value=10**30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(texts, parts, max_size=3),
    max_leaves=6,
)
replies = st.builds(
    Reply,
    text=texts,
    calls=st.lists(st.builds(ToolCall, texts, texts, texts), max_size=3).map(tuple),
    finish=st.sampled_from(["stop", "tool_calls", "length", "refusal", "pause", "unknown"]),
    reasoning=texts,
    usage=st.none() | st.builds(Usage, *[st.none() | counts] * 4),
    cost=st.none() | numbers,
    wire=texts,
    native=texts,
)


statuses = st.sampled_from(["ok", "error", "not_run", "unknown"])


def _result(call: ToolCall) -> st.SearchStrategy[ToolResult]:
    return st.builds(ToolResult, st.just(call.id), st.just(call.name), texts, statuses, numbers)


def _exchange(reply: Reply) -> st.SearchStrategy[Exchange]:
    return st.builds(Exchange, st.just(reply), st.tuples(*map(_result, reply.calls)))


def _verdict(call: ToolCall) -> st.SearchStrategy[Verdict]:
    return st.builds(
        Verdict,
        st.just(call.id),
        texts,
        problem=texts,
        access=st.sampled_from(["read", "idempotent", "write"]),
        repeats=st.none() | counts,
        on_in_doubt=st.sampled_from(["tell", "ask"]),
    )


def _vetted(reply: Reply) -> st.SearchStrategy[ModelReplied]:
    return st.builds(ModelReplied, st.just(reply), st.tuples(*map(_verdict, reply.calls)), json_values, texts)


exchanges = replies.flatmap(_exchange)
attachments = st.builds(Attachment, st.just("image/png"), data=st.just("QQ=="), name=texts) | st.builds(
    Attachment, texts.map(lambda text: f"image/{text}"), url=st.just("https://example.com/a")
)
items = st.builds(UserTurn, texts, attachments=st.lists(attachments, max_size=2).map(tuple)) | exchanges
specs = st.builds(ToolSpec, texts, texts, st.dictionaries(texts, json_values, max_size=3))
prices = st.builds(Price, amounts, amounts)

st.register_type_strategy(str, texts)
st.register_type_strategy(Attachment, attachments)
st.register_type_strategy(Reply, replies)
st.register_type_strategy(Exchange, exchanges)
st.register_type_strategy(ModelReplied, replies.flatmap(_vetted))
st.register_type_strategy(Price, prices)
st.register_type_strategy(ToolResult, st.builds(ToolResult, texts, texts, texts, statuses, numbers))
st.register_type_strategy(Retry, st.builds(Retry, st.integers(1, 9), amounts, amounts))
st.register_type_strategy(
    Limits,
    st.builds(
        Limits,
        turns=st.integers(1, 99),
        tool_calls=st.none() | counts,
        tokens=st.none() | counts,
        cost=st.none() | amounts,
        seconds=st.none() | amounts,
        repeats=st.none() | st.integers(1, 9),
        on_exhausted=st.sampled_from(["fail", "wrap_up"]),
    ),
)
st.register_type_strategy(
    ToolsFinished,
    st.builds(ToolsFinished, exchanges.map(lambda exchange: exchange.results), st.none() | texts),
)
st.register_type_strategy(
    ApprovalDecided,
    st.builds(ApprovalDecided, texts, st.sampled_from(["rerun", "result", "unknown"]), texts, amounts),
)
st.register_type_strategy(
    ModelFailed,
    st.builds(ModelFailed, message=texts, retry_after=st.none() | numbers, delay=st.none() | numbers),
)
st.register_type_strategy(
    RunStarted,
    st.builds(
        RunStarted,
        texts,
        texts,
        instructions=texts,
        history=st.lists(items, max_size=3).map(tuple),
        session=st.none() | texts,
        limits=st.from_type(Limits),
        retry=st.from_type(Retry),
        deadline=st.none() | numbers,
        models=st.lists(texts, max_size=3).map(tuple),
        prices=st.lists(st.none() | prices, max_size=3).map(tuple),
        max_output=st.none() | counts,
        fingerprints=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
        tools=st.lists(specs, max_size=2).map(tuple),
        settings=json_values,
        output_schema=json_values,
        origin=texts,
        forked_from=texts,
    ),
)
