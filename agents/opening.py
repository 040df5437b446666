"""Opens stored memories, and says why one cannot be opened."""

from typing import Literal

from pydantic import ValidationError

from agents.codec import DestroyedKey, MemoryCipher, PairKeys
from agents.ports import CannotOpen
from models.candidates import Candidate
from models.memory import MemoryContent
from models.recall import CharacterPlace, Explanation, Memory

Closed = Literal["destroyed", "unknown_key", "damaged"]


class CannotBeOpened(Exception):
    """A memory that is left out of an answer (R28). `reason`: destroyed, unknown_key or damaged."""

    def __init__(self, reason: Closed) -> None:
        super().__init__(reason)
        self.reason: Closed = reason


class MemoryOpener:
    """Opens memories with the keys that are known now."""

    def __init__(self, cipher: MemoryCipher, keys: PairKeys) -> None:
        self._cipher = cipher
        self._keys = keys

    def open(self, stored: Candidate) -> MemoryContent:
        """The text of a memory; CannotBeOpened if it does not open."""
        try:
            return self._cipher.open(
                stored.memory_id, stored.user_id, stored.characters, stored.payload, self._keys
            )
        except DestroyedKey:
            raise CannotBeOpened("destroyed") from None
        except LookupError:
            raise CannotBeOpened("unknown_key") from None
        except (CannotOpen, ValidationError):
            # pydantic's error holds the text: it must not become the cause that a log would print.
            raise CannotBeOpened("damaged") from None


def answer_memory(
    stored: Candidate,
    content: MemoryContent,
    score: float | None = None,
    explain: Explanation | None = None,
) -> Memory:
    """A memory as the API gives it."""
    return Memory(
        id=stored.memory_id,
        kind=stored.kind,
        summary=content.summary,
        key_details=content.key_details,
        importance=stored.importance,
        pinned=stored.pinned,
        category=content.category,
        date=stored.date,
        created_at=stored.created_at,
        plans=content.plans,
        characters=tuple(
            CharacterPlace(character_id=owner.character_id, seq=owner.seq) for owner in stored.characters
        ),
        source=stored.source,
        score=score,
        explain=explain,
    )
