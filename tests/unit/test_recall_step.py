"""R28 and R31: a recall answers whatever fails, and says so."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from agents.opening import MemoryOpener
from agents.ports import ProviderError
from agents.recall import Recall, RecallRules
from agents.row_codec import RowCodec
from agents.talk import Talk
from infra.referring import referring_words
from models.candidates import Candidate, Candidates, InScope, MemoryPage, Scope, ScopePage
from models.recall import Filters, RecallRequest
from models.rows import PairKey
from models.store_errors import StoreUnavailable
from models.utterance import WideningRules
from tests.unit.memories import USER, FakeCounters, FakeEmbedder, FakeIndex, FakeReports, Vault, found


class Setting:
    def __init__(self, *, deadline: float = 30, index: FakeIndex | None = None) -> None:
        self.vault = Vault()
        self.index = index or FakeIndex()
        self.embedder = FakeEmbedder()
        self.counters = FakeCounters()
        self.reports = FakeReports()
        self.recall = Recall(
            index=self.index,
            embedder=self.embedder,
            opener=MemoryOpener(self.vault.cipher, self.vault),
            sealer=self.vault.sealer,
            talk=Talk(self.vault, RowCodec(self.vault.sealer), self.counters, 5),
            counters=self.counters,
            reports=self.reports,
            rules=RecallRules(WideningRules(referring_words()), deadline_seconds=deadline),
        )


def request(query: str = "where is the wine?", **more: object) -> RecallRequest:
    return RecallRequest.model_validate({"user_id": USER, "character_ids": ["mina"], "query": query, **more})


async def test_the_answer_is_opened_ranked_and_explained() -> None:
    at = Setting()
    wine, dog = at.vault.memory(1, "likes red wine"), at.vault.memory(2, "has a dog")
    at.index.found = found([(dog, 0.5), (wine, 0.4)], [(wine, 1.0)], mina=2)
    answer = await at.recall.recall(request(explain=True))
    assert [memory.summary for memory in answer.memories] == ["likes red wine", "has a dog"]
    assert (answer.degraded, answer.offline, answer.query) == (None, False, "where is the wine?")
    for memory in answer.memories:
        assert memory.explain is not None
        shares = [path.share for path in (memory.explain.vector, memory.explain.keyword) if path]
        assert memory.score == sum(shares)
    assert answer.memories[0].key_details[0].text == "likes red wine"
    assert (await at.recall.recall(request())).memories[0].explain is None


async def test_the_index_is_asked_for_hashes_filters_and_candidates() -> None:
    at = Setting()
    filters = {
        "kinds": ["log"],
        "date_from": "2026-06-28",
        "date_to": "2026-06-30",
        "source_modes": ["story"],
        "categories": ["food"],
    }
    await at.recall.recall(request("와인 wine", filters=filters))
    assert at.index.asked["limit"] == 20
    scope = at.index.asked["scope"]
    assert (scope.user_id, scope.character_ids, scope.kinds) == (USER, ("mina",), ("log",))
    assert (str(scope.date_from), str(scope.date_to)) == ("2026-06-28", "2026-06-30")
    assert (scope.source_modes, scope.categories) == (("story",), ("food",))
    assert at.vault.sealer.hash_token(USER, "ewine") in at.index.asked["token_hashes"]
    assert not any("wine" in token for token in at.index.asked["token_hashes"])


@pytest.mark.parametrize("error", [RuntimeError("text that must not get out"), OSError(), ValueError()])
async def test_without_a_vector_the_most_recent_answer(error: Exception) -> None:
    at = Setting()
    at.embedder.error = error
    at.index.found = found(recent=[at.vault.memory(1, "old"), at.vault.memory(2, "new")], mina=2)
    answer = await at.recall.recall(request(limit=50))
    assert [memory.summary for memory in answer.memories] == ["new", "old"]
    assert answer.degraded == "embedding_failed"
    assert at.index.asked["query_vector"] is None
    assert at.index.asked["limit"] == 50
    assert at.counters.counts == {"recall_degraded_embedding_failed": 1}


async def test_an_embedder_that_hangs_leaves_time_for_the_index() -> None:
    at = Setting(deadline=0.2)
    at.embedder.gate = asyncio.Event()
    at.index.found = found(recent=[at.vault.memory(1, "kept")], mina=1)
    answer = await at.recall.recall(request())
    assert [memory.summary for memory in answer.memories] == ["kept"]
    assert answer.degraded == "embedding_timeout"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("away"), "index_unavailable"),
        (KeyError("x"), "index_failed"),
        (TimeoutError(), "index_timeout"),
    ],
)
async def test_without_an_index_the_answer_is_empty(error: Exception, reason: str) -> None:
    at = Setting()
    at.index.error = error
    answer = await at.recall.recall(request())
    assert (answer.memories, answer.degraded) == ((), reason)


async def test_an_empty_query_is_no_failure() -> None:
    at = Setting()
    at.index.found = found(recent=[at.vault.memory(1, "kept")], mina=1)
    answer = await at.recall.recall(request(" \x00 "))
    assert ([memory.summary for memory in answer.memories], answer.degraded) == (["kept"], None)
    assert at.embedder.queries == []


async def test_memories_that_were_never_embedded_are_found_by_recency() -> None:
    at = Setting()
    at.index.found = found(recent=[at.vault.memory(1, "kept")], mina=1)
    answer = await at.recall.recall(request())
    assert ([memory.summary for memory in answer.memories], answer.degraded) == (["kept"], None)


async def test_what_does_not_open_is_left_out_and_its_place_is_taken() -> None:
    at = Setting()
    whole = [at.vault.memory(number, f"memory {number}") for number in range(1, 15)]
    damaged = replace(whole[0], payload=whole[0].payload[:-1] + b"?")
    at.index.found = found([(damaged, 0.9), *((one, 0.5) for one in whole[1:])], mina=14)
    answer = await at.recall.recall(request())
    assert len(answer.memories) == 12
    assert damaged.memory_id not in [memory.id for memory in answer.memories]
    assert answer.degraded is None
    assert at.counters.counts == {"memory_damaged": 1}


async def test_a_key_that_is_not_known_degrades_and_a_destroyed_one_does_not() -> None:
    at = Setting()
    memory = at.vault.memory(1, "gone")
    at.index.found = found([(memory, 0.9)], mina=1)
    key = PairKey(USER, "mina").encode()
    row = at.vault.rows.pop(key)
    assert (await at.recall.recall(request())).degraded == "keys_unavailable"
    at.vault.rows[key] = row.replace(b'"epoch":1', b'"epoch":2')
    answer = await at.recall.recall(request())
    assert (answer.memories, answer.degraded) == ((), None)
    assert at.counters.counts["memory_destroyed"] == 1


async def test_offline_models_are_told() -> None:
    at = Setting()
    at.index.found = found([(at.vault.memory(1, "kept", offline=True), 0.9)], mina=1)
    assert (await at.recall.recall(request())).offline
    at.index.found = found()
    assert not (await at.recall.recall(request())).offline
    at.embedder.offline = True
    assert (await at.recall.recall(request())).offline


def test_the_first_date_is_not_after_the_last() -> None:
    with pytest.raises(ValueError, match="date_from"):
        Filters.model_validate({"date_from": "2026-06-30", "date_to": "2026-06-29"})


async def test_a_short_query_that_refers_back_is_widened_by_the_users_words() -> None:
    at = Setting()
    answer = await at.recall.recall(
        request("그거 언제였지?", recent_user_messages=["치과 예약했어", "떨린다"])
    )
    assert answer.query == "치과 예약했어 떨린다 그거 언제였지?"
    assert at.embedder.queries == [answer.query]
    assert at.vault.sealer.hash_token(USER, "b치과") in at.index.asked["token_hashes"]
    answer = await at.recall.recall(request("엄마 생신은?", recent_user_messages=["치과 예약했어"]))
    assert answer.query == "엄마 생신은?"


async def test_the_latest_value_is_one_unless_a_limit_asks_for_the_history() -> None:
    at = Setting()
    old, new = at.vault.memory(1, "lives in Seoul"), at.vault.memory(2_000, "lives in Busan")
    at.index.found = found([(old, 0.9), (new, 0.9)], mina=2)
    answer = await at.recall.recall(request(mode="latest"))
    assert [memory.summary for memory in answer.memories] == ["lives in Busan"]
    answer = await at.recall.recall(request(mode="latest", limit=5))
    assert [memory.summary for memory in answer.memories] == ["lives in Busan", "lives in Seoul"]


def in_scope(memory: Candidate, **known: object) -> InScope:
    told: dict[str, object] = {"filtered": None, "embedded": True, "similarity": 0.5, **known}
    return InScope(memory, **told)  # type: ignore[arg-type]  # named as the fields are


async def test_each_memory_in_scope_has_exactly_one_reason() -> None:
    at = Setting()
    memories = [at.vault.memory(number, f"memory {number}") for number in range(1, 21)]
    damaged = replace(memories[17], payload=b"?")
    at.index.found = found([(memory, 0.9) for memory in memories[:15]], [(memories[19], 1.0)], mina=20)
    at.index.scope_page = ScopePage(
        (
            *(in_scope(memory) for memory in memories[:15]),
            in_scope(memories[15], embedded=False, similarity=None),
            in_scope(memories[16], filtered="date_to"),
            in_scope(damaged, filtered="date_to", embedded=False),
            in_scope(memories[18]),
            in_scope(memories[19], embedded=False, similarity=None),
        ),
        "next",
    )
    answer = await at.recall.recall(request(explain=True))
    assert answer.explained is not None
    assert answer.cursor == "next"
    returned = {memory.id for memory in answer.memories}
    others = {other.id: other for other in answer.explained.others}
    assert len(others) == len(answer.explained.others)
    assert returned.isdisjoint(others)
    assert returned | set(others) == {memory.memory_id for memory in memories}
    # Found by a keyword, it is returned though it has no vector.
    assert memories[19].memory_id in returned
    reasons = {number: others[memories[number].memory_id] for number in (15, 16, 17, 18)}
    assert reasons[15].reason == "not_embedded"
    assert (reasons[16].reason, reasons[16].detail) == ("filtered", "date_to")
    assert (reasons[17].reason, reasons[17].detail) == ("cannot_be_opened", "damaged")
    assert reasons[17].summary is None
    assert (reasons[18].reason, reasons[18].vector, reasons[18].score) == ("outranked", None, 0)
    outranked = [other for other in others.values() if other.reason == "outranked" and other.vector]
    assert len(outranked) == 4
    for other in outranked:
        assert other.score == sum(path.share for path in (other.vector, other.keyword) if path)
        assert other.summary is not None


async def test_an_explanation_without_a_vector_says_what_is_known() -> None:
    at = Setting()
    at.embedder.error = ProviderError("unavailable")
    kept, other = at.vault.memory(2, "kept"), at.vault.memory(1, "other")
    at.index.found = found(recent=[kept], mina=2)
    at.index.scope_page = ScopePage((in_scope(kept, similarity=None), in_scope(other, similarity=None)), None)
    answer = await at.recall.recall(request(explain=True, limit=1))
    assert answer.explained is not None
    assert [one.reason for one in answer.explained.others] == ["outranked"]
    assert answer.degraded == "embedding_failed"
    assert at.reports.reasons == ["embedding_failed"]


async def test_everything_is_opened_and_paged() -> None:
    at = Setting()
    whole = at.vault.memory(1, "dinner with Ann", offline=True)
    at.index.page = MemoryPage((whole, replace(at.vault.memory(2, "x"), payload=b"?")), "next")
    answer = await at.recall.recall(request(mode="exhaustive", limit=2, cursor="before"))
    assert [memory.summary for memory in answer.memories] == ["dinner with Ann"]
    assert (answer.cursor, answer.offline, answer.degraded) == ("next", True, None)
    assert (at.index.asked["limit"], at.index.asked["cursor"]) == (2, "before")
    assert at.embedder.queries == []
    at.index.error = StoreUnavailable("away")
    answer = await at.recall.recall(request(mode="exhaustive", cursor="before"))
    assert (answer.memories, answer.cursor, answer.degraded) == ((), "before", "index_unavailable")


async def test_a_suspended_provider_is_told_apart() -> None:
    at = Setting()
    at.embedder.error = ProviderError("suspended")
    assert (await at.recall.recall(request())).degraded == "embedding_suspended"


class StubbornIndex(FakeIndex):
    """Does not let itself be cancelled: as a driver that waits for its server to agree."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def candidates(self, scope: Scope, **asked: object) -> Candidates:
        while not self.gate.is_set():
            with suppress(asyncio.CancelledError):
                await self.gate.wait()
        return Candidates()


async def test_the_deadline_holds_whatever_the_index_does_when_it_is_cancelled() -> None:
    at = Setting(deadline=0.05, index=StubbornIndex())
    answer = await asyncio.wait_for(at.recall.recall(request()), 30)
    assert answer.degraded == "index_timeout"
    assert isinstance(at.index, StubbornIndex)
    at.index.gate.set()
