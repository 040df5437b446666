"""Every provider's real SDK against a local server: each way to fail has its word, and takes one request."""

import json
import logging
import os
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agents.ports import Completion, LanguageModel, ProviderError
from infra.providers import open_model
from tests.integration.wire import ANSWER, CHAT, KEY, LIMIT, PROMPT, VENDORS, Reply, Vendor, Wire

SHORT_LIMIT = 0.5


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS credentials, which Bedrock takes from there; and what other tools leave, which must change nothing."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/other")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/other")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_API_KEY", "another-key")


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.provider)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    made = request.param
    assert isinstance(made, Vendor)
    return made


@asynccontextmanager
async def opened(vendor: Vendor, wire: Wire, limit: float = LIMIT) -> AsyncIterator[LanguageModel]:
    model = open_model(vendor.provider, vendor.model, vendor.access(wire.url, limit))
    try:
        yield model
    finally:
        await model.close()


async def failure(vendor: Vendor, reply: Reply, limit: float = LIMIT) -> ProviderError:
    """How one call fails, which was one request."""
    async with Wire() as wire, opened(vendor, wire, limit) as model:
        wire.replies(reply)
        with pytest.raises(ProviderError) as caught:
            await model.complete(PROMPT)
        assert len(wire.received) == 1, "no hidden retries"
    return caught.value


async def test_an_answer_with_the_tokens_that_its_provider_counts(vendor: Vendor) -> None:
    async with Wire() as wire, opened(vendor, wire) as model:
        wire.replies(Reply(body=vendor.answer(ANSWER)))
        completion = await model.complete(PROMPT)
        assert (model.provider, model.model) == (vendor.provider, vendor.model)
    assert json.loads(completion.text) == json.loads(ANSWER)
    assert completion == Completion(completion.text, input_tokens=120, output_tokens=42)
    assert CHAT in json.dumps(wire.only.body, ensure_ascii=False)
    assert PROMPT.system in json.dumps(wire.only.body)


async def test_a_model_serves_many_calls(vendor: Vendor) -> None:
    async with Wire() as wire, opened(vendor, wire) as model:
        wire.replies(Reply(status=503, body=vendor.error(503)), Reply(body=vendor.answer(ANSWER)))
        with pytest.raises(ProviderError, match="unavailable"):
            await model.complete(PROMPT)
        assert json.loads((await model.complete(PROMPT)).text) == json.loads(ANSWER)
    assert len(wire.received) == 2


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "bad_request"),
        (401, "unauthorized"),
        (402, "unauthorized"),
        (403, "unauthorized"),
        (404, "unknown_model"),
        (408, "timeout"),
        (413, "bad_request"),
        (429, "rate_limited"),
        (500, "unavailable"),
        (502, "unavailable"),
        (503, "unavailable"),
        (529, "unavailable"),
    ],
)
async def test_a_status_has_its_word(vendor: Vendor, status: int, reason: str) -> None:
    failed = await failure(vendor, Reply(status=status, body=vendor.error(status)))
    assert (failed.reason, failed.retry_after) == (reason, None)


async def test_an_error_page_has_the_word_of_its_status(vendor: Vendor) -> None:
    page = Reply(status=502, body="<html>Bad gateway</html>", headers={"Content-Type": "text/html"})
    assert (await failure(vendor, page)).reason == "unavailable"


@pytest.mark.parametrize(("given", "seconds"), [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("1e9", 86_400.0)])
async def test_the_pause_that_a_provider_asks_for(vendor: Vendor, given: str, seconds: float) -> None:
    failed = await failure(vendor, Reply(status=429, body=vendor.error(429), headers={"Retry-After": given}))
    assert (failed.reason, failed.retry_after) == ("rate_limited", seconds)


@pytest.mark.parametrize("given", ["soon", "nan", "inf", ""])
async def test_a_pause_that_cannot_be_read_is_none(vendor: Vendor, given: str) -> None:
    failed = await failure(vendor, Reply(status=429, body=vendor.error(429), headers={"Retry-After": given}))
    assert (failed.reason, failed.retry_after) == ("rate_limited", None)


