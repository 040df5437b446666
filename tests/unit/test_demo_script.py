"""The bundled conversations: valid messages, in order, that make what the demo announces."""

from collections import Counter
from zoneinfo import ZoneInfo

import orjson
import pytest

from models.ids import make_cast
from models.messages import parse_chat_message
from streams.demo.script import QUESTIONS, Conversation, conversations
from streams.settings import Settings

CONVERSATIONS = [pytest.param(talk, id=talk.user) for talk in conversations()]
THRESHOLD = Settings.model_fields["threshold"].default


@pytest.mark.parametrize("talk", CONVERSATIONS)
def test_every_line_is_a_message_of_one_pair_in_order(talk: Conversation) -> None:
    parsed = [
        parse_chat_message(
            orjson.dumps(message),
            key=talk.user.encode(),
            timestamp=4_102_444_800_000,
            offset=0,
            zone=ZoneInfo("UTC"),
        )
        for message in talk.messages
    ]
    assert {(message.user_id, message.cast) for message in parsed} == {
        (talk.user, make_cast([talk.character]))
    }
    assert len({message.message_id for message in parsed}) == len(parsed)
    assert [message.sent_at for message in parsed] == sorted(message.sent_at for message in parsed)


@pytest.mark.parametrize("talk", CONVERSATIONS)
def test_the_last_window_closes_at_the_end(talk: Conversation) -> None:
    users = sum(message["role"] == "user" for message in talk.messages)
    assert users % THRESHOLD == 0
    assert talk.messages[-1]["role"] == "assistant"


def test_no_session_of_the_companion_reaches_the_threshold_alone() -> None:
    companion = conversations()[0]
    sessions = Counter(message["session_id"] for message in companion.messages if message["role"] == "user")
    assert [sessions[f"korean-{number}"] for number in (1, 2, 3)] == [2, 2, 2]
    assert max(sessions.values()) < THRESHOLD


def test_every_question_is_of_a_pair_that_talked() -> None:
    pairs = {(talk.user, talk.character) for talk in conversations()}
    assert {(question.user, question.character) for question in QUESTIONS} == pairs
