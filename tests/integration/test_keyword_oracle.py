"""R24 by an oracle: PostgreSQL's own text search over the clear terms. Whatever it matches, our hashed index matches.

The oracle is asked in two ways, terms as its `simple` configuration parses them and terms parted by white space alone,
in two locales, which part words at other signs. It compares code points, so it knows nothing of forms (NFD, full
width); ours folds them besides, which the tables at the end are for.
"""

import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import product
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from models.query import query_terms
from models.tokens import index_tokens, query_tokens
from tests.engines import LocalEngines

Case = tuple[Sequence[str], str]  # the search terms of a memory, and a query

LOCALES = ("C", "C.UTF-8")
ORACLE = r"""
SELECT to_tsvector('simple', said.terms) @@ asked.query
    OR array_to_tsvector(string_to_array(lower(said.words), E'\n')) @@ asked.query AS matches
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS said (terms, words, query, place)
CROSS JOIN LATERAL (SELECT lower(nullif(said.query, ''))::tsquery AS query) AS asked
ORDER BY said.place
"""


def ours(terms: Sequence[str], query: str) -> bool:
    return not set(index_tokens(terms)).isdisjoint(query_tokens(query_terms(query)))


def tsquery(query: str) -> str:
    """The query of R24, word for word: two or more code points as prefixes, one exactly, any of them."""
    # Quotes and backslashes, which would end a quoted word, are stripped from each term.
    return " | ".join(f"'{term}':*" if len(term) > 1 else f"'{term}'" for term in query_terms(query))


class Oracle:
    def __init__(self, connections: Sequence[asyncpg.Connection]) -> None:
        self._connections = connections

    async def matches(self, cases: Sequence[Case]) -> list[bool]:
        """Whether each is a match, in either locale. PostgreSQL stores no NUL; it stands for a space."""
        said = [" ".join(terms).replace("\x00", " ") for terms, _ in cases]
        words = ["\n".join(text.split()) for text in said]
        asked = [tsquery(query) for _, query in cases]
        found = [False] * len(cases)
        for connection in self._connections:
            rows = await connection.fetch(ORACLE, said, words, asked)
            found = [before or bool(row["matches"]) for before, row in zip(found, rows, strict=True)]
        return found

    async def missed(self, cases: Sequence[Case]) -> tuple[list[Case], int]:
        """Those that the oracle matches and we do not, and how many it matches."""
        matched = [case for case, matches in zip(cases, await self.matches(cases), strict=True) if matches]
        return [case for case in matched if not ours(*case)], len(matched)


@pytest.fixture
async def oracle(database: LocalEngines) -> AsyncIterator[Oracle]:
    admin = await asyncpg.connect(database.database_url)
    connections = []
    names = [f"oracle_{number}" for number in range(len(LOCALES))]
    try:
        for name, locale in zip(names, LOCALES, strict=True):
            await admin.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE '{locale}'"
            )
            url = urlunsplit(urlsplit(database.database_url)._replace(path=f"/{name}"))
            connections.append(await asyncpg.connect(url))
        yield Oracle(connections)
    finally:
        for connection in connections:
            await connection.close()
        for name in names:
            await admin.execute(f"DROP DATABASE IF EXISTS {name}")
        await admin.close()


KOREAN = (
    "한시우 냉면 거 거부 떡볶이 2차전 K팝 iPhone15프로 2.5D게임 3/4컵 ㅋㅋ 서울·부산 와인(레드) 카페라떼☕ "
    "C#언어 ㈜한국 가낙"
)
JAPANESE = "寿司 猫 引っ越し カタカナ ｶﾀｶﾅ ﾋﾟｱﾉ ｶﾞｷﾞ 東京2020 ＡＢＣ株式会社 １２：３０ 「猫」 人々"
LATIN = "wine x C++ C++/Go well-being e5-small U.S. don't naïve Straße İstanbul ΣΑΣ user_name half＿width ﬁle Ⅷ O'Brien"
NUMBERS = (
    "3.14 3.5kg -5kg +5 1e5kg 2026-03-02 010-1234-5678 10:30pm 1,000원 ₩5,000 100% -1.5e-3 1.2.3beta 3·1절"
)
PLACES = "a/b /usr/lib/x.so //a/b ~/x me@example.com https://example.com/a?b=c www.kr/가나 co.kr가 <b>볼드</b> &amp;x"
SYMBOLS = "😀 😀/냉면 👨‍👩‍👧 👍🏽 ☕️ 🇰🇷 I❤NY a¨b x\u0301\u0323y नमस्ते น้ำ … \\ '"
WORDS = " ".join((KOREAN, JAPANESE, LATIN, NUMBERS, PLACES, SYMBOLS)).split()
PARTICLES = ("", "가", "를", "이랑", "한테서", "さん", "は", "'s", "s", "-", "!", "…")
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    lambda word: unicodedata.normalize("NFD", word),
    lambda word: unicodedata.normalize("NFKD", word),
)


def prefixes() -> Iterator[Case]:
    """Each word in each form behind each kind of neighbour, and each of its prefixes, bare and with a particle."""
    for number, (word, form, before) in enumerate(product(WORDS, FORMS, ("", "x-", "1/", "·"))):
        term = before + form(word)
        for start in {0, len(before)}:
            for end in range(start + 1, len(term) + 1):
                for particle in ("", PARTICLES[number % len(PARTICLES)]):
                    yield [term], term[start:end] + particle


async def test_every_prefix_that_the_oracle_finds_is_found(oracle: Oracle) -> None:
    cases = list(prefixes())
    missed, matched = await oracle.missed(cases)
    assert missed == []
    assert matched > len(cases) / 3


