"""Extraction by whichever model is assigned now, and by the fall-back when its attempts are used up (R9, R10)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from agents.ports import Answered, ExtractionProvider, ProviderError, UsageMeter
from models.assignments import Assignment, ModelRef
from models.requests import WindowRequest

log = logging.getLogger(__name__)

# How long a wait for the daily limit lasts before the assignment is looked at again.
LOOK_SECONDS = 5.0


class NotConfigured(Exception):
    """A provider cannot be made as things are set; the message, which holds no secret, says what to do."""


class AssignedExtraction:
    """The models of the extraction task: `current` is the assignment as last seen, `make` opens a model.

    `attempts` is how many each model has in a row. A model that was opened is kept: `make` sees to its end.
    """

    def __init__(
        self,
        current: Callable[[], Assignment],
        make: Callable[[ModelRef], ExtractionProvider],
        meter: UsageMeter,
        *,
        attempts: int,
    ) -> None:
        self._current = current
        self._make = make
        self._meter = meter
        self._attempts = attempts
        self._opened: dict[ModelRef, ExtractionProvider] = {}
        self._told: set[ModelRef] = set()

    async def admitted(self, request: WindowRequest) -> None:
        """Return when the attempt may be made. An offline model costs nothing: a change to one ends a wait too."""
        while not self._model(request).offline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._meter.admitted(request.task)
                    return

    def more(self, request: WindowRequest) -> bool:
        """Whether this attempt, should it fail, is followed by others of the same round over both models."""
        return self._current().more_after(request.attempt, self._attempts)

    async def extract(self, request: WindowRequest) -> Answered:
        return await self.open(self._model(request)).extract(request)

    def open(self, model: ModelRef) -> ExtractionProvider:
        """The provider of a model. ProviderError("not_configured"): it cannot be made; the log says what to do."""
        provider = self._opened.get(model)
        if provider is None:
            try:
                provider = self._opened[model] = self._make(model)
            except NotConfigured as error:
                if model not in self._told:
                    self._told.add(model)
                    log.error("The model %s cannot be used: %s", model, error)
                raise ProviderError("not_configured") from None
            self._told.discard(model)
        return provider

    def _model(self, request: WindowRequest) -> ModelRef:
        return self._current().model_for(request.attempt, self._attempts)
