"""What the client makes of good answers, odd answers and answers that are none."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, ToolCall, Usage, UserTurn
from turnstile.ports import ModelRequest
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.chat_reply import read_reply
from turnstile.shell.models.redaction import Redactor

Ask = Callable[..., Awaitable[Reply | ModelFailed]]


def answer(message: object, finish: object = "stop", **body: object) -> dict[str, object]:
    """An exchange with one choice."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"status": 200, "body": {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], **body}}


def calling(*calls: object, finish: str = "tool_calls", **body: object) -> dict[str, object]:
    """An exchange whose message calls tools."""
    return answer({"role": "assistant", "content": None, "tool_calls": list(calls)}, finish, **body)


def a_call(arguments: object = "{}", name: object = "f", call_id: object = "call_1") -> dict[str, object]:
    """A call as a server writes it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def test_a_whole_reply_is_read_with_all_that_the_server_says(ask: Ask) -> None:
    """Everything a user may look up later is kept: the raw label, the model, the request's id."""
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    exchange = {**answer({"role": "assistant", "content": "Hi"}, usage=usage), "headers": {"X-Request-Id": "req-7"}}
    assert await ask(exchange) == Reply(
        "Hi", finish="stop", finish_raw="stop", usage=Usage(12, 5, 4, 2), model="m", request_id="req-7"
    )


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        pytest.param("eos_token", "stop", id="finish-reason-eos-token"),
        pytest.param("eos", "stop", id="finish-reason-eos"),
        pytest.param("STOP", "stop", id="finish-reason-upper-case"),
        pytest.param("end_turn", "stop", id="finish-reason-end-turn"),
        pytest.param(None, "unknown", id="finish-reason-null-nonstream"),
        pytest.param("brand_new", "unknown", id="finish-reason-never-seen"),
        pytest.param(7, "unknown", id="finish-reason-number"),
        pytest.param("length", "length", id="finish-reason-length"),
        pytest.param("MAX_TOKENS", "length", id="finish-reason-gemini-length"),
        pytest.param("model_length", "length", id="finish-reason-mistral-length"),
        pytest.param("content_filter", "refusal", id="finish-reason-content-filter"),
        pytest.param("sensitive", "refusal", id="finish-reason-zhipu-sensitive"),
        pytest.param("PROHIBITED_CONTENT", "refusal", id="finish-reason-gemini-prohibited"),
        pytest.param("pause_turn", "pause", id="finish-reason-pause"),
    ],
)
async def test_every_label_is_mapped_and_its_raw_word_kept(ask: Ask, raw: object, finish: str) -> None:
    """No label that a server makes up may cost a good answer."""
    reply = await ask(answer({"role": "assistant", "content": "Hello"}, raw))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish, reply.finish_raw) == ("Hello", finish, raw if isinstance(raw, str) else "")


@pytest.mark.parametrize(
    ("raw", "native", "kind"),
    [
        pytest.param("error", "MALFORMED_FUNCTION_CALL", "generation_failed", id="finish-reason-error-value"),
        pytest.param("error", None, "server", id="finish-reason-error-alone"),
        pytest.param("error", "network_error", "server", id="finish-reason-error-network"),
        pytest.param("function_call_filter: MALFORMED_FUNCTION_CALL", None, "generation_failed", id="gemini-malformed"),
        pytest.param("network_error", None, "server", id="zhipu-network-error"),
        pytest.param("insufficient_system_resource", None, "overloaded", id="deepseek-no-resource"),
        pytest.param("abort", None, "server", id="sglang-abort"),
    ],
)
async def test_a_label_of_failure_is_no_reply(ask: Ask, raw: str, native: str | None, kind: str) -> None:
    """A server that says that it failed has not answered, though it answers 200 and sends half a text."""
    exchange = answer({"role": "assistant", "content": "half"}, raw, native_finish_reason=native)
    failed = await ask(exchange)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == kind
    assert repr(raw) in failed.message
    assert native is None or native in failed.message


@pytest.mark.parametrize("raw", ["stop", None, "function_call", "tool_use"])
async def test_a_reply_with_calls_wants_tools_whatever_its_label_says(ask: Ask, raw: str | None) -> None:
    """What a reply holds decides: the label is normalised, and the raw word stays."""
    reply = await ask(answer({"content": None, "tool_calls": [a_call('{"city":"Oslo"}')]}, raw))
    assert isinstance(reply, Reply)
    assert reply.calls == (ToolCall("call_1", "f", '{"city":"Oslo"}'),)
    assert (reply.finish, reply.finish_raw) == ("tool_calls", raw or "")


