import asyncio
from collections.abc import Iterator

import pytest

from infra.offline_embedder import DIMENSIONS, OfflineEmbedder


@pytest.fixture(scope="module")
def embedder() -> Iterator[OfflineEmbedder]:
    made = OfflineEmbedder()
    yield made
    asyncio.run(made.close())


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("text", ["tea", "", "\x00", "\ud800", "고양이", "🎉", "word " * 400])
async def test_every_text_has_a_vector_of_length_one(embedder: OfflineEmbedder, text: str) -> None:
    [vector] = await embedder.embed_documents([text])
    assert vector is not None
    assert len(vector) == DIMENSIONS
    assert cosine(vector, vector) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("내 고양이 이름이 뭐였지?", "사용자의 고양이 이름은 나비다", "사용자는 10월에 마라톤을 뛴다"),
        ("What is my cat called?", "The user's cat is named Nabi", "The user runs a marathon in October"),
        ("猫の名前は何だっけ", "ユーザーの猫の名前はナビ", "ユーザーは十月にマラソンを走る"),
        ("What is my cat called?", "사용자의 고양이 이름은 나비다", "사용자는 10월에 마라톤을 뛴다"),
    ],
)
async def test_what_is_meant_is_nearer(embedder: OfflineEmbedder, query: str, near: str, far: str) -> None:
    asked = await embedder.embed_query(query)
    close, distant = await embedder.embed_documents([near, far])
    assert close is not None
    assert distant is not None
    assert cosine(asked, close) > cosine(asked, distant) + 0.02
