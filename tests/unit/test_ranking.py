"""R22, R23, R25, R26: decay, fusion and slots, against a slow and plain reference."""

import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.candidates import Candidate, Candidates
from models.ranking import Ranked, Ranking, RankingRules
from tests.unit.memories import candidate, found

RULES = RankingRules()


def numbers(ranked: list[Ranked]) -> list[int]:
    return [one.memory.source.first_position for one in ranked]


def test_decay_halves_by_seq_and_ends_at_its_floor() -> None:
    ranking = Ranking(found(mina=1_000), RULES)
    assert ranking.decay(candidate(1, seqs={"mina": 1_000})) == 1
    assert ranking.decay(candidate(1, seqs={"mina": 960})) == 0.5
    assert ranking.decay(candidate(1, seqs={"mina": 980})) == pytest.approx(math.sqrt(0.5))
    assert ranking.decay(candidate(1, seqs={"mina": 1})) == 0.3
    assert ranking.decay(candidate(1, seqs={"mina": 1}, pinned=True)) == 1


def test_decay_is_by_the_nearest_of_the_requested_characters() -> None:
    shared = candidate(1, seqs={"mina": 60, "jun": 5, "other": 99})
    assert Ranking(found(mina=100, jun=5), RULES).decay(shared) == 1
    assert Ranking(found(mina=100), RULES).decay(shared) == 0.5
    assert Ranking(found(), RULES).decay(shared) == 1


def test_decay_comes_before_fusion_on_both_paths() -> None:
    old = candidate(1, seqs={"mina": 1})
    new = candidate(2, seqs={"mina": 100})
    for path in ("vector", "keyword"):
        ranked = Ranking(found(**{path: [(old, 0.9), (new, 0.5)]}, mina=100), RULES).search(12)  # type: ignore[arg-type]  # keywords by path
        assert numbers(ranked) == [2, 1], path


def test_found_by_both_paths_goes_first_and_its_shares_add_up() -> None:
    a, b, c = (candidate(number, seqs={"mina": 9}) for number in (1, 2, 3))
    ranked = Ranking(found([(a, 0.9), (b, 0.8), (c, 0.7)], [(c, 2.0)], mina=9), RULES).search(12)
    assert numbers(ranked) == [3, 1, 2]
    assert ranked[0].score == 1 / 62 + 1 / 60
    assert ranked[0].vector is not None
    assert ranked[0].keyword is not None
    assert (ranked[0].vector.rank, ranked[0].keyword.rank) == (2, 0)
    assert ranked[1].score == 1 / 60


def test_without_keyword_rows_the_order_is_that_of_the_vectors() -> None:
    memories = [candidate(number, seqs={"mina": 9}) for number in range(1, 6)]
    ranked = Ranking(found([(m, 1 / m.source.first_position) for m in memories], mina=9), RULES).search(12)
    assert numbers(ranked) == [1, 2, 3, 4, 5]


def test_ties_go_to_the_newer_then_to_the_smaller_id() -> None:
    older, newer, twin = candidate(3, minutes=1), candidate(2, minutes=5), candidate(1, minutes=5)
    assert numbers(Ranking(found([(older, 0.5), (newer, 0.5), (twin, 0.5)]), RULES).search(12)) == [1, 2, 3]


def full(first: int = 1, count: int = 12, importance: int = 5) -> list[tuple[Candidate, float]]:
    return [
        (candidate(first + n, seqs={"mina": 99}, importance=importance), 0.9 - n / 100) for n in range(count)
    ]


def test_the_important_get_in_behind_a_full_list() -> None:
    important = [candidate(50, importance=9), candidate(51, importance=7), candidate(52, importance=6)]
    ranked = Ranking(found(full(), important=important, mina=99), RULES).search(12)
    assert numbers(ranked) == [*range(1, 11), 50, 51]
    assert [one.slot for one in ranked] == [False] * 10 + [True] * 2


def test_what_search_found_uses_no_slot_and_frees_none() -> None:
    hits = full()
    first = candidate(1, seqs={"mina": 99}, importance=10)
    hits[0] = (first, 0.9)
    important = [first, candidate(51, importance=7), candidate(52, importance=6)]
    ranked = Ranking(found(hits, important=important, mina=99), RULES).search(12)
    assert numbers(ranked) == [*range(1, 12), 51]
    assert [one.slot for one in ranked] == [False] * 11 + [True]


