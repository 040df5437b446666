"""A ledger in memory for property tests: the real step, codec and sealing over a dict, a log, and an extractor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date
from typing import Literal

import orjson

from agents.codec import RequestCodec
from agents.ledger import LedgerStep
from agents.row_codec import Overlay, RowCodec, decode_user
from infra.sealing import AesGcmSealer, MasterKeys
from models.commands import CoveredTick
from models.ids import make_cast
from models.memory import ExtractedMemory, MemoryContent, Provenance, RelationshipState
from models.published import MemoryCreated
from models.records import Batch, Output, Record
from models.requests import WindowRequest, WindowResult
from models.rows import ThreadKey, ThreadRow, UserKey, UserRow, WindowKey, WindowRow
from models.rules import Rules
from models.topics import CHAT, COMMAND, CREATED, EXTRACTED, REQUESTED, TICK

START = 1_770_000_000_000
MASTERS = MasterKeys("k1", {"k1": b"m" * 32}, b"i" * 32)
PROVENANCE = Provenance(
    task="extraction", prompt="p", prompt_version="1", provider="test", model="test", offline=True
)
Answer = Literal["memory", "nothing", "failed"]


class Counts:
    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        self.names[name] = self.names.get(name, 0) + by


def chat_record(
    offset: int,
    text: str = "hello",
    *,
    user: str = "u",
    characters: Iterable[str] = ("A",),
    role: str = "user",
    timestamp: int = START,
    message_id: str | None = None,
    session: str = "s1",
) -> Record:
    """One valid `chat.message` record."""
    value = {
        "message_id": message_id or f"m{offset}",
        "user_id": user,
        "character_ids": list(characters),
        "session_id": session,
        "role": role,
        "text": text,
    }
    return Record(CHAT, 0, offset, timestamp, user.encode(), orjson.dumps(value))


@dataclass
class Ledger:
    """One partition's ledger. `outputs` are the committed ones."""

    rules: Rules = field(default_factory=Rules)
    committed: dict[bytes, bytes] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sealer = AesGcmSealer(MASTERS)
        self.counts = Counts()
        self.requests = RequestCodec(self.sealer)
        self.restart()

    def restart(self) -> None:
        """What a new process has: the committed rows, and nothing else."""
        self.step = LedgerStep(
            self.rules, UTC, self.sealer, lambda user: 0, self.counts, tick_margin_ms=5_000
        )
        self.step.assigned(0, list(self.committed.items()))

    def get(self, key: bytes) -> bytes | None:
        return self.committed.get(key)

    def fold(self, records: list[Record], *, crash: bool = False) -> Batch:
        """Fold and commit a batch; with `crash` the process dies before the commit."""
        batch = self.step.fold(0, records, self)
        if crash:
            self.restart()
            return batch
        for key, value in batch.changes.items():
            if value is None:
                self.committed.pop(key, None)
            else:
                self.committed[key] = value
        self.outputs += batch.outputs
        self.step.committed(0, batch)
        return batch

    def asked(self) -> list[WindowRequest]:
        """Every request that was sent, in order."""
        return [self.requests.open_request(_as_record(o)) for o in self.outputs if o.topic == REQUESTED]

    def created(self) -> list[MemoryCreated]:
        return [MemoryCreated.model_validate_json(o.value or b"") for o in self.outputs if o.topic == CREATED]

    def rows(self) -> Overlay:
        return Overlay(self.get, RowCodec(self.sealer))

    def user(self, user: str = "u") -> UserRow:
        return decode_user(self.committed[UserKey(user).encode()])

    def thread(self, *characters: str, user: str = "u") -> ThreadRow:
        row = self.rows().get(ThreadKey(user, make_cast(characters)))
        assert row is not None
        return row

    def windows(self, *characters: str, user: str = "u") -> list[WindowRow]:
        """A thread's closed windows, in order."""
        rows, cast = self.rows(), make_cast(characters)
        found = [
            rows.get(WindowKey(user, cast, 1, number))
            for number in range(1, self.thread(*characters, user=user).closed_windows + 1)
        ]
        return [row for row in found if row is not None]

    def ticks(self, now: int, chat_end: int, offset: int) -> list[Record]:
        """The due ticks as records, appended at `now`."""
        return [
            Record(TICK, 0, offset + index, now, output.key, output.value)
            for index, output in enumerate(self.step.due(0, now, chat_end))
        ]

    def settle(self, answer: Callable[[WindowRequest], Answer], offset: int = 0, now: int = START) -> int:
        """Answer every request, and what it brings about, until none is open; the next result offset."""
        done = 0
        while done < len(asked := self.asked()):
            self.fold([result_record(self.requests, asked[done], answer(asked[done]), offset, now)])
            offset += 1
            done += 1
        return offset


def result_record(
    codec: RequestCodec,
    request: WindowRequest,
    answer: Answer,
    offset: int,
    now: int = START,
    *,
    more: bool = False,
) -> Record:
    """What an extractor answers to a request; `more`: of a failure, that a fall-back model has attempts left."""
    memory = ExtractedMemory(
        content=MemoryContent(summary=f"window {request.number}", search_terms=("term",)),
        importance=5,
        date=date(2026, 3, 1),
    )
    result = WindowResult(
        **{
            name: getattr(request, name)
            for name in ("request_id", "user_id", "character_ids", "epoch", "number")
        },
        attempt=request.attempt,
        versions=request.versions,
        status=answer,
        reason="test" if answer == "failed" else None,
        more=more,
        memory=memory if answer == "memory" else None,
        provenance=PROVENANCE if answer == "memory" else None,
        relationships={
            name: RelationshipState(summary=f"after {request.request_id}") for name in request.character_ids
        }
        if answer == "memory"
        else {},
    )
    key, value = codec.seal_result(result)
    return Record(EXTRACTED, 0, offset, now, key, value)


def command_record(value: bytes, offset: int = 0, now: int = START, user: str = "u") -> Record:
    return Record(COMMAND, 0, offset, now, user.encode(), value)


def covered_record(
    *numbers: int, characters: tuple[str, ...] = ("A",), epoch: int = 1, offset: int = 0, user: str = "u"
) -> Record:
    """The indexer's report that these windows are covered."""
    tick = CoveredTick(user_id=user, character_ids=characters, epoch=epoch, numbers=numbers)
    return Record(TICK, 0, offset, START, user.encode(), tick.model_dump_json().encode())


def assert_covered_once(ledger: Ledger, *characters: str, user: str = "u") -> None:
    """Windows and the open rest hold every position exactly once, in order (R4)."""
    thread = ledger.thread(*characters, user=user)
    expected = 1
    for window in ledger.windows(*characters, user=user):
        assert (window.first, window.last >= window.first) == (expected, True)
        expected = window.last + 1
    assert thread.closed_position == expected - 1
    assert thread.next_position >= expected


def assert_seqs(ledger: Ledger) -> None:
    """Every pair's memories are numbered 1..n in the order of their creation, each memory once (I2)."""
    last: dict[tuple[str, str], int] = {}
    seen: set[str] = set()
    for created in ledger.created():
        assert created.memory_id not in seen
        seen.add(created.memory_id)
        for ref in created.characters:
            pair = (created.user_id, ref.character_id)
            assert ref.seq == last.get(pair, 0) + 1
            last[pair] = ref.seq


def _as_record(output: Output) -> Record:
    return Record(output.topic, output.partition, 0, START, output.key, output.value)
