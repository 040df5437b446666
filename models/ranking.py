"""From candidates to the memories of an answer: decay, fusion, importance slots (R22, R23, R25, R26).

Everything here is a function of its arguments; ties are settled by the newer memory, then by id.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest

from models.candidates import Candidate, Candidates


@dataclass(frozen=True, slots=True)
class RankingRules:
    """Settings of the ranking: decay halves over `half_life` seq and ends at `floor`; `k` is that of RRF.

    `bar` is where the subject of a query ends on a path, from 0 (its weakest candidate) to 1 (its best).
    """

    half_life: float = 40
    floor: float = 0.3
    k: int = 60
    slot_importance: int = 6
    slots: int = 2
    bar: float = 0.65


@dataclass(frozen=True, slots=True)
class PathScore:
    """Where a memory stands on one path: rank from 0 after decay, its value before (`raw`) and after decay
    (`score`), and what the rank adds to the fused score (`share`)."""

    rank: int
    raw: float
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """One memory of the answer, and why. `score` is the sum of the paths' shares, 0 where no path found it.

    `recent` is its rank among the newest, where they answer; `slot`: it is there by its importance.
    """

    memory: Candidate
    score: float
    decay: float
    vector: PathScore | None = None
    keyword: PathScore | None = None
    recent: int | None = None
    slot: bool = False


class Ranking:
    """Ranks what was found; memories whose ids are in `without` do not exist for it."""

    def __init__(self, found: Candidates, rules: RankingRules, without: Collection[str] = ()) -> None:
        self._found = found
        self._rules = rules
        self._without = without

    def search(self, limit: int) -> list[Ranked]:
        """Both paths, decayed and fused, best first, then the memories in slots; at most `limit`."""
        return self._with_slots(self._fused(), limit)

    def fused_by_id(self) -> dict[str, Ranked]:
        """Every memory that a path found, with its fused score, by id."""
        return {ranked.memory.memory_id: ranked for ranked in self._fused()}

    def _fused(self) -> list[Ranked]:
        vector = self._path(self._found.vector)
        keyword = self._path(self._found.keyword)
        memories = {memory.memory_id: memory for memory, _ in (*self._found.vector, *self._found.keyword)}
        fused = [
            Ranked(
                memory=memories[name],
                score=sum(path[name].share for path in (vector, keyword) if name in path),
                decay=self.decay(memories[name]),
                vector=vector.get(name),
                keyword=keyword.get(name),
            )
            for name in {**vector, **keyword}
        ]
        fused.sort(key=lambda ranked: (-ranked.score, *_newest(ranked.memory)))
        return fused

    def latest(self, limit: int) -> list[Ranked]:
        """The memories on the subject of the query, the newest date first (R20): the current value, its history.

        On the subject is what reaches the bar on either path. The bar lies between the weakest and the best
        value of a path's candidates, since similarities of different models have different ranges; decay has
        no part in it, or the history would sink below.
        """
        subject = {
            name for rows in (self._found.vector, self._found.keyword) for name in self._on_subject(rows)
        }
        ranked = [one for one in self._fused() if one.memory.memory_id in subject]
        ranked.sort(key=lambda one: (-one.memory.date.toordinal(), *_newest(one.memory)))
        return ranked[:limit]

    def _on_subject(self, rows: Iterable[tuple[Candidate, float]]) -> list[str]:
        values = [(memory.memory_id, value) for memory, value in rows if self._exists(memory)]
        if not values:
            return []
        weakest, best = min(value for _, value in values), max(value for _, value in values)
        bar = weakest + self._rules.bar * (best - weakest)
        return [name for name, value in values if value >= bar]

    def recent(self, limit: int) -> list[Ranked]:
        """The newest first, then the memories in slots: what answers when there is no query vector (R28)."""
        newest = sorted(filter(self._exists, self._found.recent), key=_newest)
        return self._with_slots(
            [
                Ranked(memory, score=0.0, decay=self.decay(memory), recent=place)
                for place, memory in enumerate(newest)
            ],
            limit,
        )

    def decay(self, memory: Candidate) -> float:
        """max(floor, 2^(−distance / half-life)), by the smallest distance; a pinned memory does not decay."""
        if memory.pinned:
            return 1.0
        last = self._found.max_seq
        distance = min(
            (
                max(0, last[owner.character_id] - owner.seq)
                for owner in memory.characters
                if owner.character_id in last
            ),
            default=0,
        )
        return float(max(self._rules.floor, 2 ** (-distance / self._rules.half_life)))

    def _exists(self, memory: Candidate) -> bool:
        return memory.memory_id not in self._without

    def _path(self, rows: Iterable[tuple[Candidate, float]]) -> dict[str, PathScore]:
        decayed = [
            (value * self.decay(memory), value, memory) for memory, value in rows if self._exists(memory)
        ]
        decayed.sort(key=lambda row: (-row[0], *_newest(row[2])))
        return {
            memory.memory_id: PathScore(place, raw, score, share=1 / (self._rules.k + place))
            for place, (score, raw, memory) in enumerate(decayed)
        }

    def _with_slots(self, searched: list[Ranked], limit: int) -> list[Ranked]:
        """Give the most important memories that search does not return the last places of the answer.

        A slot may push out a memory that qualifies itself: then that one takes a slot too, so that all
        that qualify are always there. Search keeps at least one place.
        """
        qualified = nsmallest(
            self._rules.slots,
            (
                memory
                for memory in filter(self._exists, self._found.important)
                if memory.importance >= self._rules.slot_importance
            ),
            key=lambda memory: (-memory.importance, *_newest(memory)),
        )
        room = limit - 1 if searched else limit
        slots: list[Candidate] = []
        while True:
            kept = searched[: limit - len(slots)]
            returned = {ranked.memory.memory_id for ranked in kept}
            missing = [memory for memory in qualified if memory.memory_id not in returned][:room]
            # As many, yet perhaps others: the slot may have pushed out one that goes before it.
            enough = len(missing) <= len(slots)
            slots = missing
            if enough:
                break
        outranked = {ranked.memory.memory_id: ranked for ranked in searched}
        return kept + [
            replace(outranked.get(memory.memory_id) or Ranked(memory, 0.0, self.decay(memory)), slot=True)
            for memory in slots
        ]


def _newest(memory: Candidate) -> tuple[float, str]:
    return (-memory.created_at.timestamp(), memory.memory_id)
