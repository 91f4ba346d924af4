"""The hash chain: whatever becomes of a run's rows, the first one that is not what was written is named."""

from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.codec import codec
from turnstile.core.errors import CodecError, RecordDamaged
from turnstile.core.events import Event, MessageInjected, RunStarted
from turnstile.ports import Record
from turnstile.shell.stores.chain import first_seal, seal, verified

Row = tuple[object, ...]
RUN = "run"


def rows_of(*events: Event) -> list[Row]:
    """The rows as a store writes them."""
    rows: list[Row] = []
    previous = first_seal(RUN)
    for seq, event in enumerate(events, 1):
        text, row = codec.encode(event), "" if seq == 1 else "injected"
        previous = seal(previous, seq, seq + 0.5, 1.25, text, row=row)
        rows.append((seq, seq + 0.5, 1.25, row, text, previous))
    return rows


WHOLE = rows_of(RunStarted(RUN, "prompt"), *(MessageInjected(f"message {n}") for n in range(4)))


def check(rows: list[Row], run_id: str = RUN) -> tuple[Record, ...]:
    """Verify rows against the summary of the whole run."""
    sealed = WHOLE[-1][-1]
    assert isinstance(sealed, bytes)
    return verified(run_id, rows, len(WHOLE), sealed, codec=codec, place="runs.db")


def test_whole_rows_are_records() -> None:
    """What was written is what is read, times included."""
    records = check(WHOLE)
    assert records[0] == Record(RunStarted(RUN, "prompt"), at=1.5, duration_ms=1.25)
    assert records[4] == Record(MessageInjected("message 3"), at=5.5, duration_ms=1.25, row="injected")


def flipped(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, str):
        return f"{value}!"
    return bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) else value + 1  # type: ignore[operator]


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 5))
def test_a_changed_value_is_found(index: int, column: int) -> None:
    """Every column is covered: number, times, row, text and seal."""
    row = list(WHOLE[index])
    row[column] = flipped(row[column])
    with pytest.raises(RecordDamaged) as found:
        check([*WHOLE[:index], tuple(row), *WHOLE[index + 1 :]])
    assert (found.value.run_id, found.value.seq, found.value.place) == (RUN, index + 1, "runs.db")


@pytest.mark.parametrize(
    ("rows", "seq"),
    [
        pytest.param(WHOLE[:2] + WHOLE[3:], 3, id="one left out"),
        pytest.param(WHOLE[:3] + WHOLE[2:], 4, id="one repeated"),
        pytest.param([WHOLE[1], WHOLE[0], *WHOLE[2:]], 1, id="two exchanged"),
        pytest.param(WHOLE[:-1], 5, id="cut at the end"),
        pytest.param([], 1, id="all gone"),
        pytest.param(WHOLE + rows_of(*[MessageInjected("")] * 6)[5:], 6, id="one put on"),
        pytest.param([(1, 1.5, 1.25, "", "text", b""), *WHOLE[1:]], 1, id="another type"),
        pytest.param([WHOLE[0][:5], *WHOLE[1:]], 1, id="another shape"),
    ],
)
def test_rows_out_of_place_are_found(rows: list[Row], seq: int) -> None:
    """Each row may be sound in itself, and the run still be another than the one that was written."""
    with pytest.raises(RecordDamaged, match=f"record {seq} of run 'run' is damaged") as found:
        check(rows)
    assert found.value.seq == seq


def test_rows_of_another_run_are_found() -> None:
    """A chain begins with the run's id, so one run's records cannot pass for another's."""
    with pytest.raises(RecordDamaged, match="record 1 of run 'other'"):
        check(WHOLE, "other")


def test_a_whole_run_in_place_of_a_newer_one_is_found() -> None:
    """An older copy of the records is whole in itself; the summary tells that it is not the newest."""
    same_length = rows_of(RunStarted(RUN, "prompt"), *(MessageInjected("another") for _ in range(4)))
    with pytest.raises(RecordDamaged, match=r"record 5 .*not the one that the run's summary holds"):
        check(same_length)


def test_a_sound_record_of_an_unknown_event_is_the_codecs_matter() -> None:
    """An extension's event read without that extension is no damage, and must not be called so."""
    text = b'{"v": 1, "type": "Elsewhere"}'
    sealed = seal(first_seal(RUN), 1, 0.0, 0.0, text)
    with pytest.raises(CodecError, match="Elsewhere"):
        verified(RUN, [(1, 0.0, 0.0, "", text, sealed)], 1, sealed, codec=codec, place="runs.db")


@pytest.mark.parametrize(
    "change",
    [
        lambda: first_seal("run 1") == first_seal("run 2"),
        lambda: seal(b"a", 1, 0.0, 0.0, b"x") == seal(b"b", 1, 0.0, 0.0, b"x"),
        lambda: seal(b"a", 1, 0.0, 1.0, b"x") == seal(b"a", 1, 1.0, 0.0, b"x"),
        lambda: seal(b"a", 1, 0.0, 0.0, b"x") == seal(b"a", 1, 0.0, 0.0, b"x", row="y"),
        lambda: seal(b"a", 1, 0.0, 0.0, b"x", row="y") == seal(b"a", 1, 0.0, 0.0, b"yx"),
    ],
)
def test_different_things_have_different_seals(change: Callable[[], bool]) -> None:
    """Nothing that a seal covers may stand for something else."""
    assert not change()


def test_a_seal_is_what_it_has_always_been() -> None:
    """Stored journals are older than any code, so what their seals are made of must never change."""
    first = sha256(b"run").digest()
    numbers = bytes.fromhex("00000000000000013ff80000000000003fd0000000000000")  # 1, 1.5, 0.25
    assert first_seal("run") == first
    assert seal(first, 1, 1.5, 0.25, b"{}") == sha256(first + numbers + b"{}").digest()
    assert seal(first, 1, 1.5, 0.25, b"{}", row="answered") == sha256(first + numbers + b"answered\0{}").digest()
