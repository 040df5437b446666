"""Opens models as things are set, and closes them: those assigned to extraction, or one for a single call."""

from contextlib import AsyncExitStack
from types import TracebackType

from agents.assigned import NotConfigured
from agents.extraction import PromptedExtraction
from agents.ports import Completion, ExtractionProvider, LanguageModel, Prompts, UsageMeter
from infra.offline_extractor import OfflineExtractor
from infra.prompts import LangfusePrompts
from infra.providers import ProviderNotConfigured, open_model
from models.assignments import ModelRef
from models.prompt import RenderedPrompt
from streams.prompts import open_prompts
from streams.provider_access import provider_access
from streams.settings import Settings


async def ask_once(model: ModelRef, prompt: RenderedPrompt, settings: Settings) -> Completion:
    """One call of a model that is not offline. Raises ProviderError, ProviderNotConfigured."""
    opened = _open(model, settings)
    try:
        return await opened.complete(prompt)
    finally:
        await opened.close()


def _open(model: ModelRef, settings: Settings) -> LanguageModel:
    return open_model(model.provider, model.model, provider_access(settings))


class ExtractionModels:
    """Makes the provider of a model: `with` it, call it. NotConfigured says what is missing, and what to do."""

    def __init__(self, settings: Settings, meter: UsageMeter) -> None:
        self._settings = settings
        self._meter = meter
        self._stack = AsyncExitStack()
        self._prompts: Prompts | None = None

    async def __aenter__(self) -> "ExtractionModels":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def __call__(self, model: ModelRef) -> ExtractionProvider:
        if model.offline:
            return OfflineExtractor()
        try:
            opened = _open(model, self._settings)
            self._stack.push_async_callback(opened.close)
            return PromptedExtraction(self._open_prompts(), opened, self._meter)
        except ProviderNotConfigured as error:
            raise NotConfigured(str(error)) from error

    def _open_prompts(self) -> Prompts:
        if self._prompts is None:
            prompts = open_prompts(self._settings)
            if isinstance(prompts, LangfusePrompts):
                self._stack.push_async_callback(prompts.close)
            self._prompts = prompts
        return self._prompts
