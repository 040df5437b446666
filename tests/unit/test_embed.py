"""The embed step and the sweep: what happens when the provider, a text or a key fails."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import NAMESPACE_OID, uuid5

import pytest

from agents.codec import DestroyedKey, MemoryCipher, PairCipher
from agents.embed import Embed
from agents.embedding import MemoryEmbedding
from agents.ports import ProviderError
from agents.sweep import Sweep
from infra.sealing import AesGcmSealer, MasterKeys
from models.index_rows import SealedMemory
from models.memory import MemoryContent, Provenance, Source
from models.published import TOKENS, CharacterSeq, MemoryCreated, MemoryEmbedded
from models.records import Record
from models.tokens import index_tokens
from models.topics import CREATED

SEALER = AesGcmSealer(MasterKeys.generate())
PAIRS = PairCipher(SEALER)
WRAPPED = PAIRS.new_wrapped_key("u1", "mina", 1)


class Keys:
    """The pair's key: known, unknown or destroyed, or known at the `known_at`-th look."""

    def __init__(self, state: str = "known", known_at: int = 1) -> None:
        self.state = state
        self.known_at = known_at
        self.looks = 0

    def wrapped_pair_key(self, user: str, character: str, epoch: int) -> bytes:
        self.looks += 1
        if self.state == "destroyed":
            raise DestroyedKey("epoch 1")
        if self.state == "unknown" or self.looks < self.known_at:
            raise LookupError("not known")
        return WRAPPED


class Provider:
    """An embedder that fails the first `failures` times, and always for texts that contain `bad`."""

    provider = "test"
    model = "model-a"
    dimensions = 768
    offline = False

    def __init__(self, failures: int = 0, retry_after: float | None = None) -> None:
        self.failures = failures
        self.retry_after = retry_after
        self.sizes: list[int] = []
        self.vector = [1.0] + [0.0] * 767
        self.gate: asyncio.Event | None = None

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        self.sizes.append(len(texts))
        if self.gate:
            await self.gate.wait()
        if self.failures > 0:
            self.failures -= 1
            raise ProviderError("rate_limited", self.retry_after)
        return [None if "bad" in text else self.vector for text in texts]

    async def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError

    async def close(self) -> None: ...


class Topic:
    def __init__(self) -> None:
        self.sent: list[MemoryEmbedded] = []
        self.first = asyncio.Event()

    async def send(self, user_id: str, key: bytes, value: bytes) -> None:
        self.first.set()
        self.sent.append(MemoryEmbedded.model_validate_json(value))

    def count(self, what: str) -> int:
        return sum(record.what == what for record in self.sent)


class DeadList:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def send(self, record: Record, reason: str, detail: str) -> None:
        self.reasons.append(reason)


class Counts:
    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        self.names[name] = self.names.get(name, 0) + by


class Progress:
    def __init__(self, start: int = 0) -> None:
        self.at = start

    def next_offset(self, partition: int) -> int:
        return self.at

    def advance(self, partition: int, next_offset: int) -> None:
        self.at = next_offset


class World:
    def __init__(
        self,
        provider: Provider | None = None,
        keys: Keys | None = None,
        start: int = 0,
        tokens_wait: float = 30,
    ) -> None:
        self.provider = provider or Provider()
        self.topic, self.dead, self.counts, self.progress = Topic(), DeadList(), Counts(), Progress(start)
        self.embedding = MemoryEmbedding(
            cipher=MemoryCipher(SEALER, PAIRS),
            keys=keys or Keys(),
            sealer=SEALER,
            embedder=self.provider,
            topic=self.topic,
            counters=self.counts,
        )
        self.embed = Embed(
            self.embedding,
            self.progress,
            self.dead,
            self.counts,
            lambda _: None,
            key_seconds=0.05,
            retry_seconds=(0, 0, 0),
            tokens_wait=tokens_wait,
        )


def sealed(number: int, summary: str = "a fact", terms: tuple[str, ...] = ("tea",)) -> SealedMemory:
    identity = str(uuid5(NAMESPACE_OID, str(number)))
    owners = (CharacterSeq(character_id="mina", seq=number, epoch=1),)
    content = MemoryContent(summary=summary, search_terms=terms)
    payload = MemoryCipher(SEALER, PAIRS).seal(identity, "u1", owners, [WRAPPED], content)
    return SealedMemory(identity, "u1", owners, payload)


