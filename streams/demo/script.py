"""What the demo says: its conversations, which lie beside this file as `chat.message` records, and its questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Conversation:
    """A talk of one user with one character, in order; each message is the JSON object of `chat.message`."""

    title: str
    messages: Sequence[dict[str, Any]]

    @property
    def user(self) -> str:
        return str(self.messages[0]["user_id"])

    @property
    def character(self) -> str:
        return str(self.messages[0]["character_ids"][0])


@dataclass(frozen=True, slots=True)
class Question:
    """A later utterance of a user, for whose answer memories are recalled."""

    user: str
    character: str
    text: str


_TITLES = {
    "korean.jsonl": "A Korean companion: no session has five messages, their thread has",
    "english.jsonl": "An English running coach",
    "japanese.jsonl": "A Japanese friend",
}

QUESTIONS = (
    Question("jiwoo", "haru", "우리 두부가 제일 좋아하는 자리가 어디였지?"),
    Question("sam", "coach-mia", "who is running the race with me?"),
    Question("yui", "ren", "妹の結婚式はいつだっけ?"),
)


def conversations() -> list[Conversation]:
    """The bundled conversations, in the order in which they are played."""
    folder = Path(__file__).parent
    return [
        Conversation(title, [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()])
        for name, title in _TITLES.items()
    ]
