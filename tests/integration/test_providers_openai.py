"""What OpenAI and servers that speak like it are sent, and how it is learnt what a server does not take."""

import asyncio
from typing import Any

import pytest

from agents.ports import Completion, LanguageModel, ProviderError
from infra.providers import ProviderAccess, open_model
from infra.providers.openai_compatible import is_strict
from tests.integration.wire import (
    ANSWER,
    CHAT,
    KEY,
    LIMIT,
    OPENAI,
    PROMPT,
    Received,
    Reply,
    Wire,
    openai_answer,
)


def opened(wire: Wire) -> LanguageModel:
    return open_model("openai", OPENAI.model, OPENAI.access(wire.url, LIMIT))


def asked_format(received: Received) -> str | None:
    asked = received.body.get("response_format")
    return str(asked["type"]) if asked else None


def server(*formats: str | None, limit: str = "max_tokens", status: int = 400) -> Any:
    """A server that takes these formats and this name of the token limit alone."""

    def reply(received: Received) -> Reply:
        if asked_format(received) not in formats:
            return Reply(
                status, {"error": f"'response_format.type' must be one of {formats}, not so: {CHAT}"}
            )
        if limit not in received.body:
            other = "max_tokens" if limit == "max_completion_tokens" else "max_completion_tokens"
            return Reply(status, {"error": {"message": f"Use {limit}, not {other}", "param": other}})
        return Reply(body=openai_answer(ANSWER))

    return reply


async def test_what_is_sent() -> None:
    async with Wire() as wire:
        wire.replies(Reply(body=openai_answer(ANSWER)))
        model = opened(wire)
        await model.complete(PROMPT)
        await model.close()
    sent = wire.only
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["Authorization"] == f"Bearer {KEY}"
    assert sent.body == {
        "model": OPENAI.model,
        "messages": [
            {"role": "system", "content": PROMPT.system},
            {"role": "user", "content": PROMPT.user},
        ],
        "max_tokens": 777,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": PROMPT.schema, "strict": True},
        },
    }


async def test_a_server_without_keys_needs_none() -> None:
    async with Wire() as wire:
        wire.replies(Reply(body=openai_answer(ANSWER)))
        model = open_model("openai", "llama3.2:3b", ProviderAccess(openai_base_url=f"{wire.url}/v1"))
        assert (await model.complete(PROMPT)).text == ANSWER
        await model.close()


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("formats", "asked"),
    [
        (("json_schema", None), ["json_schema"]),
        (("json_object", None), ["json_schema", "json_object"]),
        ((None,), ["json_schema", "json_object", None]),
    ],
)
async def test_a_format_that_a_server_does_not_take_is_not_asked_for_again(
    formats: tuple[str | None, ...], asked: list[str | None], status: int
) -> None:
    async with Wire() as wire:
        wire.reply = server(*formats, status=status)
        model = opened(wire)
        assert (await model.complete(PROMPT)).text == ANSWER
        assert [asked_format(received) for received in wire.received] == asked
        assert (await model.complete(PROMPT)).text == ANSWER
        assert len(wire.received) == len(asked) + 1
        await model.close()


async def test_calls_at_the_same_time_learn_the_same() -> None:
    async with Wire() as wire:
        wire.reply = server("json_object")
        model = opened(wire)
        answers = await asyncio.gather(*(model.complete(PROMPT) for _ in range(8)))
        assert {answer.text for answer in answers} == {ANSWER}
        before = len(wire.received)
        await model.complete(PROMPT)
        assert len(wire.received) == before + 1
        assert asked_format(wire.received[-1]) == "json_object"
        await model.close()


async def test_the_other_name_of_the_token_limit() -> None:
    async with Wire() as wire:
        wire.reply = server("json_schema", limit="max_completion_tokens")
        model = opened(wire)
        await model.complete(PROMPT)
        await model.complete(PROMPT)
        await model.close()
    assert ["max_completion_tokens" in received.body for received in wire.received] == [False, True, True]
    assert "max_tokens" not in wire.received[-1].body


async def test_a_server_that_takes_nothing_fails_in_the_end() -> None:
    async with Wire() as wire:
        wire.reply = server()
        model = opened(wire)
        with pytest.raises(ProviderError, match="bad_request"):
            await model.complete(PROMPT)
        assert len(wire.received) == 3
        await model.close()


async def test_a_bad_request_for_another_reason_teaches_nothing() -> None:
    async with Wire() as wire:
        wire.replies(
            Reply(400, {"error": {"message": "too long", "param": "messages"}}),
            Reply(body=openai_answer(ANSWER)),
        )
        model = opened(wire)
        with pytest.raises(ProviderError, match="bad_request"):
            await model.complete(PROMPT)
        await model.complete(PROMPT)
        assert [asked_format(received) for received in wire.received] == ["json_schema", "json_schema"]
        await model.close()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=openai_answer(CHAT, "content_filter")),
        Reply(400, {"error": {"message": CHAT, "code": "content_filter"}}),
        Reply(400, {"error": {"message": CHAT, "code": "content_policy_violation"}}),
    ],
)
async def test_a_content_filter_is_a_refusal(reply: Reply) -> None:
    async with Wire() as wire:
        wire.replies(reply)
        model = opened(wire)
        with pytest.raises(ProviderError, match="refused"):
            await model.complete(PROMPT)
        assert len(wire.received) == 1
        await model.close()


@pytest.mark.parametrize("left_out", ["usage", "created", "id", "object", "model"])
async def test_servers_may_leave_out_what_is_not_needed(left_out: str) -> None:
    body = openai_answer(ANSWER, "length")
    del body[left_out]
    async with Wire() as wire:
        wire.replies(Reply(body=body))
        model = opened(wire)
        completion = await model.complete(PROMPT)
        await model.close()
    assert completion == (Completion(ANSWER, 0, 0) if left_out == "usage" else Completion(ANSWER, 120, 42))


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (PROMPT.schema, True),
        ({**PROMPT.schema, "required": []}, False),
        ({**PROMPT.schema, "additionalProperties": True}, False),
        ({"type": "object", "additionalProperties": {"type": "string"}}, False),
        ({"type": ["object", "null"]}, False),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, PROMPT.schema]}}, True),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}, False),
    ],
)
def test_strict_is_asked_for_only_where_openai_takes_it(schema: object, strict: bool) -> None:
    assert is_strict(schema) is strict
