"""Extraction by a language model: the prompt as it is now, rendered, asked, counted (R7, R9)."""

from agents.ports import Answered, LanguageModel, Prompts, UsageMeter
from models.memory import Provenance
from models.prompt import render_extraction
from models.requests import WindowRequest

EXTRACTION_PROMPT = "pipeline/memory-summarize"


class PromptedExtraction:
    """An ExtractionProvider that asks `model`."""

    def __init__(self, prompts: Prompts, model: LanguageModel, meter: UsageMeter) -> None:
        self._prompts = prompts
        self._model = model
        self._meter = meter

    async def extract(self, request: WindowRequest) -> Answered:
        prompt = await self._prompts.get(EXTRACTION_PROMPT)
        provenance = Provenance(
            task=request.task,
            prompt=prompt.name,
            prompt_version=prompt.version,
            provider=self._model.provider,
            model=self._model.model,
            offline=False,
        )
        completion = await self._model.complete(render_extraction(prompt, request))
        self._meter.add(provenance, completion)
        return Answered(completion.text, provenance)
