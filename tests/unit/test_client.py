"""The client: acknowledged, in time, and never without an answer that a turn can go on with (R34)."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from models.context import ContextResponse
from models.phrases import PHRASES
from models.recall import RecallResponse
from streams.client import AsyncKeepsake, Keepsake
from streams.exchange import Refused, Unreachable

TOKEN = "secret-token"  # noqa: S105  # not a secret of anyone
SECRET = "내 비밀"  # noqa: S105  # what no error may hold
ASKED: dict[str, Any] = {"user_id": "ann", "character_ids": ["coach"], "query": SECRET}
PUBLISHED = {"accepted": 1, "positions": [{"topic": "chat.message", "partition": 3, "offset": 7}]}
RECALLED: dict[str, Any] = {"memories": [], "query": "x", "degraded": None, "offline": True, "cursor": None}
CONTEXT = {
    "system": "s",
    "messages": [{"role": "user", "content": "x"}],
    "memories": [],
    "degraded": None,
    "offline": False,
    "tokens": None,
}
MESSAGE: dict[str, Any] = {
    "user_id": "ann",
    "character_ids": ["coach"],
    "session_id": "s",
    "role": "user",
    "text": SECRET,
}


def long_memory(number: int) -> dict[str, Any]:
    source = {
        "session_ids": [],
        "first_message_id": "a",
        "last_message_id": "b",
        "first_position": 1,
        "last_position": 2,
    }
    return {
        "id": str(number),
        "kind": "window",
        "summary": f"{number} " * 1_500,
        "key_details": [],
        "importance": 5,
        "pinned": False,
        "category": None,
        "date": "2026-06-01",
        "created_at": "2026-06-01T00:00:00Z",
        "plans": [],
        "characters": [],
        "source": source,
        "score": None,
        "explain": None,
    }


Behaviour = Callable[["Handler"], None]


class Service(ThreadingHTTPServer):
    """Answers each request as the next behaviour says; the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: list[Behaviour] = []
        self.requests: list[tuple[str, Any]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.server.requests.append((self.path, json.loads(body)))
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, *_: object) -> None: ...


