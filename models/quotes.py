"""Whether a quote stands in the window, and as what: who said it, in the window's own letters (R5)."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from rapidfuzz import fuzz, process

from models.answer import clean
from models.requests import WindowMessage

USER = "user"
_USER_NAMES = frozenset({"user", "the user", "human", "사용자", "유저", "ユーザー", "ユーザ"})
_CHARACTER_NAMES = frozenset(
    {"assistant", "the assistant", "character", "the character", "ai", "model", "bot"}
)
# What models put round a quote.
_MARKS = "\"'“”‘’「」『』«»"
_HANGUL_PARTS = range(0x1160, 0x1200)
# How alike (0–100, rapidfuzz) a quote and a real line must be for the line to be taken in its place; shorter
# quotes are too easily alike.
LIKENESS = 90
MIN_ALIKE = 10
# White space, control characters and lone surrogates make no difference.
_COUNTS = re.compile("[^\\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def speaker_of(message: WindowMessage, cast: Sequence[str]) -> str | None:
    """Who said a message: `user`, a character, or None where a scene's line names no speaker."""
    if message.role == "user":
        return USER
    return message.speaker or (cast[0] if len(cast) == 1 else None)


def known_speaker(name: str, user_id: str, cast: Sequence[str]) -> str | None:
    """The speaker that a model's name means: `user`, a character of the cast, or None."""
    if name in cast:
        return name
    folded = name.casefold().strip()
    if folded in _USER_NAMES or name == user_id:
        return USER
    alike = [character for character in cast if character.casefold() == folded]
    if len(alike) == 1:
        return alike[0]
    if folded in _CHARACTER_NAMES and len(cast) == 1:
        return cast[0]
    return None


class WindowText:
    """The window's lines by speaker, made to be searched without regard to white space and normal form."""

    def __init__(self, messages: Iterable[WindowMessage], cast: Sequence[str]) -> None:
        self._lines: dict[str, list[_Line]] = {}
        for message in messages:
            speaker = speaker_of(message, cast)
            if speaker is not None:
                self._lines.setdefault(speaker, []).append(_Line(message.text))

    def find(self, speaker: str, quote: str) -> str | None:
        """The speaker's own words that the quote stands for, None if they never said them."""
        for wanted in (squeeze(quote), squeeze(quote.strip(_MARKS + " …"))):
            if not wanted:
                continue
            for line in self._lines.get(speaker, ()):
                found = line.find(wanted)
                if found:
                    return found
        return None

    def anyone(self, quote: str) -> tuple[str, str] | None:
        """Who said it, and in which words, if exactly one speaker did."""
        said = [(speaker, words) for speaker in self._lines if (words := self.find(speaker, quote))]
        return said[0] if len(said) == 1 else None

    def closest(self, speaker: str, quote: str) -> str | None:
        """The speaker's line that is almost the quote. The whole line: a part of it may lack its "not"."""
        wanted = squeeze(quote)
        lines = [line.text for line in self._lines.get(speaker, ())]
        if len(wanted) < MIN_ALIKE:
            return None
        best = process.extractOne(
            wanted, [squeeze(line) for line in lines], scorer=fuzz.ratio, score_cutoff=LIKENESS
        )
        return clean(lines[best[2]]) or None if best else None

    def longest(self, speaker: str) -> str | None:
        """The longest line of a speaker, None if there is none with any text."""
        lines = [text for line in self._lines.get(speaker, ()) if (text := clean(line.text))]
        return max(lines, key=len, default=None)


class _Line:
    def __init__(self, text: str) -> None:
        self.text = text
        self._squeezed: str | None = None
        self._starts: list[int] = []

    def find(self, wanted: str) -> str | None:
        if self._squeezed is None:
            self._squeezed, self._starts = _squeeze_with_offsets(self.text)
        at = self._squeezed.find(wanted)
        if at < 0:
            return None
        start, end = self._starts[at], self._starts[at + len(wanted)]
        return clean(self.text[start:end]) or None


def squeeze(text: str) -> str:
    """What two texts share that differ only in white space, control characters and normal form."""
    return _squeeze_with_offsets(text)[0]


def _squeeze_with_offsets(text: str) -> tuple[str, list[int]]:
    """The text in NFC without white space and unwanted characters, and where each of its characters begins.

    One offset more than characters: the end.
    """
    if unicodedata.is_normalized("NFC", text):
        found = [(match[0], match.start()) for match in _COUNTS.finditer(text)]
    else:
        found = list(_normalised(text))
    return "".join(c for c, _ in found), [*(start for _, start in found), len(text)]


def _normalised(text: str) -> Iterator[tuple[str, int]]:
    """The characters of the NFC form, each with the start of what it was made of."""
    at = 0
    while at < len(text):
        end = at + 1
        while end < len(text) and _continues(text[end]):
            end += 1
        for character in unicodedata.normalize("NFC", text[at:end]):
            if _COUNTS.match(character):
                yield character, at
        at = end


def _continues(character: str) -> bool:
    return unicodedata.combining(character) != 0 or ord(character) in _HANGUL_PARTS