async def test_a_label_of_calls_adds_none(ask: Ask) -> None:
    """tool-calls-finish-with-preamble-only: the label stays, so that the machine sees a broken promise."""
    reply = await ask(answer({"content": "I will read the file first.", "tool_calls": []}, "tool_calls"))
    assert isinstance(reply, Reply)
    assert (reply.calls, reply.finish) == ((), "tool_calls")


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        pytest.param(
            {"content": [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]}, "Hello", "", id="parts"
        ),
        pytest.param({"content": ["Hel", "lo"]}, "Hello", "", id="plain-parts"),
        pytest.param({"content": {"type": "text", "text": "Hello"}}, "Hello", "", id="one-part"),
        pytest.param(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "Hi"},
                ]
            },
            "Hi",
            "hm",
            id="mistral-thinking",
        ),
        pytest.param({"content": "Hi", "reasoning_content": "hm"}, "Hi", "hm", id="reasoning-content"),
        pytest.param({"content": "Hi", "reasoning": "hm"}, "Hi", "hm", id="reasoning"),
        pytest.param({"content": "", "reasoning_content": "I should call"}, "", "I should call", id="only-reasoning"),
        pytest.param({"content": None}, "", "", id="null"),
        pytest.param({}, "", "", id="no-content"),
        pytest.param({"content": [{"type": "image_url", "image_url": {}}, "Hi"]}, "Hi", "", id="unknown-part"),
    ],
)
async def test_content_comes_in_many_shapes(ask: Ask, message: object, text: str, reasoning: str) -> None:
    """Text is text in whichever shape, and reasoning is never promoted to an answer."""
    reply = await ask(answer(message))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    "message", [{"content": None, "refusal": "I cannot."}, {"content": [{"refusal": "I cannot."}]}]
)
async def test_a_refusal_is_one_wherever_it_stands(ask: Ask, message: object) -> None:
    """OpenAI puts a refusal beside the content and labels the reply ``stop``."""
    reply = await ask(answer(message))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish) == ("I cannot.", "refusal")


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        pytest.param("", "", id="arguments-empty-string"),
        pytest.param(" \n", " \n", id="arguments-whitespace-only"),
        pytest.param(None, "{}", id="arguments-null"),
        pytest.param({"city": "Oslo"}, '{"city":"Oslo"}', id="arguments-is-object"),
        pytest.param([1], "[1]", id="arguments-is-list"),
        pytest.param('{"path":"a', '{"path":"a', id="arguments-cut"),
        pytest.param('{"content":"a:\\\\n"}', '{"content":"a:\\\\n"}', id="double-escaped-newlines-not-rewritten"),
        pytest.param("\ud83d\ude00 \ud83d", "😀 \ufffd", id="arguments-surrogates"),
    ],
)
async def test_arguments_are_kept_as_the_model_wrote_them(ask: Ask, given: object, arguments: str) -> None:
    """Nothing is repaired here; what is no text becomes the text of its JSON."""
    reply = await ask(calling(a_call(given)))
    assert isinstance(reply, Reply)
    assert reply.calls[0].arguments == arguments


async def test_arguments_that_the_server_left_out_are_empty(ask: Ask) -> None:
    """A call without arguments is a call of a tool without parameters."""
    reply = await ask(calling({"id": "1", "function": {"name": "f"}}))
    assert isinstance(reply, Reply)
    assert reply.calls[0].arguments == "{}"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([a_call(call_id="")], [("", "f")], id="tool-call-id-empty-string"),
        pytest.param([a_call(call_id=None)], [("", "f")], id="tool-call-id-null"),
        pytest.param([a_call(call_id=7)], [("7", "f")], id="tool-call-id-number"),
        pytest.param(
            [a_call(call_id="grep:3"), a_call(call_id="grep:3")],
            [("grep:3", "f")] * 2,
            id="duplicate-ids-in-one-message",
        ),
        pytest.param(
            [a_call(name=None), a_call(name=" f\n")],
            [("call_1", ""), ("call_1", " f\n")],
            id="tool-name-null-or-padded",
        ),
        pytest.param([{"id": "1", "name": "f", "arguments": "{}"}], [("1", "f")], id="flat-call"),
        pytest.param([None, a_call()], [("call_1", "f")], id="null-beside-a-call"),
    ],
)
async def test_calls_are_read_in_order_whatever_their_ids_and_names(
    ask: Ask, calls: list[object], expected: object
) -> None:
    """Ids may be missing or equal: the engine makes them unique, and no call is lost for it."""
    reply = await ask(calling(*calls))
    assert isinstance(reply, Reply)
    assert [(call.id, call.name) for call in reply.calls] == expected


