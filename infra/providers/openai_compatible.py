"""OpenAI, and any server that speaks like it (Ollama, vLLM, LM Studio, …), as a language model.

| the server's answer | here |
|---|---|
| a choice with content | its content; cut off at the token limit as well |
| a refusal in the message, or finish reason content_filter | refused |
| no choice, or one without content | no_answer |
| errors | see openai_client.py and failures.py |

The schema goes as `response_format`. A server that does not take json_schema is asked for json_object, and one that
does not take that for nothing; likewise for the name of the token limit. What a server does not take is kept for
the life of the model, so that later calls are one request again.

Tokens: `prompt_tokens` read, `completion_tokens` written; 0 from servers that do not count.
"""

from collections.abc import Mapping
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from agents.ports import Completion, ProviderError
from infra.providers.access import ProviderAccess, checked_model
from infra.providers.failures import reading, sendable
from infra.providers.openai_client import OpenAIClient, refused_parameter
from models.prompt import RenderedPrompt

_FORMATS = ("json_schema", "json_object", "none")
_SCHEMA_NAME = "answer"


class OpenAICompatibleModel:
    """A LanguageModel."""

    provider = "openai"

    def __init__(self, model: str, access: ProviderAccess) -> None:
        self.model = checked_model(model)
        self._max_output_tokens = access.max_output_tokens
        self._client = OpenAIClient(access)
        self._format = 0
        # OpenAI's newer models take the one only, many other servers know but the other.
        self._limits = ["max_completion_tokens", "max_tokens"]
        if not self._client.is_own:
            self._limits.reverse()

    async def complete(self, prompt: RenderedPrompt) -> Completion:
        async with self._client.calling() as client:
            while True:
                asked, limits = self._format, list(self._limits)
                try:
                    response = await client.chat.completions.create(**self._request(prompt))
                    break
                except openai.APIStatusError as error:
                    # Another call may have learnt the same meanwhile.
                    if not self._learn(error, asked, limits):
                        raise
        with reading():
            return _completion(response)

    async def close(self) -> None:
        await self._client.close()

    def _request(self, prompt: RenderedPrompt) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": sendable(prompt.system)},
                {"role": "user", "content": sendable(prompt.user)},
            ],
            self._limits[0]: self._max_output_tokens,
        }
        match _FORMATS[self._format]:
            case "json_schema":
                schema = dict(prompt.schema)
                described = {"name": _SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)}
                request["response_format"] = {"type": "json_schema", "json_schema": described}
            case "json_object":
                request["response_format"] = {"type": "json_object"}
        return request

    def _learn(self, error: openai.APIStatusError, asked: int, limits: list[str]) -> bool:
        """Remember what the server does not take; False if the error says no such thing."""
        if asked + 1 < len(_FORMATS) and refused_parameter(
            error, "response_format", "json_schema", "json_object"
        ):
            self._format = max(self._format, asked + 1)
            return True
        if len(limits) > 1 and refused_parameter(error, limits[0]):
            self._limits = limits[1:]
            return True
        return False


def is_strict(schema: object) -> bool:
    """Whether OpenAI takes the schema as strict: every object requires all its properties, and allows no other."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
        return all(map(is_strict, properties.values())) and is_strict(schema.get("$defs", {}))
    return all(map(is_strict, schema.values()))


def _completion(response: ChatCompletion) -> Completion:
    if not response.choices:
        raise ProviderError("no_answer")
    choice = response.choices[0]
    # Lenient servers leave fields out, and the SDK builds what it is given without a check.
    if getattr(choice.message, "refusal", None) or choice.finish_reason == "content_filter":
        raise ProviderError("refused")
    text = choice.message.content
    if text is None or not text.strip():
        raise ProviderError("no_answer")
    usage = response.usage
    return Completion(
        text=text,
        input_tokens=int(usage.prompt_tokens or 0) if usage else 0,
        output_tokens=int(usage.completion_tokens or 0) if usage else 0,
    )
