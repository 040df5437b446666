"""Ranking profiles: settings for a kind of character, by character or request."""

import pytest
from pydantic import ValidationError

from models.profiles import Profile, Profiles, UnknownProfile
from models.ranking import RankingRules
from streams.settings import Settings

PROFILES = Profiles(
    12,
    RankingRules(half_life=40, slots=2),
    {"companion": Profile(), "coach": Profile(limit=20, slots=4, floor=0.5)},
    {"kim": "coach", "mina": "companion"},
)


@pytest.mark.parametrize(
    ("name", "characters", "limit", "expected"),
    [
        (None, ["yuna"], None, 12),
        (None, ["kim"], None, 20),
        (None, ["yuna", "kim"], None, 20),
        (None, ["mina", "kim"], None, 12),
        ("coach", ["mina"], None, 20),
        ("companion", ["kim"], None, 12),
        ("coach", ["mina"], 3, 3),
    ],
)
def test_the_request_goes_before_the_character_and_its_limit_before_all(
    name: str | None, characters: list[str], limit: int | None, expected: int
) -> None:
    assert PROFILES.ranks(name, characters, limit).limit == expected


def test_a_profile_changes_what_it_names_and_nothing_else() -> None:
    rules = PROFILES.ranks("coach", ["x"], None).rules
    assert rules == RankingRules(half_life=40, slots=4, floor=0.5)
    assert PROFILES.ranks(None, ["x"], None).rules == PROFILES.rules


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownProfile, match="coach, companion"):
        PROFILES.ranks("trainer", ["x"], None)


def test_a_character_has_a_profile_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPSAKE_CHARACTER_PROFILES", '{"kim": "coach"}')
    assert Settings().profiles["coach"].limit == 20
    monkeypatch.setenv("KEEPSAKE_CHARACTER_PROFILES", '{"kim": "trainer"}')
    with pytest.raises(ValidationError, match="KEEPSAKE_PROFILES"):
        Settings()


@pytest.mark.parametrize("odd", [{"limit": 0}, {"floor": 2}, {"slots": -1}, {"half": 1}])
def test_odd_profiles_are_refused(odd: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Profile.model_validate(odd)
