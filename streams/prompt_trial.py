"""What `keepsake prompts try` does: one window's prompt, and with a model its answer, judged."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.ports import Prompts
from infra.offline_extractor import OfflineExtractor
from infra.providers import open_model
from models.answer import BadAnswer
from models.extraction import Judged, judge
from models.ids import split_cast
from models.messages import ChatMessage
from models.prompt import RenderedPrompt, render_extraction
from models.requests import WindowMessage, WindowRequest
from streams.errors import Explained
from streams.provider_access import provider_access
from streams.settings import Settings


class TrialFailed(Explained):
    """The conversation cannot be tried; the message says why."""


@dataclass(slots=True)
class Trial:
    """A prompt, and what came of it. `raw` None: no model was asked; `problem`: why the answer was refused."""

    prompt: RenderedPrompt | None
    raw: str | None = None
    tokens: tuple[int, int] = (0, 0)
    judged: Judged | None = None
    problem: str | None = None
    dropped: dict[str, int] = field(default_factory=dict)


def one_window(messages: Sequence[ChatMessage]) -> WindowRequest:
    """All messages as one window of one thread. TrialFailed: there are none, or of several threads."""
    if not messages:
        raise TrialFailed("the file holds no message: give it lines as `keepsake publish` takes them")
    casts = {(message.user_id, message.cast) for message in messages}
    if len(casts) > 1:
        raise TrialFailed(
            f"the file holds {len(casts)} threads, and a window is of one: give a file for each user and cast"
        )
    ((user, cast),) = casts
    characters = split_cast(cast)
    return WindowRequest(
        request_id="00000000-0000-0000-0000-000000000000",
        user_id=user,
        character_ids=characters,
        epoch=1,
        number=1,
        attempt=1,
        versions=dict.fromkeys(characters, 0),
        relationships=dict.fromkeys(characters),
        messages=tuple(
            WindowMessage(
                position=number,
                message_id=message.message_id,
                session_id=message.session_id,
                role=message.role,
                text=message.text,
                sent_at=message.sent_at,
                speaker=message.speaker,
                source_mode=message.source_mode,
            )
            for number, message in enumerate((m for m in messages if m.role != "system"), 1)
        ),
    )


async def run_trial(
    request: WindowRequest, prompts: Prompts, name: str, model: str | None, settings: Settings
) -> Trial:
    """Render; with a model ("provider:model") ask it once and judge what it answers.

    Raises ProviderError, ProviderNotConfigured, TrialFailed.
    """
    if model is None:
        return Trial(render_extraction(await prompts.get(name), request))
    provider, _, model_name = model.partition(":")
    if provider == "offline":
        raw = (await OfflineExtractor().extract(request)).raw
        return _judged(Trial(None, raw), raw, request)
    if not model_name:
        raise TrialFailed(f"{model!r} names no model: write provider:model, like gemini:gemini-2.5-flash")
    prompt = render_extraction(await prompts.get(name), request)
    opened = open_model(provider, model_name, provider_access(settings))
    try:
        completion = await opened.complete(prompt)
    finally:
        await opened.close()
    tokens = (completion.input_tokens, completion.output_tokens)
    return _judged(Trial(prompt, completion.text, tokens), completion.text, request)


def _judged(trial: Trial, raw: str, request: WindowRequest) -> Trial:
    try:
        trial.judged = judge(raw, request)
    except BadAnswer as error:
        trial.problem = error.reason
    else:
        trial.dropped = dict(trial.judged.dropped)
    return trial
