"""R24 by an oracle: PostgreSQL's own text search over the clear terms. Whatever it matches, our hashed index matches.

The oracle is asked in its two ways: terms as its `simple` configuration parses them, and terms as they are, parted by
white space. It compares code points, so it knows nothing of forms (NFD, full width); ours folds them besides.
"""

import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from models.query import query_terms
from models.tokens import fold_text, index_tokens, query_tokens
from tests.engines import LocalEngines

ORACLE = """
SELECT to_tsvector('simple', said.terms) @@ asked.query
    OR array_to_tsvector(string_to_array(said.words, E'\\n')) @@ asked.query AS matches
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS said (terms, words, query, place)
CROSS JOIN LATERAL (SELECT nullif(said.query, '')::tsquery AS query) AS asked
ORDER BY said.place
"""


def ours(terms: Sequence[str], query: str) -> bool:
    return not set(index_tokens(terms)).isdisjoint(query_tokens(query_terms(query)))


def tsquery(query: str) -> str:
    """The query of R24, word for word: two or more code points as prefixes, one exactly, any of them.

    What is one letter to the eye is one: ﾋﾟ, and 거 however it is composed, or `거:*` would be there again.
    """
    return " | ".join(_lexeme(word) for word in query_terms(query))


def _lexeme(word: str) -> str:
    quoted = word.lower().replace("\\", "\\\\").replace("'", "''")
    return f"'{quoted}':*" if len(fold_text(word)) > 1 else f"'{quoted}'"


@pytest.fixture
async def connection(database: LocalEngines) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database.database_url)
    yield opened
    await opened.close()


async def oracle(connection: asyncpg.Connection, cases: Sequence[tuple[Sequence[str], str]]) -> list[bool]:
    said = [" ".join(terms).replace("\x00", " ") for terms, _ in cases]
    words = ["\n".join(text.lower().split()) for text in said]
    rows = await connection.fetch(ORACLE, said, words, [tsquery(query) for _, query in cases])
    return [bool(row["matches"]) for row in rows]


WORDS = st.sampled_from(
    [
        *("한시우", "냉면", "부산", "거부", "거", "떡볶이", "2차전", "K팝", "iPhone15프로", "피아노", "ㅋㅋ"),
        *("wine", "C++", "well-being", "x", "U.S.", "don't", "a/b", "user_name", "3.14", "e5-small", "naïve"),
        *(
            "寿司",
            "引っ越し",
            "ﾋﾟｱﾉ",
            "カタカナ",
            "猫",
            "東京2020",
            "ＡＢＣ",
            "😀",
            "👨‍👩‍👧",
            "☕️",
            "Ⅷ",
            "ﬁle",
        ),
        *("me@example.com", "https://example.com/a?b=c", "2026-03-02", "₩5,000", "100%", "a&b", "와인(레드)"),
    ]
)
PARTICLES = st.sampled_from(["", "가", "를", "이랑", "한테서", "さん", "は", "'s", "s", "-"])
FORMS: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [str, str.upper, lambda word: unicodedata.normalize("NFD", word)]
)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
TERMS = st.lists(st.lists(WORDS | ANYTHING, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=4)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], str]:
    """Terms of a memory, and a query that is likely to have something to do with them."""
    terms = draw(TERMS)
    words = " ".join(terms).split() or ["x"]
    asked = []
    for _ in range(draw(st.integers(1, 4))):
        word = draw(st.sampled_from(words))
        part = word[: draw(st.integers(1, len(word)))]
        asked.append(draw(FORMS)(draw(st.sampled_from([word, part]))) + draw(PARTICLES))
        asked.append(draw(WORDS | ANYTHING))
    return terms, " ".join(asked)


