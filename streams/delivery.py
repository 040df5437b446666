"""What was fetched, what reached an agent, and what may be committed: no event lost, none taken twice.

Faust loses events that were fetched (`flow_control.resume()` clears queues that are filled already, a
rebalance breaks off a loop), and gives others twice or out of order. So every offset is noted where
it is *fetched*, and an agent takes an event only if it is the next of those: a smaller one is a
duplicate, a larger one means that the next was dropped, and the partition is sought back to it. An
offset that was never fetched is a transaction marker or was compacted, and needs no seek.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from faust.types import TP


class Feed:
    """The records of some topics on their way to one agent."""

    def __init__(self, topics: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.topics = frozenset(topics)
        self.expected: dict[TP, int] = {}
        self._fetched: dict[TP, deque[int]] = {}
        self._lost: set[TP] = set()
        self._taken: dict[TP, deque[int]] = {}
        self._done: dict[TP, set[int]] = {}
        self._waiting_since: dict[TP, float] = {}
        #: Since when its agent has waited for an event (monotonic seconds); None while it is busy.
        self.idle_since: float | None = None

    def reset(self, positions: Mapping[TP, int]) -> None:
        """A new assignment: the positions that its partitions are read from."""
        self.expected = {tp: at for tp, at in positions.items() if tp.topic in self.topics}
        self._fetched = {tp: deque() for tp in self.expected}
        self._taken = {tp: deque() for tp in self.expected}
        self._done = {tp: set() for tp in self.expected}
        self._lost.clear()
        self._waiting_since.clear()

    def clear(self) -> None:
        """No partition is ours until the next assignment: nothing is taken or committed."""
        self.reset({})

    def fetched(self, tp: TP, offsets: Iterable[int]) -> None:
        if tp not in self.expected:
            return
        queue, expected = self._fetched[tp], self.expected[tp]
        if not queue:
            self._waiting_since[tp] = self._clock()
        queue.extend(offset for offset in offsets if offset >= expected)

    def rewound(self, positions: Mapping[TP, int]) -> None:
        """The partitions will be fetched again from here: what was noted past it will be noted again."""
        for tp, position in positions.items():
            queue = self._fetched.get(tp)
            while queue and queue[-1] >= position:
                queue.pop()

    def take(self, tp: TP, offset: int) -> bool:
        """Whether this event is the next one of its partition; it is then the agent's to finish."""
        queue = self._fetched.get(tp)
        if not queue:
            return False  # of an earlier assignment, or from before a seek
        if offset != queue[0]:
            if offset > queue[0]:
                self._lost.add(tp)
            return False
        queue.popleft()
        self._waiting_since[tp] = self._clock()
        self._lost.discard(tp)
        self.expected[tp] = offset + 1
        self._taken[tp].append(offset)
        return True

    def finished(self, tp: TP, offset: int) -> None:
        """The effects of a taken event are lasting."""
        if tp in self._done:
            self._done[tp].add(offset)

    def finished_through(self, tp: TP, offset: int) -> None:
        """The same for all events of the partition up to this one."""
        taken = self._taken.get(tp)
        while taken and taken[0] <= offset:
            taken.popleft()

    def committable(self, tp: TP) -> int | None:
        """The offset after the contiguous run of finished events; None when the partition is not ours."""
        taken = self._taken.get(tp)
        if taken is None:
            return None
        done = self._done[tp]
        while taken and taken[0] in done:
            done.remove(taken.popleft())
        return taken[0] if taken else self.expected[tp]

    def next_undelivered(self, tp: TP) -> int | None:
        """The first offset that was fetched and has not reached the agent."""
        queue = self._fetched.get(tp)
        return queue[0] if queue else None

    def undelivered(self, tp: TP) -> int:
        return len(self._fetched.get(tp, ()))

    def unfinished(self, tp: TP) -> int:
        return len(self._taken.get(tp, ())) - len(self._done.get(tp, ()))

    def lost(self) -> set[TP]:
        """Partitions whose next event was dropped: a later one came first, or the agent has waited for
        a second while there are fetched events that never came."""
        if self.idle_since is not None:
            for tp, since in self._waiting_since.items():
                if self._fetched.get(tp) and max(since, self.idle_since) < self._clock() - 1:
                    self._lost.add(tp)
                    self._waiting_since[tp] = self._clock()
        return self._lost


class Deliveries:
    """The feeds of one app, and the positions its consumer must read from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.feeds: list[Feed] = []
        self.epoch = 0
        #: For each assigned partition the offset before which everything was fetched, markers included.
        self.fetched_to: dict[TP, int] = {}
        self._sought: dict[TP, float] = {}

    def feed(self, topics: Iterable[str]) -> Feed:
        feed = Feed(topics, self._clock)
        self.feeds.append(feed)
        return feed

    @property
    def topics(self) -> frozenset[str]:
        return frozenset().union(*(feed.topics for feed in self.feeds))

    def reset(self, positions: Mapping[TP, int]) -> None:
        for feed in self.feeds:
            feed.reset(positions)
        self.fetched_to = dict(positions)
        self._sought.clear()
        self.epoch += 1

    def clear(self) -> None:
        self.reset({})

    def positions(self) -> dict[TP, int]:
        """Where each assigned partition must be read from: the earliest event that an agent still lacks."""
        lowest: dict[TP, int] = {}
        for feed in self.feeds:
            for tp, expected in feed.expected.items():
                lowest[tp] = min(expected, lowest.get(tp, expected))
        return lowest

    def fetched(self, tp: TP, offsets: list[int]) -> None:
        for feed in self.feeds:
            feed.fetched(tp, offsets)

    def rewound(self, positions: Mapping[TP, int]) -> None:
        for feed in self.feeds:
            feed.rewound(positions)
        self.fetched_to.update(positions)
        self.epoch += 1

    def lost(self) -> dict[TP, int]:
        """Partitions to seek back, and where to; each at most once a second, so that it can arrive."""
        now, positions = self._clock(), self.positions()
        wanted: dict[TP, int] = {}
        for feed in self.feeds:
            for tp in feed.lost():
                if now - self._sought.get(tp, float("-inf")) > 1 and tp in positions:
                    wanted[tp] = positions[tp]
                    self._sought[tp] = now
        return wanted

    def committable(self) -> dict[TP, int]:
        """For each partition the offset up to which every agent that reads it has finished."""
        lowest: dict[TP, int] = {}
        for feed in self.feeds:
            for tp in list(feed.expected):
                offset = feed.committable(tp)
                if offset is not None:
                    lowest[tp] = min(offset, lowest.get(tp, offset))
        return lowest

    def backlog(self, tp: TP) -> int:
        """Events that were fetched and are not finished, for the slowest agent."""
        return max((feed.undelivered(tp) + feed.unfinished(tp) for feed in self.feeds), default=0)