def test_a_slot_does_not_push_out_another_that_qualifies() -> None:
    hits = full()
    last = candidate(12, seqs={"mina": 99}, importance=9)
    hits[11] = (last, hits[11][1])
    ranked = Ranking(found(hits, important=[last, candidate(50, importance=8)], mina=99), RULES).search(12)
    assert numbers(ranked) == [*range(1, 11), 12, 50]
    outranked = ranked[10]
    assert outranked.slot
    assert outranked.score == 1 / 71


def test_importance_below_six_and_small_limits() -> None:
    unimportant = [candidate(50, importance=5)]
    assert numbers(Ranking(found(full(), important=unimportant), RULES).search(12)) == [*range(1, 13)]
    important = [candidate(50, importance=9), candidate(51, importance=9)]
    # One place is always search's, if it found anything.
    assert numbers(Ranking(found(full(), important=important), RULES).search(1)) == [1]
    assert numbers(Ranking(found(full(), important=important), RULES).search(2)) == [1, 51]
    assert numbers(Ranking(found(important=important), RULES).search(1)) == [51]


def test_the_most_recent_answer_with_slots() -> None:
    memories = [candidate(number) for number in range(1, 21)]
    ranked = Ranking(found(recent=memories, important=[candidate(50, importance=9)]), RULES).recent(5)
    assert numbers(ranked) == [20, 19, 18, 17, 50]
    assert [one.recent for one in ranked] == [0, 1, 2, 3, None]
    assert all(one.score == 0 for one in ranked)


def test_what_is_left_out_does_not_exist() -> None:
    hits = full(count=3)
    ranked = Ranking(
        found(hits, important=[candidate(50, importance=9)]), RULES, {"memory-001", "memory-050"}
    )
    assert numbers(ranked.search(12)) == [2, 3]
    best = ranked.search(12)[0].vector
    assert best is not None
    assert best.rank == 0


def test_one_slot_goes_to_the_most_important_though_search_had_found_it() -> None:
    found_first, weighty, as_weighty = (
        candidate(1, seqs={"mina": 9}, importance=1),
        candidate(2, seqs={"mina": 9}, importance=8),
        candidate(3, seqs={"mina": 9}, importance=6),
    )
    ranking = Ranking(
        found([(found_first, 0.9), (weighty, 0.8)], important=[weighty, as_weighty], mina=9), RULES
    )
    assert [(one.memory, one.slot) for one in ranking.search(2)] == [(found_first, False), (weighty, True)]


# --- against the reference ---


@st.composite
def searches(draw: st.DrawFn) -> tuple[Candidates, int]:
    count = draw(st.integers(0, 30))
    memories = [
        candidate(
            number,
            seqs={
                "mina": draw(st.integers(1, 200)),
                **({"jun": draw(st.integers(1, 50))} if number % 3 else {}),
            },
            importance=draw(st.integers(1, 10)),
            pinned=draw(st.integers(0, 9)) == 0,
            minutes=draw(st.integers(0, 20)),
        )
        for number in range(count)
    ]
    values = st.sampled_from([0.1, 0.2, 0.25, 0.5, 0.8, 0.9])
    some = (
        st.lists(st.sampled_from(memories), max_size=20, unique_by=lambda m: m.memory_id)
        if memories
        else st.just([])
    )
    important = sorted(
        (m for m in memories if m.importance >= 6), key=lambda m: (-m.importance, -m.created_at.timestamp())
    )
    return (
        found(
            [(memory, draw(values)) for memory in draw(some)],
            [(memory, draw(values)) for memory in draw(some)],
            important=important,
            mina=200,
            jun=50,
        ),
        draw(st.integers(1, 20)),
    )


