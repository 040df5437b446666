"""What a recall searches for: a short utterance that refers back goes with what the user said before (R27)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from models.tokens import fold_text

SHORT = 20
MAX_WIDENED = 120

_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
_KANA_OR_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
# After folding, letters outside of syllables: laughter, tears, ㅇㅇ, ㅇㅋ.
_JAMO = re.compile("[\u1100-\u11ff]+")
_WORD = re.compile(r"[\w'’]+")


@dataclass(frozen=True, slots=True)
class ReferringWords:
    """The published lists of one language (infra/words/referring.toml), folded as `fold_text` does."""

    referring: tuple[str, ...]
    empty: tuple[str, ...]
    switching: tuple[str, ...]
    stems: tuple[str, ...] = ()
    particles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WideningRules:
    """`words` by language (ko, en, ja); `short` and `longest` are code points."""

    words: dict[str, ReferringWords]
    short: int = SHORT
    longest: int = MAX_WIDENED


def widened(query: str, recent: Sequence[str], rules: WideningRules) -> str:
    """The query; if it is short and refers back or only acknowledges, behind the user's messages before it.

    `recent` are the user's last messages, oldest first; the character's lines are never among them. The
    query stays whole, and of what stands before it so much of the end is taken that all has `longest` code
    points at most.
    """
    text = query.strip()
    if not text or len(text) >= rules.short or not refers_back(text, rules):
        return text
    before = " ".join(part for message in recent[-2:] if (part := message.strip()))
    room = rules.longest - len(text) - 1
    return f"{before[-room:].lstrip()} {text}" if before and room > 0 else text


def refers_back(text: str, rules: WideningRules) -> bool:
    """Whether the text says nothing of its own: it points back by a word for it, or names no subject."""
    folded = fold_text(text)
    if _HANGUL.search(folded):
        return _korean(folded, rules.words["ko"])
    if _KANA_OR_HAN.search(folded):
        return _japanese(folded, rules.words["ja"])
    return _english(folded, rules.words["en"])


def _korean(text: str, words: ReferringWords) -> bool:
    if any(phrase in text for phrase in words.switching):
        return False
    spoken = _WORD.findall(_JAMO.sub(" ", text))
    if any(_begins(word, words.referring, words) for word in spoken):
        return True
    return all(word.startswith(words.stems) or _begins(word, words.empty, words) for word in spoken)


def _begins(word: str, listed: Sequence[str], words: ReferringWords) -> bool:
    """Whether the word is one of the list: 나 and 나는, but not 나이; 언제 and 언제였지."""
    return any(
        word.startswith(entry) and (len(entry) > 1 or word[1:] in ("", *words.particles)) for entry in listed
    )


def _english(text: str, words: ReferringWords) -> bool:
    if any(re.search(rf"\b{re.escape(phrase)}\b", text) for phrase in words.switching):
        return False
    spoken = [word.replace("’", "'") for word in _WORD.findall(text)]
    if any(word.split("'")[0] in words.referring for word in spoken):
        return True
    return all(word in words.empty for word in spoken)


def _japanese(text: str, words: ReferringWords) -> bool:
    if any(phrase in text for phrase in words.switching):
        return False
    if any(word in text for word in words.referring):
        return True
    rest = "".join(_WORD.findall(text))
    for word in sorted(words.empty, key=len, reverse=True):
        rest = rest.replace(word, "")
    return not rest
