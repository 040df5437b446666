"""The word lists of a language, read from its file and compiled once."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from models.language import Language

Pattern = re.Pattern[str]

_NEVER = re.compile("(?!)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of statement, and what a statement of it weighs (1–10)."""

    name: str
    importance: int
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A language's lists. `trivial` matches a whole clause without punctuation (ko, ja: nor spaces)."""

    language: Language
    trivial: Pattern
    greeting: Pattern
    question: Pattern
    tag: Pattern
    hypothetical: Pattern
    denial: Pattern
    retraction: Pattern
    retraction_split: Pattern
    rejected: Pattern
    abandoned: Pattern
    choice: Pattern
    deliberation: Pattern
    decision: Pattern
    undecided: Pattern
    evaluation: Pattern
    fantasy: Pattern
    fantasy_end: Pattern
    past: Pattern
    first_person: Pattern
    dropped_person: Pattern
    request: Pattern
    passing: Pattern
    vow: Pattern
    game: tuple[Pattern, ...]
    joke: Pattern
    promise: Pattern
    offer: Pattern
    future: Pattern
    address: tuple[Pattern, ...]
    limit: Pattern
    polite: Pattern
    polite_tone: str
    casual_tone: str
    user_word: str
    stop: frozenset[str]
    short: frozenset[str]
    particles: tuple[str, ...]
    copulas: tuple[str, ...]
    verbal: tuple[str, ...]
    kinds: tuple[Kind, ...]


@cache
def load(name: str) -> dict[str, Any]:
    """A file of word lists."""
    return tomllib.loads((files(__package__) / "words" / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def lexicon(language: Language) -> Lexicon:
    data = load(language)
    gap = " ?" if language == "en" else ""
    trivial = "|".join(re.escape(word) for word in _longest(data["trivial"]))
    boundary = r"(?!\w)" if language == "en" else ""
    return Lexicon(
        language=language,
        # Atomic and possessive, so that no input makes it go back over its choices.
        trivial=re.compile(f"(?>(?:{trivial}){boundary}{gap})++", re.IGNORECASE),
        greeting=_any(data["greeting"]),
        question=_any(data["question"]),
        tag=_any(data["tag"]),
        hypothetical=_any(data["hypothetical"]),
        denial=_any(data["denial"]),
        retraction=_any(data["retraction"]),
        retraction_split=_any(data["retraction_split"]),
        rejected=_any(data["rejected"]),
        abandoned=_any(data["abandoned"]),
        choice=_any(data["choice"]),
        deliberation=_any(data["deliberation"]),
        decision=_any(data["decision"]),
        undecided=_any(data["undecided"]),
        evaluation=_any(data["evaluation"]),
        fantasy=_any(data["fantasy"]),
        fantasy_end=_any(data["fantasy_end"]),
        past=_any(data["past"]),
        first_person=_any(data["first_person"]),
        dropped_person=_any(data["dropped_person"]),
        request=_any(data["request"]),
        passing=_any(data["passing"]),
        vow=_any(data["vow"]),
        # One by one: a back reference counts the groups of its own pattern.
        game=tuple(re.compile(pattern, re.IGNORECASE) for pattern in data["game"]),
        joke=_any(data["joke"]),
        promise=_any(data["promise"]),
        offer=_any(data["offer"]),
        future=_any(data["future"]),
        address=tuple(re.compile(pattern, re.IGNORECASE) for pattern in data["address"]),
        limit=_any(data["limit"]),
        polite=_any(data["polite"]),
        polite_tone=data["polite_tone"],
        casual_tone=data["casual_tone"],
        user_word=data["user_word"],
        stop=frozenset(data["stop"]),
        short=frozenset(data.get("short", ())),
        particles=_longest(data.get("particles", ())),
        copulas=_longest(data.get("copulas", ())),
        verbal=_longest(data.get("verbal", ())),
        kinds=tuple(Kind(kind["name"], kind["importance"], _any(kind["patterns"])) for kind in data["kind"]),
    )


def _longest(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(words, key=len, reverse=True))


def _any(patterns: list[str]) -> Pattern:
    return (
        re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE) if patterns else _NEVER
    )
