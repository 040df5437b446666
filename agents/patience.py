"""Waiting for what will come: a key that is on its way, a database that is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from models.store_errors import StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_KEY_WAIT, LAST_KEY_WAIT = 0.01, 1.0
FIRST_STORE_WAIT, LAST_STORE_WAIT = 0.25, 10.0


async def when_known(look: Callable[[], T], seconds: float) -> T:
    """What `look` gives, tried again while it raises LookupError, for at most `seconds`.

    The record that needs a key and the row that holds it are committed together, but read apart (I10).
    """
    loop = asyncio.get_running_loop()
    end, wait = loop.time() + seconds, FIRST_KEY_WAIT
    while True:
        try:
            return look()
        except LookupError:
            if loop.time() + wait > end:
                raise
        await asyncio.sleep(wait)
        wait = min(wait * 2, LAST_KEY_WAIT)


async def when_available(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives, tried again for as long as PostgreSQL is away."""
    wait = FIRST_STORE_WAIT
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            log.warning("PostgreSQL is away (%s): trying again in %s s", error, wait)
        await asyncio.sleep(wait)
        wait = min(wait * 2, LAST_STORE_WAIT)
