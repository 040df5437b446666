"""The extractor's step: every attempt ends in one event, whatever the provider does."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.codec import RequestCodec
from agents.extractor import ENDED_SECONDS, Extractor
from agents.ports import Answered, ProviderError
from infra.sealing import AesGcmSealer, MasterKeys
from infra.starts import StartsFile
from models.memory import Provenance, Quote
from models.records import Record
from models.requests import WindowRequest, WindowResult
from tests.unit.windows import REQUEST_ID, window

QUOTE = {"type": "quote", "speaker": "user", "text": "I moved to Busan"}
GOOD = json.dumps({"summary": "s", "keyDetails": [QUOTE], "searchTerms": ["Busan"]})
NO_USER = json.dumps({"summary": "s", "keyDetails": [], "searchTerms": ["Busan"]})
PROVENANCE = Provenance(
    task="extraction", prompt="p", prompt_version="v7", provider="fake", model="fake-1", offline=True
)
OTHER_ID = REQUEST_ID.replace("6", "7")


class Killed(BaseException):
    """Stands for the end of the process: nothing may be done after it."""


class Provider:
    """Answers from a list: strings are answers, exceptions are raised, callables awaited."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[WindowRequest] = []
        self.calls: asyncio.Queue[WindowRequest] = asyncio.Queue()
        self.waiting: asyncio.Queue[WindowRequest] = asyncio.Queue()
        self.admits = asyncio.Event()
        self.admits.set()
        self.has_more = False

    async def admitted(self, request: WindowRequest) -> None:
        self.waiting.put_nowait(request)
        await self.admits.wait()

    def more(self, request: WindowRequest) -> bool:
        return self.has_more

    async def extract(self, request: WindowRequest) -> Answered:
        self.asked.append(request)
        self.calls.put_nowait(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return Answered(str(await answer()) if callable(answer) else str(answer), PROVENANCE)


class Outside:
    """The ports in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.codec = RequestCodec(AesGcmSealer(MasterKeys.generate()))
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.dead: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.passed: list[str] = []
        self.starts = StartsFile(path)
        self.broken: Exception | None = None
        self.now = 0.0

    def extractor(self, provider: Provider, deadline: float = 30) -> Extractor:
        """A new process, so to speak: the journal is opened again."""
        self.starts.close()
        self.starts = StartsFile(self.path)
        return Extractor(
            self.codec,
            provider,
            self,
            self,
            self.starts,
            self,
            deadline=deadline,
            fault=self.passing,
            clock=lambda: self.now,
        )

    async def send(self, *message: Any) -> None:
        if self.broken:
            raise self.broken
        if isinstance(message[0], Record):
            self.dead.append((message[1], message[2]))
        else:
            self.sent.append(message)

    def passing(self, name: str) -> None:
        self.passed.append(name)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def record(self, request: WindowRequest) -> Record:
        key, value = self.codec.seal_request(request)
        return Record("memory.requested", 0, 0, 0, key, value)

    @property
    def results(self) -> list[WindowResult]:
        return [
            self.codec.open_result(Record("memory.extracted", 0, 0, 0, key, value))
            for _, key, value in self.sent
        ]


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "starts.sqlite")


REQUEST = window(["I moved to Busan", "@I will visit you"])


async def test_a_memory_is_sent_with_its_origin(outside: Outside) -> None:
    await outside.extractor(Provider(GOOD)).handle(outside.record(REQUEST))
    [result] = outside.results
    assert (result.status, result.attempt, result.versions) == ("memory", 1, {"c": 0})
    assert result.memory is not None
    assert result.memory.content.search_terms == ("Busan",)
    assert result.provenance is not None
    assert (result.provenance.prompt_version, result.provenance.offline) == ("v7", True)
    assert outside.sent[0][:2] == ("u", REQUEST_ID.encode())
    assert outside.passed == ["extractor.before_call", "extractor.after_call", "extractor.after_send"]
    assert outside.starts.unended(REQUEST_ID, 1) == 0


async def test_nothing_to_keep_is_a_result(outside: Outside) -> None:
    await outside.extractor(Provider('{"nothing": true}')).handle(outside.record(REQUEST))
    assert [(r.status, r.memory) for r in outside.results] == [("nothing", None)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Hello!", "no_json"),
        ("", "empty"),
        (ProviderError("rate_limited"), "rate_limited"),
        (RuntimeError("I moved to Busan"), "error"),
        (TimeoutError(), "timeout"),
    ],
    ids=["bad answer", "empty", "provider error", "unknown error", "timeout of its own"],
)
async def test_a_failure_is_a_result(
    outside: Outside, answer: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await outside.extractor(Provider(answer)).handle(outside.record(REQUEST))
    assert [(r.status, r.reason) for r in outside.results] == [("failed", reason)]
    assert outside.starts.unended(REQUEST_ID, 1) == 0
    assert "Busan" not in caplog.text


async def test_the_deadline_ends_a_call(outside: Outside) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return GOOD

    await outside.extractor(Provider(never), deadline=0.01).handle(outside.record(REQUEST))
    assert [r.reason for r in outside.results] == ["timeout"]


@pytest.mark.parametrize(
    "second", [NO_USER, "prose", ProviderError("unavailable")], ids=["again", "bad", "down"]
)
async def test_without_a_word_of_the_users_it_asks_once_more_and_then_quotes(
    outside: Outside, second: Any
) -> None:
    provider = Provider(NO_USER, second)
    await outside.extractor(provider).handle(outside.record(REQUEST))
    [result] = outside.results
    assert result.memory is not None
    assert result.memory.content.key_details == (Quote(speaker="user", text="I moved to Busan", context=""),)
    assert len(provider.asked) == 2


async def test_what_was_dropped_and_missing_is_counted(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    answer = json.dumps({"summary": "s", "keyDetails": [QUOTE, 1, 2]})
    await outside.extractor(Provider(answer)).handle(outside.record(REQUEST))
    assert outside.counts["extractor_dropped_details"] == 2
    assert outside.counts["extractor_empty_search_terms"] == 1
    assert "has no search terms" in caplog.text
    assert "Busan" not in caplog.text


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"[]", b'{"request_id": "x"}', b'{"sealed": "AAAA", "request_id": "x"}']
)
async def test_what_cannot_be_opened_is_a_dead_letter(outside: Outside, value: bytes | None) -> None:
    await outside.extractor(Provider(GOOD)).handle(Record("memory.requested", 0, 0, 0, b"k", value))
    assert len(outside.dead) == 1
    assert outside.results == []


def gate() -> tuple[asyncio.Event, Callable[[], Any]]:
    opened = asyncio.Event()

    async def answer() -> str:
        await opened.wait()
        return GOOD

    return opened, answer


async def test_an_attempt_in_flight_is_not_done_twice(outside: Outside) -> None:
    opened, answer = gate()
    provider = Provider(answer)
    extractor = outside.extractor(provider)
    first = asyncio.create_task(extractor.handle(outside.record(REQUEST)))
    await provider.calls.get()
    await extractor.handle(outside.record(REQUEST))
    newer = asyncio.create_task(
        extractor.handle(outside.record(REQUEST.model_copy(update={"versions": {"c": 1}})))
    )
    opened.set()
    await asyncio.gather(first, newer)
    assert sorted(r.versions["c"] for r in outside.results) == [0, 1]
    assert outside.counts["extractor_in_flight"] == 1


async def test_an_attempt_that_just_ended_is_not_done_again(outside: Outside) -> None:
    """What the ledger asked again while it waited comes right after its end; later the result may be lost."""
    provider = Provider(GOOD)
    extractor = outside.extractor(provider)
    for _ in range(3):
        await extractor.handle(outside.record(REQUEST))
    assert (len(provider.asked), outside.counts["extractor_repeated"]) == (1, 2)
    await extractor.handle(outside.record(REQUEST.model_copy(update={"attempt": 2})))
    outside.now += ENDED_SECONDS
    await extractor.handle(outside.record(REQUEST))
    assert [r.attempt for r in outside.results] == [1, 2, 1]


async def test_one_that_was_not_sent_is_done_again(outside: Outside) -> None:
    extractor = outside.extractor(Provider(GOOD))
    outside.broken = ConnectionError()
    with pytest.raises(ConnectionError):
        await extractor.handle(outside.record(REQUEST))
    outside.broken = None
    await extractor.handle(outside.record(REQUEST))
    assert len(outside.results) == 1


async def test_waiting_to_be_admitted_is_no_part_of_the_attempt(outside: Outside) -> None:
    """Neither its deadline runs, nor is a start noted, nor does the same attempt wait twice."""
    provider = Provider(GOOD)
    provider.admits.clear()
    extractor = outside.extractor(provider, deadline=0.05)
    task = asyncio.create_task(extractor.handle(outside.record(REQUEST)))
    await provider.waiting.get()
    await asyncio.sleep(0.06)  # longer than the deadline: nothing can be awaited that does not happen
    await extractor.handle(outside.record(REQUEST))
    assert (outside.results, outside.starts.unended(REQUEST_ID, 1)) == ([], 0)
    assert outside.counts["extractor_in_flight"] == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = asyncio.create_task(outside.extractor(provider).handle(outside.record(REQUEST)))
    await provider.waiting.get()
    assert provider.asked == []
    provider.admits.set()
    await again
    assert [r.status for r in outside.results] == ["memory"]


@pytest.mark.parametrize("more", [True, False])
async def test_a_failure_says_whether_a_fall_back_is_left(outside: Outside, more: bool) -> None:
    provider = Provider(ProviderError("not_configured"))
    provider.has_more = more
    await outside.extractor(provider).handle(outside.record(REQUEST))
    assert [(r.reason, r.more) for r in outside.results] == [("not_configured", more)]


async def killed(outside: Outside, request: WindowRequest) -> None:
    """A process that dies in the call: its journal keeps the start."""
    extractor = outside.extractor(Provider(Killed()))
    outside.starts.withdraw = lambda *_: None  # type: ignore[method-assign]  # a dead process does nothing more
    with pytest.raises(Killed):
        await extractor.handle(outside.record(request))


async def test_a_request_that_kills_three_times_fails(outside: Outside) -> None:
    for _ in range(3):
        await killed(outside, REQUEST)
    provider = Provider(GOOD)
    await outside.extractor(provider).handle(outside.record(REQUEST))
    assert [(r.status, r.reason) for r in outside.results] == [("failed", "crashed")]
    assert provider.asked == []
    second = REQUEST.model_copy(update={"attempt": 2})
    await outside.extractor(provider).handle(outside.record(second))
    assert [r.status for r in outside.results] == ["failed", "memory"]


async def test_two_kills_are_not_three(outside: Outside) -> None:
    for _ in range(2):
        await killed(outside, REQUEST)
    await outside.extractor(Provider(GOOD)).handle(outside.record(REQUEST))
    assert [r.status for r in outside.results] == ["memory"]


async def test_those_started_before_run_one_at_a_time(outside: Outside) -> None:
    """So that the one that kills the process is the only one counted with it."""
    other = REQUEST.model_copy(update={"request_id": OTHER_ID})
    for request in (REQUEST, other):
        await killed(outside, request)
    opened, answer = gate()
    provider = Provider(answer)
    extractor = outside.extractor(provider)
    tasks = [asyncio.create_task(extractor.handle(outside.record(r))) for r in (REQUEST, other)]
    fresh = window(["I moved to Busan"], request_id=REQUEST_ID.replace("6", "8"))
    tasks.append(asyncio.create_task(extractor.handle(outside.record(fresh))))
    assert {(await provider.calls.get()).request_id for _ in range(2)} == {REQUEST_ID, fresh.request_id}
    assert len(provider.asked) == 2
    assert outside.starts.unended(OTHER_ID, 1) == 1
    opened.set()
    await asyncio.gather(*tasks)
    assert len(outside.results) == 3


async def test_a_start_broken_off_from_outside_does_not_count(outside: Outside) -> None:
    _, answer = gate()
    provider = Provider(answer)
    task = asyncio.create_task(outside.extractor(provider).handle(outside.record(REQUEST)))
    await provider.calls.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outside.starts.unended(REQUEST_ID, 1) == 0
    outside.broken = ConnectionError()
    with pytest.raises(ConnectionError):
        await outside.extractor(Provider(GOOD)).handle(outside.record(REQUEST))
    assert outside.starts.unended(REQUEST_ID, 1) == 0
