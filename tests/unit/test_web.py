"""The HTTP interface: what it takes, what it refuses, and that it never repeats what it was sent."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from agents.context import Context, ContextRules
from agents.opening import MemoryOpener
from agents.pairs import Pairs
from agents.recall import Recall, RecallRules
from agents.row_codec import RowCodec
from agents.talk import Talk
from infra.referring import referring_words
from models.assignments import Assigned, Assignment, Task
from models.candidates import InvalidCursor, MemoryPage, Scope
from models.commands import Flush, parse_command
from models.messages import parse_chat_message
from models.store_errors import StoreUnavailable
from models.tools import declarations
from models.utterance import WideningRules
from streams.assignments import default_assignments
from streams.partitioner import partition_for
from streams.settings import Settings
from streams.web.app import Services, make_app
from streams.web.auth import TokenSource
from streams.web.messages import MessageReader
from streams.web.requests import MAX_BODY_BYTES
from tests.unit.memories import (
    USER,
    FakeCounters,
    FakeEmbedder,
    FakeIndex,
    FakeLog,
    FakeReadiness,
    FakeReports,
    FakeTokens,
    FakeView,
    Vault,
    found,
)

TOKEN = "a token of the test"  # noqa: S105  # not a secret of anyone
SECRET = "nobody-may-repeat-this"  # noqa: S105 - a marked word, no secret
PAIR = "/v1/users/u1/characters/mina"


class FakeAssignments:
    """The store of assignments in memory."""

    def __init__(self) -> None:
        self.made: dict[Task, Assigned] = {}
        self.away = False

    async def assignments(self) -> dict[Task, Assigned]:
        if self.away:
            raise StoreUnavailable("test")
        return self.made

    async def assign(self, assignment: Assignment, by: str) -> bool:
        if self.away:
            raise StoreUnavailable("test")
        self.made[assignment.task] = Assigned(assignment, by, datetime(2026, 3, 1, tzinfo=UTC))
        return True


class Web:
    def __init__(self, directory: Path) -> None:
        self.vault = Vault()
        self.index = FakeIndex()
        self.log = FakeLog()
        self.view = FakeView()
        self.readiness = FakeReadiness()
        self.embedder = FakeEmbedder()
        self.assignments = FakeAssignments()
        counters = FakeCounters()
        codec = RowCodec(self.vault.sealer)
        opener = MemoryOpener(self.vault.cipher, self.vault)
        (directory / "token").write_text(f"{TOKEN}\n")
        talk = Talk(self.vault, codec, counters, 5)
        recall = Recall(
            index=self.index,
            embedder=self.embedder,
            opener=opener,
            sealer=self.vault.sealer,
            talk=talk,
            counters=counters,
            reports=FakeReports(),
            rules=RecallRules(WideningRules(referring_words()), deadline_seconds=30),
        )
        self.app = make_app(
            Services(
                recall=recall,
                context=Context(
                    recall=recall,
                    index=self.index,
                    opener=opener,
                    talk=talk,
                    view=self.vault,
                    estimator=FakeTokens(),
                    clock=datetime.now,
                    rules=ContextRules(UTC, deadline_seconds=30),
                ),
                pairs=Pairs(
                    index=self.index,
                    rows=self.vault,
                    codec=codec,
                    opener=opener,
                    counters=counters,
                    threshold=5,
                ),
                log=self.log,
                view=self.view,
                readiness=self.readiness,
                tokens=TokenSource(None, directory / "token"),
                reader=MessageReader(12, UTC),
                counters=counters,
                assignments=self.assignments,
                default_assignments=default_assignments(Settings(data_dir=directory)),
            )
        )

    def client(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://keepsake", headers=headers
        )


@pytest.fixture
def web(tmp_path: Path) -> Web:
    return Web(tmp_path)


@pytest.fixture
async def client(web: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with web.client(Authorization=f"Bearer {TOKEN}") as opened:
        yield opened


def message(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "message_id": f"m{number}",
        "user_id": USER,
        "character_ids": ["mina"],
        "session_id": "s1",
        "role": "user",
        "text": "와인 좋아해",
        **changes,
    }


def is_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == answer.status_code
    assert body["title"]
    assert body["detail"]
    assert SECRET not in answer.text
    return body


# --- who may ask ---


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer é"]
)
async def test_nothing_but_health_answers_without_the_token(web: Web, authorization: str | None) -> None:
    headers = [] if authorization is None else [(b"Authorization", authorization.encode())]
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web.app), base_url="http://keepsake"
    ) as client:
        for path in ("/v1/recall", "/v1/messages", PAIR, "/metrics", "/openapi.json", "/", "/nothing"):
            for method in ("GET", "POST"):
                answer = await client.request(method, path, headers=headers, content=b"{}")
                is_problem(answer, 401)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await client.get("/healthz", headers=headers)).status_code == 200
        assert (await client.get("/readyz", headers=headers)).status_code == 200
    assert web.log.records == []


async def test_a_token_file_that_is_empty_or_gone_lets_nobody_in(tmp_path: Path) -> None:
    tokens = TokenSource(None, tmp_path / "token")
    assert not tokens.accepts("Bearer ")
    (tmp_path / "token").write_text("\n")
    assert not tokens.accepts("Bearer ")
    (tmp_path / "token").write_text("new")
    assert tokens.accepts("bearer new")
    assert TokenSource("set", tmp_path / "token").accepts("Bearer set")


async def test_readiness_says_what_is_missing(web: Web, client: httpx.AsyncClient) -> None:
    web.readiness.troubles = {"kafka": "Kafka does not answer"}
    body = is_problem(await client.get("/readyz"), 503)
    assert body["checks"] == web.readiness.troubles
    assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_readiness_tells_of_misplaced_records_and_stays_ready(
    web: Web, client: httpx.AsyncClient
) -> None:
    web.readiness.warnings = ["mend it"]
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "warnings": ["mend it"]})


# --- publishing ---


async def test_messages_reach_the_log_as_the_ledger_reads_them(web: Web, client: httpx.AsyncClient) -> None:
    sent = [message(1), message(2, user_id="지수", metadata={"a": [1]}, sent_at="2026-03-02T21:10:00+09:00")]
    answer = await client.post("/v1/messages", json=sent)
    assert answer.status_code == 200
    assert answer.json()["accepted"] == 2
    assert [place["offset"] for place in answer.json()["positions"]] == [0, 1]
    for given, record in zip(sent, web.log.records, strict=True):
        assert orjson.loads(record.value) == given
        assert record.partition == partition_for(given["user_id"], 12)
        parse_chat_message(record.value, key=record.key, timestamp=0, offset=0, zone=UTC)
    assert (await client.post("/v1/messages", json=message(3))).json()["accepted"] == 1


async def test_one_bad_message_stops_all_and_is_named(web: Web, client: httpx.AsyncClient) -> None:
    bad: list[Any] = [
        message(1),
        message(2, role=SECRET),
        message(3),
        message(4, text=None),
        SECRET,
        None,
        5,
        [],
    ]
    body = is_problem(await client.post("/v1/messages", json=bad), 422)
    assert [error["index"] for error in body["errors"]] == [1, 3, 4, 5, 6, 7]
    assert body["errors"][0]["reason"] == "invalid_role"
    assert web.log.records == []


@pytest.mark.parametrize(
    "change",
    [
        {"user_id": ""},
        {"user_id": "a" * 129},
        {"user_id": f"{SECRET}\x00"},
        {"user_id": f"{SECRET}\u001f"},
        {"user_id": 5},
        {"message_id": None},
        {"character_ids": []},
        {"character_ids": "mina"},
        {"character_ids": [f"{SECRET}\n"]},
        {"character_ids": [["mina"]]},
        {"character_ids": ["x"] * 33},
        {"role": "tool"},
        {"role": ["user"]},
        {"text": 5},
        {"text": SECRET * 5_000},
        {"sent_at": SECRET},
        {"sent_at": 5},
        {"sent_at": "2026-13-40T00:00:00Z"},
        {"metadata": [SECRET]},
        {"metadata": {SECRET: "x" * 900_000}},
        {"speaker": {"name": SECRET}},
        {"source_mode": f"{SECRET}\x7f"},
    ],
)
async def test_odd_messages_are_refused(web: Web, client: httpx.AsyncClient, change: dict[str, Any]) -> None:
    is_problem(await client.post("/v1/messages", json=message(**change)), 422)
    assert web.log.records == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nobody-may-repeat-this",
        b'{"user_id": "\xff\xfe nobody-may-repeat-this"}',
        b'{"user_id": "\\ud800 nobody-may-repeat-this"}',
        b'"nobody-may-repeat-this"',
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"limit": NaN}',
        b"1" * 10_000,
        b"\x00",
        b"\xef\xbb\xbf{}",
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/recall"])
async def test_odd_bodies_are_refused(web: Web, client: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    is_problem(answer, 400, 422)
    assert web.log.records == []


async def test_a_body_has_bounds(client: httpx.AsyncClient) -> None:
    is_problem(await client.post("/v1/messages", content=b" " * (MAX_BODY_BYTES + 1)), 413)
    is_problem(await client.post("/v1/messages", json=[{}] * 1_001), 413)


async def test_messages_are_refused_when_kafka_is_away(web: Web, client: httpx.AsyncClient) -> None:
    web.log.away = True
    answer = await client.post("/v1/messages", json=message())
    is_problem(answer, 503)
    assert answer.headers["retry-after"]
    is_problem(await client.post(f"{PAIR}/flush"), 503)


# --- recalling ---


async def test_recall_gives_exactly_the_fields_of_the_interface(web: Web, client: httpx.AsyncClient) -> None:
    web.index.found = found([(web.vault.memory(1, "likes wine"), 0.9)], mina=1)
    asked = {"user_id": USER, "character_ids": ["mina"], "query": "wine", "explain": True}
    answer = await client.post("/v1/recall", json=asked)
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"memories", "query", "degraded", "offline", "cursor", "explained"}
    (memory,) = body["memories"]
    assert set(memory) == {
        "id",
        "kind",
        "summary",
        "key_details",
        "importance",
        "pinned",
        "category",
        "date",
        "created_at",
        "plans",
        "characters",
        "source",
        "score",
        "explain",
    }
    assert memory["summary"] == "likes wine"
    assert memory["characters"] == [{"character_id": "mina", "seq": 1}]
    assert memory["explain"]["reason"] == "returned"


@pytest.mark.parametrize(
    "change",
    [
        {"user_id": None},
        {"user_id": f"{SECRET}\x00"},
        {"character_ids": []},
        {"character_ids": [f"{SECRET}\n"]},
        {"character_ids": {"a": SECRET}},
        {"query": {"text": SECRET}},
        {"query": SECRET * 4_000},
        {"limit": 0},
        {"limit": 101},
        {"limit": -1},
        {"limit": SECRET},
        {"limit": 1.5},
        {"limit": 10**30},
        {"mode": SECRET},
        {"profile": SECRET},
        {"mode": "exhaustive", "cursor": SECRET * 400},
        {"cursor": SECRET},
        {"filters": {"kinds": [SECRET]}},
        {"filters": {"categories": [f"{SECRET}\x00"]}},
        {"filters": {"date_from": SECRET}},
        {"filters": {"date_from": "2026-06-30", "date_to": "2026-06-01"}},
        {"filters": {SECRET: 1}},
        {"filters": [SECRET]},
        {"recent_user_messages": ["a", "b", SECRET]},
        {"explain": SECRET},
        {SECRET: SECRET},
    ],
)
async def test_odd_recalls_are_refused(client: httpx.AsyncClient, change: dict[str, Any]) -> None:
    asked = {"user_id": USER, "character_ids": ["mina"], "query": "wine", **change}
    is_problem(await client.post("/v1/recall", json=asked), 422)


@pytest.mark.parametrize(
    "query",
    ["", "\x00", "'; DROP TABLE user_memories; --", "😀" * 1_000, "()&|!:*\\", "\u202e", "a" * 65_000],
)
async def test_odd_queries_are_answered(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.post(
        "/v1/recall", json={"user_id": USER, "character_ids": ["mina"], "query": query}
    )
    assert answer.status_code == 200
    assert answer.json()["degraded"] is None


async def test_recall_answers_while_everything_is_away(web: Web, client: httpx.AsyncClient) -> None:
    web.index.error = StoreUnavailable("away")
    web.log.away = True
    answer = await client.post("/v1/recall", json={"user_id": USER, "character_ids": ["mina"], "query": "x"})
    assert (answer.status_code, answer.json()["degraded"]) == (200, "index_unavailable")


# --- pairs ---


@pytest.mark.parametrize("user", ["지수", "a/b", "a b", "..", "%2F", "a?b#c", "Ünï", "😀", "a%"])
async def test_any_id_can_stand_in_a_path(web: Web, client: httpx.AsyncClient, user: str) -> None:
    path = f"/v1/users/{quote(user, safe='')}/characters/{quote('미나/2', safe='')}"
    if user == "..":
        path = path.replace("..", "%2E%2E")
    assert (await client.get(path)).json() == {
        "threads": [],
        "relationship": None,
        "memories": 0,
        "last_seq": 0,
        "last_message_at": None,
    }
    assert (await client.get(f"{path}/memories?kind=log&kind=window&limit=3")).status_code == 200
    assert web.index.asked["scope"] == Scope(user, ("미나/2",), kinds=("log", "window"))


@pytest.mark.parametrize("user", ["%00", "%ff%fe", "a" * 129, "%1f", "%ed%a0%80"])
async def test_odd_ids_in_a_path_are_refused(client: httpx.AsyncClient, user: str) -> None:
    for path in (f"/v1/users/{user}/characters/mina", f"/v1/users/u/characters/{user}"):
        is_problem(await client.get(path), 422)
        is_problem(await client.get(f"{path}/memories"), 422)
        is_problem(await client.post(f"{path}/flush"), 422)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        f"limit={SECRET}",
        f"kind={SECRET}",
        f"date_from={SECRET}",
        f"category={SECRET}%00",
    ],
)
async def test_odd_filters_are_refused(client: httpx.AsyncClient, query: str) -> None:
    is_problem(await client.get(f"{PAIR}/memories?{query}"), 422)


async def test_memories_are_opened_page_by_page(web: Web, client: httpx.AsyncClient) -> None:
    web.index.page = MemoryPage((web.vault.memory(1, "likes wine", offline=True),), "next")
    body = (await client.get(f"{PAIR}/memories?limit=1")).json()
    assert [memory["summary"] for memory in body["memories"]] == ["likes wine"]
    assert (body["cursor"], body["offline"]) == ("next", True)
    web.index.error = InvalidCursor(SECRET)
    is_problem(await client.get(f"{PAIR}/memories?cursor={SECRET}"), 422)
    web.index.error = StoreUnavailable("away")
    is_problem(await client.get(f"{PAIR}/memories"), 503)
    is_problem(await client.get(PAIR), 503)


async def test_a_pair_waits_for_the_view(web: Web, client: httpx.AsyncClient) -> None:
    web.view.complete = False
    is_problem(await client.get(PAIR), 503)


async def test_flush_names_the_end_of_the_chat(web: Web, client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages", json=[message(1), message(2), message(3, user_id="other")])
    answer = await client.post(f"{PAIR}/flush")
    assert answer.status_code == 202
    record = web.log.records[-1]
    flush = parse_command(record.value)
    assert isinstance(flush, Flush)
    assert (flush.user_id, flush.character_id, flush.chat_offset) == (USER, "mina", 2)
    assert flush.command_id == answer.json()["command_id"]
    assert (record.topic, record.partition, record.key) == ("memory.command", partition_for(USER, 12), b"u1")


# --- the rest ---


async def test_paths_and_methods_that_do_not_exist(client: httpx.AsyncClient) -> None:
    is_problem(await client.get(f"/{SECRET}"), 404)
    is_problem(await client.get("/v1/users//characters/mina"), 404)
    is_problem(await client.delete("/v1/recall"), 405)


async def test_an_unexpected_failure_says_nothing_of_its_cause(
    web: Web, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    web.index.error = RuntimeError(SECRET)
    is_problem(await client.get(PAIR), 500)
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


async def test_openapi_and_metrics(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    pair = "/v1/users/{user}/characters/{character}"
    assert {"/v1/messages", "/v1/recall", pair, f"{pair}/memories", f"{pair}/flush"} <= set(paths)
    assert "requestBody" in paths["/v1/messages"]["post"]
    await client.post("/v1/recall", json={"user_id": USER, "character_ids": ["mina"], "query": "x"})
    metrics = (await client.get("/metrics")).text
    assert "keepsake_recall_seconds_count" in metrics
    assert "keepsake_view_lag_records 0.0" in metrics


TASKS = "/v1/admin/tasks"


async def test_the_models_of_tasks_are_told_and_changed(web: Web, client: httpx.AsyncClient) -> None:
    before = {one["task"]: one for one in (await client.get(TASKS)).json()["tasks"]}
    assert before.keys() == {"extraction", "consolidation", "insight"}
    assert {one["source"] for one in before.values()} == {"default"}
    change = {"task": "extraction", "model": "openai:llama3.1:8b", "fallback": "offline:keepsake-rules"}
    answer = await client.put(TASKS, json=change)
    assert answer.status_code == 200
    after = (await client.get(TASKS)).json()
    assert after == answer.json()
    [made] = [one for one in after["tasks"] if one["source"] == "assigned"]
    assert {name: made[name] for name in change} == change
    assert made["assigned_by"] == "api"
    assert (await client.put(TASKS, json={"task": "extraction", "model": "openai:a"})).status_code == 200
    assert web.assignments.made["extraction"].assignment.fallback is None


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, {"task", "model"}),
        ({"task": SECRET, "model": "openai:a"}, {"task"}),
        ({"task": "insight", "model": SECRET}, {"model"}),
        ({"task": "insight", "model": "openai:a", "fallback": f"{SECRET}:a"}, {"fallback"}),
        ({"task": "insight", "model": "openai:a", "fallback": "openai:a"}, {"body"}),
        ({"task": "insight", "model": "openai:a", SECRET: 1}, {"?"}),
        ({"task": "insight", "model": "offline:other"}, {"model"}),
    ],
)
async def test_an_assignment_that_is_none_is_refused(
    web: Web, client: httpx.AsyncClient, change: dict[str, Any], fields: set[str]
) -> None:
    body = is_problem(await client.put(TASKS, json=change), 422)
    assert {error["field"] for error in body["errors"]} == fields
    assert web.assignments.made == {}


async def test_without_postgresql_assignments_are_away_and_nothing_else(
    web: Web, client: httpx.AsyncClient
) -> None:
    web.assignments.away = True
    for answer in (
        await client.get(TASKS),
        await client.put(TASKS, json={"task": "insight", "model": "openai:a"}),
    ):
        is_problem(answer, 503)
        assert answer.headers["retry-after"]
    async with web.client() as stranger:
        is_problem(await stranger.get(TASKS), 401)


@pytest.mark.parametrize("vendor", ["gemini", "anthropic", "bedrock", "openai"])
async def test_tools_are_declared_for_each_vendor(client: httpx.AsyncClient, vendor: Any) -> None:
    answer = await client.get(f"/v1/tools/{vendor}")
    assert (answer.status_code, answer.json()) == (200, {"tools": declarations(vendor)})


async def test_an_unknown_vendor_is_told_which_there_are(client: httpx.AsyncClient) -> None:
    assert "gemini, anthropic" in is_problem(await client.get("/v1/tools/nobody"), 404)["detail"]
