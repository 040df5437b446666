"""`GET /v1/users/{user}/characters/{character}`: where a pair stands (section H)."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from models.memory import RelationshipState


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ThreadStatus(_Answer):
    """One thread of the pair. Positions are the thread's, 0 where there is none yet.

    `closed_position` ends the last closed window; up to `covered_position` every message is held by a
    memory that can be recalled, or was skipped (I11). `buffered_user_messages` of `threshold` are in the
    window that is filling. `open`, `queued` and `parked` count closed windows: being extracted, waiting for
    that, given up until an operator takes them up again.
    """

    character_ids: tuple[str, ...]
    last_position: int
    closed_position: int
    covered_position: int
    buffered_user_messages: int
    threshold: int
    open: int
    queued: int
    parked: int


class PairStatus(_Answer):
    """What there is of a pair. `last_message_at` is the log's time of the last message of its threads."""

    threads: tuple[ThreadStatus, ...]
    relationship: RelationshipState | None
    memories: int
    last_seq: int
    last_message_at: datetime | None
