"""Gemini as a language model, through google-genai, with a response schema.

| Gemini's answer | here |
|---|---|
| a candidate with text | its text, thoughts left out; cut off at the token limit as well |
| no candidate, and the prompt's block reason | refused |
| finish reason SAFETY, RECITATION, BLOCKLIST, PROHIBITED_CONTENT, SPII and their like | refused |
| no candidate, or one without text | no_answer |
| errors | see gemini_client.py and failures.py |

Tokens: `promptTokenCount` read; `candidatesTokenCount` and `thoughtsTokenCount` written.
"""

from google.genai import types

from agents.ports import Completion, ProviderError
from infra.providers.access import ProviderAccess, checked_model
from infra.providers.failures import reading, sendable
from infra.providers.gemini_client import GeminiClient
from models.prompt import RenderedPrompt

REFUSING = frozenset(
    {
        types.FinishReason.SAFETY,
        types.FinishReason.RECITATION,
        types.FinishReason.BLOCKLIST,
        types.FinishReason.PROHIBITED_CONTENT,
        types.FinishReason.SPII,
        types.FinishReason.IMAGE_SAFETY,
        types.FinishReason.MODEL_ARMOR,
        types.FinishReason.ESCALATION,
        types.FinishReason.PUP_LIMITED_DISABLED,
    }
)


class GeminiModel:
    """A LanguageModel."""

    provider = "gemini"

    def __init__(self, model: str, access: ProviderAccess) -> None:
        self.model = checked_model(model)
        self._max_output_tokens = access.max_output_tokens
        self._client = GeminiClient(access)

    async def complete(self, prompt: RenderedPrompt) -> Completion:
        config = types.GenerateContentConfig(
            system_instruction=sendable(prompt.system),
            max_output_tokens=self._max_output_tokens,
            response_mime_type="application/json",
            response_json_schema=dict(prompt.schema),
            # Or the SDK sends further requests of its own.
            automatic_continuation=False,
        )
        content = types.Content(role="user", parts=[types.Part(text=sendable(prompt.user))])
        async with self._client.calling() as client:
            response = await client.models.generate_content(model=self.model, contents=content, config=config)
        with reading():
            return _completion(response)

    async def close(self) -> None:
        await self._client.close()


def _completion(response: types.GenerateContentResponse) -> Completion:
    candidate = response.candidates[0] if response.candidates else None
    feedback = response.prompt_feedback
    if candidate is None:
        raise ProviderError("refused" if feedback and feedback.block_reason else "no_answer")
    if candidate.finish_reason in REFUSING:
        raise ProviderError("refused")
    parts = (candidate.content.parts if candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if not text.strip():
        raise ProviderError("no_answer")
    usage = response.usage_metadata or types.GenerateContentResponseUsageMetadata()
    return Completion(
        text=text,
        input_tokens=usage.prompt_token_count or 0,
        output_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )
