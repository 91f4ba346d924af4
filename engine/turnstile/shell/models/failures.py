"""The error taxonomy: every way in which a request can bring no reply, as one `ModelFailed` kind.

What the body says is asked before the status, since servers put overflow under 400, 413 or 500, an empty purse under
429 and a rate limit under 200. Only then the status decides. All wires share this.
"""

from __future__ import annotations

import re
from functools import cache

from turnstile.core.errors import InvalidJSON
from turnstile.core.events import FailureKind, ModelFailed
from turnstile.core.strict_json import JsonValue, loads
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.error_body import ErrorBody, read_error
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.retry_after import retry_after

_BY_WORD: dict[FailureKind, str] = {
    # Each word is a provider's own code or type without punctuation, matched from its start.
    "context_overflow": (
        "contextlengthexceeded|exceedcontextsize|contextwindowexceeded|modelcontextwindowexceeded|prompttoolong|1261"
        "|requesttoolarge"
    ),
    "billing": (
        "insufficientquota|billing|insufficientbalance|insufficientcredits|creditbalance|paymentrequired|arrearage"
        "|exceededcurrentquota|ratelimitdaily|1113|\\w*perday"
    ),
    "content_filter": (
        "contentfilter|contentpolicyviolation|responsibleaipolicy|datainspectionfailed|moderation|promptblocked|1301"
    ),
    "generation_failed": "toolusefailed|outputparsefailed|jsonvalidatefailed|malformedfunctioncall|malformedtoolcall",
    "authentication": (
        "invalidapikey|authentication|unauthenticated|unauthorized|incorrectapikey|apikeyinvalid|apikeyexpired"
        "|invalidauthentication"
    ),
    "permission": "permission|accessdenied|tiernotallowed|forbidden|unsupportedcountry",
    "not_found": "modelnotfound|notfound|deploymentnotfound|modelnotexist|unknownurl",
    "rate_limited": "ratelimit|toomanyrequests|throttling|resourceexhausted|limitrequests|limitburst|1302|1305",
    "overloaded": (
        "overloaded|engineoverloaded|serverbusy|unavailable|serviceunavailable|capacityexceeded|noavailable"
        "|insufficientsystemresource"
    ),
    "timeout": "timeout|requesttimeout",
    "bad_request": "invalidrequest|invalidparameter|badrequest",
    "server": "apierror|servererror|internalerror|internalservererror",
}
_BY_TEXT: dict[FailureKind, str] = {
    # The words that stand in messages where no code does, or one that is used for everything. Every repetition is
    # bounded, so that no message takes longer than its length (a server may be hostile).
    "context_overflow": (
        r"maximum context length|maximum prompt length|context[_ ](?:length|window|size)[^.]{0,40}exceed"
        r"|exceed\w{0,4}[^.]{0,40}context[_ ](?:length|window|size|limit)|exceed\w{0,4}[^.]{0,20}model token limit"
        r"|context (?:shift is disabled|the overflows)|context overflow|prompt (?:is )?too long|input (?:is )?too long"
        r"|input tokens? (?:count )?[^.]{0,30}exceed|exceeds the maximum number of tokens|too many (?:input )?tokens"
        r"|range of input length should be|reduce the length of (?:the|your) (?:messages|prompt|input)"
        r"|tokens in request more than max tokens|too large for model with"
    ),
    "billing": r"insufficient (?:balance|credits?|funds)|credit balance is too low|requires more credits|per[ -]day",
    "content_filter": (
        r"content management policy|content[ _]filter|inappropriate content|content exists risk|considered high risk"
        r"|flagged by (?:our |the )?moderation|input was flagged"
    ),
    "generation_failed": (
        r"tool call validation failed|failed to parse (?:tool call|input at pos)|malformed function call"
    ),
    "authentication": r"api key not valid|invalid (?:api[ -]?key|authentication)|incorrect api key",
}
_WORDS_ASKED = 32 * 1024  # characters of a message that are searched

