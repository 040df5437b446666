"""Ranking profiles: what a recall does otherwise for a kind of character (a companion, a coach)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from models.ranking import RankingRules
from models.recall import MAX_LIMIT


class UnknownProfile(ValueError):
    """A request names a profile that the settings do not have."""


class Profile(BaseModel):
    """What differs from the settings; None is as they say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)
    half_life: float | None = Field(None, gt=0)
    floor: float | None = Field(None, ge=0, le=1)
    slot_importance: int | None = Field(None, ge=1, le=10)
    slots: int | None = Field(None, ge=0, le=MAX_LIMIT)


@dataclass(frozen=True, slots=True)
class Ranks:
    """How one request is ranked: at most `limit` memories."""

    limit: int
    rules: RankingRules


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles by name, and which one a character has; without one the settings hold as they are."""

    limit: int = 12
    rules: RankingRules = field(default_factory=RankingRules)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    of_character: Mapping[str, str] = field(default_factory=dict)

    def ranks(self, name: str | None, character_ids: Sequence[str], limit: int | None) -> Ranks:
        """How a request is ranked: by the profile that it names, else by that of the first character that has one.

        The request's own `limit` goes before the profile's. UnknownProfile: there is none of this name.
        """
        if name is None:
            name = next((self.of_character[one] for one in character_ids if one in self.of_character), None)
        profile = Profile() if name is None else self.profiles.get(name)
        if profile is None:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise UnknownProfile(f"there is no such profile: KEEPSAKE_PROFILES has {known}")
        changes = profile.model_dump(exclude_none=True, exclude={"limit"})
        rules = RankingRules(**{**_fields(self.rules), **changes})
        return Ranks(limit or profile.limit or self.limit, rules)


def _fields(rules: RankingRules) -> dict[str, float | int]:
    return {name: getattr(rules, name) for name in RankingRules.__dataclass_fields__}
