"""The error taxonomy: which kind each server's way of failing is, and what is kept of its words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply

Ask = Callable[..., Awaitable[Reply | ModelFailed]]


def error(
    status: int, message: str = "", /, *, headers: dict[str, str] | None = None, **more: object
) -> dict[str, Any]:
    """An exchange that fails as OpenAI's do."""
    return {"status": status, "headers": headers or {}, "body": {"error": {"message": message, **more}}}


def body(status: int, value: object) -> dict[str, Any]:
    """An exchange that fails in a shape of its own."""
    return {"status": status, "body": value}


CASES = [json.loads(line) for line in (Path(__file__).parent / "failures.jsonl").read_text("utf-8").splitlines()]
"""What servers answer when they fail, one exchange a line with the kind that it is."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_each_way_of_failing_has_its_kind(ask: Ask, case: dict[str, Any]) -> None:
    """The kind decides whether a run retries, trims, goes to the next model or ends, so it holds for every server."""
    failed = await ask(case["exchange"])
    assert isinstance(failed, ModelFailed)
    assert failed.kind == case["kind"]
    assert failed.message


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        (
            body(422, {"detail": [{"loc": ["body", "messages", 2], "msg": "Extra inputs are not permitted"}]}),
            "body.messages.2: Extra inputs",
        ),
        (body(422, {"detail": ["one", {"msg": "two"}]}), "one; two"),
        (body(400, {"message": {"detail": "deep"}}), "deep"),
        (body(400, {"errors": [{"message": "first"}, {"message": "second"}]}), "first"),
        (error(500, "Provider returned error", metadata={"raw": "the model's own words"}), "the model's own words"),
        (error(429, "Quota exceeded", details=[{"violations": [{"quotaId": "RequestsPerDay"}]}]), "RequestsPerDay"),
        (body(200, {"code": "rate_limit_daily", "message": "daily limit"}), "daily limit"),
        (body(400, {"error": {"type": "weird"}}), "weird"),
        ({"status": 500, "text": ""}, "the server gave no reason"),
    ],
)
async def test_the_servers_words_are_kept(ask: Ask, exchange: dict[str, Any], words: str) -> None:
    """Whoever reads the log must see what the server said, whatever shape it has."""
    failed = await ask(exchange)
    assert isinstance(failed, ModelFailed)
    assert words in failed.message


async def test_a_redirect_names_where_the_server_stands(ask: Ask) -> None:
    """A redirect is not followed: it would send the key elsewhere, and a wrong base_url is better mended."""
    failed = await ask(
        {"status": 308, "headers": {"location": "https://elsewhere.example/v1?key=SECRET123"}, "text": ""}
    )
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, failed.status) == ("not_found", 308)
    assert "https://elsewhere.example/v1" in failed.message
    assert "SECRET123" not in failed.message


async def test_the_providers_request_id_is_kept(ask: Ask) -> None:
    """Its support asks for it; DashScope puts it into the body."""
    in_header = await ask(error(500, "boom", headers={"x-request-id": "req-1"}))
    in_body = await ask(body(500, {"error": {"message": "boom"}, "request_id": "req-2"}))
    assert isinstance(in_header, ModelFailed)
    assert isinstance(in_body, ModelFailed)
    assert (in_header.request_id, in_body.request_id) == ("req-1", "req-2")


async def test_a_page_of_html_is_shortened(ask: Ask) -> None:
    """A message is one line of bounded length, so that neither log nor journal is flooded."""
    failed = await ask({"status": 502, "text": "<html>\n" + "x" * 100_000})
    assert isinstance(failed, ModelFailed)
    assert len(failed.message) == 500
    assert "\n" not in failed.message


@pytest.mark.parametrize(
    ("headers", "more", "seconds"),
    [
        pytest.param({"retry-after": "7"}, {}, 7.0, id="retry-after-is-a-floor"),
        pytest.param({"retry-after": "86400"}, {}, 86400.0, id="retry-after-too-long"),
        pytest.param({"retry-after-ms": "1500", "retry-after": "9"}, {}, 1.5, id="retry-after-ms"),
        pytest.param(
            {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:27:57 GMT"},
            {},
            3.0,
            id="retry-after-http-date",
        ),
        pytest.param({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}, 0.0, id="retry-after-http-date-past"),
        pytest.param(
            {"retry-after": "Wed, 21 Oct 2015 07:28:00", "date": "Wed, 21 Oct 2015 07:27:59 -0000"},
            {},
            1.0,
            id="date-without-zone",
        ),
        pytest.param({"retry-after": "-3"}, {}, None, id="retry-after-negative"),
        pytest.param({"retry-after": "inf"}, {}, None, id="retry-after-infinite"),
        pytest.param({"retry-after": "soon"}, {}, None, id="retry-after-word"),
        pytest.param({}, {"details": [{"retryDelay": "45.837000001s"}]}, 45.837000001, id="gemini-retryinfo-in-body"),
        pytest.param({"retry-after": "2"}, {"details": [{"retryDelay": "45s"}]}, 2.0, id="header-wins"),
        pytest.param({}, {"details": [{"retryDelay": "-45s"}]}, None, id="gemini-retryinfo-negative"),
        pytest.param({}, {"details": [{"retryDelay": {"seconds": 4}}]}, None, id="gemini-retryinfo-object"),
        pytest.param({}, {"retry_after": 12}, 12.0, id="body-number"),
        pytest.param(
            {}, {"message": "Rate limit reached. Please try again in 1m26.4s. Visit …"}, 86.4, id="openai-words"
        ),
        pytest.param({}, {"message": "Please try again in 120ms."}, 0.12, id="openai-milliseconds"),
        pytest.param({}, {"message": "Please retry after 2 minutes"}, 120.0, id="words-of-minutes"),
        pytest.param({}, {"message": "Please retry after 1h2m3s"}, 3723.0, id="words-of-hours"),
        pytest.param({}, {"message": "Please try again in a moment"}, None, id="words-without-number"),
        pytest.param({}, {}, None, id="nothing"),
    ],
)
async def test_how_long_to_wait_is_read_in_every_form(
    ask: Ask, headers: dict[str, str], more: dict[str, Any], seconds: float | None
) -> None:
    """A wait that is read wrongly either burns all attempts or makes the agent hang."""
    failed = await ask(error(429, headers=headers, **more))
    assert isinstance(failed, ModelFailed)
    assert failed.retry_after == pytest.approx(seconds)
