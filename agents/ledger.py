"""The ledger's step: a batch of one partition's records over its rows, to one transaction's worth of writes."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo

from agents.codec import MemoryCipher, RequestCodec
from agents.dead_letters import dead_letter
from agents.due import DueIndex
from agents.ports import CannotOpen, Counters, RowSource, Sealer
from agents.row_codec import Overlay, RowCodec, decode_thread, decode_window
from models.commands import CloseTick, Flush, parse_command, parse_tick
from models.fold import Event, fold
from models.messages import ChatMessage, InvalidEvent, parse_chat_message
from models.published import RelationshipChanged, changed_key, pair_subject
from models.records import Batch, Output, Record
from models.rows import AnyKey, AnyRow, ThreadKey, WindowKey, decode_key
from models.rules import Ask, Effect, Relate, Remember, Report, Rules
from models.topics import CHANGED, CHAT, COMMAND, CREATED, DEAD, EXTRACTED, REQUESTED, TICK

log = logging.getLogger(__name__)

ORIGIN_HEADER = "keepsake-origin-timestamp"
POISON_LIMIT = 3


class _Poison(Exception):
    """The record at `index` of a batch broke the fold; `kind` is the type of the error."""

    def __init__(self, index: int, kind: str) -> None:
        super().__init__(index, kind)
        self.index = index
        self.kind = kind


class LedgerStep:
    """Folds batches. `place` gives the partition of a user id."""

    def __init__(
        self,
        rules: Rules,
        zone: tzinfo,
        sealer: Sealer,
        place: Callable[[str], int],
        counters: Counters,
        tick_margin_ms: int,
    ) -> None:
        self._rules = rules
        self._zone = zone
        self._sealer = sealer
        self._codec = RowCodec(sealer)
        self._memories = MemoryCipher(sealer, self._codec.pairs)
        self._requests = RequestCodec(sealer)
        self._place = place
        self._counters = counters
        self._tick_margin_ms = tick_margin_ms
        self._due: dict[int, DueIndex] = {}
        self._folded: dict[int, Mapping[AnyKey, AnyRow | None]] = {}

    def chat_offset(self, record: Record) -> int | None:
        """The `chat.message` offset that must have been folded before this record (I3), None if it needs none."""
        try:
            if record.topic == COMMAND:
                command = parse_command(record.value)
                return command.chat_offset if isinstance(command, Flush) else None
            if record.topic == TICK:
                tick = parse_tick(record.value)
                return tick.chat_offset if isinstance(tick, CloseTick) else None
        except InvalidEvent:
            pass  # said of it when it is folded
        return None

    def fold(self, partition: int, records: Sequence[Record], rows: RowSource) -> Batch:
        """Fold records in order. One that cannot be understood becomes a dead letter in the same transaction."""
        poisoned: dict[int, str] = {}
        while True:
            try:
                return self._fold(partition, records, rows, poisoned)
            except _Poison as poison:
                # The overlay may hold half of the event: fold the batch again without it.
                poisoned[poison.index] = poison.kind
                if len(poisoned) > POISON_LIMIT:
                    raise RuntimeError(
                        f"{len(poisoned)} events of one batch broke the fold: not going on"
                    ) from poison

    def _fold(
        self, partition: int, records: Sequence[Record], rows: RowSource, poisoned: Mapping[int, str]
    ) -> Batch:
        overlay = Overlay(rows.get, self._codec)
        outputs: list[Output] = []
        for index, record in enumerate(records):
            try:
                if index in poisoned:
                    raise InvalidEvent("fold_error", f"{poisoned[index]} in the fold: please report it")
                event = self._parse(record)
                effects = fold(overlay, event, record.timestamp, self._rules, self._codec)
                outputs += [self._output(partition, effect) for effect in effects]
            except InvalidEvent as invalid:
                outputs.append(self._dead(record, invalid))
            except CannotOpen:
                raise  # the wrong master keys: every event would fail, so the role must stop
            except Exception as error:
                raise _Poison(index, type(error).__name__) from error
        self._folded[partition] = overlay.changed()
        return Batch(tuple(outputs), overlay.encode())

    def assigned(self, partition: int, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Rebuild what is due from all rows of a partition."""
        due = DueIndex(self._rules, self._tick_margin_ms)
        due.update(_due_rows(items))
        self._due[partition] = due

    def revoked(self, partition: int) -> None:
        self._due.pop(partition, None)
        self._folded.pop(partition, None)

    def committed(self, partition: int, batch: Batch) -> None:
        """The last fold of the partition is committed: what is due follows its rows."""
        if partition in self._due:
            self._due[partition].update(self._folded.pop(partition, {}))
        self._counters.count("rows", len(batch.changes))

    def due(self, partition: int, now_ms: int, chat_end: int) -> list[Output]:
        """The ticks to send now."""
        if partition not in self._due:
            return []
        ticks = self._due[partition].take(now_ms, chat_end)
        return [Output(TICK, partition, t.user_id.encode(), t.model_dump_json().encode()) for t in ticks]

    def _parse(self, record: Record) -> Event:
        event: Event
        if record.topic == CHAT:
            event = self._parse_chat(record)
        elif record.topic == EXTRACTED:
            event = self._requests.open_result(record)
        elif record.topic == COMMAND:
            event = parse_command(record.value)
        else:
            event = parse_tick(record.value)
        if self._place(event.user_id) != record.partition:
            raise InvalidEvent(
                "wrong_partition",
                f"partition {record.partition} is not that of the user id: produce with Kafka's default "
                "partitioner (murmur2); in librdkafka set partitioner=murmur2_random",
            )
        return event

    def _parse_chat(self, record: Record) -> ChatMessage:
        origin = next((value for name, value in record.headers if name == ORIGIN_HEADER), None)
        sent = int(origin) if origin and origin.isdigit() else record.timestamp
        message = parse_chat_message(
            record.value,
            key=record.key,
            timestamp=record.timestamp,
            sent=sent,
            offset=record.offset,
            zone=self._zone,
        )
        self._counters.count(f"messages_{message.role}")
        return message

    def _dead(self, record: Record, invalid: InvalidEvent) -> Output:
        log.warning(
            "dead letter: %s at %s[%d]@%d: %s",
            invalid.reason,
            record.topic,
            record.partition,
            record.offset,
            invalid.detail,
        )
        self._counters.count(f"dead_{invalid.reason}")
        key, value = dead_letter(record, invalid.reason, invalid.detail, self._sealer)
        return Output(DEAD, record.partition, key, value)

    def _output(self, partition: int, effect: Effect) -> Output:
        match effect:
            case Ask(request):
                self._counters.count("requests")
                return Output(REQUESTED, partition, *self._requests.seal_request(request))
            case Remember(created, content, pairs):
                self._counters.count("memories")
                payload = self._memories.seal(
                    created.memory_id,
                    created.user_id,
                    created.characters,
                    [pair.key for pair in pairs],
                    content,
                )
                sealed = created.model_copy(update={"payload": payload})
                return Output(
                    CREATED, partition, created.memory_id.encode(), sealed.model_dump_json().encode()
                )
            case Relate(user, character, pair):
                changed = RelationshipChanged(
                    user_id=user,
                    character_id=character,
                    epoch=pair.epoch,
                    version=pair.relationship_version,
                    payload=self._codec.pairs.seal_relationship(user, character, pair),
                )
                key = changed_key(pair_subject(user, character), "relationship")
                return Output(CHANGED, partition, key, changed.model_dump_json().encode())
            case Report(report):
                self._counters.count(f"windows_{report.status}")
                key = changed_key(report.request_id, "window")
                return Output(CHANGED, partition, key, report.model_dump_json().encode())


def _due_rows(items: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[AnyKey, AnyRow | None]]:
    for raw, blob in items:
        if not raw.startswith((b"threads", b"windows")):
            continue
        match key := decode_key(raw):
            case ThreadKey():
                yield key, decode_thread(blob)
            case WindowKey():
                yield key, decode_window(blob)