async def test_the_legacy_call_counts_when_it_is_the_only_one(ask: Ask) -> None:
    """Old servers know ``function_call`` alone."""
    reply = await ask(answer({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call"))
    assert isinstance(reply, Reply)
    assert reply.calls == (ToolCall("", "f", "{}"),)


async def test_the_legacy_call_beside_others_repeats_one_of_them(ask: Ask) -> None:
    """function-call-and-tool-calls-both: unpacking both would run a tool twice."""
    message = {"content": None, "tool_calls": [a_call()], "function_call": {"name": "f", "arguments": "{}"}}
    reply = await ask(answer(message, "tool_calls"))
    assert isinstance(reply, Reply)
    assert len(reply.calls) == 1


@pytest.mark.parametrize("calls", [["f()"], [{"id": "1"}], [a_call(), 7], "f()"])
async def test_a_call_that_cannot_be_read_is_a_failure_not_a_shorter_reply(ask: Ask, calls: object) -> None:
    """Dropping one of several calls would be a silent loss."""
    failed = await ask(answer({"content": "x", "tool_calls": calls}, "tool_calls"))
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "protocol"
    assert "is no call" in failed.message


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(None, None, id="usage-null"),
        pytest.param({}, None, id="usage-empty"),
        pytest.param("many", None, id="usage-text"),
        pytest.param({"prompt_tokens": None, "completion_tokens": None}, None, id="usage-null-members"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None, id="usage-all-zero"),
        pytest.param(
            {"prompt_tokens": "1151", "completion_tokens": -35, "total_tokens": 1116.0},
            Usage(1151),
            id="usage-negative-or-string",
        ),
        pytest.param({"prompt_tokens": 5.0, "completion_tokens": True}, Usage(5), id="usage-float-and-bool"),
        pytest.param({"prompt_tokens": "9" * 40, "completion_tokens": 10**30}, None, id="usage-absurd"),
        pytest.param({"prompt_tokens": "²", "completion_tokens": 3}, Usage(None, 3), id="usage-superscript"),
        pytest.param({"input_tokens": 5, "output_tokens": 3}, Usage(5, 3), id="usage-other-names"),
        pytest.param(
            {"prompt_tokens": 5, "completion_tokens": 3, "prompt_cache_hit_tokens": 2},
            Usage(5, 3, 2),
            id="usage-deepseek-cache",
        ),
        pytest.param(
            {"prompt_tokens": 5, "completion_tokens": 3, "cached_tokens": 4}, Usage(5, 3, 4), id="usage-moonshot-cache"
        ),
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 22,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(10, 12, None, 7),
            id="usage-xai-reasoning-outside",
        ),
    ],
)
async def test_usage_is_what_is_known_and_nothing_made_up(ask: Ask, usage: object, expected: Usage | None) -> None:
    """A count that makes no sense is unknown: neither 0, nor a reason to lose the answer."""
    reply = await ask(answer({"content": "Hi"}, usage=usage))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage) == ("Hi", expected)


async def test_no_usage_at_all_is_unknown(ask: Ask) -> None:
    """usage-null-or-missing: an absent count is no count."""
    reply = await ask(answer({"content": "Hi"}))
    assert isinstance(reply, Reply)
    assert reply.usage is None


