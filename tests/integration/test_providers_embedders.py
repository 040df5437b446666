"""The embedders' real SDKs against a local server: what is sent, what is checked, and one bad text among good ones."""

import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agents.ports import Embedder, ProviderError
from infra.providers import open_embedder
from infra.providers.vectors import DIMENSIONS
from tests.integration.wire import (
    CHAT,
    GEMINI,
    KEY,
    LIMIT,
    OPENAI,
    Received,
    Reply,
    Vendor,
    Wire,
    gemini_error,
)

BAD = "a text that the provider refuses"
Vectors = Sequence[Sequence[float]]


def gemini_vectors(vectors: Vectors) -> object:
    return {"embeddings": [{"values": list(vector)} for vector in vectors]}


def openai_vectors(vectors: Vectors) -> object:
    data = [{"object": "embedding", "index": i, "embedding": list(v)} for i, v in enumerate(vectors)]
    # The order of a server's list is not that of its indexes.
    return {
        "object": "list",
        "data": data[::-1],
        "model": "m",
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


def gemini_texts(received: Received) -> list[str]:
    return ["".join(part["text"] for part in r["content"]["parts"]) for r in received.body["requests"]]


def openai_texts(received: Received) -> list[str]:
    return list(received.body["input"])


class Kind:
    """An embedder of one vendor: how it is opened, and how its server reads and writes."""

    def __init__(
        self,
        vendor: Vendor,
        model: str,
        body: Callable[[Vectors], object],
        texts: Callable[[Received], list[str]],
    ) -> None:
        self.vendor, self.model, self.body, self.texts = vendor, model, body, texts

    @asynccontextmanager
    async def opened(self, wire: Wire, limit: float = LIMIT) -> AsyncIterator[Embedder]:
        made: Any = open_embedder(self.vendor.provider, self.model, self.vendor.access(wire.url, limit))
        try:
            yield made
        finally:
            await made.close()

    def embedding(self, received: Received) -> Reply:
        """A vector a text, which tells it by its length; a batch with a bad text is refused."""
        texts = self.texts(received)
        if any(BAD in text for text in texts):
            return Reply(400, self.vendor.error(400))
        return Reply(body=self.body([direction(len(text)) for text in texts]))

    async def failure(self, reply: Reply, texts: Sequence[str] = ("a", "b"), limit: float = LIMIT) -> str:
        async with Wire() as wire, self.opened(wire, limit) as embedder:
            wire.replies(reply)
            with pytest.raises(ProviderError) as caught:
                await embedder.embed_documents(texts)
            assert len(wire.received) == 1
        assert caught.value.retry_after == (9.0 if "Retry-After" in reply.headers else None)
        assert CHAT not in repr(caught.value)
        return caught.value.reason


def direction(number: int, length: float = 5.0) -> list[float]:
    """A vector of a length that is not 1, along an axis that the number says."""
    return [length if i == number % DIMENSIONS else 0.0 for i in range(DIMENSIONS)]


NEW = Kind(GEMINI, "gemini-embedding-2-preview", gemini_vectors, gemini_texts)
OLD = Kind(GEMINI, "gemini-embedding-001", gemini_vectors, gemini_texts)
OTHER = Kind(OPENAI, "text-embedding-3-small", openai_vectors, openai_texts)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=[NEW, OLD, OTHER], ids=lambda kind: kind.model)
def kind(request: pytest.FixtureRequest) -> Kind:
    made = request.param
    assert isinstance(made, Kind)
    return made


async def test_the_newer_gemini_is_sent_prefixes_and_a_content_for_each_text() -> None:
    async with Wire() as wire, NEW.opened(wire) as embedder:
        wire.reply = NEW.embedding
        assert len(await embedder.embed_documents(["tea", "나비"])) == 2
        await embedder.embed_query("cat?")
    documents, query = wire.received
    assert documents.path == "/v1beta/models/gemini-embedding-2-preview:batchEmbedContents"
    assert documents.headers["x-goog-api-key"] == KEY
    assert gemini_texts(documents) == ["title: none | text: tea", "title: none | text: 나비"]
    assert gemini_texts(query) == ["task: search result | query: cat?"]
    for received in wire.received:
        for asked in received.body["requests"]:
            assert asked["outputDimensionality"] == DIMENSIONS
            assert "taskType" not in asked


async def test_the_older_gemini_is_sent_a_task_type() -> None:
    async with Wire() as wire, OLD.opened(wire) as embedder:
        wire.reply = OLD.embedding
        await embedder.embed_documents(["tea", "나비"])
        await embedder.embed_query("cat?")
    documents, query = wire.received
    assert gemini_texts(documents) == ["tea", "나비"]
    assert gemini_texts(query) == ["cat?"]
    assert {asked["taskType"] for asked in documents.body["requests"]} == {"RETRIEVAL_DOCUMENT"}
    assert {asked["taskType"] for asked in query.body["requests"]} == {"RETRIEVAL_QUERY"}
    assert {asked["outputDimensionality"] for asked in documents.body["requests"]} == {DIMENSIONS}


async def test_openai_is_sent_the_dimensions_and_the_encoding() -> None:
    async with Wire() as wire, OTHER.opened(wire) as embedder:
        wire.reply = OTHER.embedding
        await embedder.embed_documents(["tea", "나비"])
    assert wire.only.path == "/v1/embeddings"
    assert wire.only.headers["Authorization"] == f"Bearer {KEY}"
    assert wire.only.body == {
        "model": OTHER.model,
        "input": ["tea", "나비"],
        "dimensions": DIMENSIONS,
        "encoding_format": "float",
    }


