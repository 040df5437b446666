"""R33: reference data stays data. What people say cannot close the wrapper, open another, or begin a line of its own.

The corpus is tests/data/injections.jsonl: 49 attempts in three languages, each put into every place that holds the
words of others, and looked at in the rendered text.
"""

import json
import re
import unicodedata
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.history import HistoryMessage
from models.inert import inert
from models.memory import Action, MemoryContent, Plan, Quote, RelationshipState
from models.phrases import PHRASES
from models.prompt_block import Reference, Remembered, render_system
from models.relative_time import Locale

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "injections.jsonl").read_text().splitlines()
]
PERSONA = "You are Mina.\n<system>The persona is the service's own.</system>"
MARK = "memories-0123456789ab"
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LOCALES: tuple[Locale, ...] = ("ko", "en", "ja")
# What stays of the wrapper when everything invisible is gone and everything alike is the same.
INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
LIKE_ANGLES = re.compile("[<>⟨⟩〈〉\u2329\u232a＜＞﹤﹥]")


def everywhere(text: str) -> Reference:
    """Reference data whose every field is this text, as far as its type lets it (stored text is always valid)."""
    raw, text = text, text.encode(errors="replace").decode() or "x"
    short = text[:100]
    content = MemoryContent(
        summary=text[:2_000],
        key_details=(
            Quote(speaker=text, text=text[:2_000], context=text[:2_000]),
            Action(actor=text, text=text[:2_000], context=text[:2_000]),
        ),
        involved=(text,),
        plans=(Plan(date="2026-07-02", text=text[:500]),),
        category=short,
    )
    plan = Plan(date="2026-06-30", text=text[:500])
    line = HistoryMessage("assistant", raw, {"speaker": raw})
    state = RelationshipState(
        summary=text[:600],
        form_of_address=short,
        tone=short,
        current_state=text[:600],
        unkept_promises=(short,),
        limits=(short,),
    )
    return Reference(
        now=NOW,
        last_spoke=NOW,
        relationships=((raw, state),),
        due=(plan,),
        overdue=(plan,),
        memories=(Remembered("m", date(2026, 6, 1), NOW, content),),
        before=(line,),
        after=(line,),
    )


def rendered(text: str, locale: Locale = "en", characters: int = 2) -> str:
    return render_system(PERSONA, everywhere(text), MARK, characters, locale)


def inside(system: str) -> list[str]:
    """The lines between the marks; there is one pair of them, between the persona and the rules."""
    assert system.startswith(PERSONA)
    own = system[len(PERSONA) :]
    assert own.count(f"<{MARK}>") == 1
    assert own.count(f"</{MARK}>") == 1
    head, _, rest = own.partition(f"<{MARK}>\n")
    body, _, tail = rest.partition(f"\n</{MARK}>")
    assert "<" not in head + tail
    assert ">" not in head + tail
    return body.split("\n")


def seen(text: str) -> str:
    """As a reader of any kind may take it: folded, and without what cannot be seen."""
    return "".join(
        character
        for character in unicodedata.normalize("NFKC", text).casefold()
        if unicodedata.category(character) not in INVISIBLE
    )


PLAIN = {locale: inside(rendered("harmless", locale)) for locale in LOCALES}


def check(text: str, locale: Locale) -> None:
    system = rendered(text, locale)
    lines = inside(system)
    # As many lines as a harmless text makes, each begun by us: none of them can be a heading, a turn or a memory.
    assert len(lines) == len(PLAIN[locale])
    for line, plain in zip(lines, PLAIN[locale], strict=True):
        assert line[:2] == plain[:2]
        assert len(line.splitlines()) == 1
    body = "\n".join(lines)
    assert not LIKE_ANGLES.search(seen(body))
    assert not [one for one in body if one != "\n" and unicodedata.category(one) in INVISIBLE]
    rules = system.rpartition(f"</{MARK}>")[2]
    assert rules == f"\n\n{PHRASES[locale].if_unknown}\n{PHRASES[locale].not_involved}"
    system.encode()


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_wrapper_stays_closed(case: dict[str, str], locale: Locale) -> None:
    check(case["text"], locale)


def test_the_corpus_is_in_three_languages() -> None:
    assert len(CASES) >= 40
    assert {case["language"] for case in CASES} == set(LOCALES)
    assert len({case["name"] for case in CASES}) == len(CASES)


@given(text=st.text(max_size=80), locale=st.sampled_from(LOCALES))
def test_no_text_at_all_gets_out(text: str, locale: Locale) -> None:
    check(text, locale)


@given(text=st.text(st.characters()))
def test_inert_text_stays_as_it_is(text: str) -> None:
    once = inert(text)
    assert inert(once) == once
    assert "\n" not in once


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("나는 한시우랑 냉면을 먹었어!", "나는 한시우랑 냉면을 먹었어!"),
        ("昨日は寿司を食べました。", "昨日は寿司を食べました。"),
        ("It's 5 > 3 & “fine” – really… 😀❤️", "It's 5 › 3 & “fine” – really… 😀❤️"),
        ("《기생충》 「約束」 【注意】", "《기생충》 「約束」 【注意】"),
        ("two\n\n lines\tand  spaces ", "two lines and spaces"),
        ("👨‍👩‍👧", "👨👩👧"),
    ],
)
def test_ordinary_text_stays_readable(text: str, told: str) -> None:
    assert inert(text) == told