WORD = st.sampled_from(WORDS)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
JOINED = st.tuples(WORD, st.sampled_from(["", "-", "/", "_", "@", "·", ".", "+"]), WORD).map("".join)
SAID = st.tuples(WORD | JOINED | ANYTHING, st.sampled_from(FORMS)).map(lambda drawn: drawn[1](drawn[0]))
TERMS = st.lists(st.lists(SAID, min_size=1, max_size=2).map(" ".join), min_size=1, max_size=3)


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    """Terms of a memory, and a query that is likely to have something to do with them."""
    terms = draw(TERMS)
    words = " ".join(terms).split() or ["x"]
    asked = []
    for _ in range(draw(st.integers(1, 3))):
        word = draw(st.sampled_from(words))
        start = draw(st.sampled_from([0, 0, 0, len(word) // 2]))
        part = word[start : len(word) - draw(st.integers(0, len(word) - start - 1))]
        asked.append(draw(st.sampled_from(FORMS))(part) + draw(st.sampled_from(PARTICLES)))
    return terms, " ".join(asked)


@settings(
    max_examples=20,
    derandomize=True,  # the same cases each time: what else Unicode holds is for a longer run
    phases=(Phase.explicit, Phase.generate),  # shrinking lists of cases takes longer than reading one
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(cases=st.lists(drawn_cases(), min_size=40, max_size=60))
async def test_our_index_never_falls_below_the_oracle(oracle: Oracle, cases: list[Case]) -> None:
    missed, matched = await oracle.missed(cases)
    assert missed == []
    assert matched > 0


TWENTY = " ".join(f"w{number}" for number in range(20))
# What R24 says of these, which the oracle must bear out: whatever it finds is said to be found here.
NAMED = [
    (["한시우"], "한시우", True),
    (["한시우가 간 곳"], "한시우", True),
    (["거"], "거", True),
    (["거", "거부"], "거", True),
    (["거부"], "거", False),  # one code point is exact: as a prefix it would find everything
    (["거부"], "거:*", False),
    (["거부"], "거*", False),
    (["거부"], "부", False),
    (["거부"], "거-", False),
    (["거부"], unicodedata.normalize("NFD", "거"), False),
    ([unicodedata.normalize("NFD", "거부")], "거", False),
    ([unicodedata.normalize("NFD", "거부")], unicodedata.normalize("NFD", "거"), True),  # two code points
    (["가낙"], "가나", False),  # composed, no prefix; it would be one if both were decomposed
    ([unicodedata.normalize("NFD", "가낙")], unicodedata.normalize("NFD", "가나"), True),
    (["ｶﾞｷﾞ"], "ｶﾞｷ", True),
    (["cafe\u0301"], "cafe", True),
    (["red wine", "cheese"], "wine beer", True),
    (["red wine"], "cheese & wine", True),  # any of them: all of them would find nothing
    (["red wine"], "!wine", True),
    (["와인(레드)"], "레드", True),
    (["와인 레드"], "와인(레드)", True),
    (["와인(레드)"], "와인(레드)", True),
    (["don't"], "don't", True),
    (["don't"], "don", True),
    (["C++"], "C++", True),
    (["Clojure"], "C++", False),
    (["a&b"], "a&b", True),
    (["a b"], "a&b", True),
    (["ab"], "a&b", False),
    (["back\\slash"], "slash", True),
    (["wine"], "\\ ' \" ( ) & | ! < > : * .", False),
    (["wine"], "\\", False),
    (["wine"], "", False),
    (["wine"], " \x00 ", False),
    (["wine"], "red\x00wine", True),
    (["red\x00wine"], "wine", True),
    (["last"], f"{TWENTY} last", False),
    (["w19"], f"{TWENTY} last", True),
    (["last"], f"{'same ' * 30} last", True),
    (["K팝"], "K팝", True),
    (["팝송"], "K팝", False),
    (["2차전"], "2차", True),
    (["차전"], "2", False),
    (["iPhone15프로"], "iPhone15", True),
    (["well-being"], "being", True),
    (["e5-small model"], "small", True),
    (["a/b testing"], "b", True),
    (["3/4컵"], "컵", True),  # PostgreSQL's parser ends a path there
    (["3.5kg"], "kg", True),  # and a number there
    (["2.5D게임"], "D게임", True),
    (["1e5kg"], "kg", True),
    (["a \u0308b"], "b", True),  # and takes a mark that follows no letter for none
    (["x.--dog"], "--d", True),  # a query is parted at a full stop, and so is the index
    (["2026-03-02"], "2026", True),
    (["2026-03-02"], "-0", True),
    (["me@example.com"], "example", True),
    (["https://example.com/a?b=c"], "example.com", True),
    (["https://example.com/a?b=c"], "c", True),
    (["😀"], "😀", True),
    (["😀/냉면"], "😀", True),
    (["😀😀"], "😀", False),
    (["👨‍👩‍👧"], "👨‍👩", True),
    (["👨‍👩‍👧"], "👨", False),
    (["😀"], "😁", False),
    (["नमस्ते"], "नमस्", True),
    (["त"], "नमस्ते", False),  # its vowel signs part no word
    (["xylophone"], "x", False),
    (["wine"], "vine", False),
    (["wine"], "winery", False),
    (["냉면"], "온면", False),
    (["부산"], "산부인과", False),
    (["東京"], "京都", False),
    (["カタカナ"], "ひらがな", False),
    (["猫カフェ"], "猫", False),
    (["health"], "ealth", False),
    (["a b"], "ab", False),
    (["서울 부산"], "울부", False),
]


async def test_named_cases_are_as_r24_has_them(oracle: Oracle) -> None:
    told = await oracle.matches([(terms, query) for terms, query, _ in NAMED])
    wrong = [
        (terms, query)
        for (terms, query, expected), by_oracle in zip(NAMED, told, strict=True)
        if ours(terms, query) != expected or (by_oracle and not expected)
    ]
    assert wrong == []


SAME_WORD = [
    *(
        ("한시우", f"한시우{end}")
        for end in ("", "가", "를", "는", "랑", "한테", "에게서", "네", "처럼", "씨도")
    ),
    *((f"한시우{end}", "한시우") for end in ("가", "를", "의", "하고", "씨", "이랑")),
    *((f"한시우{one}", f"한시우{two}") for one in ("가", "는") for two in ("를", "한테", "도")),
    *((f"냉면{one}", f"냉면{two}") for one in ("을", "이") for two in ("", "은", "도", "집")),
    *(("떡볶이", query) for query in ("떡볶이", "떡볶이를", "떡볶", "매운떡볶이")),
    *(("서울·부산", query) for query in ("서울", "부산에서", "서울·부산은")),
    *(("와인(레드)", query) for query in ("와인을", "레드로", "와인(레드)을")),
    *(("K팝 콘서트", query) for query in ("K팝", "케이 K팝을", "콘서트에서", "k팝콘서트")),
    *(("2차전", query) for query in ("2차전", "2차전은", "차전")),
    *(
        ("iPhone15프로", query)
        for query in ("iphone15프로", "iPhone", "아이폰 프로맥스", "IPHONE15", "iPhone15프로를")
    ),
    *(("ｶﾀｶﾅ", query) for query in ("カタカナ", "ｶﾀｶﾅ", "カタカナで")),
    *(("カタカナ", query) for query in ("ｶﾀｶﾅ", "ｶﾀｶﾅを", "カタ")),
    *(("ピアノ", query) for query in ("ﾋﾟｱﾉ", "ピアノを", "ピアノ教室")),
    *(("ｶﾞｷﾞﾌﾞ", query) for query in ("ガギブ", "ガギ", "ガギブは")),
    *(("引っ越し", query) for query in ("引っ越し", "引っ越した", "お引っ越し")),
    *(("ＡＢＣ株式会社", query) for query in ("ABC", "abc株式会社", "株式", "ＡＢＣは")),
    *(("１２：３０の電車", query) for query in ("12:30", "３０", "電車で")),
    *(("東京", query) for query in ("東京", "東京タワー", "新東京")),
    *(("田中さん", query) for query in ("田中", "田中くん", "田中さんは")),
    *(("café", query) for query in ("café", "CAFÉ", "caf")),
    *(("Straße", query) for query in ("strasse", "STRASSE", "straße")),
    *(("İstanbul", query) for query in ("istanbul", "İSTANBUL", "Ista")),
    *(("ΣΟΦΟΣ", query) for query in ("σοφος", "σοφοσ", "ΣΟΦ")),
    *(("wine tasting", query) for query in ("wine", "Wine's", "winery wine", "TASTING", "tast")),
    *(("don't panic", query) for query in ("don't", "DON", "panic!")),
    *(("ﬁle", query) for query in ("file", "FILE", "fil")),
    *(("👨‍👩‍👧 가족", query) for query in ("👨‍👩‍👧", "가족이랑")),
    *(("☕", query) for query in ("☕", "☕️ coffee ☕")),
    *(("카페라떼☕", query) for query in ("카페라떼", "라떼를", "☕ 카페")),
]
NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@pytest.mark.parametrize("index_form", NORMAL_FORMS)
@pytest.mark.parametrize("query_form", NORMAL_FORMS)
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


# Of a decomposed index a decomposed letter can be a prefix, as of any two code points (R24): so composed here.
OTHER_WORD = [
    *(("한시우", query) for query in ("김민아", "시골", "우산", "한국", "한")),
    *(("거부", query) for query in ("거", "부", "거리", "공부")),
    *(("냉면", query) for query in ("면", "냉", "라면", "냉장고")),
    *(("カタカナ", query) for query in ("カ", "ナ", "ひらがな", "タオル")),
    *(("ピアノ", query) for query in ("ヒ", "ノート", "ピンク")),
    *(("東京", query) for query in ("東", "京都", "関東")),
    *(("wine", query) for query in ("w", "vine", "ine", "wines")),
    *(("café", query) for query in ("c", "cart", "afé")),
]


@pytest.mark.parametrize("index_form", ["NFC", "NFKC"])
@pytest.mark.parametrize("query_form", NORMAL_FORMS)
def test_another_word_is_not_found_in_whatever_form(index_form: str, query_form: str) -> None:
    found = [
        (term, query)
        for term, query in OTHER_WORD
        if ours(
            [unicodedata.normalize(index_form, term)],  # type: ignore[arg-type]  # one of its four
            unicodedata.normalize(query_form, query),  # type: ignore[arg-type]  # one of its four
        )
    ]
    assert found == []