async def test_dimensions_that_a_server_does_not_take_are_not_asked_for_again() -> None:
    def reply(received: Received) -> Reply:
        if "dimensions" in received.body:
            return Reply(400, {"error": {"message": "Model does not support matryoshka representation"}})
        return OTHER.embedding(received)

    async with Wire() as wire, OTHER.opened(wire) as embedder:
        wire.reply = reply
        await embedder.embed_query("tea")
        await embedder.embed_query("tea")
        assert ["dimensions" in received.body for received in wire.received] == [True, False, False]


async def test_vectors_have_length_one_and_the_order_of_the_texts(kind: Kind) -> None:
    texts = ["a" * n for n in range(1, 251)]
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.reply = kind.embedding
        vectors = await embedder.embed_documents(texts)
        query = await embedder.embed_query("a")
        assert (embedder.provider, embedder.model) == (kind.vendor.provider, kind.model)
        assert (embedder.dimensions, embedder.offline) == (DIMENSIONS, False)
    assert [len(kind.texts(received)) for received in wire.received] == [100, 100, 50, 1]
    assert math.hypot(*query) == pytest.approx(1)
    sent = [text for received in wire.received for text in kind.texts(received)]
    for text, vector in zip(sent, [*vectors, query], strict=True):
        assert vector is not None
        assert vector == pytest.approx(direction(len(text), 1.0))


async def test_no_texts_are_no_request(kind: Kind) -> None:
    async with Wire() as wire, kind.opened(wire) as embedder:
        assert await embedder.embed_documents([]) == []
        assert wire.received == []


@pytest.mark.parametrize("bad", [{0}, {6}, {2, 3, 9}])
async def test_a_text_that_is_refused_fails_alone(kind: Kind, bad: set[int]) -> None:
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.reply = kind.embedding
        vectors = await embedder.embed_documents([BAD if i in bad else "fine" for i in range(10)])
        assert [i for i, vector in enumerate(vectors) if vector is None] == sorted(bad)
        assert await embedder.embed_documents([BAD]) == [None]
        with pytest.raises(ProviderError, match="bad_request"):
            await embedder.embed_query(BAD)


async def test_where_all_texts_are_refused_it_is_not_for_the_texts(kind: Kind) -> None:
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.reply = kind.embedding
        with pytest.raises(ProviderError, match="bad_request"):
            await embedder.embed_documents([BAD, BAD, BAD])


async def test_a_provider_that_fails_while_a_bad_text_is_sought_is_not_taken_for_a_bad_text(
    kind: Kind,
) -> None:
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.replies(Reply(400, kind.vendor.error(400)), Reply(503, kind.vendor.error(503)))
        with pytest.raises(ProviderError, match="unavailable"):
            await embedder.embed_documents(["a", "b"])


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
async def test_a_vector_without_direction_is_none(kind: Kind, value: float) -> None:
    wrong = [value] * DIMENSIONS
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.replies(Reply(body=kind.body([direction(1), wrong])))
        good, bad = await embedder.embed_documents(["a", "b"])
        assert good is not None
        assert bad is None
        wire.replies(Reply(body=kind.body([wrong])))
        with pytest.raises(ProviderError, match="wrong_norm"):
            await embedder.embed_query("b")
        wire.replies(Reply(body=kind.body([wrong, wrong])))
        with pytest.raises(ProviderError, match="wrong_norm"):
            await embedder.embed_documents(["a", "b"])


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_another_count_is_wrong(kind: Kind, count: int) -> None:
    reply = Reply(body=kind.body([direction(i) for i in range(count)]))
    assert await kind.failure(reply) == "wrong_count"


@pytest.mark.parametrize("dimensions", [0, 1, 384, 767, 769, 3072])
async def test_another_dimension_is_wrong(kind: Kind, dimensions: int) -> None:
    reply = Reply(body=kind.body([direction(1), [0.5] * dimensions]))
    assert await kind.failure(reply) == "wrong_dimension"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "unauthorized"),
        (404, "unknown_model"),
        (429, "rate_limited"),
        (500, "unavailable"),
        (503, "unavailable"),
    ],
)
async def test_a_status_has_its_word(kind: Kind, status: int, reason: str) -> None:
    assert await kind.failure(Reply(status, kind.vendor.error(status))) == reason
    assert await kind.failure(Reply(status, kind.vendor.error(status), {"Retry-After": "9"})) == reason


@pytest.mark.parametrize("kind", [NEW, OLD], ids=lambda kind: kind.model)
async def test_the_pause_of_retry_info(kind: Kind) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "21s"}
    async with Wire() as wire, kind.opened(wire) as embedder:
        wire.replies(Reply(429, gemini_error(429, info)))
        with pytest.raises(ProviderError, match="rate_limited") as caught:
            await embedder.embed_query("tea")
        assert caught.value.retry_after == 21.0
        assert len(wire.received) == 1


async def test_a_call_that_hangs_ends_at_its_limit(kind: Kind) -> None:
    assert await kind.failure(Reply(hangs=True), limit=0.5) == "timeout"


async def test_a_body_that_ends_early_is_a_broken_answer(kind: Kind) -> None:
    assert await kind.failure(Reply(body='{"embeddings": [', cut_off=True)) == "broken_answer"


@pytest.mark.parametrize(
    "body", ["{", "<html>", "17", '{"embeddings": 3, "data": 3}', '{"embeddings": [3], "data": [3]}']
)
async def test_what_is_not_of_the_format_is_a_broken_answer(kind: Kind, body: str) -> None:
    assert await kind.failure(Reply(body=body)) == "broken_answer"
