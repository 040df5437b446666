"""What Gemini is sent, and what is its own in what comes back: RetryInfo, blocks, thoughts."""

import pytest

from agents.ports import Completion, ProviderError
from infra.providers import open_model
from tests.integration.wire import (
    ANSWER,
    CHAT,
    GEMINI,
    KEY,
    LIMIT,
    PROMPT,
    Reply,
    Wire,
    gemini_answer,
    gemini_error,
)

RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}
QUOTA = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaValue": "10"}]}


async def call(wire: Wire, *replies: Reply) -> Completion:
    wire.replies(*replies)
    model = open_model("gemini", GEMINI.model, GEMINI.access(wire.url, LIMIT))
    try:
        return await model.complete(PROMPT)
    finally:
        await model.close()


async def failure(*replies: Reply) -> ProviderError:
    async with Wire() as wire:
        with pytest.raises(ProviderError) as caught:
            await call(wire, *replies)
        assert len(wire.received) == 1
    return caught.value


async def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    async with Wire() as wire:
        await call(wire, Reply(body=gemini_answer(ANSWER)))
    sent = wire.only
    assert sent.path == f"/v1beta/models/{GEMINI.model}:generateContent", "no key in the address"
    assert sent.headers["x-goog-api-key"] == KEY
    assert sent.body["systemInstruction"]["parts"] == [{"text": PROMPT.system}]
    assert sent.body["contents"] == [{"role": "user", "parts": [{"text": PROMPT.user}]}]
    assert sent.body["generationConfig"] == {
        "maxOutputTokens": 777,
        "responseMimeType": "application/json",
        "responseJsonSchema": PROMPT.schema,
    }


@pytest.mark.parametrize(
    ("details", "header", "seconds"),
    [
        ([QUOTA, RETRY_INFO], None, 13.5),
        ([RETRY_INFO], "99", 13.5),
        ([QUOTA], "99", 99.0),
        ([QUOTA], None, None),
        ([{**RETRY_INFO, "retryDelay": "soon"}], "99", 99.0),
        ([{**RETRY_INFO, "retryDelay": {"seconds": 3}}], None, None),
        (["odd", None], None, None),
    ],
)
async def test_the_pause_of_retry_info(
    details: list[object], header: str | None, seconds: float | None
) -> None:
    headers = {"Retry-After": header} if header else {}
    failed = await failure(Reply(status=429, body=gemini_error(429, *details), headers=headers))
    assert (failed.reason, failed.retry_after) == ("rate_limited", seconds)


async def test_an_error_in_a_list_is_read_too() -> None:
    failed = await failure(Reply(status=429, body=[gemini_error(429, RETRY_INFO)]))
    assert (failed.reason, failed.retry_after) == ("rate_limited", 13.5)


@pytest.mark.parametrize(
    "body", ["[]", "null", "17", '"text"', '{"error": "text"}', '{"error": {"details": 3}}']
)
async def test_an_error_of_another_format_has_the_word_of_its_status(body: str) -> None:
    assert (await failure(Reply(status=503, body=body))).reason == "unavailable"


async def test_a_key_that_is_not_valid_is_told_by_a_400() -> None:
    invalid = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    assert (await failure(Reply(status=400, body=gemini_error(400, invalid)))).reason == "unauthorized"


@pytest.mark.parametrize("finish", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"])
async def test_an_answer_that_was_stopped_is_a_refusal(finish: str) -> None:
    assert (await failure(Reply(body=gemini_answer(CHAT, finishReason=finish)))).reason == "refused"


@pytest.mark.parametrize("finish", ["OTHER", "LANGUAGE", "MALFORMED_RESPONSE", "A_REASON_OF_TOMORROW"])
async def test_no_text_for_another_reason_is_no_answer(finish: str) -> None:
    assert (await failure(Reply(body={"candidates": [{"finishReason": finish}]}))).reason == "no_answer"


async def test_thoughts_are_no_part_of_the_text_but_are_paid() -> None:
    parts = [{"text": "Let me see", "thought": True}, {"text": ANSWER[:9]}, {"text": ANSWER[9:]}]
    async with Wire() as wire:
        completion = await call(wire, Reply(body=gemini_answer("", content={"parts": parts})))
    assert completion == Completion(ANSWER, input_tokens=120, output_tokens=42)


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "CONTINUATION"])
async def test_what_was_cut_off_is_given_as_it_is_in_one_request(finish: str) -> None:
    part = gemini_answer(ANSWER[:20], finishReason=finish, continuationToken="dG9rZW4=")
    async with Wire() as wire:
        assert (await call(wire, Reply(body=part))).text == ANSWER[:20]
        assert len(wire.received) == 1


async def test_tokens_that_are_not_counted_are_none() -> None:
    async with Wire() as wire:
        completion = await call(wire, Reply(body={**gemini_answer(ANSWER), "usageMetadata": None}))
    assert completion == Completion(ANSWER, 0, 0)
