"""What counts as the same name."""

import pytest

from turnstile_tools.matching import fold, mentions, nearest


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("  New_York ", "new york"),
        ("Ürümqi", "Urumqi"),
        ("Xi’an", "Xian"),
        ("ＤＡＬＩ", "dali"),
        ("straße", "STRASSE"),
        ("大理", "大理"),
        ("Port-au-Prince", "port au prince"),
    ],
)
def test_same_name_however_it_is_typed(typed: str, meant: str) -> None:
    """Models and people vary case, accents, width and hyphens, and mean the same place."""
    assert fold(typed) == fold(meant)


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("quiet small towns", "small town", True),
        ("beaches", "beach", True),
        ("我想去云南大理玩", "大理", True),
        ("party", "art", False),
        ("Chinatown", "town", False),
        ("Dali, Yunnan", "Dali", True),
        ("50% off (a.b)", "a.b", True),
        ("50% off (axb)", "a.b", False),
    ],
)
def test_phrase_in_text(text: str, phrase: str, found: bool) -> None:  # noqa: FBT001 - a column of the table
    """A Latin word inside another word is no mention; Chinese has no spaces to go by."""
    assert mentions(text, phrase) is found


def test_nearest_names_come_best_first() -> None:
    """An error that names the nearest lets the model correct itself in one turn."""
    assert nearest("Tengchung", ["Dali", "Tengchong", "Fenghuang"])[0] == "Tengchong"
    assert nearest("腾中", ["腾冲", "大理"]) == ["腾冲"]
    assert nearest("zzz", ["Dali"]) == []
