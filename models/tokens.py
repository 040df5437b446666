"""The keyword analyser: index terms and query terms to tokens, one for both (R15, R24).

Whatever R24 matches (a query term of two or more code points as the prefix of a word, one of a single code
point exactly) shares a token here:

- an alphabetic run gives its edge n-grams (`e`) in the index, and itself in a query;
- a Chinese, Japanese or Korean run gives its character bigrams (`b`), so that 한시우가 and 한시우를 both find
  한시우, wherever it stands;
- a word that mixes both gives the tokens of its runs, and the edge n-grams of the whole;
- a word with other marks in it gives its parts besides;
- a word of one code point gives itself (`s`), and no other word has that token: 거 does not find 거부.

The letter before each token keeps the kinds apart.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby

from models.query import OPERATORS

# An edge n-gram is no longer than this; a longer query word is cut to it, and then matches more, not less.
MAX_EDGE = 20

# Whatever is no letter, digit or mark of a letter.
_MARKS = re.compile(r"[^\w]+|_")
_CJK = re.compile(
    "["
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Hangul: jamo, compatibility jamo, syllables
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b"  # iteration marks, Han numerals
    "\u3040-\u30ff\u31f0-\u31ff"  # Kana
    "\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U00020000-\U0003ffff"  # Kana and Han outside the basic plane
    "]"
)


def index_tokens(terms: Sequence[str]) -> list[str]:
    """The tokens under which a memory with these search terms is found, without duplicates."""
    return _unique(token for word in _words(terms) for token in _of_index_word(word))


def query_tokens(terms: Sequence[str]) -> list[str]:
    """The tokens to look for, any of which is a match, without duplicates."""
    return _unique(token for word in _words(terms) for token in _of_query_word(word))


def fold_text(text: str) -> str:
    """Compatibility composition and case folding: what differs only in width, form or case becomes the same."""
    # Case folding can undo composition (U+0390, for one), so compose once more.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _words(terms: Iterable[str]) -> Iterable[str]:
    for term in terms:
        for word in fold_text(term).split():
            yield word
            # A query is parted at some marks (R24), and PostgreSQL parts words at others (well-being, a/b): a word that
            # holds any is there by its parts too.
            for marks in (OPERATORS, _MARKS):
                yield from (part for part in marks.split(word) if part and part != word)


def _of_index_word(word: str) -> Iterable[str]:
    if len(word) == 1:
        yield f"s{word}"
        return
    runs = _runs(word)
    if len(runs) > 1:
        yield from _edges(word)
    for is_cjk, run in runs:
        yield from _bigrams(run) if is_cjk else _edges(run)


def _of_query_word(word: str) -> Iterable[str]:
    if len(word) == 1:
        yield f"s{word}"
        return
    runs = _runs(word)
    if len(runs) > 1:
        # A particle may stand at its end (K팝을): so its beginnings too, as far as they hold both scripts.
        first = len(runs[0][1]) + 1
        yield from (f"e{word[:size]}" for size in range(first, min(len(word), MAX_EDGE) + 1))
        yield f"e{word[:MAX_EDGE]}"
    for is_cjk, run in runs:
        if is_cjk:
            yield from _bigrams(run)
        elif len(run) > 1:
            yield f"e{run[:MAX_EDGE]}"


def _runs(word: str) -> list[tuple[bool, str]]:
    """The word cut where its script changes; True: Chinese, Japanese or Korean."""
    return [
        (is_cjk, "".join(run))
        for is_cjk, run in groupby(word, key=lambda character: _CJK.match(character) is not None)
    ]


def _edges(run: str) -> Iterable[str]:
    return (f"e{run[:size]}" for size in range(2, min(len(run), MAX_EDGE) + 1))


def _bigrams(run: str) -> Iterable[str]:
    return (f"b{run[at : at + 2]}" for at in range(len(run) - 1))


def _unique(tokens: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(tokens))
