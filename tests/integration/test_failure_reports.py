"""Degraded recalls are told to Sentry (or GlitchTip) without a word of what was said: the real SDK, a local server."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.failure_reports import SentryReports

SECRET = "내 비밀은 아무에게도 말하지 마"  # noqa: S105  # what must not get out


class Collector(ThreadingHTTPServer):
    """Takes envelopes as Sentry's ingestion does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self.server_address[1]}/1"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append(body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_a_reason_is_reported_once_a_minute_without_text(collector: Collector) -> None:
    now = [0.0]
    reports = SentryReports(collector.dsn, "keepsake@test", clock=lambda: now[0])
    query = SECRET  # a local variable that the SDK would send by itself
    for at in (0, 30, 59, 60):
        now[0] = at
        try:
            raise ValueError(query)
        except ValueError as error:
            reports.report("index_failed", error)
    reports.report("embedding_timeout", TimeoutError())
    reports.close()
    events = [json.loads(body.split(b"\n")[2]) for body in collector.bodies]
    assert sorted(event["tags"]["reason"] for event in events) == [
        "embedding_timeout",
        "index_failed",
        "index_failed",
    ]
    assert events[0]["message"] == "A recall is degraded: index_failed (ValueError)"
    for body in collector.bodies:
        assert SECRET not in body.decode()
        assert json.dumps(SECRET).strip('"') not in body.decode()


def test_a_collector_that_is_away_delays_nothing() -> None:
    reports = SentryReports("http://public@127.0.0.1:9/1", "keepsake@test")
    for number in range(200):
        reports.report(f"reason {number}")
    reports.close()
