"""`memory.dead`: a record that could not be understood, where it stood, and why."""

from pydantic import BaseModel, ConfigDict

from models.published import Sealed

MAX_SEALED_BYTES = 262_144
MAX_KEY_BYTES = 1_024
MAX_DETAIL = 500


class DeadLetter(BaseModel):
    """`memory.dead`, key = key of the record (empty if it had none, or one over `MAX_KEY_BYTES`).

    `timestamp` (ms) and the coordinates are those of the record; `sha256` is of its value, in hexadecimal.
    `reason` is a fixed word and `detail` a sentence, neither with any text of the record. `sealed` is the
    record itself, sealed by the deployment key; None where that would take more than `MAX_SEALED_BYTES` in
    base64: then it can be read at its coordinates only.
    """

    model_config = ConfigDict(frozen=True)

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    sha256: str
    sealed: Sealed | None
