"""Bodies that a server packs although it is asked not to: unpacked in pieces, each of a bounded size."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

from turnstile.shell.models.events import Unfit

# Once, and by no other: each is one pass of zlib, whose manual says how it is told which.
PACKINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_UNWRAPPED = -zlib.MAX_WBITS  # as some servers send "deflate", against RFC 9110, section 8.4.1.2
_PIECE = 65_536  # bytes that are unpacked at once


async def unpacked(chunks: AsyncGenerator[bytes], packing: str, most: int) -> AsyncGenerator[bytes]:
    """A body as it was before it was packed; what a server sends behind its end is read, and is nobody's.

    Args:
        chunks: The body as it comes.
        packing: One of `PACKINGS`.
        most: How many bytes may come.

    Raises:
        Unfit: More come, or they are not what they are said to be, or end too soon.
    """
    unpacker = zlib.decompressobj(PACKINGS[packing])
    size = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            if not size and chunk and packing == "deflate" and not _is_wrapped(chunk):
                unpacker = zlib.decompressobj(_UNWRAPPED)
            size += len(chunk)
            if size > most:
                raise Unfit(f"an answer of more than {most} packed bytes, no more are read")
            left, piece = chunk, b""
            while not unpacker.eof and (left or len(piece) == _PIECE):  # a full piece may not have been all
                try:
                    piece = unpacker.decompress(left, _PIECE)
                except zlib.error as error:
                    raise Unfit(f"the answer is said to be packed by {packing}, and is not ({error})") from None
                left = unpacker.unconsumed_tail
                if piece:
                    yield piece
    if size and not unpacker.eof:
        raise Unfit(f"the answer is packed by {packing}, and ends too soon")


def _is_wrapped(start: bytes) -> bool:
    """Whether this begins what zlib has written (RFC 1950, section 2.2): its method, and a sum over two bytes."""
    return start[0] & 0x0F == zlib.DEFLATED and (len(start) == 1 or int.from_bytes(start[:2]) % 31 == 0)
