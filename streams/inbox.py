"""In which order the events of one partition number, over the ledger's four topics, may be folded (I3, I8).

- A tick that closes a window, or a flush, names an offset of `chat.message` (exclusive). It waits, and its topic
  behind it, until chat has been fetched up to there and all that was fetched before is folded. Other ticks name none.
- Chat waits too: no message at or past the offset that a waiting command names is folded before it. What
  commands wait is known once the backlog that the partition had at assignment has been looked at; until
  then no message is folded. So a replay gives commands their place again.
- Otherwise commands go before results, results before ticks, ticks before messages.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from models.records import Record
from models.topics import CHAT, COMMAND, EXTRACTED, TICK

# A transaction is bounded in bytes too: broker and worker hold all of it.
BATCH_BYTES = 4_000_000


class Inbox:
    """The events of one partition number that were delivered and are not folded.

    `chat_offset` is the step's; `command_end` is the end of the partition of commands at assignment.
    """

    def __init__(self, chat_offset: Callable[[Record], int | None], command_end: int) -> None:
        self._chat_offset = chat_offset
        self._command_end = command_end
        self._queues: dict[str, deque[Record]] = {
            topic: deque() for topic in (CHAT, COMMAND, EXTRACTED, TICK)
        }
        self._named: dict[tuple[str, int], int | None] = {}

    def add(self, record: Record) -> None:
        self._queues[record.topic].append(record)

    def size(self, topic: str) -> int:
        return len(self._queues[topic])

    def waiting(self) -> Iterator[tuple[Record, int]]:
        """The records at the head of a topic that name an offset, and that offset."""
        for topic in (COMMAND, TICK):
            queue = self._queues[topic]
            if queue and (named := self._names(queue[0])) is not None:
                yield queue[0], named

    def lower(self, record: Record, offset: int) -> None:
        """Let a record wait for a lower offset than it names: the log ends before that one."""
        self._named[record.topic, record.offset] = offset

    def take(self, limit: int, reached: Mapping[str, int]) -> list[Record]:
        """The next events that may be folded, at most `limit`, in order.

        `reached` says, for chat.message and memory.command, the offset before which everything has been
        added here.
        """
        taken: list[Record] = []
        size = 0
        for record in self._order(reached):
            self._queues[record.topic].popleft()
            self._named.pop((record.topic, record.offset), None)
            taken.append(record)
            size += len(record.value or b"")
            if len(taken) >= limit or size >= BATCH_BYTES:
                break
        return taken

    def _order(self, reached: Mapping[str, int]) -> Iterator[Record]:
        """The head that is next, again and again; the caller removes it before it asks for another."""
        chat = self._queues[CHAT]
        while True:
            # Messages in hand are not folded: a record that names an offset behind one waits.
            folded_to = chat[0].offset if chat else reached[CHAT]
            for topic in (COMMAND, EXTRACTED, TICK):
                queue = self._queues[topic]
                if queue and (self._names(queue[0]) or 0) <= folded_to:
                    yield queue[0]
                    break
            else:
                # A command in hand names an offset past this message, or it would have been next.
                commands_known = self._queues[COMMAND] or reached[COMMAND] >= self._command_end
                if not chat or not commands_known:
                    return
                yield chat[0]

    def _names(self, record: Record) -> int | None:
        key = (record.topic, record.offset)
        if key not in self._named:
            self._named[key] = self._chat_offset(record) if record.topic in (COMMAND, TICK) else None
        return self._named[key]


class Partition:
    """One partition number that is ours: its inbox, and the task that commits what it gives."""

    def __init__(self, number: int, inbox: Inbox, offsets: dict[str, int]) -> None:
        self.number = number
        self.inbox = inbox
        self.offsets = offsets  # the next of each topic, as of the rows
        self.arrived = asyncio.Event()
        self.committing_since: float | None = None
        self.task: asyncio.Task[None] | None = None
