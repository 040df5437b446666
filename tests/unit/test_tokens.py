import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.tokens import MAX_EDGE, fold_text, index_tokens, query_tokens

CHARACTERS = st.one_of(
    st.sampled_from("가나다라한시우거부를ㄱᄀ각"),
    st.sampled_from("あアーｱﾞ漢字猫々〇𠮷"),
    st.sampled_from("abcXYZßİéΐ019_-'.ﬁⅣ：．😀"),
    st.sampled_from(" \u00a0\u3000¨"),
    st.characters(exclude_categories=["Cs"]),
)
TERMS = st.text(CHARACTERS, min_size=1, max_size=30)


def matches(query: str, indexed: str) -> bool:
    return not set(query_tokens([query])).isdisjoint(index_tokens([indexed]))


def oracle(query: str, indexed: str) -> bool:
    """R24: any word of the query, as a prefix from two code points on, exactly from one."""
    return any(
        word == asked or (len(asked) > 1 and word.startswith(asked))
        for asked in fold_text(query).split()
        for word in fold_text(indexed).split()
    )


@given(TERMS, TERMS)
def test_whatever_the_oracle_matches_is_matched(query: str, indexed: str) -> None:
    if oracle(query, indexed):
        assert matches(query, indexed)


@given(TERMS, st.data())
@example("a한국", None)
def test_every_prefix_of_a_word_matches_it(indexed: str, data: st.DataObject | None) -> None:
    for word in fold_text(indexed).split():
        sizes = range(2, len(word) + 1) if data is None else [data.draw(st.integers(1, len(word)))]
        for size in sizes:
            if oracle(word[:size], indexed):
                assert matches(word[:size], indexed)


@given(TERMS, st.data())
@example("ｶﾞｷﾞ 1가\u11a8 cafe\u0301", None)
def test_every_prefix_of_a_word_as_it_is_written_matches_it(indexed: str, data: st.DataObject | None) -> None:
    for word in indexed.split():
        sizes = range(1, len(word) + 1) if data is None else [data.draw(st.integers(1, len(word)))]
        for size in sizes:
            if size > 1 or size == len(word):
                assert matches(word[:size], indexed)


@pytest.mark.parametrize(
    ("query", "indexed", "found"),
    [
        ("한시우가", "한시우", True),
        ("한시우를", "한시우", True),
        ("한시우", "한시우를", True),
        ("거", "거부", False),
        ("거", "거", True),
        ("부", "거부", False),
        ("猫", "猫カフェ", False),
        ("猫カ", "猫カフェ", True),
        ("カフェ", "猫カフェ", True),
        ("ｶﾌｪ", "カフェ", True),
        ("h", "health", False),
        ("he", "health", True),
        ("HEALTH", "health", True),
        ("ealth", "health", False),
        ("healthy", "health", False),
        ("bts콘", "BTS콘서트", True),
        ("콘서트", "BTS콘서트", True),
        ("a형", "A형 독감", True),
        ("don", "don't", True),
        ("와인 레드", "와인(레드)", True),
        ("straße", "STRASSE", True),
        ("x" * 50, "x" * 60, True),
        ("ab", "a b", False),
        # Prefixes in code points that end within a letter.
        ("가나", "가나\u11a8", True),
        ("가나", "가낙", False),
        ("가", "가\u11a8", False),
        ("\u1100\u1165", "\u1100\u1165\u1107\u116e", True),
        ("\u1100\u1165", "거부", False),
        ("거", "\u1100\u1165\u1107\u116e", False),
        ("cafe", "cafe\u0301", True),
        # Parts of words.
        ("😀", "😀/냉면", True),
        ("컵", "3/4컵", True),
        ("차", "2차", False),
        ("kg", "3.5kg", True),
        ("d게", "2.5D게임", True),
        ("-0", "2026-03-02", True),
        ("す", "す㎰", True),
        ("ⓥ", "Ⓥ㉵", True),
        ("नमस्ते", "त", False),
        ("istanbul", "İstanbul", True),
    ],
)
def test_examples(query: str, indexed: str, found: bool) -> None:
    assert matches(query, indexed) is found


def test_kinds_of_tokens_do_not_collide_and_are_bounded() -> None:
    tokens = index_tokens(["거", "거부", "x" * 100, "거부"])
    assert len(tokens) == len(set(tokens)) == 1 + 1 + MAX_EDGE - 1
    assert index_tokens([]) == query_tokens([" "]) == []