def record(number: int, memory: SealedMemory | None = None) -> Record:
    memory = memory or sealed(number)
    created = MemoryCreated(
        memory_id=memory.memory_id,
        user_id=memory.user_id,
        kind="window",
        request_id=memory.memory_id,
        characters=memory.characters,
        importance=5,
        date=date(2026, 1, 1),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        source=Source(
            session_ids=("s1",), first_message_id="a", last_message_id="b", first_position=1, last_position=9
        ),
        provenance=Provenance(
            task="extraction", prompt="p", prompt_version="1", provider="x", model="y", offline=False
        ),
        payload=memory.payload,
    )
    return Record(CREATED, 0, number, 0, memory.memory_id.encode(), created.model_dump_json().encode())


async def test_a_memory_gets_its_token_hashes_and_its_vector() -> None:
    world = World()
    await world.embed.handle_batch([record(1, sealed(1, terms=("고양이", "tea")))])
    tokens = next(sent for sent in world.topic.sent if sent.what == TOKENS)
    assert set(tokens.tokens or ()) == {SEALER.hash_token("u1", t) for t in index_tokens(["고양이", "tea"])}
    assert world.topic.count("model-a") == 1
    assert world.progress.at == 2


async def test_a_memory_without_terms_is_told_and_has_an_empty_record() -> None:
    world = World()
    await world.embed.handle_batch([record(1, sealed(1, terms=()))])
    assert [sent.tokens for sent in world.topic.sent if sent.what == TOKENS] == [()]
    assert world.counts.names["memory_without_terms"] == 1


async def test_a_provider_that_fails_is_tried_four_times_and_the_tokens_are_there_before() -> None:
    world = World(Provider(failures=3))
    await world.embed.handle_batch([record(1)])
    assert [sent.what for sent in world.topic.sent] == [TOKENS, "model-a"]
    assert len(world.provider.sizes) == 4


async def test_without_vector_the_step_goes_on_and_does_not_wait_again_until_the_provider_is_back() -> None:
    world = World(Provider(failures=5))
    await world.embed.handle_batch([record(1)])
    assert (world.topic.count(TOKENS), world.topic.count("model-a"), world.progress.at) == (1, 0, 2)
    await world.embed.handle_batch([record(2)])
    assert len(world.provider.sizes) == 5
    await world.embed.handle_batch([record(3)])
    assert (world.topic.count(TOKENS), world.topic.count("model-a")) == (3, 1)


async def test_tokens_do_not_wait_long_for_a_provider_that_hangs() -> None:
    provider = Provider()
    provider.gate = asyncio.Event()
    world = World(provider, tokens_wait=0)
    step = asyncio.create_task(world.embed.handle_batch([record(1)]))
    await world.topic.first.wait()
    assert world.topic.count("model-a") == 0
    provider.gate.set()
    await step
    assert world.topic.count("model-a") == 1


async def test_a_memory_that_has_its_tokens_has_its_vector_too() -> None:
    world = World()
    await world.embed.handle_batch([record(number) for number in range(1, 20)])
    seen: set[str] = set()
    for sent in world.topic.sent:
        if sent.what == TOKENS:
            assert sent.memory_id in seen
        seen.add(sent.memory_id)


async def test_the_pause_that_the_provider_asks_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("agents.embed.asyncio.sleep", sleep)
    world = World(Provider(failures=2, retry_after=17))
    world.embed = Embed(
        world.embedding, world.progress, world.dead, world.counts, lambda _: None, retry_seconds=(2, 4, 8)
    )
    await world.embed.handle_batch([record(1)])
    assert pauses == [17, 17]
    world.provider.failures, world.provider.retry_after = 9, 3_600
    await world.embed.handle_batch([record(2)])
    assert pauses[2:] == [30, 30, 30]
    world.provider.failures, world.provider.retry_after = 0, None
    await world.embed.handle_batch([record(3)])
    world.provider.failures = 3
    await world.embed.handle_batch([record(4)])
    assert pauses[5:] == [2, 4, 8]


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([1.0] + [0.0] * 383, "wrong_dimension"),
        ([0.5] + [0.0] * 767, "wrong_norm"),
        ([0.0] * 768, "wrong_norm"),
        ([float("nan")] + [0.0] * 767, "wrong_norm"),
    ],
)
async def test_what_is_no_unit_vector_of_the_model_is_never_stored(vector: list[float], reason: str) -> None:
    provider = Provider()
    provider.vector = vector
    world = World(provider)
    await world.embed.handle_batch([record(1)])
    assert (world.topic.count(TOKENS), world.topic.count("model-a"), world.progress.at) == (1, 0, 2)
    assert world.counts.names[f"embedding_{reason}"] == 4


