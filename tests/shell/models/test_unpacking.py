"""Packed bodies: what was packed comes out, however it is cut, and a server decides over a bounded part of us."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.shell.models.events import Unfit
from turnstile.shell.models.unpacking import unpacked

MOST = 1_000_000


def unwrapped(data: bytes) -> bytes:
    """Deflated, without the two bytes before and the four behind that belong to it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", unwrapped),
]


async def pieces(body: bytes, at_once: int, packing: str, most: int = MOST) -> list[bytes]:
    """What comes out of a body that comes so many bytes at once."""

    async def coming() -> AsyncGenerator[bytes]:
        for place in range(0, len(body), at_once):
            yield body[place : place + at_once]

    return [piece async for piece in unpacked(coming(), packing, most)]


@pytest.mark.parametrize(("packing", "pack"), PACKERS)
@given(data=st.binary(max_size=3_000), times=st.sampled_from([1, 50]), at_once=st.sampled_from([1, 7, 65_536]))
async def test_what_was_packed_comes_out(
    packing: str, pack: Callable[[bytes], bytes], data: bytes, times: int, at_once: int
) -> None:
    """Chunks end anywhere, within the head, too; and a full piece is followed by the rest."""
    assert b"".join(await pieces(pack(data * times), at_once, packing)) == data * times


@pytest.mark.parametrize("at_once", [1, 65_536])
async def test_what_stands_behind_the_end_is_no_part_of_it(at_once: int) -> None:
    """Kept, it would grow for as long as a server goes on, and be copied each time."""
    assert b"".join(await pieces(gzip.compress(b"{}") + b"x" * 100_000, at_once, "gzip")) == b"{}"


async def test_a_piece_is_small_however_much_is_packed_into_a_chunk() -> None:
    """A thousand times as much comes out as goes in, and who reads it counts as it comes."""
    found = await pieces(gzip.compress(b" " * 10_000_000), 65_536, "gzip")
    assert max(map(len, found)) <= 65_536
    assert sum(map(len, found)) == 10_000_000


@pytest.mark.parametrize(
    ("body", "packing", "problem"),
    [
        (b"no gzip", "gzip", r"said to be packed by gzip, and is not"),
        (b"\xff" * 9, "deflate", r"said to be packed by deflate, and is not"),
        (gzip.compress(b"{}")[:-9], "gzip", r"packed by gzip, and ends too soon"),
        (zlib.compress(b"{}")[:-1], "deflate", r"packed by deflate, and ends too soon"),
        (gzip.compress(b"{}") + b"x" * MOST, "gzip", r"more than 1000000 packed bytes, no more are read"),
    ],
)
async def test_what_cannot_be_unpacked_is_named(body: bytes, packing: str, problem: str) -> None:
    """The server is at fault, and the run says how."""
    with pytest.raises(Unfit, match=problem):
        await pieces(body, 65_536, packing)


async def test_an_empty_body_is_empty() -> None:
    """A server may say how it packs, and send nothing."""
    assert await pieces(b"", 1, "gzip") == []


async def test_a_chunk_that_holds_nothing_changes_nothing() -> None:
    """How a body is packed is seen by its first byte, which may come later."""

    async def coming() -> AsyncGenerator[bytes]:
        for chunk in (b"", unwrapped(b"{}"), b""):
            yield chunk

    assert b"".join([piece async for piece in unpacked(coming(), "deflate", MOST)]) == b"{}"
