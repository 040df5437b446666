"""The keyword analyser: index terms and query terms to tokens, one for both (R15, R24).

Whatever R24 matches (a query term of two or more code points as the prefix of a word, one of a single code
point exactly) shares a token here:

- an alphabetic run gives its edge n-grams (`e`) in the index, and itself in a query;
- a Chinese, Japanese or Korean run gives its character bigrams (`b`), so that 한시우가 and 한시우를 both find
  한시우, wherever it stands;
- a word that mixes both gives the tokens of its runs, and the edge n-grams of the whole;
- a word with marks in it gives its parts besides, as PostgreSQL parts it;
- a word of one code point gives itself (`s`), and no other word has that token: 거 does not find 거부;
- a word that is not written as it folds (decomposed, full width) gives the edge n-grams of how it is written
  besides: a prefix in code points may end within a syllable, and then no longer is one once both are composed.

The letter before each token keeps the kinds apart.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import dropwhile, groupby

from models.query import OPERATORS

# An edge n-gram is no longer than this; a longer query word is cut to it, and then matches more, not less.
MAX_EDGE = 20

# How PostgreSQL's parser parts a word: at ASCII signs always, at others by its locale; where there are signs, also
# behind a number (3.5kg) and behind a path or the name of a host (3/4컵). A sign may begin a number or a path (-1, /a).
_SIGNS = re.compile(r"[^0-9A-Za-z\x80-\U0010ffff]+")
_SIGN_AND_NEXT = re.compile(r"(?<=.)(?=([^0-9A-Za-z\x80-\U0010ffff].))")
_EXPONENT = re.compile(r"[0-9]e[0-9]")
_ENDS = (re.compile(r"(?<=[0-9])(?=[^0-9])"), re.compile(r"(?<=[\x00-\x7f])(?=[^\x00-\x7f])"))
_LETTERS = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl"}
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
    return _unique(token for term in terms for token in _of_index_term(term))


def query_tokens(terms: Sequence[str]) -> list[str]:
    """The tokens to look for, any of which is a match, without duplicates."""
    return _unique(token for term in terms for token in _of_query_term(term))


def fold_text(text: str) -> str:
    """Compatibility composition and case folding: what differs only in width, form or case becomes the same."""
    # Case folding leaves a dot over the i of İ, and can undo composition (U+0390, for one), so compose once more.
    folded = unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i")
    return unicodedata.normalize("NFKC", folded)


def _of_index_term(term: str) -> Iterable[str]:
    folded, written = fold_text(term), term.casefold()
    for word in _words(folded):
        yield from _of_index_word(word)
    # PostgreSQL takes the sign before a number or a path for a part of it, and -1 is a prefix of it.
    yield from (f"e{found[1]}" for word in written.split() for found in _SIGN_AND_NEXT.finditer(word))
    if written != folded:
        for word in _words(written):
            yield from _edges(word)
            for part in fold_text(word).split():
                yield from _of_index_word(part)


def _of_query_term(term: str) -> Iterable[str]:
    for word in _words(fold_text(term)):
        yield from _of_query_word(word)
    yield from (f"e{word[:MAX_EDGE]}" for word in _words(term.casefold()) if len(word) > 1)


def _words(text: str) -> Iterable[str]:
    """The words of a text, and their parts where a query is parted (R24), and where PostgreSQL parts a word."""
    for word in text.split():
        yield word
        runs = _SIGNS.split(word)
        parts = [*OPERATORS.split(word), *_letter_runs(word)]
        if len(runs) > 1 or _EXPONENT.search(word):
            parts += (part for end in _ENDS for run in runs for part in end.split(run))
        yield from (part for part in parts if part and part != word)


def _letter_runs(word: str) -> Iterable[str]:
    """The runs of letters, digits and combining marks, and each without the marks that follow no letter."""
    for is_letter, run in groupby(word, key=_is_letter):
        if is_letter:
            letters = "".join(run)
            yield letters
            yield "".join(dropwhile(lambda one: unicodedata.category(one)[0] == "M", letters))


def _is_letter(one: str) -> bool:
    # Of the symbols, those with case are letters in a circle.
    return unicodedata.category(one) in _LETTERS or one.isupper() or one.islower()


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
