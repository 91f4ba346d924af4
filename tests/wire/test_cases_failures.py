"""Requests that bring no reply: what is sent again, when, how often, and what a run says of the others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from turnstile import Agent, Limits, Retry, TurnstileError, UserTurn
from turnstile.core.events import ModelFailed
from turnstile.core.run_state import RunState
from turnstile.models import OpenAIChat
from turnstile.ports import Notice
from turnstile.testing import FrozenClock, WireServer
from wire_case import Case, Played, chat, play, said

OLD = [UserTurn("old question"), *said([{"role": "assistant", "content": "an old answer, " * 40}])] * 4


def error(played: Played) -> ModelFailed:
    """The failure that ended a run."""
    assert not played.result.ok
    assert played.result.stop is not None
    assert played.result.stop.error is not None
    return played.result.stop.error


async def assert_fails_at_once(case: Case, kind: str, *words: str, exchanges: Any = None) -> None:
    """Check that a failure ends the run after one request, without a wait, in the server's words."""
    played = await play(case, exchanges=exchanges)
    assert (len(played.requests), list(played.slept)) == (1, [])
    assert error(played).kind == kind
    for word in words:
        assert word in error(played).message


async def test_bad_request_must_not_be_retried(case: Case) -> None:
    """A body that a server cannot read is no better the second time."""
    await assert_fails_at_once(case, "bad_request", "invalid message content type: <nil>")


async def test_daily_quota_429_is_fatal(case: Case) -> None:
    """A quota that comes back tomorrow is not waited for, and is named."""
    await assert_fails_at_once(case, "billing", "GenerateRequestsPerDayPerProjectPerModel-FreeTier")


async def test_insufficient_quota_429_not_retried(case: Case) -> None:
    """An empty purse is no rate limit."""
    await assert_fails_at_once(case, "billing", "exceeded your current quota")


async def test_http_403_not_retried(case: Case) -> None:
    """What is forbidden stays so; of a page that blocks us only an excerpt is kept."""
    await assert_fails_at_once(case, "permission", "Model not available for your tier")
    page = {"status": 403, "headers": {"content-type": "text/html"}, "text": "<html>" + "blocked " * 9_999}
    played = await play(case, exchanges=[page])
    assert (error(played).kind, len(played.requests)) == ("permission", 1)
    assert len(error(played).message) <= 500


async def test_error_422_detail_list(case: Case) -> None:
    """A validation error says where and what, in each of its forms."""
    await assert_fails_at_once(case, "bad_request", "Extra inputs are not permitted", "messages.2.assistant")
    await assert_fails_at_once(case, "bad_request", "no", exchanges=[{"status": 422, "body": {"detail": "no"}}])
    await assert_fails_at_once(case, "bad_request", exchanges=[{"status": 422, "text": ""}])


async def test_error_body_json_but_not_object(case: Case) -> None:
    """Errors in any JSON at all are read, the first two sent again."""
    played = await play(case)
    assert len(played.requests) == 3
    assert (error(played).kind, error(played).message) == ("bad_request", "x")


async def test_gemini_retryinfo_in_body(case: Case) -> None:
    """A wait that stands in the body is kept to; the header wins, and nonsense is ignored."""
    played = await play(case)
    assert played.result.output == "done"
    assert played.slept[0] >= 45.8
    limited = case.exchanges[0]
    played = await play(case, exchanges=[{**limited, "headers": {"retry-after": "2"}}, chat()])
    assert 2 <= played.slept[0] < 45
    nonsense = {"error": {"message": "no", "details": [{"retryDelay": "-3s"}, {"retryDelay": "soon"}]}}
    played = await play(case, exchanges=[{"status": 429, "body": nonsense}, chat()])
    assert 0 <= played.slept[0] <= Retry().base_delay


async def test_retry_after_http_date(case: Case) -> None:
    """A date is waited for, and one that has passed is not."""
    for start, least, most in ((1_445_412_477, 3, 3), (1_445_412_999, 0, Retry().base_delay)):
        played = await play(case, clock=FrozenClock(start=start))
        assert least <= played.slept[0] <= most
        assert (played.result.output, len(played.requests)) == ("done", 2)


