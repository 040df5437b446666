"""Reading a model's answer (R5, R10): each way of being wrong, a file each in `answers/`, with what comes of it."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.answer import BadAnswer
from models.extraction import judge
from models.memory import Quote, RelationshipState
from models.requests import WindowResult
from tests.unit.ledger_harness import PROVENANCE
from tests.unit.windows import window

REQUEST = window(["guess what!", "@Tell me", "I moved to Busan", "@I will visit you", "ok"])
ANSWERS = Path(__file__).parent / "answers"
CASES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(ANSWERS.glob("*.json"))]
GOOD: str = json.loads((ANSWERS / "plain.json").read_text(encoding="utf-8"))["raw"]


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in CASES if "expect" in c])
def test_keeps_what_can_be_used(case: dict[str, Any]) -> None:
    expect = case["expect"]
    judged = judge(case["raw"], REQUEST)
    if expect.get("nothing"):
        assert judged.memory is None
        return
    memory = judged.memory
    assert memory is not None
    content = memory.content
    state = judged.relationships["c"]
    found = {
        "importance": memory.importance,
        "date": memory.date.isoformat(),
        "summary": content.summary,
        "details": [detail.text for detail in content.key_details],
        "speakers": [d.speaker if isinstance(d, Quote) else d.actor for d in content.key_details],
        "terms": list(content.search_terms),
        "plans": [plan.date for plan in content.plans],
        "address": state.form_of_address if state else None,
        "dropped": dict(judged.dropped),
    }
    assert {key: found[key] for key in expect} == expect
    assert "dropped" in expect or not judged.dropped
    WindowResult.model_validate(
        {
            **REQUEST.model_dump(),
            "status": "memory",
            "memory": memory,
            "provenance": PROVENANCE,
            "relationships": judged.relationships,
        }
    ).model_dump_json()


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in CASES if "reason" in c])
def test_says_why_an_answer_cannot_be_used(case: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer) as caught:
        judge(case["raw"], REQUEST)
    assert caught.value.reason == case["reason"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("x" * 200_001, "too_long"),
        ("[" * 100_000, "no_json"),
        ('{"a":' * 30_000, "truncated"),
        ("{" * 200_000, "no_json"),
    ],
    ids=["over-long", "nested lists", "nested objects", "braces"],
)
def test_bears_hostile_answers(raw: str, reason: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        judge(raw, REQUEST)
    assert caught.value.reason == reason


def test_on_the_second_pass_the_user_is_quoted() -> None:
    answer = json.dumps({"summary": "A talk", "keyDetails": []})
    memory = judge(answer, REQUEST, lenient=True).memory
    assert memory is not None
    assert memory.content.key_details == (Quote(speaker="user", text="I moved to Busan", context=""),)


def test_the_quoted_line_is_cut_to_the_bound() -> None:
    request = window(["가" * 5_000])
    memory = judge('{"summary": "s"}', request, lenient=True).memory
    assert memory is not None
    assert memory.content.key_details[0].text == "가" * 2_000


def test_where_the_user_said_nothing_none_of_theirs_is_needed() -> None:
    assert judge('{"summary": "s"}', window(["@hello"])).memory is not None


def test_in_a_scene_a_quote_belongs_to_its_speaker() -> None:
    request = window(["I am here", "@mina: Welcome home", "@jun: Hi"], cast=("jun", "mina"))
    quotes = [
        ("mina", "Welcome home"),
        ("jun", "Welcome home"),
        ("someone", "Hi"),
        ("assistant", "Hi"),
        ("MINA", "welcome home"),
        ("user", "I am here"),
    ]
    details = [{"type": "quote", "speaker": who, "text": text} for who, text in quotes]
    judged = judge(json.dumps({"summary": "s", "keyDetails": details}), request)
    assert judged.memory is not None
    assert [(d.speaker, d.text) for d in judged.memory.content.key_details if isinstance(d, Quote)] == [
        ("mina", "Welcome home"),
        ("user", "I am here"),
    ]
    assert judged.dropped["details"] == 4


def test_the_windows_own_letters_are_stored() -> None:
    decomposed = "\u1109\u1165\u110b\u116e\u11af 산다"  # 서울 산다
    answer = json.dumps({"summary": "s", "keyDetails": [{"speaker": "user", "text": "서울산다"}]})
    memory = judge(answer, window([decomposed])).memory
    assert memory is not None
    assert memory.content.key_details[0].text == decomposed


def test_a_field_left_out_of_a_state_keeps_what_was_shown() -> None:
    shown = RelationshipState(
        summary="",
        form_of_address="Max",
        tone="dry",
        current_state="",
        unkept_promises=("a walk",),
        limits=(),
    )
    answer = json.loads(GOOD) | {"relationshipStates": {"c": {"tone": "warm"}}}
    state = judge(json.dumps(answer), window(["I moved to Busan"], shown={"c": shown})).relationships["c"]
    assert state is not None
    assert (state.form_of_address, state.tone, state.unkept_promises) == ("Max", "warm", ("a walk",))


def test_a_missing_date_is_the_day_in_the_users_own_offset() -> None:
    answer = json.dumps({"summary": "s", "keyDetails": [{"speaker": "user", "text": "hi"}]})
    memory = judge(answer, window(["hi"], sent_at="2026-03-03T00:30:00+09:00")).memory
    assert memory is not None
    assert memory.date == date(2026, 3, 3)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = [
    *json.loads(GOOD),
    "nothing",
    "type",
    "speaker",
    "actor",
    "text",
    "c",
    "summary",
    "limits",
    "formOfAddress",
]
shaped = st.recursive(
    json_values | st.sampled_from(["user", "quote", "action", "I moved to Busan", "2026-03-01"]),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=9) | st.lists(inner, max_size=5),
    max_leaves=30,
)
answers = st.one_of(
    st.text(),
    shaped.map(json.dumps),
    st.dictionaries(st.sampled_from(NAMES), shaped, max_size=9).map(
        lambda d: json.dumps({"summary": "s", **d})
    ),
    st.tuples(st.text(max_size=20), shaped.map(json.dumps), st.text(max_size=20)).map("".join),
    st.integers(0, len(GOOD)).map(lambda at: GOOD[:at]),
    st.tuples(st.integers(0, len(GOOD)), st.characters()).map(
        lambda t: GOOD[: t[0]] + t[1] + GOOD[t[0] + 1 :]
    ),
)


@settings(max_examples=300, deadline=None)
@given(answers, st.booleans())
def test_nothing_but_bad_answer_is_ever_raised(raw: str, lenient: bool) -> None:
    """And what is taken can be written to the log, keeps its bounds, and quotes the window alone."""
    try:
        judged = judge(raw, REQUEST, lenient=lenient)
    except BadAnswer:
        return
    if judged.memory is None:
        return
    judged.memory.model_dump_json().encode()
    for detail in judged.memory.content.key_details:
        if isinstance(detail, Quote):
            assert any(detail.text in message.text for message in REQUEST.messages)
