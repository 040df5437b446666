"""Whether a summary is one: told about the user, in the language of the talk, not in the character's voice (R7)."""

import re
from collections import Counter
from collections.abc import Iterable

from models.language import language_of
from models.requests import WindowMessage

# Stage directions, and a report addressed to the user: what a character writes who answers the talk.
_VOICE = re.compile(
    r"^\s*\*[^*]+\*"
    r"|\b(?:as )?you (?:told|asked|said|mentioned|shared with|confided in) (?:to )?(?:me|that)\b"
    r"|\b(?:i'm|i am) (?:so |really )?(?:glad|happy|sorry) (?:that )?you\b"
    r"|\bi(?:'ll| will) (?:always )?remember (?:that|this|it)\b"
    r"|(?:네가|니가|당신이|자기가) (?:나한테|나에게|내게|저한테|저에게|제게)"
    r"|(?:말|얘기|이야기)해 ?(?:줘서|주셔서|줬어|주셨어)"
    r"|(?:君|あなた|きみ)が(?:私|僕|俺|わたし|ぼく)に"
    r"|(?:話|教え|言っ)(?:して)?(?:て)?くれて(?:ありがとう|嬉し|うれし)",
    re.IGNORECASE,
)
# Fewer letters (a name, "BTS", a number) do not tell a language.
MIN_LETTERS = 12
# Of the user's messages so many must be in the language of the summary: people mix languages.
SHARE = 0.2


def in_character(summary: str, messages: Iterable[WindowMessage]) -> bool:
    """Whether the summary speaks to the user instead of telling of them; words quoted from the talk do not count."""
    said = " ".join(message.text for message in messages)
    return any(match[0].strip() not in said for match in _VOICE.finditer(summary))


def other_language(summary: str, messages: Iterable[WindowMessage]) -> bool:
    """Whether the summary is in a language that the user hardly speaks in this talk."""
    written = language_of(summary)
    if written is None or sum(letter.isalpha() for letter in summary) < MIN_LETTERS:
        return False
    spoken = Counter(found for m in messages if m.role == "user" and (found := language_of(m.text)))
    return bool(spoken) and spoken[written] < SHARE * spoken.total()
