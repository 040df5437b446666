"""The table view on a real broker: it follows, resumes, waits for nobody, and knows a log made anew."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from streams.view import TableView
from streams.view_store import ViewStore
from tests.engines import LocalEngines
from tests.integration.brokers import delete_topic, new_topic, producer, write

SECONDS = 30


@asynccontextmanager
async def following(bootstrap: str, topic: str, directory: Path) -> AsyncIterator[TableView]:
    store = ViewStore(directory)
    view = TableView(store, bootstrap, 2, topic=topic)
    running = asyncio.create_task(view.run())
    try:
        async with asyncio.timeout(SECONDS):
            await view.wait_caught_up()
        yield view
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  # what is awaited is another process
            await asyncio.sleep(0.02)


async def test_rows_deletes_and_resuming(engines: LocalEngines, tmp_path: Path) -> None:
    topic = await new_topic(engines.bootstrap)
    await write(
        engines.bootstrap, topic, 0, [(b"users\x1fa", b"1"), (b"users\x1fb", b"1"), (b"users\x1fb", None)]
    )
    await write(engines.bootstrap, topic, 1, [(b"users\x1fc", b"1")])
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.complete
        assert view.get(b"users\x1fa") == b"1"
        assert view.get(b"users\x1fb") is None
        assert [key for key, _ in view.scan(b"users\x1f")] == [b"users\x1fa", b"users\x1fc"]
        await write(engines.bootstrap, topic, 0, [(b"users\x1fa", b"2")])
        await until(lambda: view.get(b"users\x1fa") == b"2")
        await until(lambda: view.lag() == 0)
    # What is known is not read again: were it, this row would come back.
    store = ViewStore(tmp_path / "view")
    assert store.offsets() == {0: 4, 1: 1}
    store.apply([(b"users\x1fc", None)], {})
    store.close()
    await write(engines.bootstrap, topic, 0, [(b"users\x1fd", b"1")])
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.get(b"users\x1fd") == b"1"
        assert view.get(b"users\x1fa") == b"2"
        assert view.get(b"users\x1fc") is None


async def test_an_open_transaction_delays_its_own_partition_only(
    engines: LocalEngines, tmp_path: Path
) -> None:
    topic = await new_topic(engines.bootstrap)
    async with producer(engines.bootstrap, f"t-{uuid4().hex}") as ledger:
        async with ledger.transaction():
            await ledger.send_and_wait(topic, b"1", key=b"a", partition=0)
        await ledger.begin_transaction()
        await ledger.send_and_wait(topic, b"2", key=b"a", partition=0)
        async with following(engines.bootstrap, topic, tmp_path / "view") as view:
            assert view.get(b"a") == b"1"
            await until(lambda: view.lag() == 0)
            await write(engines.bootstrap, topic, 1, [(b"b", b"1")])
            await until(lambda: view.get(b"b") == b"1")
            assert view.get(b"a") == b"1"
            await ledger.commit_transaction()
            await until(lambda: view.get(b"a") == b"2")
            # The marker at the end is no record that is waited for.
            await until(lambda: view.lag() == 0)
            await ledger.begin_transaction()
            await ledger.send_and_wait(topic, b"3", key=b"a", partition=0)
            await ledger.abort_transaction()
            await write(engines.bootstrap, topic, 0, [(b"c", b"1")])
            await until(lambda: view.get(b"c") == b"1")
            assert view.get(b"a") == b"2"
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.get(b"a") == b"2"


async def test_a_topic_made_anew_empties_the_view(engines: LocalEngines, tmp_path: Path) -> None:
    topic = await new_topic(engines.bootstrap)
    await write(engines.bootstrap, topic, 0, [(f"k{number}".encode(), b"old") for number in range(5)])
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.get(b"k0") == b"old"
    await delete_topic(engines.bootstrap, topic)
    again = await new_topic(engines.bootstrap)
    await write(engines.bootstrap, again, 0, [(b"new", b"1")])
    async with following(engines.bootstrap, again, tmp_path / "view") as view:
        assert view.get(b"new") == b"1"
        assert view.get(b"k0") is None


async def test_files_that_do_not_open_are_rebuilt(engines: LocalEngines, tmp_path: Path) -> None:
    topic = await new_topic(engines.bootstrap)
    await write(engines.bootstrap, topic, 0, [(b"a", b"1")])
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.get(b"a") == b"1"
    (tmp_path / "view" / "CURRENT").write_bytes(b"garbage")
    async with following(engines.bootstrap, topic, tmp_path / "view") as view:
        assert view.get(b"a") == b"1"


async def test_it_serves_what_it_has_while_kafka_is_away(tmp_path: Path) -> None:
    store = ViewStore(tmp_path / "view")
    store.apply([(b"a", b"1")], {0: 1})
    store.mark_complete()
    view = TableView(store, "127.0.0.1:1", 2)
    running = asyncio.create_task(view.run())
    try:
        await asyncio.sleep(0)
        assert view.get(b"a") == b"1"
        assert view.complete
        assert not view.caught_up
        assert view.lag() is None
        with pytest.raises(LookupError):
            view.wrapped_pair_key("u", "mina", 1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()
