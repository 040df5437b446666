"""Search terms: the nouns of a statement, what is sensitive replaced by a broader notion (R6)."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

from infra.offline_extractor.lexicon import lexicon, load
from models.language import Language

MAX_TERMS = 40
_PIECES = re.compile(
    "(?P<ko>[가-힣]+)"
    "|(?P<ja>[\u30a0-\u30ff]{2,}|[々\u3400-\u9fff]+)(?P<after>[\u3040-\u309f]?)"
    "|(?P<number>\\d+(?:[.,:]\\d+)*(?:[ ]?(?:km|kg|cm|%)|st|nd|rd|th|[가-힣]+|[円人歳時分年月日回個本冊枚階杯匹]+)?)"
    "|(?P<en>[A-Za-z\u00c0-\u024f][A-Za-z\u00c0-\u024f'’-]*)"
)
_HADA = re.compile(
    "^(?P<base>[가-힣]{2,})(?:하(?:$|[고는게기지면러려자니던며여세네더다])|[했해할한합함되됐돼될된됨])[가-힣]*$"
)
# Hiragana that follow a noun of one character, rather than the end of a verb.
_JA_AFTER = frozenset("がはをにとのもでへや")
_TENSE = 20  # index of ㅆ among final consonants: the mark of past and future verbs
_HANGUL_BASE = 0xAC00


def search_terms(texts: Iterable[str], language: Language) -> list[str]:
    """The terms of some statements, distinct, in order; notions in the language of the talk."""
    terms: dict[str, None] = {}
    for text in texts:
        normal = unicodedata.normalize("NFC", text)
        for term in nouns(normal):
            terms.setdefault(_broader(term, language) or term)
        for pattern, notion in _notions_in_text():
            if pattern.search(normal):
                terms.setdefault(notion[language])
    return list(terms)[:MAX_TERMS]


def nouns(text: str) -> Iterator[str]:
    """The terms of one text as they stand there, sensitive ones too."""
    for match in _PIECES.finditer(text):
        term: str | None
        if match["ko"]:
            term = _korean(match["ko"])
        elif match["ja"]:
            term = _japanese(match["ja"], match["after"])
        elif match["number"]:
            term = _number(match["number"])
        else:
            term = _english(match["en"])
        if term:
            yield term


def _number(text: str) -> str | None:
    """A number with its unit: "17일이야" gives "17일"."""
    unit = text.lstrip("0123456789.,: ")
    words = lexicon("ko")
    bare = _stripped(_stripped(unit, words.copulas, 1), words.particles, 1)
    number = text.removesuffix(unit) + bare
    return number if len(number) > 1 else None


def _english(word: str) -> str | None:
    word = word.replace("’", "'").removesuffix("'s").strip("'-")
    if len(word) < 2 or (word.lower() in lexicon("en").stop and not word.isupper()):
        return None
    return word if word[0].isupper() else word.lower()


def _japanese(run: str, after: str) -> str | None:
    stop = lexicon("ja").stop
    # 来月結婚 is 来月 and 結婚: words for times stand before nouns without a particle.
    lead = next((word for word in stop if len(word) > 1 and run != word and run.startswith(word)), "")
    run = run.removeprefix(lead)
    if run in stop or (len(run) == 1 and after not in _JA_AFTER):
        return None
    return run


def _korean(word: str) -> str | None:
    """The noun of a word: particles and copulas stripped, verbs passed over."""
    words = lexicon("ko")
    if word in words.stop:
        return None
    action = _HADA.match(word)
    if action:
        return None if action["base"] in words.stop else action["base"]
    word = _stripped(word, words.copulas, 2)
    if any((ord(letter) - _HANGUL_BASE) % 28 == _TENSE for letter in word):
        return None
    if any(word.endswith(ending) for ending in words.verbal):
        return None
    for ending in words.particles:
        base = word.removesuffix(ending)
        if base != word and (len(base) >= 2 or base in words.short):
            word = base
            break
    return None if word in words.stop or (len(word) < 2 and word not in words.short) else word


def _stripped(word: str, endings: Iterable[str], least: int) -> str:
    """The word without the first of the endings that leaves so many letters of it."""
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return word.removesuffix(ending)
    return word


@cache
def _notions() -> tuple[tuple[str, dict[Language, str]], ...]:
    """Each sensitive word with its notion, longer words first."""
    pairs: list[tuple[str, dict[Language, str]]] = [
        (word, {"ko": notion["ko"], "en": notion["en"], "ja": notion["ja"]})
        for notion in load("sensitive")["notion"]
        for word in notion["words"]
    ]
    return tuple(sorted(pairs, key=lambda pair: len(pair[0]), reverse=True))


@cache
def _notions_in_text() -> tuple[tuple[re.Pattern[str], dict[Language, str]], ...]:
    """For each notion what finds its words in a text: Latin ones and single syllables as whole words."""
    patterns: dict[str, tuple[list[str], dict[Language, str]]] = {}
    for word, notion in _notions():
        words, _ = patterns.setdefault(notion["en"], ([], notion))
        escaped = re.escape(word)
        if word.isascii():
            escaped = rf"\b{escaped}\b"
        elif len(word) == 1 and "가" <= word <= "힣":
            escaped = rf"(?<![가-힣]){escaped}(?=이|에|을|은|도|\s|$)"
        words.append(escaped)
    return tuple((re.compile("|".join(words), re.IGNORECASE), notion) for words, notion in patterns.values())


def _broader(term: str, language: Language) -> str | None:
    folded = term.casefold()
    for word, notion in _notions():
        # A single syllable such as 암 stands in too many harmless words to be looked for inside them.
        inside = not word.isascii() and len(word) > 1
        if folded == word or (inside and word in folded):
            return notion[language]
    return None
