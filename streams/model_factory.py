"""Opens the models that are assigned to extraction, and closes them at the end."""

from contextlib import AsyncExitStack
from types import TracebackType

from agents.assigned import NotConfigured
from agents.extraction import PromptedExtraction
from agents.ports import ExtractionProvider, Prompts, UsageMeter
from infra.offline_extractor import OfflineExtractor
from infra.prompts import LangfusePrompts
from infra.providers import ProviderNotConfigured, open_model
from models.assignments import ModelRef
from streams.prompts import open_prompts
from streams.provider_access import provider_access
from streams.settings import Settings


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
            opened = open_model(model.provider, model.model, provider_access(self._settings))
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
