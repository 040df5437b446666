"""The extractor as a process on a real broker: its results, its dead letters, and what a kill leaves behind."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from models.topics import REQUESTED
from tests.engines import LocalEngines
from tests.integration.role_processes import Deployment, deployed, end, prepare, requests


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalEngines]:
    """A broker of this module's own, with the topics of a deployment."""
    with LocalEngines(postgres=False) as engines:
        prepare(engines)
        yield engines


@pytest.fixture
async def deployment(broker: LocalEngines) -> AsyncIterator[Deployment]:
    async with deployed(broker) as opened:
        yield opened


async def test_every_request_has_its_result_and_garbage_is_a_dead_letter(deployment: Deployment) -> None:
    asked = requests("many", 40)
    process = await deployment.start()
    try:
        await deployment.producer.send_and_wait(REQUESTED, b"{garbage", key=b"k", partition=0)
        for request in asked:
            await deployment.ask(request)
        assert await deployment.dead_letter() == "invalid_json"
        results = await deployment.results(len(asked))
        assert {r.request_id for r in results} == {r.request_id for r in asked}
        assert {r.status for r in results} == {"memory"}
        memory = results[0].memory
        assert memory is not None
        assert "부산" in memory.content.summary
    finally:
        assert await end(process) == 0


async def test_a_request_that_kills_three_times_is_a_failure(deployment: Deployment) -> None:
    [request] = requests("killer", 1)
    await deployment.ask(request)
    for _ in range(3):
        process = await deployment.start(KEEPSAKE_FAULT="extractor.before_call")
        assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL
    process = await deployment.start()
    try:
        [result] = await deployment.results(1)
        assert (result.request_id, result.status, result.reason) == (request.request_id, "failed", "crashed")
    finally:
        assert await end(process) == 0


@pytest.mark.parametrize(("point", "sent"), [("extractor.after_call", 1), ("extractor.after_send", 2)])
async def test_a_kill_loses_nothing(deployment: Deployment, point: str, sent: int) -> None:
    """What was sent before the kill may be sent again: the ledger counts the first."""
    [request] = requests(point, 1)
    await deployment.ask(request)
    process = await deployment.start(KEEPSAKE_FAULT=point)
    assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL
    process = await deployment.start()
    try:
        results = await deployment.results(sent)
        assert {(r.request_id, r.status) for r in results} == {(request.request_id, "memory")}
        assert len({r.model_dump_json() for r in results}) == 1
    finally:
        assert await end(process) == 0
