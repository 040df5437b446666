"""What `keepsake prompts try` does: one window's prompt, and with a model its answer, judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.ports import Prompts, ProviderError
from infra.offline_extractor import OfflineExtractor
from models.answer import BadAnswer
from models.assignments import OFFLINE, OFFLINE_MODEL, InvalidAssignment, ModelRef
from models.extraction import Judged, judge
from models.ids import split_cast
from models.messages import ChatMessage
from models.prompt import RenderedPrompt, render_extraction
from models.requests import WindowMessage, WindowRequest
from streams.errors import Explained
from streams.model_check import explained
from streams.model_factory import ask_once
from streams.settings import Settings


class TrialFailed(Explained):
    """The conversation cannot be tried; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A prompt, and what came of it. `prompt` None: the rules take none; `raw` None: no model was asked.

    `tokens` are those read and written; `problem` is why the answer was refused.
    """

    prompt: RenderedPrompt | None
    raw: str | None = None
    tokens: tuple[int, int] = (0, 0)
    judged: Judged | None = None
    problem: str | None = None


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
    """Render; with a model ("provider:model", or "offline") ask it once and judge what it answers.

    Raises TrialFailed, ProviderNotConfigured; LookupError: no prompt of that name.
    """
    if model is None:
        return Trial(render_extraction(await prompts.get(name), request))
    chosen = _model(model)
    if chosen.offline:
        raw = (await OfflineExtractor().extract(request)).raw
        return Trial(None, raw, (0, 0), *_judged(raw, request))
    prompt = render_extraction(await prompts.get(name), request)
    try:
        completion = await ask_once(chosen, prompt, settings)
    except ProviderError as error:
        raise TrialFailed(f"{chosen} cannot be used: {explained(error)}") from None
    tokens = (completion.input_tokens, completion.output_tokens)
    return Trial(prompt, completion.text, tokens, *_judged(completion.text, request))


def _model(text: str) -> ModelRef:
    try:
        return OFFLINE_MODEL if text == OFFLINE else ModelRef.parse(text)
    except InvalidAssignment as error:
        raise TrialFailed(str(error)) from None


def _judged(raw: str, request: WindowRequest) -> tuple[Judged | None, str | None]:
    """What is kept of an answer, or why it is refused."""
    try:
        return judge(raw, request), None
    except BadAnswer as error:
        return None, error.reason
