"""What is said, as content blocks of the Messages API: user turns, replies and results.

A block that the API would refuse is never made: no blank text, no result that failed without a word, no input that is
not an object. What the same server wrote goes back as it came, but for the blank texts that it would not take back.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode

from turnstile.core.errors import InvalidJSON
from turnstile.core.messages import Attachment, Reply, ToolCall, ToolResult, UserTurn
from turnstile.core.strict_json import JsonValue, loads
from turnstile.shell.models.chat_request import object_text, safe_name
from turnstile.shell.models.json_text import as_dict, as_text, dumps

Block = dict[str, JsonValue]

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # Messages API, "Vision", the formats it takes
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # Messages API, tool_use.id: "should match pattern '^[a-zA-Z0-9_-]+$'"


class Unsendable(Exception):
    """The protocol has no form for a part of the conversation; carries which."""


def user_blocks(turn: UserTurn) -> list[Block]:
    """What a user says: pictures and files first, as the documentation advises, then the words."""
    blocks = [_attached(attachment) for attachment in turn.attachments]
    return [*blocks, *_text(turn.text)]


def reply_blocks(reply: Reply, wire: str, *, is_last: bool = False) -> list[Block]:
    """A reply as it was written, when this wire wrote it; else its text and calls.

    Args:
        reply: The reply.
        wire: The wire that asks.
        is_last: Whether the conversation ends with it; its text may not end in white space then.
    """
    blocks = (_native(reply) if reply.wire == wire and reply.native else None) or plain_blocks(reply)
    last = blocks[-1] if blocks else {}
    if is_last and last.get("type") == "text":
        blocks[-1] = {**last, "text": as_text(last.get("text")).rstrip()}
    return blocks


def plain_blocks(reply: Reply) -> list[Block]:
    """A reply's text and calls, in no more words than every server takes."""
    return [*_text(reply.text), *map(_call, reply.calls)]


def result_blocks(results: tuple[ToolResult, ...]) -> list[Block]:
    """The results of a reply's calls, in call order; all but a good one are marked as errors."""
    return [_result(result) for result in results]


def _native(reply: Reply) -> list[Block] | None:
    """The blocks that the server wrote, under the calls' ids of today; nothing when they are not those of the calls."""
    try:
        written = loads(reply.native)
    except InvalidJSON:
        return None
    if not isinstance(written, list):
        return None
    blocks = [as_dict(block) for block in written if not _is_blank(as_dict(block))]
    ids = iter([wire_id(call.id) for call in reply.calls])
    if sum(block.get("type") == "tool_use" for block in blocks) != len(reply.calls):
        return None
    return [{**block, "id": next(ids)} if block.get("type") == "tool_use" else block for block in blocks]


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not as_text(block.get("text")).strip()


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _call(call: ToolCall) -> Block:
    given = loads(object_text(call.arguments))
    return {"type": "tool_use", "id": wire_id(call.id), "name": safe_name(call.name), "input": given}


def _result(result: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": wire_id(result.call_id), "content": result.content}
    failed = result.status != "ok"
    if not result.content.strip():
        block["content"] = f"{safe_name(result.name)} failed and did not say why" if failed else "(empty)"
    if failed:
        block["is_error"] = True
    return block


def wire_id(call_id: str) -> str:
    """A call's id in the letters that the API takes; another server's that has others becomes a digest of it."""
    return call_id if _ID.fullmatch(call_id) else f"toolu_{hashlib.sha256(dumps(call_id)).hexdigest()[:24]}"


def _attached(attachment: Attachment) -> Block:
    kind, source = attachment.media_type.partition(";")[0].strip().lower(), _source(attachment)
    if kind in IMAGES or (attachment.url and attachment.is_image):
        return {"type": "image", "source": source}
    if kind.startswith("text/") and attachment.data:
        source = {"type": "text", "media_type": "text/plain", "data": _decoded(attachment)}
    elif kind != "application/pdf":
        raise Unsendable(
            f"the Messages API takes pictures ({', '.join(IMAGES)}), application/pdf and text; "
            f"got the attachment {attachment.name!r} of type {attachment.media_type!r}"
        )
    document: Block = {"type": "document", "source": source}
    return {**document, "title": attachment.name} if attachment.name else document


def _source(attachment: Attachment) -> Block:
    if attachment.url:
        return {"type": "url", "url": attachment.url}
    return {"type": "base64", "media_type": attachment.media_type, "data": attachment.data}


def _decoded(attachment: Attachment) -> str:
    try:
        return b64decode(attachment.data, validate=True).decode()
    except ValueError:
        raise Unsendable(
            f"the attachment {attachment.name!r} of type {attachment.media_type!r} is no base64 of UTF-8 text"
        ) from None