async def test_a_pause_told_as_a_date(vendor: Vendor) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    failed = await failure(vendor, Reply(status=503, body=vendor.error(503), headers={"Retry-After": until}))
    assert failed.reason == "unavailable"
    assert failed.retry_after is not None
    assert 3600 < failed.retry_after <= 7200


async def test_a_call_that_hangs_ends_at_its_limit(vendor: Vendor) -> None:
    assert (await failure(vendor, Reply(hangs=True), SHORT_LIMIT)).reason == "timeout"


async def test_a_body_without_end_ends_at_the_limit(vendor: Vendor) -> None:
    assert (await failure(vendor, Reply(trickles=True), SHORT_LIMIT)).reason == "timeout"


@pytest.mark.parametrize("kept", [1, 40])
async def test_a_body_that_ends_early_is_a_broken_answer(vendor: Vendor, kept: int) -> None:
    body = json.dumps(vendor.answer(ANSWER))[:kept]
    assert (await failure(vendor, Reply(body=body, cut_off=True))).reason == "broken_answer"


@pytest.mark.parametrize("body", ["{", "<html>hello</html>", "", "[1, 2]", '"text"', "17"])
async def test_what_is_not_of_the_format_is_a_broken_answer(vendor: Vendor, body: str) -> None:
    failed = await failure(vendor, Reply(body=body))
    # Gemini's SDK takes what is no object for an empty answer.
    lenient = vendor.provider == "gemini" and body in ("", "[1, 2]", '"text"')
    assert failed.reason == ("no_answer" if lenient else "broken_answer")


async def test_a_body_that_cannot_be_decoded_is_a_broken_answer(vendor: Vendor) -> None:
    whole = json.dumps(vendor.answer(ANSWER))
    reply = Reply(body=whole, headers={"Content-Encoding": "gzip"})
    assert (await failure(vendor, reply)).reason == "broken_answer"


async def test_a_safety_block_is_a_refusal(vendor: Vendor) -> None:
    assert (await failure(vendor, Reply(body=vendor.refusal))).reason == "refused"


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_an_answer_without_text_is_none(vendor: Vendor, index: int) -> None:
    if index < len(vendor.empty):
        assert (await failure(vendor, Reply(body=vendor.empty[index]))).reason == "no_answer"


async def test_a_server_that_is_not_there_is_unavailable(vendor: Vendor) -> None:
    async with Wire() as wire:
        url = wire.url
    model = open_model(vendor.provider, vendor.model, vendor.access(url, LIMIT))
    with pytest.raises(ProviderError, match="unavailable"):
        await model.complete(PROMPT)
    await model.close()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=400, body=f'{{"error": {{"message": "{CHAT} {KEY}"}}}}'),
        Reply(status=500, body=f"{CHAT} {KEY}"),
        Reply(body=f"{CHAT} {KEY}"),
        Reply(body=f'{{"choices": "{CHAT}", "candidates": "{CHAT}", "content": "{CHAT}"}}'),
    ],
    ids=["bad request", "server error", "no JSON", "another format"],
)
async def test_neither_errors_nor_logs_hold_chat_or_key(
    vendor: Vendor, reply: Reply, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    failed = await failure(vendor, reply)
    told = (
        "".join(traceback.format_exception(failed)) + repr(failed) + caplog.text + "".join(capfd.readouterr())
    )
    assert failed.reason in told
    assert KEY not in told
    assert CHAT not in told
    assert CHAT.encode("unicode_escape").decode() not in told


async def test_text_that_has_no_utf_8_is_sent_all_the_same(vendor: Vendor) -> None:
    odd = type(PROMPT)("name", "v1", "system \ud800", "user \x00 \udfff", PROMPT.schema)
    async with Wire() as wire, opened(vendor, wire) as model:
        wire.replies(Reply(body=vendor.answer(ANSWER)))
        await model.complete(odd)
    assert "system ?" in json.dumps(wire.only.body)
