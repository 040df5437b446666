"""The extractor's step: from `memory.requested` to `memory.extracted`, one attempt at one window's memory.

Whatever happens to an attempt, its end is an event: a memory, nothing, or a failure with a fixed word,
which the ledger retries or parks (R10). Reasons are those of BadAnswer and ProviderError, and: timeout, error
(the provider raised something unknown), crashed (the request was started three times without an end).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from agents.codec import RequestCodec
from agents.ports import Answered, Counters, DeadLetters, ExtractionProvider, Fault, ProviderError
from models.answer import BadAnswer
from models.extraction import Judged, judge
from models.ids import memory_id
from models.memory import Provenance
from models.messages import InvalidEvent
from models.records import Record
from models.requests import WindowRef, WindowRequest, WindowResult

log = logging.getLogger(__name__)

MAX_STARTS = 3
# While an attempt waits or runs it is asked again and again; what was asked so comes right after its end. Later it
# is done anew: then the ledger has waited for longer than a result that was sent can take.
ENDED_SECONDS = 3_600.0
MAX_ENDED = 100_000
Flight = tuple[str, int, tuple[tuple[str, int], ...]]


class Models(ExtractionProvider, Protocol):
    """The models that make the attempts."""

    async def admitted(self, request: WindowRequest) -> None:
        """Return when the attempt may be made; with the day's limit reached that may take hours."""
        ...

    def more(self, request: WindowRequest) -> bool:
        """Whether a failure of this attempt leaves others to a fall-back model."""
        ...


