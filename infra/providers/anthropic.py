"""Claude as a language model, directly or through Amazon Bedrock (bedrock.py), with the anthropic SDK.

The answer is the input of a tool that the model is made to use. The API's structured output takes a part of JSON
Schema only, from newer models only; a tool takes all of it, from every model.

| Claude's answer | here |
|---|---|
| the tool's input | as JSON; cut off at the token limit as JSON that does not end |
| text instead | the text |
| stop reason refusal | refused |
| neither tool nor text | no_answer |
| errors | see failures.py; 529 (overloaded) is unavailable |

Tokens: `input_tokens` and those of the cache read, `output_tokens` written.
"""

import asyncio
import json

import anthropic
from anthropic.types import Message, TextBlock, ToolUseBlock

from agents.ports import Completion, ProviderError
from infra.providers.access import ProviderAccess, checked_model, checked_url, required_key
from infra.providers.failures import connection_failure, quiet, reading, sendable, status_failure
from models.prompt import RenderedPrompt

OWN_URL = "https://api.anthropic.com"
TOOL = "answer"
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


class ClaudeModel:
    """A LanguageModel over a client of the SDK, which it closes."""

    def __init__(
        self,
        provider: str,
        model: str,
        client: anthropic.AsyncAnthropic | anthropic.AsyncAnthropicBedrock,
        access: ProviderAccess,
    ) -> None:
        self.provider = provider
        self.model = checked_model(model)
        self._client = client
        self._timeout = access.timeout_seconds
        self._max_output_tokens = access.max_output_tokens
        quiet("anthropic", "httpx2", "httpcore2")

    async def complete(self, prompt: RenderedPrompt) -> Completion:
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._client.messages.create(
                    model=self.model,
                    max_tokens=self._max_output_tokens,
                    system=sendable(prompt.system),
                    messages=[{"role": "user", "content": sendable(prompt.user)}],
                    tools=[
                        {
                            "name": TOOL,
                            "description": "Takes the whole answer.",
                            "input_schema": {"type": "object", **prompt.schema},
                        }
                    ],
                    tool_choice={"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
                )
        except (TimeoutError, anthropic.APITimeoutError):
            raise ProviderError("timeout") from None
        except anthropic.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers) from None
        except anthropic.APIConnectionError as error:
            raise connection_failure(error) from None
        except (anthropic.AnthropicError, ValueError, TypeError, AttributeError, KeyError):
            raise ProviderError("broken_answer") from None
        with reading():
            return _completion(response)

    async def close(self) -> None:
        await self._client.close()


def open_anthropic(model: str, access: ProviderAccess) -> ClaudeModel:
    """Claude at Anthropic. ProviderNotConfigured: no key."""
    client = anthropic.AsyncAnthropic(
        api_key=required_key(access.anthropic_api_key, "anthropic", "KEEPSAKE_ANTHROPIC_API_KEY"),
        base_url=checked_url(access.anthropic_base_url, OWN_URL, "KEEPSAKE_ANTHROPIC_BASE_URL"),
        timeout=access.timeout_seconds,
        max_retries=0,
        # A tracer of the process must not get chat: the SDK's spans can be told to hold it.
        open_telemetry=False,
    )
    return ClaudeModel("anthropic", model, client, access)


def _completion(response: Message) -> Completion:
    if response.stop_reason == "refusal":
        raise ProviderError("refused")
    text = _text(response)
    if not text.strip():
        raise ProviderError("no_answer")
    usage = response.usage
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return Completion(text, usage.input_tokens + cached, usage.output_tokens)


def _text(response: Message) -> str:
    for block in response.content:
        if isinstance(block, ToolUseBlock):
            whole = json.dumps(block.input, ensure_ascii=False)
            # The API closes what it cut off: left so, its reader would take a part for the whole.
            return whole[:-1] if response.stop_reason in _CUT_OFF else whole
    return "".join(block.text for block in response.content if isinstance(block, TextBlock))
