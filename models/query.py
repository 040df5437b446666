"""The keyword query: which terms of an utterance are looked up (R24)."""

import re

MAX_TERMS = 20
# The operators of a text search query. They part words, as in "와인(레드)".
OPERATORS = re.compile(r"""[()&|!<>:*\\."']""")


def query_terms(query: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """The terms of a query: operators stripped, split on white space, no duplicates, at most `limit`.

    How a term matches (two or more code points as a prefix, one exactly) is the analyser's. Empty: the
    keyword path is skipped.
    """
    words = OPERATORS.sub(" ", query.replace("\x00", " ")).split()
    return tuple(dict.fromkeys(words))[:limit]