class Starts(Protocol):
    """Remembers, beyond a kill of the process, which attempts were started and have not ended (I4)."""

    def unended(self, request_id: str, attempt: int) -> int:
        """How often the attempt was started without an end."""
        ...

    def begin(self, request_id: str, attempt: int) -> None: ...

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Take the last start back: it was broken off from outside, not by the request."""
        ...

    def end(self, request_id: str, attempt: int) -> None: ...


class Results(Protocol):
    """Sends to `memory.extracted`; returns when the broker has it, however long that takes."""

    async def send(self, user_id: str, key: bytes, value: bytes) -> None: ...


class Extractor:
    """Handles records of `memory.requested`, several at once. `deadline` of an attempt is in seconds."""

    def __init__(
        self,
        codec: RequestCodec,
        models: Models,
        results: Results,
        dead: DeadLetters,
        starts: Starts,
        counters: Counters,
        *,
        deadline: float,
        fault: Fault,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._codec = codec
        self._models = models
        self._results = results
        self._dead = dead
        self._starts = starts
        self._counters = counters
        self._deadline = deadline
        self._fault = fault
        self._clock = clock
        self._in_flight: set[Flight] = set()
        self._ended: dict[Flight, float] = {}
        self._alone = asyncio.Lock()

    async def handle(self, record: Record) -> None:
        """Do what a record asks, unless it is being done or just was; one that asks nothing becomes a dead letter."""
        try:
            request = self._codec.open_request(record)
        except InvalidEvent as error:
            self._counters.count("extractor_dead")
            await self._dead.send(record, error.reason, error.detail)
            return
        # The same attempt asked with newer relationship states is another piece of work.
        flight = (request.request_id, request.attempt, tuple(sorted(request.versions.items())))
        if flight in self._in_flight:
            self._counters.count("extractor_in_flight")
            return
        if self._clock() - self._ended.get(flight, float("-inf")) < ENDED_SECONDS:
            self._counters.count("extractor_repeated")
            return
        self._in_flight.add(flight)
        try:
            # Before its start is noted and its deadline runs: to wait is no part of the attempt.
            await self._models.admitted(request)
            async with self._started(request) as crashed:
                result = self._failed(request, "crashed") if crashed else await self._attempt(request)
                self._report(result)
                await self._results.send(request.user_id, *self._codec.seal_result(result))
                self._fault("extractor.after_send")
            self._note_end(flight)
        finally:
            self._in_flight.discard(flight)

    def _note_end(self, flight: Flight) -> None:
        self._ended.pop(flight, None)
        self._ended[flight] = self._clock()
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    @asynccontextmanager
    async def _started(self, request: WindowRequest) -> AsyncIterator[bool]:
        """Note start and end on disk. Yields whether too many starts had no end.

        An attempt that did not end before runs alone among its like: if it is the one that kills the
        process, those that were only near it are not counted with it again.
        """
        name = (request.request_id, request.attempt)
        if not self._starts.unended(*name):
            async with self._noted(name):
                yield False
            return
        async with self._alone, self._noted(name):
            yield self._starts.unended(*name) > MAX_STARTS

    @asynccontextmanager
    async def _noted(self, name: tuple[str, int]) -> AsyncIterator[None]:
        self._starts.begin(*name)
        try:
            yield
        except BaseException:  # cancelled by a rebalance, or Kafka is gone: not the request's doing
            self._starts.withdraw(*name)
            raise
        self._starts.end(*name)

    async def _attempt(self, request: WindowRequest) -> WindowResult:
        try:
            async with asyncio.timeout(self._deadline):
                judged, provenance = await self._extract(request)
        except TimeoutError:
            return self._failed(request, "timeout")
        except (BadAnswer, ProviderError) as error:
            return self._failed(request, error.reason)
        except Exception as error:  # noqa: BLE001  # a provider's unknown fault fails its window, not the role
            self._counters.count("extractor_error")
            # The type alone: a message may quote the chat.
            log.error("request %s: the provider raised %s", request.request_id, type(error).__name__)
            return self._failed(request, "error")
        self._count_dropped(request, judged)
        return _judged(request, judged, provenance)

    async def _extract(self, request: WindowRequest) -> tuple[Judged, Provenance]:
        """Ask, and once more if the answer has nothing of the user's, or another language; then be lenient (R5)."""
        first = await self._ask(request)
        try:
            return judge(first.raw, request), first.provenance
        except BadAnswer as error:
            if error.reason not in ("no_user_detail", "other_language"):
                raise
            self._counters.count(f"extractor_{error.reason}")
        try:
            second = await self._ask(request)
            return judge(second.raw, request, lenient=True), second.provenance
        except (BadAnswer, ProviderError):
            return judge(first.raw, request, lenient=True), first.provenance

    async def _ask(self, request: WindowRequest) -> Answered:
        self._fault("extractor.before_call")
        answer = await self._models.extract(request)
        self._fault("extractor.after_call")
        return answer

    def _failed(self, request: WindowRequest, reason: str) -> WindowResult:
        return _result(request, status="failed", reason=reason, more=self._models.more(request))

    def _count_dropped(self, request: WindowRequest, judged: Judged) -> None:
        for kind, number in judged.dropped.items():
            self._counters.count(f"extractor_dropped_{kind}", number)
        if judged.dropped:
            log.warning("request %s: dropped %s", request.request_id, dict(judged.dropped))
        if judged.memory and not judged.memory.content.search_terms:
            self._counters.count("extractor_empty_search_terms")
            log.warning(
                "memory %s has no search terms: keyword search will not find it",
                memory_id(request.request_id, 1),
            )

    def _report(self, result: WindowResult) -> None:
        self._counters.count(f"extractor_{result.status}")
        log.info(
            "request %s attempt %d: %s%s",
            result.request_id,
            result.attempt,
            result.status,
            f" ({result.reason})" if result.reason else "",
        )


def _result(request: WindowRequest, **outcome: object) -> WindowResult:
    """The result of a request, with what it repeats of it."""
    repeated = {name: getattr(request, name) for name in (*WindowRef.model_fields, "attempt", "versions")}
    return WindowResult.model_validate({**repeated, **outcome})


def _judged(request: WindowRequest, judged: Judged, provenance: Provenance) -> WindowResult:
    return _result(
        request,
        status="memory" if judged.memory else "nothing",
        memory=judged.memory,
        relationships=judged.relationships,
        provenance=provenance,
    )
