"""What Claude is sent, at Anthropic and at Bedrock, and what is its own in what comes back."""

import json
from pathlib import Path

import pytest

from agents.ports import Completion, LanguageModel, ProviderError
from infra.providers import ProviderAccess, ProviderNotConfigured, open_model
from models.answer import BadAnswer, find_answer
from tests.integration.wire import (
    ANSWER,
    ANTHROPIC,
    BEDROCK,
    KEY,
    LIMIT,
    PROMPT,
    Reply,
    Vendor,
    Wire,
    claude_answer,
    claude_tool,
)


def opened(wire: Wire, vendor: Vendor = ANTHROPIC) -> LanguageModel:
    return open_model(vendor.provider, vendor.model, vendor.access(wire.url, LIMIT))


async def call(reply: Reply) -> Completion:
    async with Wire() as wire:
        wire.replies(reply)
        model = opened(wire)
        try:
            return await model.complete(PROMPT)
        finally:
            await model.close()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)


ASKED = {
    "max_tokens": 777,
    "system": PROMPT.system,
    "messages": [{"role": "user", "content": PROMPT.user}],
    "tools": [{"name": "answer", "description": "Takes the whole answer.", "input_schema": PROMPT.schema}],
    "tool_choice": {"type": "tool", "name": "answer", "disable_parallel_tool_use": True},
}


async def test_what_anthropic_is_sent() -> None:
    async with Wire() as wire:
        wire.replies(Reply(body=ANTHROPIC.answer(ANSWER)))
        model = opened(wire)
        await model.complete(PROMPT)
        await model.close()
    assert wire.only.path == "/v1/messages"
    assert wire.only.headers["Authorization"] == f"Bearer {KEY}"
    assert wire.only.body == {"model": ANTHROPIC.model, **ASKED}


@pytest.mark.usefixtures("credentials")
async def test_what_bedrock_is_sent() -> None:
    async with Wire() as wire:
        wire.replies(Reply(body=BEDROCK.answer(ANSWER)))
        model = opened(wire, BEDROCK)
        await model.complete(PROMPT)
        await model.close()
    sent = wire.only
    assert sent.path.replace("%3A", ":") == f"/model/{BEDROCK.model}/invoke"
    assert "AKIAEXAMPLE" in sent.headers["Authorization"]
    assert "/eu-central-1/bedrock/" in sent.headers["Authorization"], "signed for the region"
    assert KEY not in str(sent.headers)
    assert {**sent.body, "anthropic_version": None} == {"anthropic_version": None, **ASKED}


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("answer", [ANSWER, "{}"])
async def test_an_answer_cut_off_does_not_pass_for_a_whole_one(stop: str, answer: str) -> None:
    text = (await call(Reply(body=claude_answer(claude_tool(answer), stop=stop)))).text
    assert text
    with pytest.raises(BadAnswer):
        find_answer(text)


async def test_text_instead_of_the_tool_is_given() -> None:
    body = claude_answer(
        {"type": "text", "text": ANSWER[:9]}, {"type": "text", "text": ANSWER[9:]}, stop="end_turn"
    )
    assert await call(Reply(body=body)) == Completion(ANSWER, 120, 42)


async def test_what_is_said_beside_the_tool_is_not_the_answer() -> None:
    body = claude_answer({"type": "text", "text": "Here it is: {}"}, claude_tool(ANSWER))
    assert json.loads((await call(Reply(body=body))).text) == json.loads(ANSWER)


async def test_bedrock_says_so_when_its_model_failed() -> None:
    with pytest.raises(ProviderError, match="unavailable"):
        await call(Reply(424, {"message": "ModelErrorException"}))


async def test_bedrock_without_credentials_is_unauthorized(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    async with Wire() as wire:
        access = BEDROCK.access(wire.url, LIMIT)
        # A region of its own: the SDK keeps a session, with its credentials, for each set of arguments.
        elsewhere = ProviderAccess(bedrock_region="eu-north-1", bedrock_base_url=access.bedrock_base_url)
        model = open_model("bedrock", BEDROCK.model, elsewhere)
        with pytest.raises(ProviderError, match="unauthorized"):
            await model.complete(PROMPT)
        assert wire.received == []
        await model.close()
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ProviderNotConfigured, match="KEEPSAKE_BEDROCK_REGION"):
        open_model("bedrock", BEDROCK.model, ProviderAccess())
