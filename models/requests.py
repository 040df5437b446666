"""What the ledger asks of an extractor, and what comes back."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.memory import ExtractedMemory, Provenance, RelationshipState
from models.messages import Role

EXTRACTION: Literal["extraction"] = "extraction"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class WindowMessage(_Wire):
    """One message of a window. `sent_at` is RFC 3339 with an offset; `speaker` names an assistant line's character."""

    position: int
    message_id: str
    session_id: str
    role: Role
    text: str
    sent_at: str
    speaker: str | None = None
    source_mode: str | None = None


class WindowRef(_Wire):
    """Which window: the `number`-th (from 1) of an epoch of a thread."""

    request_id: str
    user_id: str
    character_ids: tuple[str, ...]
    epoch: int
    number: int


class WindowRequest(WindowRef):
    """`memory.requested`: extract the memory of one window, `attempt` from 1.

    `versions` are those of the relationship states shown, by character.
    """

    task: Literal["extraction"] = EXTRACTION
    attempt: int
    versions: dict[str, int]
    messages: tuple[WindowMessage, ...]
    relationships: dict[str, RelationshipState | None]


class WindowResult(WindowRef):
    """`memory.extracted`: what came of one attempt. `reason` is a fixed word, never text of the chat.

    memory: `memory` and `provenance` are there; nothing: there was nothing to keep; failed: `reason` says why,
    and `more` whether a fall-back model has attempts left: it is told here, so that the ledger needs to know
    nothing but the log. A relationship state that is None, or of a character left out, keeps the old one.
    """

    attempt: int
    versions: dict[str, int]
    status: Literal["memory", "nothing", "failed"]
    reason: str | None = None
    more: bool = False
    memory: ExtractedMemory | None = None
    relationships: dict[str, RelationshipState | None] = Field(default_factory=dict)
    provenance: Provenance | None = None

    @model_validator(mode="after")
    def _whole(self) -> "WindowResult":
        # Half a memory would pass for "nothing to keep", and the window be lost.
        if (self.status == "memory") != (self.memory is not None and self.provenance is not None):
            raise ValueError("a memory and its provenance belong to the status memory, and to no other")
        return self
