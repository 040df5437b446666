"""`keepsake prompts` with a local registry, and with a local server that speaks like OpenAI's."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.integration.registry import FILE, Registry
from tests.integration.wire import KEY, Reply, Wire, openai_answer

SAID = "나 강릉으로 이사했어"
ANSWER = {
    "nothing": False,
    "summary": "사용자는 강릉으로 이사했다.",
    "keyDetails": [
        {"type": "quote", "speaker": "user", "text": SAID, "context": ""},
        {"type": "quote", "speaker": "user", "text": "nobody has ever said this", "context": ""},
    ],
    "importance": 6,
    "searchTerms": ["강릉", "이사"],
}


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry()
    await made.server.start_server()
    yield made
    await made.server.close()


async def prompts(directory: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and error; not in a thread: the servers run in this loop."""
    others = {n: v for n, v in os.environ.items() if not n.startswith(("KEEPSAKE_", "LANGFUSE_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streams.cli", "prompts", *arguments),
        env={**others, "KEEPSAKE_DATA_DIR": str(directory), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert "Traceback" not in err.decode(), err.decode()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def keys(registry: Registry) -> dict[str, str]:
    return {
        "LANGFUSE_PUBLIC_KEY": "pk",
        "LANGFUSE_SECRET_KEY": KEY,
        "LANGFUSE_HOST": registry.url,
    }


async def test_registry_and_file_are_compared(tmp_path: Path, registry: Registry) -> None:
    code, out, _ = await prompts(tmp_path, "diff", **keys(registry))
    assert (code, out.splitlines()[:2]) == (1, [f"--- file {FILE.version}", "+++ langfuse:7"])
    assert "+Be brief." in out
    registry.prompt = FILE.text
    code, out, err = await prompts(tmp_path, "diff", **keys(registry))
    assert (code, out) == (0, ""), err
    code, out, err = await prompts(tmp_path, "show", "--json", **keys(registry))
    assert json.loads(out) == {"name": FILE.name, "version": "langfuse:7", "text": FILE.text}


async def test_what_cannot_be_compared_says_why(tmp_path: Path, registry: Registry) -> None:
    said: list[tuple[Mapping[str, str], str]] = [
        ({}, "no registry is configured"),
        ({"LANGFUSE_PUBLIC_KEY": "pk"}, "needs both"),
    ]
    for environment, reason in said:
        code, out, err = await prompts(tmp_path, "diff", **environment)
        assert (code, out, reason in err) == (1, "", True), err
    registry.prompt = "Summarise this."
    code, out, err = await prompts(tmp_path, "diff", **keys(registry))
    assert (code, out, "is passed over" in err, "gave no prompt" in err) == (1, "", True, True)
    registry.status = 401
    code, out, err = await prompts(tmp_path, "diff", **keys(registry))
    assert (code, out, "was not read" in err, KEY in err) == (1, "", True, False)


async def test_a_conversation_is_tried_with_a_model(tmp_path: Path) -> None:
    talk = tmp_path / "talk.jsonl"
    talk.write_text(
        json.dumps(
            {
                "message_id": "m1",
                "user_id": "u",
                "character_ids": ["nari"],
                "session_id": "s",
                "role": "user",
                "text": SAID,
                "sent_at": "2026-03-03T21:00:00+09:00",
            }
        )
    )
    async with Wire() as wire:
        model = {"KEEPSAKE_OPENAI_BASE_URL": f"{wire.url}/v1", "KEEPSAKE_OPENAI_API_KEY": KEY}
        wire.replies(Reply(body=openai_answer(json.dumps(ANSWER))))
        tried = ("try", str(talk), "--model", "openai:some")
        code, out, err = await prompts(tmp_path, *tried, "--json", **model)
        assert code == 0, err
        found = json.loads(out)
        assert SAID in json.dumps(wire.only.body, ensure_ascii=False)
        assert json.loads(found["raw"]) == ANSWER
        assert [detail["text"] for detail in found["memory"]["content"]["key_details"]] == [SAID]
        assert (found["dropped"], found["problem"]) == ({"details": 1}, None)
        wire.replies(Reply(body=openai_answer("물론이지! 내가 다 기억할게 ㅎㅎ")))
        code, out, err = await prompts(tmp_path, *tried, **model)
        assert (code, "기억할게" in out, "would be refused" in err) == (1, True, True), err