async def test_retry_after_is_a_floor(case: Case) -> None:
    """A server gets the time that it asks for, and whoever cancels meanwhile waits for nothing."""
    played = await play(case)
    assert played.slept[0] >= 7

    class Endless(FrozenClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.Event().wait()  # whoever does not cancel this never ends

    class Canceller:
        def observe(self, notice: Notice, state: RunState) -> None:
            if getattr(notice, "row", "") == "retry":
                run.cancel("enough")

    with WireServer(case.exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        async with Agent(client, observers=[Canceller()], clock=Endless()).start("q") as run:
            result = await run.finish()
        await client.aclose()
    assert result.stop is not None
    assert (result.stop.reason, len(server.requests)) == ("cancelled", 1)


async def test_retry_after_too_long(case: Case) -> None:
    """A run that may not wait so long says so at once, and how long the server asks for."""
    await assert_fails_at_once(case, "rate_limited")
    assert error(await play(case)).retry_after == 86_400
    played = await play(
        case, exchanges=[{**case.exchanges[0], "headers": {"retry-after": "30"}}], limits=Limits(seconds=20)
    )
    assert (error(played).retry_after, list(played.slept)) == (30, [])


async def test_retry_layers_multiply(case: Case) -> None:
    """There is one layer of attempts, and each stands in the trace with its number and its wait."""
    played = await play(case, retry=Retry(attempts=1 + 2))
    assert len(played.requests) == 3
    assert played.rows == ["retry", "retry", "gave_up"]
    asked = [move.asks for move in played.result.transitions[:2]]
    assert ["attempt 2" in asked[0], "attempt 3" in asked[1]] == [True, True]
    delays = [move.error.delay for move in played.result.transitions[:2] if move.error]
    assert delays == list(played.slept)


async def test_choices_empty_list_200(case: Case) -> None:
    """An answer with no choice is none; it leaves no trace in the history."""
    played = await play(case)
    assert played.result.output == "done"
    assert played.bodies[0] == played.bodies[1]


async def test_choices_null_with_error_in_200(case: Case) -> None:
    """The error that a good status hides decides: sent again or not as its own code says."""
    assert (await play(case)).result.output == "done"
    for code, kind in ((400, "bad_request"), (401, "authentication")):
        body = {"error": {"message": "Provider returned error", "code": code}, "choices": None}
        await assert_fails_at_once(case, kind, "Provider returned error", exchanges=[{"status": 200, "body": body}])


async def test_gateway_200_error_flat_body(case: Case) -> None:
    """A body with neither choices nor an error key is a failure in the server's words."""
    played = await play(case, exchanges=[{**case.exchanges[0], "repeat": 9}])
    assert "daily limit" in error(played).message
    assert len(error(played).message) <= 500


async def test_groq_unknown_tool_400(case: Case) -> None:
    """A server that refuses the model's own call is asked again, saying so; the caller did nothing wrong."""
    played = await play(case)
    assert (played.result.output, played.rows[0]) == ("done", "repair_call")
    assert "memory_recall" in played.last[-1]["content"]


@pytest.mark.cases(
    "ctx-gemini-wording",
    "ctx-llamacpp-200",
    "ctx-llamacpp-400",
    "ctx-llamacpp-500",
    "ctx-llamacpp-shift-disabled",
    "ctx-vllm-input-plus-output",
)
async def test_context_overflow(case: Case) -> None:
    """Overflow in anybody's words is met by a smaller request, never by the same one, and else ends the run."""
    played = await play(case, history=OLD)
    assert played.result.output == "done"
    assert [len(request.content) for request in played.requests] == sorted(
        {len(request.content) for request in played.requests}, reverse=True
    )
    assert played.last[-1] == {"role": "user", "content": "q"}
    await assert_fails_at_once(case, "context_overflow", _words(case))


def _words(case: Case) -> str:
    body = case.exchanges[0]["body"]
    message: str = (body[0] if isinstance(body, list) else body)["error"]["message"]
    return message


async def test_ctx_off_by_one_compaction(case: Case) -> None:
    """After an overflow each request is smaller than the one before, and there are only so many."""
    settings = {"max_tokens": 200}
    played = await play(case, history=OLD, settings=settings)
    assert played.result.output == "done"
    assert len(played.requests[1].content) < len(played.requests[0].content)
    played = await play(case, history=OLD, settings=settings, exchanges=[{**case.exchanges[0], "repeat": 9}])
    sizes = [len(request.content) for request in played.requests]
    assert sizes == sorted(set(sizes), reverse=True)
    assert (error(played).kind, len(sizes) <= 4) == ("context_overflow", True)


async def test_library_raises_systemexit_on_overflow(case: Case) -> None:
    """The engine ends a run, never the process."""
    played = await play(case)
    assert played.reason == "context_overflow"
    with pytest.raises(TurnstileError):
        _ = played.result.output


async def test_headers_logged_at_debug(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """A key is in no log, whatever its level, and in no repr."""
    caplog.set_level(logging.DEBUG)
    played = await play(case, options={"api_key": "sk-test-zzz"})
    assert played.requests[0].headers["authorization"] == "Bearer sk-test-zzz"
    shown = f"{caplog.text} {played.result!r} {OpenAIChat('m', api_key='sk-test-zzz')!r}"
    assert "sk-test-zzz" not in shown
    assert "Bearer sk" not in shown


async def test_key_in_url_query(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """A key in an address is in no error, repr, log or trace, though the address cannot be reached."""
    caplog.set_level(logging.DEBUG)
    with WireServer() as server:
        url = server.url
    client = OpenAIChat("m", base_url=f"{url}/v1?key=SECRET123")
    result = await Agent(client, clock=FrozenClock()).run("q")
    await client.aclose()
    assert result.stop is not None
    assert (result.stop.error.kind if result.stop.error else "") == "network"
    with pytest.raises(TurnstileError) as caught:
        _ = result.output
    shown = f"{caplog.text} {result!r} {client!r} {caught.value!r} {caught.value.__cause__!r}"
    assert "SECRET123" not in shown
    assert "127.0.0.1" in shown
