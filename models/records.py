"""Kafka records as the rules see them: what was read from the log, what is to be written to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record read from a topic. `timestamp` is the broker's append time in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One record to write. `value` None is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of events of one partition comes to: written in one transaction or not at all.

    `changes` maps a table key to its new value, None where the row is deleted.
    """

    outputs: tuple[Output, ...] = ()
    changes: Mapping[bytes, bytes | None] = field(default_factory=dict)
