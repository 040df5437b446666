"""A model behind an OpenAI-compatible server of our own that fails in every way of R10, as often as it is told."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.acceptance.local_server import LocalServer

TALK = re.compile(r"<(data-[0-9a-f]+)>\n(.*?)\n</\1>", re.DOTALL)
# Whatever a window with this word holds, the model finds nothing worth keeping in it.
FORGETTABLE = "forgettable"


def good_answer(prompt: str) -> str:
    """What a well-behaved model writes: it quotes the user's first line of the window."""
    talk = TALK.findall(prompt)[-1][1]
    said = [line["text"] for line in map(json.loads, talk.split("\n")) if line["by"] == "user"]
    if any(FORGETTABLE in text for text in said):
        return json.dumps({"nothing": True})
    return json.dumps(
        {
            "nothing": False,
            "summary": f"The user said: {said[0]}",
            "keyDetails": [{"type": "quote", "speaker": "user", "text": said[0], "context": ""}],
            "importance": 5,
            "searchTerms": said[0].split(),
            "involved": [],
            "plans": [],
            "date": None,
            "category": None,
            "relationshipStates": [],
        },
        ensure_ascii=False,
    )


def _without(answer: str, key: str) -> str:
    data = json.loads(answer)
    data.pop(key, None)
    return json.dumps(data)


def _with(answer: str, **change: object) -> str:
    return json.dumps({**json.loads(answer), **change})


# Answers that are not as they should be: some can be read all the same, the others are tried again.
BROKEN: dict[str, Callable[[str], str]] = {
    "prose and fences": lambda a: f"Here {{is}} what I found:\n```json\n{a}\n```\nAnything {{else}}?",
    "single quotes": lambda a: repr(json.loads(a)),
    "missing keys": lambda a: _without(a, "summary"),
    "missing details": lambda a: _without(a, "keyDetails"),
    "nulls": lambda a: json.dumps(dict.fromkeys(json.loads(a))),
    "wrong types": lambda a: _with(a, summary=7, keyDetails="x", importance="high"),
    "lone surrogates": lambda a: _with(a, searchTerms=["\ud83d", "x\udc00"]),
    "NUL": lambda a: _with(a, summary="The user\u0000 spoke"),
    "empty": lambda _: "",
    "refusal": lambda _: "I'm sorry, I can't help with that.",
    "in character": lambda _: "*smiles* I will always remember that, my dear!",
    "truncated": lambda a: a[: len(a) // 2],
    "over-long": lambda a: a + " " * 250_000,
    "two objects": lambda a: a + "\n" + a,
    "an array of numbers": lambda _: "[1, 2, 3]",
    "deeply nested": lambda _: '{"a":' * 5_000,
}
# Failures of the server itself.
STATUS = {"429": 429, "429 for a while": 429, "500": 500, "503": 503, "400": 400}
WAYS = (*BROKEN, *STATUS, "hang", "cut off", "no choice", "no JSON at all")


class FailingModel(LocalServer):
    """`share` of the calls fail, each way as often as any other; 0 heals it."""

    path = "/chat/completions"

    def __init__(self, share: float, seed: int = 1) -> None:
        super().__init__()
        self.share = share
        self.calls = 0
        self.failures: Counter[str] = Counter()
        self._random = random.Random(seed)  # noqa: S311  # the same failures in every run

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        answer = good_answer(body["messages"][-1]["content"])
        self.calls += 1
        if self._random.random() >= self.share:
            return web.json_response(_completion(answer))
        way = WAYS[self.failures.total() % len(WAYS)]
        self.failures[way] += 1
        return await self._fail(way, answer, request)

    async def _fail(self, way: str, answer: str, request: web.Request) -> web.StreamResponse:
        if way in BROKEN:
            return web.json_response(_completion(BROKEN[way](answer)))
        if way in STATUS:
            headers = {"Retry-After": "1"} if way == "429 for a while" else {}
            return web.json_response({"error": {"message": "no"}}, status=STATUS[way], headers=headers)
        if way == "no choice":
            return web.json_response({**_completion(answer), "choices": []})
        if way == "no JSON at all":
            return web.Response(text="<html>oops</html>", content_type="application/json")
        if way == "hang":
            await self.over.wait()
            return web.Response()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = 100_000
        await response.prepare(request)
        await response.write(b'{"choices": [')
        assert request.transport is not None
        request.transport.close()
        return response


def _completion(text: str) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "fake",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000},
    }
