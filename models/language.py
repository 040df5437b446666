"""Which of our three languages a text is in, by its letters."""

import re
from typing import Literal

Language = Literal["ko", "en", "ja"]

_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
_KANA = re.compile("[\u3040-\u30ff]")
_HAN = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[A-Za-z]")


def language_of(text: str) -> Language | None:
    """Hangul tells Korean, kana or Han alone Japanese, Latin letters alone English; None where it has none of these."""
    hangul, kana = len(_HANGUL.findall(text)), len(_KANA.findall(text))
    if hangul or kana:
        return "ko" if hangul >= kana else "ja"
    if _HAN.search(text):
        return "ja"
    return "en" if _LATIN.search(text) else None
