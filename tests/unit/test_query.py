"""R24: the terms of a keyword query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.query import query_terms


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("한시우 위스키", ("한시우", "위스키")),
        ("  wine\t(red)\n& wine ", ("wine", "red")),
        ("""a&b|c!d<e>f:g*h\\i.j"k'l""", tuple("abcdefghijkl")),
        ("한시우가 한시우를 한시우가", ("한시우가", "한시우를")),
        ("거", ("거",)),
        ("", ()),
        (" .!:* ", ()),
        ("don't", ("don", "t")),
        ("wine; cheese", ("wine;", "cheese")),
        ("a\x00b", ("a", "b")),
    ],
)
def test_terms(query: str, terms: tuple[str, ...]) -> None:
    assert query_terms(query) == terms


def test_the_limit_counts_terms_that_differ() -> None:
    query = " ".join(["one"] * 30 + [f"w{number}" for number in range(30)])
    assert query_terms(query) == ("one", *(f"w{number}" for number in range(19)))


@given(st.text(max_size=200))
def test_terms_are_few_distinct_and_without_operators(query: str) -> None:
    terms = query_terms(query)
    assert len(terms) <= 20
    assert len(set(terms)) == len(terms)
    assert not any(set(term) & set("()&|!<>:*\\.\"'") or term.split() != [term] for term in terms)