async def test_one_failing_text_fails_alone() -> None:
    world = World()
    await world.embed.handle_batch([record(1), record(2, sealed(2, "a bad text")), record(3)])
    assert (world.topic.count(TOKENS), world.topic.count("model-a")) == (3, 2)
    assert world.counts.names["text_not_embedded"] == 1


@pytest.mark.parametrize(
    ("keys", "tokens", "reasons"),
    [
        (Keys("unknown"), 0, ["unknown_key"]),
        (Keys("destroyed"), 0, []),
        (Keys(known_at=3), 1, []),
    ],
)
async def test_an_unknown_key_is_waited_for_and_a_destroyed_one_passed_over(
    keys: Keys, tokens: int, reasons: list[str]
) -> None:
    world = World(keys=keys)
    await world.embed.handle_batch([record(1)])
    assert world.topic.count(TOKENS) == tokens
    assert world.dead.reasons == reasons
    assert world.progress.at == 2


async def test_what_cannot_be_read_or_opened_is_a_dead_letter_and_the_rest_goes_on() -> None:
    world = World()
    memory = sealed(2)
    damaged = SealedMemory(memory.memory_id, "u1", memory.characters, memory.payload[:-1] + b"\x00")
    garbage = Record(CREATED, 0, 1, 0, b"k", b"\xff{")
    tombstone = Record(CREATED, 0, 3, 0, b"k", None)
    await world.embed.handle_batch([garbage, record(2, damaged), tombstone, record(4)])
    assert sorted(world.dead.reasons) == ["cannot_open", "invalid_created"]
    assert (world.topic.count(TOKENS), world.progress.at) == (1, 5)


async def test_what_is_embedded_already_is_not_embedded_again() -> None:
    world = World(start=3)
    await world.embed.handle_batch([record(1), record(2), record(3)])
    assert world.topic.count(TOKENS) == 1


class Store:
    """Memories that lack a vector; those in `topic` have one."""

    def __init__(self, memories: Sequence[SealedMemory]) -> None:
        self.memories = sorted(memories, key=lambda memory: memory.memory_id)

    async def without_vector(
        self,
        model: str,
        partitions: Sequence[int],
        after: str = "",
        age: timedelta = timedelta(),
        limit: int = 2,
    ) -> list[SealedMemory]:
        return [memory for memory in self.memories if memory.memory_id > after][:limit]

    async def count_without_vector(self, model: str, partitions: Sequence[int]) -> int:
        return len(self.memories)


def sweep(
    world: World,
    store: Store,
    *,
    quiet: Callable[[], bool] = lambda: True,
    remaining: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Sweep:
    return Sweep(store, world.embedding, lambda: {0}, quiet, remaining, age=timedelta(), clock=clock)


async def test_a_sweep_embeds_all_and_failing_texts_do_not_block_it() -> None:
    world = World()
    memories = [sealed(number, "bad" if number < 4 else "good") for number in range(1, 9)]
    assert await sweep(world, Store(memories)).once() == 5
    assert (world.topic.count("model-a"), world.topic.count(TOKENS)) == (5, 0)


async def test_a_sweep_tells_how_many_are_left() -> None:
    told: list[int] = []
    memories = [sealed(number, "bad" if number == 3 else "good") for number in range(1, 6)]
    await sweep(World(), Store(memories), remaining=told.append).once()
    assert told[0] == 5
    assert told[-1] == 1
    assert told == sorted(told, reverse=True)


async def test_a_text_that_cannot_be_embedded_is_tried_more_and_more_seldom() -> None:
    world, now = World(), [0.0]
    sweeping = sweep(world, Store([sealed(1, "bad")]), clock=lambda: now[0])
    tried = []
    for minute in range(60):
        now[0] = minute * 60.0
        before = len(world.provider.sizes)
        await sweeping.once()
        if sum(world.provider.sizes[before:]):
            tried.append(minute)
    assert tried == [0, 5, 15, 35]


async def test_a_sweep_does_nothing_while_the_log_is_not_read() -> None:
    world = World()
    assert await sweep(world, Store([sealed(1)]), quiet=lambda: False).once() == 0
    assert world.provider.sizes == []


async def test_a_sweep_passes_over_what_does_not_open() -> None:
    world = World(keys=Keys("destroyed"))
    assert await sweep(world, Store([sealed(1)])).once() == 0
