"""R30: memory as a tool, for models whose calls are assumed broken."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from anthropic.types import ToolParam
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from google.genai import types as gemini
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionToolParam
from pydantic import TypeAdapter

from models.memory import Action, Plan, Quote, Source
from models.recall import Memory, RecallRequest, RecallResponse
from models.tools import (
    MOST_CHARACTERS,
    MOST_MEMORIES,
    TOOLS,
    Instruction,
    declarations,
    shorter_page,
    tool_answer,
    tool_request,
)


def request(name: str, arguments: object) -> RecallRequest:
    """What a call asks, as the service would read it."""
    return RecallRequest.model_validate(
        {"user_id": "u", "character_ids": ["c"], **tool_request(name, arguments)}
    )


def test_gemini_takes_the_declarations() -> None:
    [tool] = [gemini.Tool.model_validate(one) for one in declarations("gemini")]
    declared = tool.function_declarations or []
    assert [one.name for one in declared] == list(TOOLS)
    parameters = declared[0].parameters
    assert parameters is not None
    assert parameters.type == gemini.Type.OBJECT
    properties = parameters.properties or {}
    kinds = properties["kinds"].items
    assert kinds is not None
    assert kinds.type == gemini.Type.STRING


def test_anthropic_openai_and_bedrock_take_the_declarations() -> None:
    for one in declarations("anthropic"):
        TypeAdapter(ToolParam).validate_python(one)
    for one in declarations("openai"):
        TypeAdapter(ChatCompletionToolParam).validate_python(one)
    model = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))
    shape = model.operation_model("Converse").input_shape
    asked = {"modelId": "m", "toolConfig": {"tools": declarations("bedrock")}}
    report = ParamValidator().validate(asked, shape)
    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize("vendor", ["gemini", "anthropic", "bedrock", "openai"])
def test_no_declaration_lets_a_model_choose_whose_memories(vendor: Any) -> None:
    told = json.dumps(declarations(vendor))
    assert "user_id" not in told
    assert "character_ids" not in told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "cat"}, {"query": "cat", "mode": "relevant", "limit": None}),
        ('{"query": "cat"}', {"query": "cat"}),
        (b'{"query": "cat", "limit": "5"}', {"limit": 5}),
        ({"query": "cat", "limit": 3.0}, {"limit": 3}),
        ({"query": "cat", "limit": 500}, {"limit": MOST_MEMORIES}),
        ({"query": "cat", "limit": 0}, {"limit": 1}),
        ({"query": "cat", "mode": "LATEST "}, {"mode": "latest"}),
        ({"query": None, "kinds": None, "cursor": ""}, {"query": "", "cursor": None}),
        ({"query": 17}, {"query": "17"}),
        ({"query": "x" * 5_000}, {"query": "x" * 1_000}),
        ({"query": "cat", "why": "because", "user_id": "someone"}, {"user_id": "u"}),
        ({"query": "cat", "cursor": "of no use here"}, {"cursor": None}),
        (None, {"query": ""}),
        ("", {"query": ""}),
    ],
)
def test_what_is_meant_is_read(arguments: object, expected: dict[str, Any]) -> None:
    asked = request("recall_memory", arguments)
    assert {name: getattr(asked, name) for name in expected} == expected


def test_days_are_read_from_times_and_pages_go_on() -> None:
    asked = request(
        "timeline",
        {"date_from": "2026-06-28T00:00:00Z", "date_to": " 2026-06-30", "cursor": "next"},
    )
    assert (asked.filters.date_from, asked.filters.date_to) == (date(2026, 6, 28), date(2026, 6, 30))
    assert (asked.mode, asked.cursor, asked.limit) == ("exhaustive", "next", MOST_MEMORIES)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("timeline", {}, "date_from and date_to"),
        ("timeline", {"date_from": "2026-06-01"}, "date_from and date_to"),
        ("recall_memory", {"query": "x", "mode": "exhaustive", "date_to": "2026-06-01"}, "date_from and"),
        ("timeline", {"date_from": "2026-06-02", "date_to": "2026-06-01"}, "after date_to"),
        ("timeline", {"date_from": "June", "date_to": "2026-06-01"}, "date_from must be a day"),
        ("timeline", {"date_from": "2026-02-30", "date_to": "2026-06-01"}, "date_from must be a day"),
        ("recall_memory", {"query": "x", "limit": "many"}, "whole number"),
        ("recall_memory", {"query": "x", "limit": "1e999"}, "whole number"),
        ("recall_memory", {"query": "x", "kinds": ["secrets"]}, "window, log"),
        ("recall_memory", {"query": "x", "mode": "all"}, "relevant, latest"),
        ("recall_memory", "not json", "JSON object"),
        ("recall_memory", [1], "JSON object"),
        ("forget", {}, "recall_memory, timeline"),
    ],
)
def test_what_cannot_be_answered_says_what_to_ask(name: str, arguments: object, told: str) -> None:
    with pytest.raises(Instruction, match=told):
        tool_request(name, arguments)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["query", "mode", "date_from", "date_to", "kinds", "limit", "cursor", "x"])


@given(
    name=st.sampled_from([*TOOLS, "x"]),
    arguments=json_values | st.dictionaries(FIELDS, json_values, max_size=6) | st.text() | st.binary(),
)
def test_whatever_a_model_writes_is_read_or_told_about(name: str, arguments: object) -> None:
    try:
        fields = tool_request(name, arguments)
    except Instruction:
        return
    assert fields["limit"] is None or 1 <= fields["limit"] <= MOST_MEMORIES
    RecallRequest.model_validate({"user_id": "u", "character_ids": ["c"], **fields, "cursor": None})


def memory(number: int, size: int = 20) -> Memory:
    return Memory(
        id=str(number),
        kind="window",
        summary=f"memory {number} " + "x" * size,
        key_details=(Quote(speaker="user", text="I said so"), Action(actor="mina", text="laughed")),
        importance=7,
        pinned=False,
        category="food" if number == 1 else None,
        date=date(2026, 6, 1),
        created_at=datetime(2026, 6, 1, tzinfo=UTC),
        plans=(Plan(date="2026-07-01", text="go"),),
        characters=(),
        source=Source(
            session_ids=("s",), first_message_id="a", last_message_id="b", first_position=1, last_position=2
        ),
    )


def test_an_answer_tells_what_a_model_can_use() -> None:
    answer = tool_answer(RecallResponse(memories=(memory(1, 0),), query="x", cursor="more"))
    assert answer == {
        "memories": [
            {
                "date": "2026-06-01",
                "summary": "memory 1 ",
                "importance": 7,
                "category": "food",
                "quotes": [{"speaker": "user", "text": "I said so"}],
                "actions": [{"actor": "mina", "text": "laughed"}],
                "plans": [{"date": "2026-07-01", "text": "go"}],
            }
        ],
        "next_cursor": "more",
    }


@given(sizes=st.lists(st.integers(0, 6_000), max_size=30))
def test_an_answer_is_bounded_and_says_what_it_left_out(sizes: list[int]) -> None:
    memories = tuple(memory(number, size) for number, size in enumerate(sizes))
    answer = tool_answer(RecallResponse(memories=memories, query="x", cursor="next"))
    told = answer["memories"]
    assert len(told) <= MOST_MEMORIES
    assert len(told) <= 1 or len(json.dumps(told)) <= MOST_CHARACTERS + 200
    assert bool(told) == bool(sizes)
    # A page that is not whole is not turned: what had no room would be skipped.
    assert ("next_cursor" in answer) == (len(told) == len(sizes))
    if len(told) < len(sizes):
        assert f"{len(sizes) - len(told)} more" in answer["note"]


@given(sizes=st.lists(st.integers(0, 6_000), max_size=30))
def test_every_page_of_everything_is_told_whole(sizes: list[int]) -> None:
    memories = [memory(number, size) for number, size in enumerate(sizes)]
    june = {"date_from": "2026-06-01", "date_to": "2026-06-30"}
    told: list[str] = []
    while True:
        asked = tool_request("timeline", {**june, "cursor": str(len(told))})
        answer = tool_answer(page(memories, asked))
        fewer = shorter_page(asked, page(memories, asked))
        if fewer is not None:
            answer = tool_answer(page(memories, fewer))
        told += [one["summary"] for one in answer["memories"]]
        if "next_cursor" not in answer:
            break
        assert answer["next_cursor"] == str(len(told))
    assert told == [one.summary for one in memories]


def page(memories: list[Memory], asked: dict[str, Any]) -> RecallResponse:
    """The answer of the service, whose cursors are places."""
    start = int(asked["cursor"])
    end = start + asked["limit"]
    cursor = str(end) if end < len(memories) else None
    return RecallResponse(memories=tuple(memories[start:end]), query="", cursor=cursor)


def test_nothing_and_failure_are_told_apart() -> None:
    assert "do not know" in tool_answer(RecallResponse(memories=(), query="x"))["note"]
    assert (
        "cannot be searched"
        in tool_answer(RecallResponse(memories=(), query="x", degraded="unreachable"))["note"]
    )