@settings(
    max_examples=25,
    derandomize=True,  # the same cases each time: what else Unicode holds is for a longer run
    phases=(Phase.explicit, Phase.generate),  # shrinking lists of cases takes longer than reading one
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(drawn=st.lists(cases(), min_size=40, max_size=60))
async def test_our_index_never_falls_below_the_oracle(
    connection: asyncpg.Connection, drawn: list[tuple[list[str], str]]
) -> None:
    for (terms, query), expected in zip(drawn, await oracle(connection, drawn), strict=True):
        if expected:
            assert ours(terms, query), (terms, query)


NAMED = [
    (["한시우"], "한시우", True),
    (["well-being"], "being", True),
    (["well-being"], "well", True),
    (["e5-small model"], "small", True),
    (["a/b testing"], "b", True),
    (["me@example.com"], "example", True),
    (["2026-03-02"], "2026", True),
    (["red wine", "cheese"], "wine beer", True),
    (["red wine"], "cheese & wine", True),  # any of them: all of them would find nothing
    (["와인(레드)"], "레드", True),
    (["와인 레드"], "와인(레드)", True),
    (["거"], "거", True),
    (["거부"], "거", False),  # one code point is exact: as a prefix it would find everything
    (["거부"], "거:*", False),
    (["xylophone"], "x", False),
    (["wine"], "vine", False),
    (["wine"], "\\ ' \" ( ) & | ! < > : * .", False),
    (["wine"], "", False),
    (["last"], " ".join(f"w{number}" for number in range(20)) + " last", False),
    (["last"], " ".join(["same"] * 30) + " last", True),
]


async def test_named_cases_are_as_the_oracle_has_them(connection: asyncpg.Connection) -> None:
    told = await oracle(connection, [(terms, query) for terms, query, _ in NAMED])
    for (terms, query, expected), by_oracle in zip(NAMED, told, strict=True):
        assert ours(terms, query) == expected, (terms, query)
        assert expected or not by_oracle, (terms, query)


SAME_WORD = [
    *(("한시우", f"한시우{particle}") for particle in ("", "가", "를", "는", "랑", "한테", "에게서", "네")),
    *((f"한시우{particle}", "한시우") for particle in ("가", "를", "의", "하고", "씨")),
    *((f"냉면{one}", f"냉면{two}") for one in ("을", "이") for two in ("", "은", "도", "집")),
    *(("떡볶이", query) for query in ("떡볶이", "떡볶이를", "떡볶", "매운떡볶이")),
    *(("K팝 콘서트", query) for query in ("K팝", "케이 K팝을", "콘서트에서")),
    *(("2차전", query) for query in ("2차전", "2차전은", "차전")),
    *(("iPhone15프로", query) for query in ("iphone15프로", "iPhone", "아이폰 프로맥스", "IPHONE15")),
    *(("ｶﾀｶﾅ", query) for query in ("カタカナ", "ｶﾀｶﾅ", "カタカナで")),
    *(("ピアノ", query) for query in ("ﾋﾟｱﾉ", "ピアノを", "ピアノ教室")),
    *(("引っ越し", query) for query in ("引っ越し", "引っ越した", "お引っ越し")),
    *(("ＡＢＣ株式会社", query) for query in ("ABC", "abc株式会社", "株式")),
    *(("café", query) for query in ("café", "CAFÉ", "caf")),
    *(("Straße", query) for query in ("strasse", "STRASSE", "straße")),
    *(("wine tasting", query) for query in ("wine", "Wine's", "winery wine", "TASTING", "tast")),
    *(("👨‍👩‍👧 가족", query) for query in ("👨‍👩‍👧", "가족이랑")),
    *(("☕", query) for query in ("☕", "☕️ coffee ☕")),
    *(("東京", query) for query in ("東京", "東京タワー", "新東京")),
]


@pytest.mark.parametrize("index_form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize("query_form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_a_word_is_found_in_whatever_form_and_with_whatever_particle(
    index_form: str, query_form: str
) -> None:
    missed = [
        (term, query)
        for term, query in SAME_WORD
        if not ours(
            [unicodedata.normalize(index_form, term)],  # type: ignore[arg-type]  # one of its four
            unicodedata.normalize(query_form, query),  # type: ignore[arg-type]  # one of its four
        )
    ]
    assert missed == []
