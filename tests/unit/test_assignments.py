"""References to models, assignments, who makes which attempt, and the default."""

from collections.abc import Callable

import pytest

from infra.offline_extractor.provider import OFFLINE_MODEL as OFFLINE_NAME
from infra.providers import MODEL_PROVIDERS, ProviderNotConfigured
from infra.providers.access import checked_model
from models.assignments import (
    OFFLINE,
    OFFLINE_MODEL,
    PROVIDERS,
    TASKS,
    Assignment,
    InvalidAssignment,
    ModelRef,
    default_model,
)

SECRET = "nobody-may-repeat-this"  # noqa: S105 - a marked word, no secret


@pytest.mark.parametrize(
    "text",
    [
        "gemini:gemini-2.5-flash",
        "openai:llama3.1:8b",
        "openai:meta-llama/Llama-3.1-8B",
        "bedrock:global.anthropic.claude-haiku-4-5-20251001-v1:0",
        "offline:keepsake-rules",
    ],
)
def test_a_reference_is_read_and_written_alike(text: str) -> None:
    assert str(ModelRef.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gemini",
        "gemini:",
        ":x",
        "Gemini:x",
        f"{SECRET}:x",
        "openai:a b",
        "openai:a\n",
        f"openai:{'x' * 257}",
        "openai:a/../b",
        "openai:/a",
        "openai:a?b",
    ],
)
def test_what_is_no_reference_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidAssignment, match="provider:model") as refused:
        ModelRef.parse(text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["a/../b", "/a", "a?b", "a b", "x" * 257, "x" * 256, "llama3.1:8b", "a/b:c"])
def test_a_name_is_taken_here_if_it_can_be_opened(name: str) -> None:
    def taken(check: Callable[[str], object]) -> bool:
        try:
            check(name)
        except (InvalidAssignment, ProviderNotConfigured):
            return False
        return True

    assert taken(lambda name: ModelRef.parse(f"openai:{name}")) == taken(checked_model)


def test_there_is_one_offline_model() -> None:
    assert str(OFFLINE_MODEL) == f"{OFFLINE}:{OFFLINE_NAME}"
    with pytest.raises(InvalidAssignment, match=OFFLINE_NAME):
        ModelRef.parse("offline:other")


def test_the_providers_are_those_that_can_be_opened() -> None:
    assert set(PROVIDERS) == {*MODEL_PROVIDERS, OFFLINE}


def test_an_assignment_needs_a_known_task_and_another_fall_back() -> None:
    assert Assignment.parse("insight", "openai:a", "offline:keepsake-rules").fallback == OFFLINE_MODEL
    with pytest.raises(InvalidAssignment, match=", ".join(TASKS)):
        Assignment.parse(SECRET, "openai:a")
    with pytest.raises(InvalidAssignment, match="another model"):
        Assignment.parse("extraction", "openai:a", "openai:a")


@pytest.mark.parametrize(
    ("attempts", "models", "more"),
    [(3, "aaabbbaaabbba", "1111101111101"), (2, "aabbaabb", "11101110"), (1, "abab", "1010")],
)
def test_models_take_turns_and_each_round_ends(attempts: int, models: str, more: str) -> None:
    both = Assignment("extraction", ModelRef("openai", "a"), ModelRef("openai", "b"))
    numbers = range(1, len(models) + 1)
    assert "".join(both.model_for(n, attempts).model for n in numbers) == models
    assert "".join(str(int(both.more_after(n, attempts))) for n in numbers) == more


def test_without_a_fall_back_the_one_model_makes_every_attempt() -> None:
    one = Assignment("extraction", ModelRef("openai", "a"))
    assert {one.model_for(n, 3).model for n in range(1, 13)} == {"a"}
    assert not any(one.more_after(n, 3) for n in range(1, 13))


@pytest.mark.parametrize(
    ("setting", "key", "expected"),
    [
        (None, False, "offline:keepsake-rules"),
        ("", True, "gemini:gemini-2.5-flash"),
        ("openai:x", True, "openai:x"),
    ],
)
def test_the_default_model(setting: str | None, key: bool, expected: str) -> None:
    assert str(default_model(setting, gemini_key=key)) == expected
