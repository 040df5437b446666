"""The topics: names, and the exact configuration each must have (design, section 2)."""

from dataclasses import dataclass

from models.topics import (
    CHANGED,
    CHAT,
    COMMAND,
    CREATED,
    DEAD,
    EMBEDDED,
    EXTRACTED,
    REQUESTED,
    REQUESTED_BATCH,
    TICK,
)

LEDGER_GROUP = "keepsake-ledger"
EXTRACTOR_GROUP = "keepsake-extractor"
INDEXER_GROUP = "keepsake-indexer"
# Holds offsets only, nobody joins it: how far memories are embedded, whatever the index has.
EMBED_GROUP = "keepsake-embed"
STATE_TABLE = "state"
CHANGELOG = f"{LEDGER_GROUP}-{STATE_TABLE}-changelog"

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic and the broker settings it must have; `enforced` ones are checked on an existing topic."""

    name: str
    config: dict[str, str]
    enforced: tuple[str, ...] = ("cleanup.policy",)


def _compacted() -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": str(DAY_MS),
        "delete.retention.ms": str(30 * DAY_MS),
    }


def _expiring(days: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(days * DAY_MS)}


# Ticks and results are judged by record timestamps too, so every topic that the ledger reads
# takes the broker's clock, not the producer's.
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}

TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec(
        CHAT,
        {"cleanup.policy": "delete", **_APPEND_TIME},
        enforced=("cleanup.policy", "message.timestamp.type"),
    ),
    TopicSpec(
        COMMAND,
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", **_APPEND_TIME},
        enforced=("cleanup.policy", "retention.ms", "message.timestamp.type"),
    ),
    TopicSpec(
        TICK,
        {**_expiring(1), **_APPEND_TIME},
        enforced=("cleanup.policy", "message.timestamp.type"),
    ),
    TopicSpec(REQUESTED, _expiring(3)),
    TopicSpec(REQUESTED_BATCH, _expiring(3)),
    TopicSpec(
        EXTRACTED,
        {**_expiring(3), **_APPEND_TIME},
        enforced=("cleanup.policy", "message.timestamp.type"),
    ),
    TopicSpec(CREATED, _compacted()),
    TopicSpec(EMBEDDED, _compacted()),
    TopicSpec(CHANGED, _compacted()),
    TopicSpec(DEAD, _expiring(30)),
    TopicSpec(CHANGELOG, _compacted()),
)