_BY_STATUS: dict[int, FailureKind] = {
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    405: "not_found",
    408: "timeout",
    409: "server",  # OpenAI's own clients send a conflict again
    410: "not_found",
    413: "context_overflow",  # whatever the words are, only a smaller request can pass
    425: "rate_limited",
    429: "rate_limited",
    498: "overloaded",  # Groq: flex tier at capacity
    503: "overloaded",
    504: "timeout",
    524: "timeout",  # Cloudflare
    529: "overloaded",  # Anthropic
}
_DECIDED = {401, 402, 403, 429}  # a status that no message may turn into an overflow
_PRECISE: tuple[FailureKind, ...] = ("context_overflow", "billing", "content_filter", "generation_failed")
_VAGUE: tuple[FailureKind, ...] = ("timeout", "bad_request", "server")  # words that count where no status speaks
_REDIRECTS = range(300, 400)
_CLIENT_ERRORS = range(400, 500)


def failed_answer(answer: Answer, clean: Redactor, now: float) -> ModelFailed:
    """The failure that an answer with an error status stands for."""
    try:
        value = loads(answer.body)
    except InvalidJSON:
        value = answer.text
    if answer.status in _REDIRECTS:
        where = clean(answer.headers.get("location", "elsewhere"))
        message = f"the server redirects to {where}; give the address it stands at as base_url"
        return ModelFailed("not_found", message, answer.status, clean(answer.request_id))
    return failed_body(value, answer, clean, now)


def failed_body(value: JsonValue, answer: Answer, clean: Redactor, now: float) -> ModelFailed:
    """The failure that an error's body stands for, under whatever status it came.

    Args:
        value: The body, or the part of it that speaks of an error.
        answer: The whole answer, for its status and headers.
        clean: Takes secrets out of what is kept.
        now: The time in seconds since the epoch.
    """
    error = read_error(value)
    status = error.status if answer.status < _CLIENT_ERRORS.start else answer.status
    return ModelFailed(
        kind=_kind(error, status),
        message=clean(error.message or answer.text) or "the server gave no reason",
        status=status or answer.status,
        request_id=clean(answer.request_id or error.request_id),
        retry_after=retry_after(answer.headers, error.delay, error.message[:_WORDS_ASKED], now),
    )


def unreadable(problem: str, answer: Answer, clean: Redactor) -> ModelFailed:
    """The failure of an answer that came under a good status and is no valid answer."""
    excerpt = clean(answer.text, longest=300)
    message = f"{problem}; the body begins {excerpt!r}" if excerpt else f"{problem}; the body is empty"
    return ModelFailed("protocol", clean(message), answer.status, clean(answer.request_id))


def broken_off(answer: Answer, clean: Redactor) -> ModelFailed:
    """The failure of a stream that ended, as if all were well, before its reply was whole."""
    message = "the stream ended before the reply was whole: nothing of it is kept"
    return ModelFailed("network", message, answer.status, clean(answer.request_id))


def _kind(error: ErrorBody, status: int | None) -> FailureKind:
    message = error.message[:_WORDS_ASKED]
    for kind in _PRECISE:
        if kind == "context_overflow" and status in _DECIDED:
            continue
        if _says(kind, error, message):
            return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    asked = [kind for kind in _BY_WORD if kind not in _PRECISE and (status is None or kind not in _VAGUE)]
    for kind in asked:
        if _says(kind, error, message):
            return kind
    if status is None:
        return "protocol"
    return "bad_request" if status in _CLIENT_ERRORS else "server"


def _says(kind: FailureKind, error: ErrorBody, message: str) -> bool:
    words, text = _patterns(kind)
    return any(words.fullmatch(word) for word in error.words) or bool(text and text.search(message))


@cache
def _patterns(kind: FailureKind) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """Compiled with the first failure: most runs have none, and compiling takes as long as importing all the rest."""
    text = _BY_TEXT.get(kind)
    return re.compile(rf"(?:{_BY_WORD[kind]})\w*"), re.compile(rf"(?i){text}") if text else None