async def test_an_empty_reply_may_have_written_nothing(ask: Ask) -> None:
    """Zero tokens of an empty reply is a measurement, unlike zero tokens of a text."""
    reply = await ask(answer({"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 0}))
    assert isinstance(reply, Reply)
    assert reply.usage == Usage(9, 0)


@pytest.mark.parametrize(
    ("written", "arguments", "finish"),
    [
        pytest.param(300, '{"path":"a.txt","content":"hel', "length", id="truncation-mislabelled-tool-calls"),
        pytest.param(300, '{"path":"a.txt"}', "tool_calls", id="whole-call-at-the-limit"),
        pytest.param(300, "", "tool_calls", id="call-without-arguments-at-the-limit"),
        pytest.param(20, '{"action": listt"}', "tool_calls", id="malformed-args-must-not-be-called-truncated"),
    ],
)
async def test_a_call_broken_off_at_the_token_limit_was_cut_whatever_its_label_says(
    ask: Ask, written: int, arguments: str, finish: str
) -> None:
    """A cut reply is labelled ``tool_calls`` by vLLM; a broken call alone proves nothing."""
    request = ModelRequest("", [UserTurn("go")], max_output=300)
    reply = await ask(calling(a_call(arguments), usage={"prompt_tokens": 5, "completion_tokens": written}), request)
    assert isinstance(reply, Reply)
    assert reply.finish == finish


async def test_the_first_choice_counts(ask: Ask) -> None:
    """Servers may send several, in any order."""
    choices = [{"index": 1, "message": {"content": "B"}}, None, {"index": 0, "message": {"content": "A"}}]
    reply = await ask({"body": {"choices": choices}})
    assert isinstance(reply, Reply)
    assert reply.text == "A"


async def test_a_list_around_the_answer_is_looked_through(ask: Ask) -> None:
    """Gemini's gateways wrap answers as they wrap errors."""
    reply = await ask({"body": [{"choices": [{"message": {"content": "A"}}]}]})
    assert isinstance(reply, Reply)
    assert reply.text == "A"


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        pytest.param({"text": "<html>captive portal</html>"}, "is no JSON", id="html"),
        pytest.param({"text": ""}, "the body is empty", id="empty-body"),
        pytest.param({"text": '{"choices": [{"mess'}, "is no JSON", id="cut-json"),
        pytest.param({"text": '{"choices": [], "choices": []}'}, "stands twice", id="duplicate-keys"),
        pytest.param({"body": "hello"}, "is a str", id="json-text"),
        pytest.param({"body": None}, "is a NoneType", id="json-null"),
        pytest.param(
            {"body": {"choices": [], "usage": {"prompt_tokens": 5}}}, "neither a choice", id="choices-empty-list-200"
        ),
        pytest.param({"body": {"choices": None}}, "neither a choice", id="choices-null"),
        pytest.param({"body": {"id": "x"}}, "neither a choice", id="choices-missing"),
        pytest.param({"body": {"choices": ["x"]}}, "no list of objects", id="choices-of-text"),
        pytest.param({"body": {"choices": {"0": {}}}}, "no list of objects", id="choices-object"),
        pytest.param({"body": {"choices": [{"text": "x"}]}}, "choices[0].message", id="legacy-completion"),
        pytest.param({"body": {"choices": [{"message": "x"}]}}, "choices[0].message", id="message-is-text"),
        pytest.param({"body": {"choices": [{"message": {"content": 7}}]}}, "holds a int", id="content-number"),
        pytest.param({"body": {"choices": [{"message": {"content": [7]}}]}}, "holds a int", id="content-part-number"),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_failure(ask: Ask, exchange: dict[str, Any], words: str) -> None:
    """No IndexError, KeyError or TypeError, whatever comes; the text says what was wrong and shows the beginning."""
    failed = await ask({"status": 200, **exchange})
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, failed.status) == ("protocol", 200)
    assert words in failed.message


KEYS = [
    "choices",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "index",
    "error",
    "code",
    "usage",
    "prompt_tokens",
    "finish_reason",
    "type",
    "text",
    "detail",
    "details",
    "metadata",
    "status",
    "loc",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(body=json_values, choice=json_values, status=st.sampled_from([200, 400, 429, 500]))
def test_no_json_makes_the_reader_raise(body: object, choice: object, status: int) -> None:
    """Whatever a server sends, it is a reply or a typed failure with a bounded text."""
    for value in (body, {"choices": [choice]}, {"choices": [{"message": choice}]}, {"error": choice}):
        outcome = read_reply(Answer(status, {}, json.dumps(value).encode()), Redactor(), 0.0)
        if isinstance(outcome, ModelFailed):
            assert 0 < len(outcome.message) <= 500
        else:
            assert status == 200


@given(body=st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(body: bytes) -> None:
    """Bytes that are no JSON, no UTF-8 or nothing at all are failures too."""
    outcome = read_reply(Answer(200, {}, body), Redactor(), 0.0)
    assert isinstance(outcome, ModelFailed)