def reference(search: Candidates, limit: int) -> list[tuple[str, float, bool]]:
    """Id, score and slot of each memory, computed the long way round."""

    def newest_first(memories: list[Candidate]) -> list[Candidate]:
        return sorted(sorted(memories, key=lambda m: m.memory_id), key=lambda m: m.created_at, reverse=True)

    def decayed(memory: Candidate, value: float) -> float:
        if memory.pinned:
            return value
        nearest = min(search.max_seq[owner.character_id] - owner.seq for owner in memory.characters)
        return value * max(0.3, 2 ** (-nearest / 40))

    scores: dict[str, float] = {}
    every: dict[str, Candidate] = {}
    for path in (search.vector, search.keyword):
        values = {memory.memory_id: decayed(memory, value) for memory, value in path}
        ordered = sorted(newest_first([m for m, _ in path]), key=lambda m: values[m.memory_id], reverse=True)
        for place, memory in enumerate(ordered):
            scores[memory.memory_id] = scores.get(memory.memory_id, 0) + 1 / (60 + place)
            every[memory.memory_id] = memory
    fused = sorted(newest_first(list(every.values())), key=lambda m: scores[m.memory_id], reverse=True)
    top = sorted(newest_first(list(search.important)), key=lambda m: m.importance, reverse=True)[:2]
    # Try every number of slots, the smallest at which nobody who qualifies is missing.
    for used in range(3):
        kept = fused[: limit - used] if limit > used else []
        missing = [m for m in top if m not in kept]
        if len(missing) <= used or (fused and used == limit - 1) or (not fused and used == limit):
            break
    return [(m.memory_id, scores[m.memory_id], False) for m in kept] + [
        (m.memory_id, scores.get(m.memory_id, 0), True) for m in missing[:used]
    ]


@given(searches())
def test_ranking_equals_the_reference(case: tuple[Candidates, int]) -> None:
    search, limit = case
    ranked = Ranking(search, RULES).search(limit)
    expected = reference(search, limit)
    assert [(one.memory.memory_id, one.slot) for one in ranked] == [
        (name, slot) for name, _, slot in expected
    ]
    assert [one.score for one in ranked] == pytest.approx([score for _, score, _ in expected])


@given(searches())
def test_every_answer_is_bounded_distinct_and_adds_up(case: tuple[Candidates, int]) -> None:
    search, limit = case
    ranked = Ranking(search, RULES).search(limit)
    ids = [one.memory.memory_id for one in ranked]
    assert len(ids) <= limit
    assert len(set(ids)) == len(ids)
    for one in ranked:
        assert one.score == sum(path.share for path in (one.vector, one.keyword) if path)
        assert 0.3 <= one.decay <= 1
    assert sum(one.slot for one in ranked) <= RULES.slots


def dated(number: int, day: str) -> Candidate:
    return replace(candidate(number, seqs={"mina": 9}), date=date.fromisoformat(day))


def test_the_latest_of_a_subject_goes_first_whatever_its_rank() -> None:
    old, new, other = dated(1, "2026-01-01"), dated(2, "2026-03-01"), dated(3, "2026-05-01")
    ranking = Ranking(found([(old, 0.90), (new, 0.87), (other, 0.80)], mina=9), RULES)
    assert numbers(ranking.latest(12)) == [2, 1]
    assert numbers(ranking.latest(1)) == [2]


def test_a_memory_is_on_the_subject_by_either_path() -> None:
    near, worded, neither = dated(1, "2026-01-01"), dated(2, "2026-02-01"), dated(3, "2026-03-01")
    found_by = found([(near, 0.9), (worded, 0.5), (neither, 0.6)], [(worded, 2.0), (neither, 0.1)], mina=9)
    assert numbers(Ranking(found_by, RULES).latest(12)) == [2, 1]
    assert numbers(Ranking(found_by, RULES, {"memory-001"}).latest(12)) == [3, 2]
    assert Ranking(found(mina=9), RULES).latest(12) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=30))
def test_the_latest_are_in_order_of_their_dates(rows: list[tuple[int, float]]) -> None:
    memories = [
        (dated(number, f"2026-01-0{day + 1}"), value)
        for number, (day, value) in enumerate(rows[:30])
        if day < 9
    ]
    days = [one.memory.date for one in Ranking(found(memories, mina=9), RULES).latest(12)]
    assert days == sorted(days, reverse=True)
