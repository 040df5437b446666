"""Sends dead letters from the stateless roles; the ledger writes its own inside its transaction."""

import logging

from aiokafka import AIOKafkaProducer

from agents.dead_letters import dead_letter
from agents.ports import Sealer
from models.records import Record
from models.topics import DEAD

log = logging.getLogger(__name__)


class KafkaDeadLetters:
    """Writes to `memory.dead`, to the partition of the record's own number; returns when the broker has it."""

    def __init__(self, producer: AIOKafkaProducer, sealer: Sealer) -> None:
        self._producer = producer
        self._sealer = sealer

    async def send(self, record: Record, reason: str, detail: str) -> None:
        log.warning(
            "dead letter: %s at %s[%d]@%d: %s", reason, record.topic, record.partition, record.offset, detail
        )
        key, value = dead_letter(record, reason, detail, self._sealer)
        await self._producer.send_and_wait(DEAD, value, key=key, partition=record.partition)
