"""The offline extractor on small talks in three languages (`extraction_cases/*.json`): what is kept, what is not.

A line that begins with @ is the character's. All were said on Tuesday 2026-03-03 in the evening.
"""

import asyncio
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.offline_extractor import OfflineExtractor
from models.extraction import Judged, judge
from models.memory import Quote, RelationshipState
from tests.unit.windows import window

CASES = [
    pytest.param(case, id=f"{path.stem}-{case['id']}")
    for path in sorted((Path(__file__).parent / "extraction_cases").glob("*.json"))
    for case in json.loads(path.read_text(encoding="utf-8"))
]


def extract(lines: list[str], **options: Any) -> Judged:
    request = window(lines, **options)
    return judge(asyncio.run(OfflineExtractor().extract(request)).raw, request, lenient=True)


def visible(judged: Judged) -> str:
    """Everything in a memory that a search or a reader meets."""
    assert judged.memory is not None, "nothing was kept"
    content = judged.memory.content
    details = [detail.text + detail.context for detail in content.key_details]
    plans = [f"{plan.date} {plan.text}" for plan in content.plans]
    return "\n".join([content.summary, *details, *plans, *content.search_terms, *content.involved])


@pytest.mark.parametrize("case", CASES)
def test_keeps_what_was_settled(case: dict[str, Any]) -> None:
    judged = extract(case["lines"])
    if case.get("nothing"):
        assert judged.memory is None
        return
    text = visible(judged)
    memory = judged.memory
    assert memory is not None
    assert not judged.dropped
    assert [piece for piece in case.get("has", ()) if piece not in text] == []
    assert [piece for piece in case.get("lacks", ()) if piece in text] == []
    assert not case.get("any_has") or any(piece in text for piece in case["any_has"])
    assert set(case.get("terms", ())) <= set(memory.content.search_terms)
    assert not set(case.get("no_terms", ())) & set(memory.content.search_terms)
    speakers = {detail.speaker for detail in memory.content.key_details if isinstance(detail, Quote)}
    assert "user" in speakers
    assert set(case.get("speakers", ())) <= speakers
    if "importance" in case:
        assert memory.importance == case["importance"]
    if "date" in case:
        assert memory.date.isoformat() == case["date"]
    state = judged.relationships["c"] or RelationshipState()
    assert state.model_dump() | case.get("state", {}) == state.model_dump()
    assert "limit" not in case or case["limit"] in state.limits


def test_quotes_are_the_windows_own_letters() -> None:
    decomposed = unicodedata.normalize("NFD", "나 수원에서 자취해")
    judged = extract([decomposed, "룸메는 태국 사람이야"])
    assert judged.memory is not None
    quotes = [detail.text for detail in judged.memory.content.key_details]
    assert any(quote in decomposed for quote in quotes)


def test_relative_days_are_those_of_the_message() -> None:
    judged = extract(["내일 치과 예약했어"], sent_at="2025-12-31T23:30:00+09:00")
    assert judged.memory is not None
    assert [plan.date for plan in judged.memory.content.plans] == ["2026-01-01"]
    assert judged.memory.date.isoformat() == "2025-12-31"


@pytest.mark.parametrize(
    ("line", "said", "day"),
    [
        ("My goal is to run the marathon in Leeds on October 12", "2026-03-02", "2026-10-12"),
        ("I want to run the Leeds marathon on 12 October", "2026-03-02", "2026-10-12"),
        ("My goal is to run a marathon on May 10", "2026-10-20", "2027-05-10"),
        ("I broke my arm on May 10", "2026-10-20", "2026-05-10"),
        ("10월 12일에 마라톤 나갈 계획이야", "2026-03-02", "2026-10-12"),
        ("10月12日にマラソンに出る予定", "2026-03-02", "2026-10-12"),
    ],
)
def test_a_day_without_a_year_is_ahead_where_something_is_meant_to_be(line: str, said: str, day: str) -> None:
    judged = extract([line], sent_at=f"{said}T09:00:00+00:00")
    assert day in visible(judged)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("No pain at all in my ankle, I'm so proud", "No pain at all in my ankle, I'm so proud"),
        ("No alcohol since January, I'm sober now", "No alcohol since January, I'm sober now"),
        ("No, I broke my ankle in May", "I broke my ankle in May"),
        ("nope - my sister Priya is a nurse", "my sister Priya is a nurse"),
    ],
)
def test_a_no_that_belongs_to_the_sentence_stays(line: str, kept: str) -> None:
    judged = extract(["I started running again with my friend Tom", "@Does it hurt?", line])
    assert judged.memory is not None
    assert kept in [detail.text for detail in judged.memory.content.key_details]


@pytest.mark.parametrize(
    "line",
    [
        "안녕 하루야",
        "안녕, 하루야!",
        "고마워 하루",
        "Hi Mina!",
        "good night, coach",
        "おはよう、ゆい",
        "おやすみ ゆいちゃん",
    ],
)
def test_a_greeting_by_name_is_no_fact(line: str) -> None:
    assert extract([line]).memory is None
    kept = extract([line, "@!", "I moved to Bristol with my sister Priya"])
    assert kept.memory is not None
    assert [detail.text for detail in kept.memory.content.key_details] == [
        "I moved to Bristol with my sister Priya"
    ]


def test_promises_and_limits_join_what_the_state_held() -> None:
    old = RelationshipState(
        summary="오래된 친구",
        form_of_address="훈",
        tone="반말",
        current_state="",
        unkept_promises=("산책",),
        limits=(),
    )
    judged = extract(["나 내일 시험이야", "@꼭 응원해줄게"], shown={"c": old})
    state = judged.relationships["c"]
    assert state is not None
    assert (state.summary, state.form_of_address) == ("오래된 친구", "훈")
    assert state.unkept_promises == ("산책", "꼭 응원해줄게")


def test_a_state_that_nothing_changes_is_left_alone() -> None:
    old = RelationshipState(
        summary="", form_of_address="", tone="반말", current_state="", unkept_promises=(), limits=()
    )
    assert extract(["나 부산으로 이사했어"], shown={"c": old}).relationships == {"c": None}


def test_in_a_scene_those_are_involved_who_spoke_or_were_named() -> None:
    judged = extract(["나 오늘 승진했어", "@mina: 축하해!"], cast=("jun", "mina", "rei"))
    assert judged.memory is not None
    assert judged.memory.content.involved == ("mina",)


odd = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
WORDS = (
    "나 오늘 아니다 말고 먹을까 하다가 먹었어 ? . ㅋㅋ "
    "no-wait instead-of but I bought tomorrow いや、 ラーメン じゃなくて "
    "明日 食べた 。 99999년 2월-30일 13월-45일 아니 농담이야 약속할게"
)
pieces = st.lists(st.sampled_from([word.replace("-", " ") for word in WORDS.split()]), max_size=40).map(
    " ".join
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(odd, pieces, odd.map("@".__add__)), max_size=8))
def test_no_window_is_too_odd(lines: list[str]) -> None:
    """Whatever people send, the answer is one that the parser takes, every quote found and every entry kept."""
    judged = extract(lines)
    # Lines in many scripts at once have no language to keep to.
    assert not judged.dropped.keys() - {"language"}


def test_hostile_lengths_take_no_longer_than_they_should() -> None:
    """Repeated words must not send a pattern back over its choices; a time limit is the runner's."""
    for word in (
        "안녕",
        "아니 ",
        "말고 ",
        "a ",
        "no wait ",
        "笑",
        "if i was ",
        "하다가 ",
        "何",
        "1",
        "?",
        "1일 ",
    ):
        extract([word * 20_000, (word * 20_000)[:65_000]])
