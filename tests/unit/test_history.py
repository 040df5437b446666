"""R36: a history as each vendor's model takes it, whatever it was; and nothing that the user said is lost."""

import json
import unicodedata
from collections.abc import Sequence

import pytest
from anthropic.types import MessageParam
from google.genai import types as gemini
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from models.history import HistoryMessage, Repaired, repaired

SAID = ("안녕", "오늘 뭐 먹었어?", "寿司を食べた", "hello", "😀", "x" * 5_000)
ODD = ("", " \n", "\u200b", "\x00", "a\x00b", "\ud800")
TEXTS = st.sampled_from((*SAID, *ODD)) | st.text(max_size=20)
MESSAGES = st.builds(
    HistoryMessage,
    st.sampled_from(("system", "user", "user", "assistant", "assistant")),
    TEXTS,
    st.dictionaries(st.sampled_from(["id", "at", "mood"]), st.integers(), max_size=3),
)
ANTHROPIC = TypeAdapter(MessageParam)
OPENAI: TypeAdapter[ChatCompletionMessageParam] = TypeAdapter(ChatCompletionMessageParam)
HISTORIES = st.lists(MESSAGES, max_size=20)


def clean(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in text if one != "\x00")


def is_blank(text: str) -> bool:
    return all(one.isspace() or unicodedata.category(one) in ("Cc", "Cf") for one in text)


def holds_for_anthropic(messages: Sequence[HistoryMessage]) -> None:
    """Messages API: the first message is the user's, roles alternate, no content is blank, and the last one, being the
    user's, is no prefill (docs of the Messages API, "messages")."""
    for at, message in enumerate(messages):
        assert message.role == ("user" if at % 2 == 0 else "assistant")
        assert message.content.strip()
        ANTHROPIC.validate_python({"role": message.role, "content": message.content})
    assert not messages or messages[-1].role == "user"


def holds_for_gemini(messages: Sequence[HistoryMessage]) -> None:
    """generateContent: contents alternate between user and model, begin and end with the user's, and no part is empty
    (docs of multi-turn conversations)."""
    contents = [
        gemini.Content(
            role="user" if message.role == "user" else "model", parts=[gemini.Part(text=message.content)]
        )
        for message in messages
    ]
    roles = [content.role for content in contents]
    assert roles == ["user" if at % 2 == 0 else "model" for at in range(len(roles))]
    assert not roles or roles[-1] == "user"
    assert all(part.text for content in contents for part in content.parts or ())


def holds_for_openai(messages: Sequence[HistoryMessage]) -> None:
    """Chat completions: known roles, content a string that JSON in UTF-8 can carry."""
    for message in messages:
        OPENAI.validate_python({"role": message.role, "content": message.content})
    json.dumps([message.content for message in messages], ensure_ascii=False).encode()


def told(history: Sequence[HistoryMessage], role: str) -> list[str]:
    """What is said in a role, line for line."""
    return [
        clean(message.content)
        for message in history
        if message.role == role and not is_blank(clean(message.content))
    ]


def text_of(messages: Sequence[HistoryMessage], role: str) -> str:
    return "\n".join(message.content for message in messages if message.role == role)


@settings(deadline=None)
@given(history=HISTORIES)
def test_every_vendor_takes_it_and_nothing_is_lost(history: list[HistoryMessage]) -> None:
    found = repaired(history)
    for holds in (holds_for_anthropic, holds_for_gemini, holds_for_openai):
        holds(found.messages)
    assert text_of(found.messages, "user") == "\n".join(told(history, "user"))
    everything = (*found.before, *found.messages, *found.after)
    assert text_of(everything, "assistant") == "\n".join(told(history, "assistant"))
    assert {message.role for message in (*found.before, *found.after)} <= {"assistant"}
    assert repaired(found.messages) == Repaired(found.messages, (), ())


@given(history=HISTORIES)
def test_it_is_as_the_slow_way_has_it(history: list[HistoryMessage]) -> None:
    kept = [
        (message.role, clean(message.content), dict(message.metadata))
        for message in history
        if message.role != "system" and not is_blank(clean(message.content))
    ]
    merged: list[tuple[str, list[str], dict[str, int]]] = []
    for role, content, metadata in kept:
        if not merged or merged[-1][0] != role:
            merged.append((role, [], {}))
        merged[-1][1].append(content)
        merged[-1][2].update(metadata)
    roles = [role for role, _, _ in merged]
    first = roles.index("user") if "user" in roles else len(roles)
    last = len(roles) - roles[::-1].index("user") if "user" in roles else len(roles)
    found = repaired(history)
    for part, expected in (
        (found.before, merged[:first]),
        (found.messages, merged[first:last]),
        (found.after, merged[last:]),
    ):
        assert [(one.role, one.content, dict(one.metadata)) for one in part] == [
            (role, "\n".join(contents), metadata) for role, contents, metadata in expected
        ]


def test_the_later_ones_metadata_wins() -> None:
    history = [
        HistoryMessage("user", "a", {"id": 1, "mood": "x"}),
        HistoryMessage("system", "no"),
        HistoryMessage("user", "b", {"id": 2}),
    ]
    [message] = repaired(history).messages
    assert (message.content, message.metadata) == ("a\nb", {"id": 2, "mood": "x"})


@pytest.mark.parametrize("roles", ["", "s", "a", "aa", "as"])
def test_without_a_word_of_the_user_there_is_no_message(roles: str) -> None:
    names = {"s": "system", "a": "assistant"}
    history = [HistoryMessage(names[role], role) for role in roles]  # type: ignore[arg-type]  # of the two
    found = repaired(history)
    assert (found.messages, found.after) == ((), ())
    assert len(found.before) == bool("a" in roles)
