"""Text of others made inert, so that it can stand inside a wrapper and neither close it nor look like another (R33)."""

import re
import unicodedata

# What NFKC makes of these, or what a reader takes them for, are the marks of a tag.
_MARKS = {"<": "‹", ">": "›"}
_LOOKALIKES = {"⟨": "‹", "⟩": "›", "〈": "‹", "〉": "›", "\u2329": "‹", "\u232a": "›"}
_SPACES = re.compile(r"\s+")
# Control, format (zero width, direction, tags) and private characters, and lone surrogates.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs"})
# Hangul fillers and Braille blank are letters to Unicode, and nothing to the eye.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def inert(text: str) -> str:
    """The text on one line, without invisible characters, and with nothing in it that could be a tag.

    A line of ours begins with a mark of ours, so that one line cannot pose as another speaker, a heading or a fence.
    """
    return _SPACES.sub(" ", "".join(map(_character, text))).strip()


def _character(character: str) -> str:
    if character in "\n\r\t\v\f\x1c\x1d\x1e\x85" or unicodedata.category(character) in ("Zl", "Zp"):
        return " "
    if character in _BLANK or unicodedata.category(character) in _INVISIBLE:
        return ""
    folded = unicodedata.normalize("NFKC", character)
    if folded in _MARKS:
        return _MARKS[folded]
    return _LOOKALIKES.get(character, character)
