"""The labelled set: that it is whole, that it can tell a good memory from straw, and that its scores are right."""

from collections import Counter
from datetime import datetime

import pytest
from pydantic import ValidationError

from tests.eval.background import WINDOWS, backgrounds, windows
from tests.eval.matching import normal
from tests.eval.scenario import CATEGORIES, Line, Probe, Scenario, load
from tests.eval.score import figures, report, scenario_score, score_probe, table
from tests.eval.straw import (
    STRAWS,
    assistant_lines_as_facts,
    last_window_only,
    play,
    store_everything,
    store_nothing,
)

SET = load()
NUMBERS = {"ko": 12, "en": 5, "ja": 5}


def test_the_set_has_its_scenarios() -> None:
    counts = Counter((s.lang, s.category) for s in SET)
    assert counts == {(lang, name): n for lang, n in NUMBERS.items() for name in CATEGORIES}
    assert len({s.id for s in SET}) == len(SET) == 264
    assert all(s.id.startswith(f"{s.lang}-{s.category}-") for s in SET)


def test_the_talks_are_long_enough_and_a_third_take_days() -> None:
    assert all(10 <= len(s.messages) <= 44 for s in SET)
    several = sum(len({m.sent_at.date() for m in s.messages}) > 1 for s in SET)
    assert several >= len(SET) / 3
    assert sum(len(s.characters) > 1 for s in SET) >= len(SET) / 10
    assert len({m.text for s in SET for m in s.messages if m.role == "user"}) > 2_000


def test_a_question_comes_after_the_talk_and_forbids_nothing_that_it_wants() -> None:
    for scenario in SET:
        end = max(m.sent_at for m in scenario.messages)
        for probe in scenario.probes:
            assert probe.now > end, scenario.id
            for piece in map(normal, probe.forbid):
                assert not any(piece in normal(wanted) for group in probe.gold for wanted in group)


def test_the_background_is_contested_and_gives_nothing_away() -> None:
    behind = backgrounds(SET)
    by_id = {s.id: s for s in SET}
    assert backgrounds(SET) == behind
    for name, chosen in behind.items():
        scenario = by_id[name]
        assert len(chosen) == (0 if scenario.nothing_to_keep else WINDOWS), name
        text = normal("\n".join(line.text for window in chosen for line in window))
        for probe in scenario.probes:
            assert not any(
                normal(piece) in text for group in (*probe.gold, probe.forbid, probe.first) for piece in group
            )


def test_straw_systems_score_visibly_worse() -> None:
    rates = {straw: figures(play(straw, SET)).rates for straw in STRAWS}
    for straw in (store_everything, last_window_only, assistant_lines_as_facts):
        assert rates[straw]["noise"] == 1
    assert (rates[store_everything]["wrong"] or 0) > 0.15
    assert rates[store_nothing]["hit@12"] == rates[store_nothing]["noise"] == 0
    assert (rates[last_window_only]["hit@12"] or 0) < 0.4
    assert (rates[assistant_lines_as_facts]["hit@12"] or 0) < 0.4


def line(role: str, text: str) -> Line:
    return Line.model_validate(
        {"role": role, "text": text, "sent_at": "2026-03-02T21:00:00+09:00", "session": "s"}
    )


def test_a_window_is_five_messages_of_the_user_and_the_answer() -> None:
    talk = [
        line("system", "x"),
        *(line(role, f"{role}{n}") for n in range(7) for role in ("user", "assistant")),
    ]
    (window,) = windows(talk)
    assert [one.text for one in window][-2:] == ["user4", "assistant4"]
    assert len(window) == 10
    # Without an answer the next message of the user ends it.
    talk = [line("user", str(n)) for n in range(6)]
    assert [len(window) for window in windows(talk)] == [5]


def memory(summary: str, **more: object) -> dict[str, object]:
    return {
        "summary": summary,
        "key_details": [],
        "plans": [],
        "category": None,
        "date": "2026-03-02",
        **more,
    }


def probe(**labels: object) -> Probe:
    return Probe.model_validate({"query": "?", "now": datetime(2026, 4, 1).astimezone(), **labels})


def test_pieces_match_without_regard_to_width_case_and_spaces() -> None:
    memories = [memory("Ｂｕｓａｎ 바다"), memory("x", plans=[{"date": "2026-03-07", "text": "씽크 패드"}])]
    asked = probe(
        gold=[["busan바다"], ["씽크패드"], ["2026-03-07"], ["제주"]], forbid=["부산", "2026-03"], first=["x"]
    )
    score = score_probe(asked, memories, None)
    assert (score.groups, score.found_at_12, score.missed) == (4, 3, (("제주",),))
    assert (score.wrong, score.first) == (("2026-03",), False)


def test_only_the_first_five_and_twelve_count() -> None:
    memories = [memory(f"number {n}.") for n in range(20)]
    asked = probe(gold=[["number 4."], ["number 5."], ["number 11."], ["number 12."]], forbid=["number 12."])
    score = score_probe(asked, memories, None)
    assert (score.found_at_5, score.found_at_12, score.wrong) == (1, 3, ())


def test_the_rates_are_by_groups_probes_and_scenarios() -> None:
    base = SET[0]
    quiet = base.model_copy(update={"nothing_to_keep": True})
    asked = probe(gold=[["a"], ["b"]], forbid=["c"])
    scores = [
        scenario_score(base, 3, [score_probe(asked, [memory("a c")], None)]),
        scenario_score(quiet, 1, [score_probe(probe(), [], None)]),
        scenario_score(quiet, 0, []),
    ]
    assert figures(scores).rates == {"hit@12": 0.5, "hit@5": 0.5, "wrong": 1, "noise": 0.5, "first": None}
    before = report(scores[1:])
    assert "all" in table(scores, before)
    assert "(+0.500)" not in table(scores, report(scores))


@pytest.mark.parametrize(
    "change",
    [
        {"lang": "fr"},
        {"category": "other"},
        {"probes": [{"query": "?", "now": "2026-01-01T00:00:00Z", "gold": [[]]}]},
        {"probes": [{"query": "?", "now": "2026-01-01T00:00:00Z", "gold": [["a", ""]]}]},
        {"characters": ["a", "b"], "messages": [{**line("assistant", "hi").model_dump()}]},
    ],
)
def test_a_scenario_that_is_not_of_the_format_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Scenario.model_validate({**SET[0].model_dump(), **change})
