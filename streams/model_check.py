"""Whether a model can be used as things are set: one small call, and what to do if it fails."""

from agents.ports import ProviderError
from infra.providers import ProviderNotConfigured
from models.answer import BadAnswer, find_answer
from models.assignments import ModelRef
from models.prompt import RenderedPrompt
from streams.model_factory import ask_once
from streams.settings import Settings

_PROMPT = RenderedPrompt(
    name="check",
    version="1",
    system="Answer with one JSON object and nothing else.",
    user='Answer with {"ready": true}.',
    schema={
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
        "additionalProperties": False,
    },
)
_TOLD = {
    "timeout": "it did not answer in time: try again, or raise KEEPSAKE_MODEL_TIMEOUT_SECONDS",
    "rate_limited": "its provider refuses calls for now (rate or quota): try again later, or ask for a higher quota",
    "unavailable": "its provider cannot be reached, or is failing: check its base URL, and try again",
    "refused": "it refused to answer: choose a model, or an account, with a milder filter",
    "bad_request": "its provider does not take a request with a system prompt and a JSON schema for it",
    "unauthorized": "its provider does not take the key that is set",
    "unknown_model": "its provider does not know this model, or not with this key: check the name and the base URL",
    "no_answer": "it answered with nothing: it may need more of KEEPSAKE_MODEL_MAX_OUTPUT_TOKENS to think",
    "broken_answer": "what answers does not speak its provider's format: check the base URL",
}


async def model_problem(model: ModelRef, settings: Settings) -> str | None:
    """Why the model cannot be used, and what to do; None: it answered. Offline models need no call."""
    if model.offline:
        return None
    try:
        completion = await ask_once(model, _PROMPT, settings)
        find_answer(completion.text)
    except ProviderNotConfigured as error:
        return str(error)
    except ProviderError as error:
        return explained(error)
    except BadAnswer as error:
        return f"it does not answer in JSON: choose a model that follows instructions ({error.reason})"
    return None


def explained(error: ProviderError) -> str:
    """What a failed call means, and what to do; the subject is the model."""
    return f"{_TOLD.get(error.reason, 'the call failed')} ({error.reason})"
