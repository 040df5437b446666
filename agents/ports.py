"""What the steps need from outside, as Protocols: infra/, sql/ and streams/ provide them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from models.candidates import Candidate, Candidates, Coverage, MemoryPage, PairSummary, Scope, ScopePage
from models.memory import Provenance
from models.prompt import Prompt, RenderedPrompt
from models.records import Record
from models.requests import WindowRequest


class Sealer(Protocol):
    """AES-256-GCM sealing and master keys (R12). Blobs that do not open raise CannotOpen."""

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Wrap a data key by the primary master key, `context` bound as associated data."""
        ...

    def unwrap(self, blob: bytes, context: bytes) -> bytes: ...

    def new_key(self) -> bytes:
        """32 random bytes."""
        ...

    def seal(self, key: bytes, plaintext: bytes, context: bytes) -> bytes: ...

    def open(self, key: bytes, blob: bytes, context: bytes) -> bytes: ...

    def seal_deployment(self, plaintext: bytes, context: bytes) -> bytes:
        """Seal by the deployment key: for what rests on short-lived topics only."""
        ...

    def open_deployment(self, blob: bytes, context: bytes) -> bytes: ...

    def hash_token(self, user: str, token: str) -> str:
        """The keyed hash of a user's index token: 16 hexadecimal digits, and others for every user (R15)."""
        ...


class CannotOpen(Exception):
    """A sealed blob does not open: wrong key, wrong context, or damaged."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A model's raw answer, which is untrusted text that should be JSON, and what made it."""

    raw: str
    provenance: Provenance


class ExtractionProvider(Protocol):
    """Does the extraction task: a window in, a raw answer out. Errors of the provider raise ProviderError."""

    async def extract(self, request: WindowRequest) -> Answered: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """What a language model wrote, and the tokens that it read and wrote as its provider counts them."""

    text: str
    input_tokens: int
    output_tokens: int


class LanguageModel(Protocol):
    """One model of one provider, through the vendor's own SDK; one call, no hidden retries.

    Raises ProviderError and nothing else. An answer that was cut off at the token limit is given as far as it goes:
    that it is not whole is seen by its reader.
    """

    provider: str
    model: str

    async def complete(self, prompt: RenderedPrompt) -> Completion: ...

    async def close(self) -> None: ...


class Prompts(Protocol):
    """The prompts by name: from a registry, or the file of the same name in the repository."""

    async def get(self, name: str) -> Prompt:
        """The prompt as it is now; never fails for a name that has a file."""
        ...


class UsageMeter(Protocol):
    """Counts the tokens of calls, and holds calls back once the day's limit is reached."""

    async def admitted(self, task: str) -> None:
        """Return when a call of the task may be made; waits, for hours if need be, while the limit is reached."""
        ...

    def add(self, provenance: Provenance, completion: Completion) -> None:
        """Count a call that was answered; no I/O, so that counting never fails it."""
        ...


class ProviderError(Exception):
    """A provider failed. `reason` is a fixed word:

    timeout, rate_limited, unavailable (5xx, or no connection), refused (a safety block), bad_request, unauthorized,
    unknown_model, not_configured (a key or an SDK is missing), no_answer (no candidate, or one without text),
    broken_answer (not the vendor's format, or cut off), wrong_count, wrong_dimension, wrong_norm. `retry_after` is in
    seconds, where the provider said so.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after


class Embedder(Protocol):
    """Turns text into L2-normalised vectors of `dimensions` floats (R14). Raises ProviderError."""

    provider: str
    model: str
    dimensions: int
    offline: bool

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float] | None]:
        """One vector a text, in order; None for a text that failed by itself."""
        ...

    async def embed_query(self, text: str) -> list[float]:
        """The vector of what is searched for, which some models embed in another way than what is found."""
        ...

    async def close(self) -> None: ...


class DeadLetters(Protocol):
    """Takes a record that cannot be understood, with the reason, so that nothing is lost."""

    async def send(self, record: Record, reason: str, detail: str) -> None: ...


class Fault(Protocol):
    """A named place where a crash test may end the process."""

    def __call__(self, name: str) -> None: ...


class Counters(Protocol):
    """Counts what happens, by fixed names: never content."""

    def count(self, name: str, by: int = 1) -> None: ...


class RecallIndex(Protocol):
    """The memories as PostgreSQL has them (sql/recall_store.py). StoreUnavailable when it is away."""

    async def candidates(
        self,
        scope: Scope,
        *,
        query_vector: Sequence[float] | None,
        model: str,
        token_hashes: Sequence[str],
        limit: int = 20,
        slots: int = 2,
        slot_importance: int = 6,
    ) -> Candidates: ...

    async def exhaustive(self, scope: Scope, *, limit: int, cursor: str | None) -> MemoryPage: ...

    async def in_scope(
        self,
        scope: Scope,
        *,
        query_vector: Sequence[float] | None,
        model: str,
        limit: int,
        cursor: str | None,
    ) -> ScopePage: ...

    async def memories_page(
        self, scope: Scope, *, limit: int = 50, cursor: str | None = None
    ) -> MemoryPage: ...

    async def with_plans(
        self, user_id: str, character_ids: Sequence[str], first: date, last: date, limit: int
    ) -> list[Candidate]: ...

    async def pair_summary(self, user_id: str, character_id: str) -> PairSummary: ...

    async def coverage(self, user_id: str, character_ids: Sequence[str], epoch: int) -> Coverage: ...


class RowSource(Protocol):
    """Encoded rows of the ledger's table: a partition's committed ones, or a view's, as far as it has come."""

    def get(self, key: bytes) -> bytes | None: ...


class LedgerView(RowSource, Protocol):
    """A view of the ledger's table (streams/view.py)."""

    @property
    def complete(self) -> bool:
        """Whether it has ever held everything: before that, a missing row says nothing."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows whose keys start with `prefix`, in the order of their keys."""
        ...


class FailureReports(Protocol):
    """Tells an operator of what failed (Sentry, GlitchTip): by a fixed reason and the error's type, never its text."""

    def report(self, reason: str, error: BaseException | None = None) -> None: ...
