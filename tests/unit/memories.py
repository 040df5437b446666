"""Stored memories and fakes of what a recall works with, for tests without engines."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from agents.codec import MemoryCipher, PairCipher
from infra.sealing import AesGcmSealer, MasterKeys
from models.candidates import Candidate, Candidates, Coverage, MemoryPage, PairSummary, Scope, ScopePage
from models.memory import MemoryContent, Quote, Source
from models.published import CharacterSeq
from models.rows import PairKey
from streams.publisher import Draft, LogUnavailable, Place
from streams.view import TableView

START = datetime(2026, 1, 1, tzinfo=UTC)
USER = "u1"


def candidate(
    number: int,
    *,
    seqs: Mapping[str, int] | None = None,
    importance: int = 5,
    pinned: bool = False,
    minutes: int | None = None,
    payload: bytes = b"",
    offline: bool = False,
) -> Candidate:
    """The `number`-th memory, a minute newer than the one before unless `minutes` says otherwise."""
    at = START + timedelta(minutes=number if minutes is None else minutes)
    return Candidate(
        memory_id=f"memory-{number:03}",
        user_id=USER,
        kind="window",
        payload=payload,
        characters=tuple(
            CharacterSeq(character_id=name, seq=seq, epoch=1)
            for name, seq in (seqs or {"mina": number}).items()
        ),
        importance=importance,
        pinned=pinned,
        date=at.date(),
        created_at=at,
        source=Source(
            session_ids=("s1",),
            first_message_id=f"m{number}",
            last_message_id=f"m{number + 9}",
            first_position=number,
            last_position=number + 9,
        ),
        source_mode=None,
        offline=offline,
    )


class Vault:
    """A sealer, the pair keys of a user, and memories sealed by them."""

    def __init__(self) -> None:
        self.sealer = AesGcmSealer(MasterKeys.generate())
        self.pairs = PairCipher(self.sealer)
        self.cipher = MemoryCipher(self.sealer, self.pairs)
        self.rows: dict[bytes, bytes] = {}

    def key(self, character: str, user: str = USER) -> bytes:
        at = PairKey(user, character).encode()
        if at not in self.rows:
            wrapped = self.pairs.new_wrapped_key(user, character, 1)
            row = {
                "epoch": 1,
                "key": b64encode(wrapped).decode(),
                "last_seq": 0,
                "relationship": None,
                "relationship_version": 0,
            }
            self.rows[at] = orjson.dumps(row)
        data = orjson.loads(self.rows[at])
        return b64decode(data["key"])

    def memory(self, number: int, summary: str, **more: Any) -> Candidate:
        """A memory that opens to this summary."""
        bare = candidate(number, **more)
        payload = self.cipher.seal(
            bare.memory_id,
            bare.user_id,
            bare.characters,
            [self.key(owner.character_id) for owner in bare.characters],
            MemoryContent(summary=summary, key_details=(Quote(speaker="user", text=summary),)),
        )
        return candidate(number, payload=payload, **more)

    # What a view does (agents.ports.LedgerView, agents.codec.PairKeys).

    complete = True

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, row) for key, row in self.rows.items() if key.startswith(prefix)))

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def wrapped_pair_key(self, user: str, character: str, epoch: int) -> bytes:
        return TableView.wrapped_pair_key(self, user, character, epoch)  # type: ignore[arg-type]  # has get, no more


class FakeIndex:
    """An index that answers what it was given, or fails as it was told to."""

    def __init__(self, found: Candidates | None = None) -> None:
        self.found = found or Candidates()
        self.page = MemoryPage((), None)
        self.scope_page = ScopePage((), None)
        self.covered = Coverage()
        self.planned: list[Candidate] = []
        self.error: Exception | None = None
        self.asked: dict[str, Any] = {}

    def _answer(self, value: Any) -> Any:
        if self.error is not None:
            raise self.error
        return value

    async def candidates(self, scope: Scope, **asked: Any) -> Candidates:
        self.asked = {"scope": scope, **asked}
        for _ in range(3):  # as a database would, let a deadline that has passed take effect
            await asyncio.sleep(0)
        found: Candidates = self._answer(self.found)
        return found

    async def exhaustive(self, scope: Scope, **asked: Any) -> MemoryPage:
        self.asked = {"scope": scope, **asked}
        everything: MemoryPage = self._answer(self.page)
        return everything

    async def in_scope(self, scope: Scope, **asked: Any) -> ScopePage:
        page: ScopePage = self._answer(self.scope_page)
        return page

    async def memories_page(self, scope: Scope, **asked: Any) -> MemoryPage:
        self.asked = {"scope": scope, **asked}
        page: MemoryPage = self._answer(self.page)
        return page

    async def with_plans(self, *asked: Any) -> list[Candidate]:
        planned: list[Candidate] = self._answer(self.planned)
        return planned

    async def pair_summary(self, user_id: str, character_id: str) -> PairSummary:
        summary: PairSummary = self._answer(PairSummary(0, 0, None, None))
        return summary

    async def coverage(self, user_id: str, character_ids: Sequence[str], epoch: int) -> Coverage:
        covered: Coverage = self._answer(self.covered)
        return covered


class FakeEmbedder:
    """Gives one vector to every text; `error` is raised instead, and `gate` is waited for."""

    provider = "fake"
    model = "fake"
    dimensions = 3
    offline = False

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate: Any = None
        self.queries: list[str] = []

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        return [[1.0, 0.0, 0.0] for _ in texts]

    async def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [1.0, 0.0, 0.0]

    async def close(self) -> None: ...


class FakeCounters:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


class FakeReports:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def report(self, reason: str, error: BaseException | None = None) -> None:
        self.reasons.append(reason)


class FakeTokens:
    """Takes every character for a token."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text)


class FakeLog:
    """A log in memory; `away` makes it refuse."""

    def __init__(self) -> None:
        self.records: list[Draft] = []
        self.away = False

    async def publish(self, drafts: Sequence[Draft]) -> list[Place]:
        if self.away:
            raise LogUnavailable("away")
        start = len(self.records)
        self.records += drafts
        return [Place(draft.topic, draft.partition, start + at) for at, draft in enumerate(drafts)]

    async def end_offset(self, topic: str, partition: int) -> int:
        if self.away:
            raise LogUnavailable("away")
        return sum(draft.topic == topic and draft.partition == partition for draft in self.records)


class FakeView:
    complete = True

    def lag(self) -> int | None:
        return 0


class FakeReadiness:
    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}
        self.warnings: list[str] = []


def found(
    vector: Iterable[tuple[Candidate, float]] = (),
    keyword: Iterable[tuple[Candidate, float]] = (),
    recent: Iterable[Candidate] = (),
    important: Iterable[Candidate] = (),
    **max_seq: int,
) -> Candidates:
    return Candidates(tuple(vector), tuple(keyword), tuple(recent), tuple(important), max_seq)
