"""A limit that holds, whatever the work does when it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(work: Coroutine[Any, Any, T], end: float) -> T:
    """What the work gives until `end` (the loop's time); TimeoutError then, whether it lets itself be ended or not.

    A driver that is cancelled waits for its server to agree, which one that hangs never does.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, end - asyncio.get_running_loop().time()))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    # Its end is nobody's concern any more; unread, asyncio would log it.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    raise TimeoutError
