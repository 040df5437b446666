"""What embedders of providers share: batches, one bad text found among good ones, and vectors that are checked."""

import math
from collections.abc import Awaitable, Callable, Sequence

from agents.ports import ProviderError

DIMENSIONS = 768
MAX_BATCH = 100

Vector = list[float]
# Embeds a batch in one request: one raw vector a text, in order. Raises ProviderError.
Request = Callable[[Sequence[str]], Awaitable[list[Vector]]]


async def embed_all(texts: Sequence[str], request: Request) -> list[Vector | None]:
    """One unit vector a text, in order; None for a text that fails by itself. Raises ProviderError.

    A text fails by itself if the provider refuses it, or gives it a vector without direction. Where all of several
    texts do, it is not for the texts.
    """
    found: list[Vector | None] = []
    for start in range(0, len(texts), MAX_BATCH):
        batch = texts[start : start + MAX_BATCH]
        found += await _embed(batch, request)
    if len(texts) > 1 and not any(found):
        raise ProviderError("bad_request")
    return found


async def embed_one(text: str, request: Request) -> Vector:
    """The unit vector of one text. Raises ProviderError."""
    [vector] = await _checked([text], request)
    if vector is None:
        raise ProviderError("wrong_norm")
    return vector


async def _embed(texts: Sequence[str], request: Request) -> list[Vector | None]:
    """A refused batch is halved until the texts that it is refused for are alone."""
    try:
        return await _checked(texts, request)
    except ProviderError as error:
        if error.reason not in ("bad_request", "refused"):
            raise
    if len(texts) == 1:
        return [None]
    middle = len(texts) // 2
    return await _embed(texts[:middle], request) + await _embed(texts[middle:], request)


async def _checked(texts: Sequence[str], request: Request) -> list[Vector | None]:
    vectors = await request(texts)
    if len(vectors) != len(texts):
        raise ProviderError("wrong_count")
    if any(len(vector) != DIMENSIONS for vector in vectors):
        raise ProviderError("wrong_dimension")
    units = [_unit(vector) for vector in vectors]
    if len(units) > 1 and not any(units):
        raise ProviderError("wrong_norm")
    return units


def _unit(vector: Vector) -> Vector | None:
    """The vector at length 1; None if it has none that is finite and more than 0."""
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        return None
    return [value / length for value in vector]