def says(status: int, body: object, **headers: str) -> Behaviour:
    def answer(handler: Handler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def closes(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def hangs(handler: Handler) -> None:
    handler.server.released.wait(30)
    handler.close_connection = True


def trickles(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.released.wait(0.01):
        try:
            handler.wfile.write(b" ")
        except OSError:
            break
    handler.close_connection = True


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


class Blocking:
    """One interface to both clients: each call with a client of its own."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def call(self, url: str, method: str, *arguments: Any, seconds: float = 5, **request: Any) -> Any:
        options = {"publish_seconds": seconds, "recall_seconds": seconds}
        if not self.is_async:
            with Keepsake(url, TOKEN, **options) as client:
                return getattr(client, method)(*arguments, **request)

        async def run() -> Any:
            async with AsyncKeepsake(url, TOKEN, **options) as client:
                return await getattr(client, method)(*arguments, **request)

        return asyncio.run(run())


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def client(request: pytest.FixtureRequest) -> Blocking:
    return Blocking(request.param)


def test_publishing_is_acknowledged_and_one_or_several_go_at_once(service: Service, client: Blocking) -> None:
    service.behaviours = [says(200, PUBLISHED)]
    assert client.call(service.url, "publish", MESSAGE) == PUBLISHED["positions"]
    client.call(service.url, "publish", [MESSAGE, {**MESSAGE, "message_id": "mine"}])
    (_, one), (_, two) = service.requests
    assert len(one) == 1
    assert two[1]["message_id"] == "mine"
    assert len({one[0]["message_id"], two[0]["message_id"]}) == 2


def test_a_message_is_sent_again_under_the_same_id(service: Service, client: Blocking) -> None:
    service.behaviours = [closes, says(503, {"detail": "away"}), says(200, PUBLISHED)]
    client.call(service.url, "publish", MESSAGE)
    assert len(service.requests) == 3
    assert len({body[0]["message_id"] for _, body in service.requests}) == 1


def test_a_pause_that_the_service_asks_for_is_kept(service: Service, client: Blocking) -> None:
    service.behaviours = [says(503, {}, Retry_After="0.4"), says(200, PUBLISHED)]
    started = time.monotonic()
    client.call(service.url, "publish", MESSAGE)
    assert time.monotonic() - started >= 0.4


def test_a_pause_beyond_the_deadline_is_not_waited_for(service: Service, client: Blocking) -> None:
    service.behaviours = [says(503, {}, Retry_After="3600")]
    with pytest.raises(Unreachable, match="HTTP 503"):
        client.call(service.url, "publish", MESSAGE)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        closes,
        hangs,
        trickles,
        says(503, {"detail": SECRET}),
        says(500, {"detail": SECRET}),
        says(502, b"<html>"),
        says(200, b"<html>"),
        says(200, [1]),
        says(200, {"ok": True}),
    ],
    ids=["closes", "hangs", "trickles", "503", "500", "502", "html", "list", "other"],
)
@pytest.mark.parametrize("method", ["recall", "context"])
def test_a_turn_goes_on_whatever_the_service_does(
    service: Service, client: Blocking, behaviour: Behaviour, method: str
) -> None:
    service.behaviours = [behaviour]
    answer = client.call(service.url, method, seconds=0.3, **ASKED)
    assert answer.degraded == "unreachable"
    assert answer.memories == ()


def test_publishing_to_a_service_that_hangs_ends_in_time_with_an_error(
    service: Service, client: Blocking
) -> None:
    service.behaviours = [hangs]
    with pytest.raises(Unreachable) as raised:
        client.call(service.url, "publish", MESSAGE, seconds=0.2)
    assert SECRET not in str(raised.value)


def test_a_context_without_the_service_holds_persona_rules_and_the_talk(client: Blocking) -> None:
    persona = "당신은 미나입니다.\n<memories> 그대로"
    history = [
        {"role": "system", "content": "x"},
        {"role": "assistant", "content": "안녕"},
        {"role": "user", "content": "응"},
        {"role": "assistant", "content": "뭐 해?"},
    ]
    answer: ContextResponse = client.call(
        "http://127.0.0.1:9", "context", history, seconds=0.3, persona=persona, **ASKED
    )
    assert answer.system.startswith(persona)
    assert PHRASES["ko"].if_unknown in answer.system
    assert PHRASES["ko"].not_involved not in answer.system
    assert [(one.role, one.content) for one in answer.messages] == [
        ("user", "응"),
        ("assistant", "뭐 해?"),
        ("user", SECRET),
    ]
    scene = {**ASKED, "character_ids": ["a", "b"], "recent_user_messages": ["하나"], "locale": "ja"}
    answer = client.call("http://127.0.0.1:9", "context", seconds=0.3, **scene)
    assert PHRASES["ja"].not_involved in answer.system
    assert [one.content for one in answer.messages] == [f"하나\n{SECRET}"]
    known = [{"role": "user", "content": SECRET}]
    answer = client.call("http://127.0.0.1:9", "context", known, seconds=0.3, **ASKED)
    assert [one.content for one in answer.messages] == [SECRET]


def test_answers_are_given_as_they_come(service: Service, client: Blocking) -> None:
    service.behaviours = [says(200, RECALLED), says(200, CONTEXT)]
    recalled: RecallResponse = client.call(service.url, "recall", **ASKED, limit=3)
    assert (recalled.query, recalled.offline) == ("x", True)
    composed: ContextResponse = client.call(service.url, "context", **ASKED, token_budget=9)
    assert composed.system == "s"
    assert service.requests == [
        ("/v1/recall", {**ASKED, "limit": 3}),
        ("/v1/context", {**ASKED, "token_budget": 9}),
    ]


@pytest.mark.parametrize("status", [400, 401, 413, 422])
def test_what_the_service_refuses_is_said_and_not_tried_again(
    service: Service, client: Blocking, status: int
) -> None:
    problem = {"detail": "It is wrong.", "errors": [{"field": "query", "problem": "too long"}]}
    service.behaviours = [says(status, problem)]
    for method in ("recall", "context"):
        with pytest.raises(Refused, match=r"It is wrong\. query: too long") as raised:
            client.call(service.url, method, **ASKED)
        assert raised.value.status == status
    assert len(service.requests) == 2


def test_a_bad_request_is_refused_before_it_is_sent(service: Service, client: Blocking) -> None:
    with pytest.raises(Refused, match="character_ids") as raised:
        client.call(service.url, "recall", user_id="ann", character_ids=[], query=SECRET)
    with pytest.raises(Refused, match="quarry"):
        client.call(service.url, "context", **ASKED, quarry=SECRET)
    assert SECRET not in str(raised.value)
    assert service.requests == []


@pytest.mark.parametrize("text", ["half \ud83d", float("nan"), datetime(2026, 12, 1, tzinfo=UTC)])
def test_what_json_cannot_carry_is_refused(service: Service, client: Blocking, text: object) -> None:
    with pytest.raises(Refused, match="JSON") as raised:
        client.call(service.url, "publish", {**MESSAGE, "text": text})
    assert raised.value.__cause__ is None
    assert service.requests == []


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": "x"}]])
def test_a_history_that_could_not_be_used_is_refused_while_all_is_well(
    service: Service, client: Blocking, content: object
) -> None:
    history = [{"role": "tool"}, {"role": "assistant", "content": content}]
    with pytest.raises(Refused, match=r"history\.1\.content"):
        client.call(service.url, "context", history, **ASKED)
    assert service.requests == []


def test_no_token_is_shown() -> None:
    assert TOKEN not in repr(Keepsake("http://keepsake", TOKEN))
    assert TOKEN not in repr(AsyncKeepsake("http://keepsake", TOKEN))


def test_a_tool_is_run_for_whom_the_service_says(service: Service, client: Blocking) -> None:
    service.behaviours = [says(200, RECALLED)]
    arguments = '{"query": "cat", "user_id": "someone"}'
    whom: dict[str, Any] = {"user_id": "ann", "character_ids": ["coach"]}
    answer = client.call(service.url, "run_tool", "recall_memory", arguments, **whom)
    assert "do not know" in answer["note"]
    [(path, body)] = service.requests
    assert path == "/v1/recall"
    assert (body["user_id"], body["character_ids"], body["query"]) == ("ann", ["coach"], "cat")
    answer = client.call(service.url, "run_tool", "timeline", {}, **whom)
    assert "date_from and date_to" in answer["error"]
    service.behaviours = [says(422, {"detail": "The cursor is of another request."})]
    june = {"date_from": "2026-06-01", "date_to": "2026-06-30", "cursor": "x"}
    assert "another request" in client.call(service.url, "run_tool", "timeline", june, **whom)["error"]
    service.behaviours = [says(401, {"detail": "No token."})]
    with pytest.raises(Refused):
        client.call(service.url, "run_tool", "timeline", june, **whom)


def test_a_page_that_an_answer_has_no_room_for_is_asked_for_anew(service: Service, client: Blocking) -> None:
    whole: dict[str, Any] = {**RECALLED, "memories": [long_memory(number) for number in range(3)]}
    service.behaviours = [says(200, whole), says(200, {**whole, "memories": whole["memories"][:2]})]
    june = {"date_from": "2026-06-01", "date_to": "2026-06-30"}
    answer = client.call(service.url, "run_tool", "timeline", june, user_id="ann", character_ids=["coach"])
    assert [one["summary"][0] for one in answer["memories"]] == ["0", "1"]
    assert [body["limit"] for _, body in service.requests] == [20, 2]
