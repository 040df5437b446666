"""From candidates to the memories of an answer: decay, fusion, importance slots (R22, R23, R25, R26).

Everything here is a function of its arguments; ties are settled by the newer memory, then by id.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest

from models.candidates import Candidate, Candidates


@dataclass(frozen=True, slots=True)
class RankingRules:
    """Settings of the ranking: decay halves over `half_life` seq and ends at `floor`; `k` is that of RRF."""

    half_life: float = 40
    floor: float = 0.3
    k: int = 60
    slot_importance: int = 6
    slots: int = 2


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

    candidate: Candidate
    score: float
    decay: float
    vector: PathScore | None = None
    keyword: PathScore | None = None
    recent: int | None = None
    slot: bool = False


def decay(candidate: Candidate, max_seq: Mapping[str, int], rules: RankingRules) -> float:
    """max(floor, 2^(−distance / half-life)), by the smallest distance among the requested characters.

    `max_seq` is the last seq of each requested pair. A pinned memory does not decay.
    """
    if candidate.pinned:
        return 1.0
    distances = [
        max(0, max_seq[pair.character_id] - pair.seq)
        for pair in candidate.characters
        if pair.character_id in max_seq
    ]
    return float(max(rules.floor, 2 ** (-min(distances, default=0) / rules.half_life)))


def rank(found: Candidates, limit: int, rules: RankingRules, without: Collection[str] = ()) -> list[Ranked]:
    """Both paths, decayed and fused, best first, then the memories in slots; at most `limit`.

    Memories whose ids are in `without` are passed over as if they did not exist.
    """
    vector = _path(found.vector, found.max_seq, rules, without)
    keyword = _path(found.keyword, found.max_seq, rules, without)
    fused = [
        Ranked(
            candidate=candidate,
            score=sum(path[memory].share for path in (vector, keyword) if memory in path),
            decay=decay(candidate, found.max_seq, rules),
            vector=vector.get(memory),
            keyword=keyword.get(memory),
        )
        for memory, candidate in _by_id(c for c, _ in (*found.vector, *found.keyword)).items()
        if memory not in without
    ]
    fused.sort(key=lambda ranked: (-ranked.score, *_newest(ranked.candidate)))
    return _with_slots(fused, found, limit, rules, without)


def rank_recent(
    found: Candidates, limit: int, rules: RankingRules, without: Collection[str] = ()
) -> list[Ranked]:
    """The newest first, then the memories in slots: what answers when there is no query vector (R28)."""
    newest = sorted((c for c in found.recent if c.memory_id not in without), key=_newest)
    recent = [
        Ranked(candidate, score=0.0, decay=decay(candidate, found.max_seq, rules), recent=place)
        for place, candidate in enumerate(newest)
    ]
    return _with_slots(recent, found, limit, rules, without)


def _path(
    rows: Iterable[tuple[Candidate, float]],
    max_seq: Mapping[str, int],
    rules: RankingRules,
    without: Collection[str],
) -> dict[str, PathScore]:
    decayed = [
        (value * decay(candidate, max_seq, rules), value, candidate)
        for candidate, value in rows
        if candidate.memory_id not in without
    ]
    decayed.sort(key=lambda row: (-row[0], *_newest(row[2])))
    return {
        candidate.memory_id: PathScore(place, raw=value, score=score, share=1 / (rules.k + place))
        for place, (score, value, candidate) in enumerate(decayed)
    }


def _with_slots(
    searched: list[Ranked], found: Candidates, limit: int, rules: RankingRules, without: Collection[str]
) -> list[Ranked]:
    """Give the most important memories that search does not return the last places of the answer.

    A slot may push out a memory that qualifies itself: then that one takes a slot too, so that both
    are always there. Search keeps at least one place.
    """
    qualified = nsmallest(
        rules.slots,
        (c for c in found.important if c.importance >= rules.slot_importance and c.memory_id not in without),
        key=lambda candidate: (-candidate.importance, *_newest(candidate)),
    )
    room = limit - 1 if searched else limit
    taken: list[Candidate] = []
    while True:
        kept = searched[: limit - len(taken)]
        returned = {ranked.candidate.memory_id for ranked in kept}
        missing = [c for c in qualified if c.memory_id not in returned][:room]
        if len(missing) <= len(taken):
            break
        taken = missing
    outranked = {ranked.candidate.memory_id: ranked for ranked in searched}
    return kept + [
        Ranked(
            candidate,
            score=was.score if was else 0.0,
            decay=decay(candidate, found.max_seq, rules),
            vector=was.vector if was else None,
            keyword=was.keyword if was else None,
            recent=was.recent if was else None,
            slot=True,
        )
        for candidate in taken
        for was in (outranked.get(candidate.memory_id),)
    ]


def _by_id(candidates: Iterable[Candidate]) -> dict[str, Candidate]:
    return {candidate.memory_id: candidate for candidate in candidates}


def _newest(candidate: Candidate) -> tuple[float, str]:
    return (-candidate.created_at.timestamp(), candidate.memory_id)
