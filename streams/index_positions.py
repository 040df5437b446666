"""Where the indexer reads from: what PostgreSQL has applied, and what is embedded already."""

import logging
from collections.abc import Mapping

import asyncpg
from faust.types import TP

from agents.index import Index, IndexStore
from models.store_errors import StoreUnavailable
from models.topics import CREATED
from streams.embed_progress import EmbedProgress
from streams.faust_app import StreamApp

log = logging.getLogger(__name__)


class IndexPositions:
    """Called at each assignment (`app.first_positions`).

    The applied offsets stand in the transaction of the rows: they, and not the group's, say where the index
    goes on, so that an emptied database is filled again from the beginning. While PostgreSQL is away the
    group's offsets serve, so that embedding goes on; the index compares them when PostgreSQL is back.
    """

    def __init__(self, app: StreamApp, index: Index, store: IndexStore, progress: EmbedProgress) -> None:
        self._app = app
        self._index = index
        self._store = store
        self._progress = progress
        self._committed = app.committed_positions

    async def __call__(self, tps: set[TP]) -> Mapping[TP, int]:
        if not tps:
            return {}
        positions = await self._index_positions(tps)
        embedded = await self._progress.assign({tp.partition for tp in tps if tp.topic == CREATED})
        return {
            tp: min(at, embedded[tp.partition]) if tp.topic == CREATED else at for tp, at in positions.items()
        }

    async def _index_positions(self, tps: set[TP]) -> Mapping[TP, int]:
        try:
            applied = await self._store.applied_offsets()
        except StoreUnavailable as error:
            log.warning("PostgreSQL is away (%s): reading on from the group's offsets", error)
            positions = await self._committed(tps)
            self._index.started_unchecked({(tp.topic, tp.partition): at for tp, at in positions.items()})
            return positions
        except asyncpg.UndefinedTableError:
            self._app.fail("the database has no tables: run `keepsake provision`")
            return {}
        self._index.started_unchecked({})
        starts = await self._app.consumer.earliest_offsets(*tps)
        ends = await self._app.consumer.highwaters(*tps)
        for tp in tps:
            at, end = applied.get((tp.topic, tp.partition), 0), ends.get(tp) or 0
            if at > end:
                self._app.fail(
                    f"PostgreSQL has applied {tp.topic}[{tp.partition}] up to {at}, but the topic ends at {end}: "
                    "it was made anew. Start with an empty database: drop the schema `memory`, "
                    "then run `keepsake provision`"
                )
                return {}
        return {tp: max(applied.get((tp.topic, tp.partition), 0), starts.get(tp) or 0) for tp in tps}
