"""Why a recall returned what it did: each memory in scope with exactly one reason (R31)."""

from collections.abc import Mapping

from agents.opening import CannotBeOpened, MemoryOpener
from models.candidates import InScope
from models.ranking import PathScore, Ranked
from models.recall import Explanation, NotReturned, PathReason


def explain_returned(ranked: Ranked) -> Explanation:
    """The reason of a memory in the answer; the shares of its paths add up to its score."""
    return Explanation(
        vector=_path(ranked.vector),
        keyword=_path(ranked.keyword),
        recent_rank=ranked.recent,
        decay=ranked.decay,
        slot=ranked.slot,
    )


def explain_other(
    found: InScope, decay: float, outranked: Mapping[str, Ranked], opener: MemoryOpener, *, by_meaning: bool
) -> NotReturned:
    """The reason of a memory that is not in the answer. `by_meaning`: the query had a vector."""
    memory = found.memory
    ranked = outranked.get(memory.memory_id)
    summary = closed = None
    try:
        summary = opener.open(memory).summary
    except CannotBeOpened as error:
        closed = error.reason
    common = {
        "id": memory.memory_id,
        "kind": memory.kind,
        "date": memory.date,
        "created_at": memory.created_at,
        "importance": memory.importance,
        "pinned": memory.pinned,
        "summary": summary,
        "similarity": found.similarity,
        "decay": decay,
    }
    if closed is not None:
        return NotReturned(reason="cannot_be_opened", detail=closed, **common)
    if found.filtered is not None:
        return NotReturned(reason="filtered", detail=found.filtered, **common)
    if by_meaning and not found.embedded and ranked is None:
        return NotReturned(reason="not_embedded", **common)
    if ranked is None:
        return NotReturned(reason="outranked", **common)
    return NotReturned(
        reason="outranked",
        score=ranked.score,
        vector=_path(ranked.vector),
        keyword=_path(ranked.keyword),
        **common,
    )


def _path(path: PathScore | None) -> PathReason | None:
    if path is None:
        return None
    return PathReason(rank=path.rank, raw=path.raw, score=path.score, share=path.share)
