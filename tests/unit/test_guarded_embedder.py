"""R28: query vectors are kept, and a provider that fails is left alone for a while."""

import asyncio

import pytest

from agents.ports import ProviderError
from infra.breaker import CircuitBreaker, Suspended
from infra.guarded_embedder import GuardedEmbedder
from tests.unit.memories import FakeEmbedder


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(breaker: CircuitBreaker, error: Exception | None = None) -> None:
    with pytest.raises(type(error or RuntimeError())), breaker.call():
        raise error or RuntimeError


def test_the_breaker_opens_at_failures_in_a_row_and_lets_one_call_through_after_its_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(3, 10, clock=clock)
    fail(breaker)
    fail(breaker)
    with breaker.call():
        pass
    for _ in range(3):
        fail(breaker)
    clock.now = 9.9
    fail(breaker, Suspended())
    clock.now = 10
    with breaker.call(), pytest.raises(Suspended), breaker.call():
        pytest.fail("two calls at once while it is not known whether it works again")
    with breaker.call(), breaker.call():
        pass


def test_a_trial_that_fails_opens_it_anew() -> None:
    clock = Clock()
    breaker = CircuitBreaker(1, 10, clock=clock)
    fail(breaker)
    clock.now = 10
    fail(breaker)
    clock.now = 19
    fail(breaker, Suspended())
    clock.now = 20
    with breaker.call():
        pass
    with breaker.call():
        pass


async def test_a_cancelled_trial_counts_as_failed_and_the_next_is_tried() -> None:
    clock = Clock()
    breaker = CircuitBreaker(1, 10, clock=clock)
    for at in (0, 10, 20):
        clock.now = at
        with pytest.raises(asyncio.CancelledError), breaker.call():
            raise asyncio.CancelledError
        fail(breaker, Suspended())


async def test_a_query_is_embedded_once() -> None:
    embedder = FakeEmbedder()
    guarded = GuardedEmbedder(embedder, 5, 10, cached=2)
    for text in ("a", "a", "b", "a", "c", "a", "b"):
        assert await guarded.embed_query(text) == [1.0, 0.0, 0.0]
    assert embedder.queries == ["a", "b", "c", "b"]
    assert (guarded.model, guarded.dimensions) == (embedder.model, embedder.dimensions)


async def test_a_provider_that_fails_is_suspended_and_what_is_kept_still_serves() -> None:
    embedder = FakeEmbedder()
    guarded = GuardedEmbedder(embedder, 2, 60)
    await guarded.embed_query("known")
    embedder.error = ProviderError("unavailable")
    for reason in ("unavailable", "unavailable", "suspended", "suspended"):
        with pytest.raises(ProviderError) as raised:
            await guarded.embed_query("new")
        assert raised.value.reason == reason
    assert embedder.queries == ["known", "new", "new"]
    assert await guarded.embed_query("known") == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("reason", ["bad_request", "refused", "wrong_norm"])
async def test_a_text_that_cannot_be_embedded_says_nothing_of_the_provider(reason: str) -> None:
    embedder = FakeEmbedder()
    guarded = GuardedEmbedder(embedder, 1, 60)
    embedder.error = ProviderError(reason)
    for _ in range(3):
        with pytest.raises(ProviderError, match=reason):
            await guarded.embed_query("odd")
    embedder.error = None
    assert await guarded.embed_query("even") == [1.0, 0.0, 0.0]
