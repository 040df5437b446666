"""Cutting a message into clauses, each a piece of its text, and saying what each is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from infra.offline_extractor.lexicon import Kind, Lexicon, lexicon
from models.language import Language

Label = Literal["empty", "question", "supposed", "denial", "retraction", "abandoned", "joke", "statement"]

# Longer texts are pasted documents rather than talk: what is past this is not looked at.
MAX_TEXT = 4_000
MAX_CLAUSES = 60
MAX_CLAUSE = 500

_EMOJI = "\u2190-\u2bff\u3030\ufe0f\U0001f000-\U0001faff"
_END = re.compile(
    rf"(?<!\bMr)(?<!\bDr)(?<!\bMs)(?<!\bMrs)[.!?~]+(?=\s|$|[가-힣\u3040-\u9fff])|[。！？…\n]+"
    rf"|[ㅋㅎㅠㅜㄷ]{{2,}}[.!?~]*|(?:笑|w{{2,}}|ｗ+)(?=[。！\s]|$)|[{_EMOJI}]+"
)
_ACTION = re.compile(r"\*[^*\n]+\*")
_PADDING = re.compile(rf"[\s\W_{_EMOJI}ㅋㅎㅠㅜ]+")


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of the message at `index`: `text` stands there from `start` on. `kind` None: no known kind.

    `lead` is what stood before it, with what was rejected between the two. A retraction or denial ("no, …")
    has the text that follows the no; `opens`: it is the first of its message.
    """

    index: int
    start: int
    text: str
    label: Label
    kind: Kind | None
    language: Language
    lead: str = ""
    opens: bool = False

    @property
    def full(self) -> str:
        """The whole clause without what was rejected in it."""
        return f"{self.lead} {self.text}".strip()

    @property
    def importance(self) -> int:
        return self.kind.importance if self.kind else 3


def clauses(index: int, text: str, language: Language) -> Iterator[Clause]:
    """The clauses of one message of the user, at most MAX_CLAUSES."""
    words = lexicon(language)
    number = 0
    # Actions between asterisks belong to the play: blanks keep the offsets of the rest.
    spoken = _ACTION.sub(lambda action: " " * len(action[0]), text[:MAX_TEXT])
    for start, sentence, asked in _sentences(spoken):
        for at, part in _parts(start, sentence, words):
            if len(part) > MAX_CLAUSE:
                continue
            number += 1
            if number > MAX_CLAUSES:
                return
            yield _clause(index, at, part, asked, words)


def _sentences(text: str) -> Iterator[tuple[int, str, bool]]:
    """Start, text and whether a question mark follows, of each sentence."""
    at = 0
    for end in _END.finditer(text):
        yield at, text[at : end.start()], "?" in end[0] or "？" in end[0]
        at = end.end()
    yield at, text[at:], False


def _parts(start: int, sentence: str, words: Lexicon) -> Iterator[tuple[int, str]]:
    """The sentence cut before what takes back its beginning."""
    cuts = [0, *(m.start() for m in words.retraction_split.finditer(sentence) if m.start()), len(sentence)]
    for left, right in pairwise(cuts):
        part = sentence[left:right]
        lead = len(part) - len(part.lstrip())
        if part.strip():
            yield start + left + lead, part.strip()


def _clause(index: int, start: int, text: str, asked: bool, words: Lexicon) -> Clause:
    language, opens = words.language, start == 0

    def made(label: Label, at: int = start, piece: str = text, lead: str = "") -> Clause:
        kind = _kind(piece, words) if piece and label in ("statement", "retraction", "denial") else None
        return Clause(index, at, piece, label, kind, language, lead, opens)

    if words.joke.search(text):
        return made("joke")
    tail = words.tag.search(text)
    if tail and tail.start() > 3:
        text, asked = text[: tail.start()].rstrip(" ,、"), False
    for label, pattern in (("retraction", words.retraction), ("denial", words.denial)):
        no = pattern.match(text)
        if no and no.end():
            rest = text[no.end() :].lstrip(" ,、")
            at = start + len(text) - len(rest)
            settled = not (asked or _supposed(rest, words) or _is_trivial(rest, words))
            return made("retraction" if label == "retraction" else "denial", at, rest if settled else "")
    if _is_trivial(text, words):
        return made("empty")
    start, text, lead = _without_rejected(start, text, words)
    if _is_trivial(text, words):
        return made("empty", start, text)
    if words.abandoned.search(text):
        return made("abandoned", start, text)
    if asked or words.question.search(text) or words.request.search(text):
        return made("question", start, text)
    if _supposed(text, words):
        return made("supposed", start, text)
    return made("statement", start, text, lead)


def _supposed(text: str, words: Lexicon) -> bool:
    return bool(words.hypothetical.search(text) or words.question.search(text))


def _without_rejected(start: int, text: str, words: Lexicon) -> tuple[int, str, str]:
    """Start and text of the longest stretch of the clause outside of what it says was not chosen, and what
    stands before that."""
    pieces: list[tuple[int, str]] = []
    at = 0
    for match in [*words.rejected.finditer(text), None]:
        piece = text[at : match.start() if match else len(text)]
        lead = len(piece) - len(piece.lstrip(" ,、"))
        if stripped := piece.strip(" ,、"):
            pieces.append((start + at + lead, stripped))
        at = match.end() if match else at
    if not pieces:
        return start, "", ""
    longest = max(range(len(pieces)), key=lambda number: (len(pieces[number][1]), number))
    return *pieces[longest], " ".join(piece for _, piece in pieces[:longest])


def _is_trivial(text: str, words: Lexicon) -> bool:
    bare = _PADDING.sub(" " if words.language == "en" else "", text.replace("’", "'")).strip()
    if words.language == "en":
        bare = re.sub(r"[^\w' ]+", " ", text.replace("’", "'").lower())
        bare = re.sub(r"\s+", " ", bare).strip()
    return not bare or (
        len(bare) <= 80
        and (words.trivial.fullmatch(bare) is not None or words.greeting.fullmatch(bare) is not None)
    )


def _kind(text: str, words: Lexicon) -> Kind | None:
    """The weightiest kind whose words stand in the text."""
    found = [kind for kind in words.kinds if kind.pattern.search(text)]
    return max(found, key=lambda kind: kind.importance, default=None)
