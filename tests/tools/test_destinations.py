"""The bundled places, and the rules their file is held to."""

from importlib import resources

import pytest

from turnstile_tools.destinations import Destination, catalogue, parse_catalogue

TEXT = (resources.files("turnstile_tools") / "data/destinations.toml").read_text("utf-8")


def test_bundled_file_is_whole() -> None:
    """The agents promise about twenty places, the six of the issue among them, each with its sources."""
    places = catalogue().destinations
    assert len(places) >= 18
    assert {"Tengchong", "Wuyuan", "Arxan", "Dali", "Quanzhou", "Guilin"} <= {place.name for place in places}
    assert all(place.sources for place in places)


@pytest.mark.parametrize("tag", list(catalogue().tags))
def test_every_preference_leads_somewhere(tag: str) -> None:
    """A preference that no place has would be an empty promise in the error that lists the choices."""
    assert any(tag in place.tags for place in catalogue().destinations)
    assert tag in catalogue().preferences_in(tag.replace("_", " "))
    assert any(tag in catalogue().preferences_in(word) for word in catalogue().tags[tag].words)


@pytest.mark.parametrize("place", catalogue().destinations, ids=lambda place: place.name)
def test_every_name_finds_its_place(place: Destination) -> None:
    """No name may hide in another one, or the model could never choose that place."""
    for name in place.names:
        assert catalogue().find(name) is place


@pytest.mark.parametrize(
    "name", ["dali", "云南大理", "Dali Old Town", "我想去洱海", "Hongcun, Anhui", "Guilin and Yangshuo"]
)
def test_finds_a_place_inside_a_phrase(name: str) -> None:
    """Models add the province or the sight to a name."""
    assert catalogue().find(name).name in {"Dali", "Huangshan", "Guilin"}


def test_unknown_place_is_answered_with_the_nearest_and_the_choices() -> None:
    """The model corrects a misspelling from the message alone."""
    with pytest.raises(ValueError, match="no destination is called 'Tengchung'; nearest: Tengchong") as error:
        catalogue().find("Tengchung")
    assert "Wuzhen (乌镇)" in str(error.value)
    with pytest.raises(ValueError, match=r"no destination is called ''; known: "):
        catalogue().find("")


def test_two_places_at_once_are_not_guessed_between() -> None:
    """Weather of the wrong town would look right."""
    with pytest.raises(ValueError, match=r"more than one destination: Dali \(大理\), Lijiang \(丽江\)"):
        catalogue().find("Dali and Lijiang")


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("nature and quiet small towns", {"nature", "quiet", "small_town"}),
        ("自然 安静的小镇", {"nature", "quiet", "small_town"}),
        ("喜欢吃海鲜,看海", {"food", "sea"}),
        ("beaches with the kids", {"sea", "family"}),
        ("romance", set()),
    ],
)
def test_preferences_in_free_text(text: str, tags: set[str]) -> None:
    """Both sentences of the issue must mean the same three preferences."""
    assert set(catalogue().preferences_in(text)) == tags


def test_a_season_belongs_to_place_and_wish() -> None:
    """Harbin is pleasant in July, but it would be wrong to send someone there for snow."""
    harbin = catalogue().find("Harbin")
    assert catalogue().in_season(harbin, 7, ["food"])
    assert not catalogue().in_season(harbin, 7, ["snow"])
    assert catalogue().in_season(harbin, 1, ["snow"])
    assert catalogue().in_season(catalogue().find("Qingdao"), 7, ["snow", "sea"]), "a wish it cannot meet has no season"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("latitude = 25.02", "latitude = 75.02", "latitude"),
        ("best_months = [2, 3, 4, 10, 11, 12]", "best_months = [2, 13]", "best_months"),
        ("best_months = [2, 3, 4, 10, 11, 12]", "best_months = [3, 2]", "must rise without repeats"),
        ("low = [2, 4,", "low = [20, 4,", "month 1: the low must be below the high, got 20 and 17"),
        ("low = [2, 4, 7,", "low = [2, 4,", "low"),
        ('aliases = ["Heshun", "和顺"]', 'aliases = ["dali"]', "'Dali' names both 'Tengchong' and 'Dali'"),
        ('tags = ["nature", "quiet"', 'tags = ["nature", "silent"', r"tags that are not defined: \['silent'\]"),
        ('sources = ["Wikipedia: Tengchong"', 'source = ["Wikipedia: Tengchong"', "source"),
        ("half_days = 2", "half_days = 3", "half_days"),
        ("[tags.nature]", "[tags.nature", "line"),
    ],
)
def test_broken_file_is_refused(old: str, new: str, complaint: str) -> None:
    """A slip in the data is found when it is read, and named, instead of being told to a traveller."""
    assert old in TEXT
    with pytest.raises(ValueError, match=complaint):
        parse_catalogue(TEXT.replace(old, new, 1))
