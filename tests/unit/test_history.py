"""R36: a history as each vendor's model takes it, whatever it was; and nothing that was said is lost."""

import json
import unicodedata
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import orjson
import pytest
from anthropic.types import MessageParam
from google import genai
from google.genai import types as gemini
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from models.history import HistoryMessage, Repaired, Role, repaired

ANTHROPIC = TypeAdapter(list[MessageParam])
OPENAI: TypeAdapter[list[ChatCompletionMessageParam]] = TypeAdapter(list[ChatCompletionMessageParam])
GEMINI = genai.Client(api_key="none", http_options={"base_url": "http://127.0.0.1:9"})

SAID = [
    "안녕",
    "오늘 뭐 먹었어? ",
    " 寿司を食べた\n",
    "hello",
    "👩\u200d👧",
    "❤\ufe0f",
    "🏴\U000e0067\U000e007f",
    "۝",
]
BLANK = [
    "",
    " \n\t",
    "\u3000",
    "\u200b\ufeff",
    "\x00",
    "\x1b\x07",
    "\u3164",
    "\uffa0\u115f",
    "\ufe0f",
    "\u2800",
]
BROKEN = ["a\x00b", "\udc00\ud800", "\ud83d\ude00", "\ud83d\x00\ude00", "\ud83d", "\ude00", "끝\ud83d"]
HUGE = "길다 " * 5_000

texts = (
    st.sampled_from([*SAID, *BLANK, *BROKEN, HUGE])
    | st.text(max_size=20)
    | st.text(st.characters(), max_size=8)
    | st.text(st.sampled_from("\ud83d\ude00\x00 \n\u200b\u3164a가日"), max_size=6)
)
roles: st.SearchStrategy[Role] = st.sampled_from(("system", "user", "user", "assistant", "assistant"))
metadata = st.dictionaries(st.sampled_from(("message_id", "sent_at", "mood")), st.integers(), max_size=3)
histories = st.lists(st.builds(HistoryMessage, roles, texts, metadata), max_size=20)


# What the vendors ask for. Each rule is given what its API's `messages` or `contents` would be.


def anthropic_takes(messages: Sequence[HistoryMessage]) -> None:
    """The Messages API (https://platform.claude.com/docs/en/api/messages, `messages`, and what it answers with 400):

    - roles are user and assistant; system text is a parameter of its own;
    - `messages: first message must use the "user" role`;
    - `messages: roles must alternate between "user" and "assistant"`: newer versions combine neighbours instead;
    - `messages: text content blocks must be non-empty`, and `must contain non-whitespace text`;
    - `messages: final assistant content cannot end with trailing whitespace`, and newer models take no final assistant
      message at all (https://platform.claude.com/docs/en/api/errors#prefill-not-supported);
    - `The request body is not valid JSON: no low surrogate in string`.
    """
    body = [{"role": message.role, "content": message.content} for message in messages]
    ANTHROPIC.validate_python(body, strict=True)
    for at, message in enumerate(body):
        assert message["role"] == ("user" if at % 2 == 0 else "assistant")
        assert isinstance(message["content"], str)
        assert message["content"].strip()
    assert not body or body[-1]["role"] == "user"
    is_carried_by_json(body)


def gemini_takes(messages: Sequence[HistoryMessage]) -> None:
    """Content generation (https://ai.google.dev/api/caching#Content, and what it answers with 400):

    - `role` must be either 'user' or 'model';
    - `Please ensure that multiturn requests alternate between user and model`, where newer models take neighbours;
    - a request begins with the user's turn, and `multiturn requests ends with a user role or a function response`;
    - `must include at least one parts field`, and `Model input cannot be empty`;
    - its strings are those of protobuf: UTF-8.
    """
    names = {"user": "user", "assistant": "model"}
    body = [
        {"role": names.get(message.role, message.role), "parts": [{"text": message.content}]}
        for message in messages
    ]
    contents = [gemini.Content.model_validate(content) for content in body]
    # The SDK's chat takes the turns as a history, and leaves out those that it knows to be invalid.
    history: list[Any] = list(contents)
    assert GEMINI.chats.create(model="none", history=history).get_history(curated=True) == contents
    for at, content in enumerate(contents):
        assert content.role == ("user" if at % 2 == 0 else "model")
        assert content.parts
        assert all(part.text and part.text.strip() for part in content.parts)
        assert gemini.Content.model_validate_json(content.model_dump_json()) == content
    assert not contents or contents[-1].role == "user"
    is_carried_by_json(body)


def openai_takes(messages: Sequence[HistoryMessage]) -> None:
    """Chat completions (https://platform.openai.com/docs/api-reference/chat/create, `messages`): roles are those
    that it knows, content is a string. It asks for no order."""
    body = [{"role": message.role, "content": message.content} for message in messages]
    OPENAI.validate_python(body, strict=True)
    assert all(isinstance(message["content"], str) for message in body)
    is_carried_by_json(body)


def is_carried_by_json(body: Sequence[Mapping[str, Any]]) -> None:
    """A body is JSON in UTF-8 (RFC 8259, 8.1), which has no place for surrogates, and comes out as it went in."""
    written = json.dumps(body, ensure_ascii=False).encode()
    assert json.loads(written) == body
    assert orjson.loads(orjson.dumps(body)) == body
    assert b"\\u0000" not in written


VENDORS = (anthropic_takes, gemini_takes, openai_takes)


ROLES: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}


def of(*said: str) -> list[HistoryMessage]:
    """Messages, each with the first letter of its role before it."""
    return [HistoryMessage(ROLES[one[0]], one[1:]) for one in said]


@pytest.mark.parametrize(
    ("takes", "broken"),
    [
        *((takes, of(*said)) for takes in VENDORS[:2] for said in (("ab", "uc"), ("ub", "uc"), ("ub", "ac"))),
        *((takes, of("ub", "sc", "ud")) for takes in VENDORS[:2]),
        *((takes, of("u\u3000\n")) for takes in VENDORS[:2]),
        *((takes, of(said)) for takes in VENDORS for said in ("u\ud83d", "ub\x00")),
        *((takes, [HistoryMessage("model", "a")]) for takes in VENDORS),  # type: ignore[arg-type]  # no role of ours
        *((takes, [HistoryMessage("user", None)]) for takes in VENDORS),  # type: ignore[arg-type]  # no text
    ],
)
def test_the_rules_refuse_what_the_vendors_refuse(
    takes: Callable[[Sequence[HistoryMessage]], None], broken: list[HistoryMessage]
) -> None:
    with pytest.raises((AssertionError, ValueError, TypeError)):
        takes(broken)


@settings(deadline=None)
@given(history=histories)
@example(history=of("u" + HUGE * 100, "a\ud83d", "uㅋ", "u\x00"))
def test_every_vendor_takes_the_messages(history: list[HistoryMessage]) -> None:
    messages = repaired(history).messages
    for takes in VENDORS:
        takes(messages)


# Nothing is lost.


def clean(text: str) -> str:
    """Character by character: a high surrogate before a low one is the character they stand for."""
    found, rest = "", list(reversed(text))
    while rest:
        one = rest.pop()
        if "\ud800" <= one <= "\udbff" and rest and "\udc00" <= rest[-1] <= "\udfff":
            found += chr(0x10000 + (ord(one) - 0xD800) * 0x400 + ord(rest.pop()) - 0xDC00)
        elif unicodedata.category(one) == "Cs":
            found += "\N{REPLACEMENT CHARACTER}"
        elif one != "\0":
            found += one
    return found


def is_nothing(one: str) -> bool:
    """By category and name, for characters that Unicode has assigned."""
    category, name = unicodedata.category(one), unicodedata.name(one, "")
    # Of the format characters these are drawn: signs that span a number, and the joiners of hieroglyphs.
    is_drawn = name.startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN")) and one != "\N{ARABIC LETTER MARK}"
    return (
        one.isspace()
        or category == "Cc"
        or (category == "Cf" and not is_drawn)
        or "VARIATION SELECTOR" in name
        or ("HANGUL" in name and name.endswith("FILLER"))
        or name.startswith("KHMER VOWEL INHERENT")
        or name in ("COMBINING GRAPHEME JOINER", "BRAILLE PATTERN BLANK")
        # Unicode keeps these planes' places for more of the kind.
        or (
            category == "Cn"
            and (0xE0000 <= ord(one) <= 0xE0FFF or one == "\u2065" or "\ufff0" <= one <= "\ufff8")
        )
    )


def is_blank(text: str) -> bool:
    return all(map(is_nothing, text))


def told(history: Sequence[HistoryMessage], role: Role) -> list[str]:
    """What is said in a role, message for message."""
    contents = [clean(message.content) for message in history if message.role == role]
    return [content for content in contents if not is_blank(content)]


def text_of(messages: Sequence[HistoryMessage], role: Role) -> str:
    return "\n".join(message.content for message in messages if message.role == role)


def all_of(found: Repaired) -> tuple[HistoryMessage, ...]:
    return (*found.before, *found.messages, *found.after)


@settings(deadline=None)
@given(history=histories)
def test_no_word_is_lost_and_none_changes_its_place(history: list[HistoryMessage]) -> None:
    found = repaired(history)
    assert text_of(found.messages, "user") == "\n".join(told(history, "user"))
    assert text_of(all_of(found), "assistant") == "\n".join(told(history, "assistant"))
    assert {message.role for message in (*found.before, *found.after)} <= {"assistant"}
    assert {message.role for message in found.messages} <= {"user", "assistant"}


@settings(deadline=None)
@given(history=histories)
def test_to_repair_again_changes_nothing(history: list[HistoryMessage]) -> None:
    found = repaired(history)
    assert repaired(found.messages) == Repaired(found.messages, (), ())
    assert repaired(all_of(found)) == found


def slowly_repaired(history: Sequence[HistoryMessage]) -> Repaired:
    """Rule by rule, one step at a time, until no rule has anything to do."""
    left = [HistoryMessage(one.role, clean(one.content), one.metadata) for one in history]
    while True:
        gone = [at for at, one in enumerate(left) if one.role == "system" or is_blank(one.content)]
        if not gone:
            break
        del left[gone[0]]
    while True:
        pairs = [at for at in range(len(left) - 1) if left[at].role == left[at + 1].role]
        if not pairs:
            break
        # From the end, so that what is merged is merged into the one before it.
        one, other = left[pairs[-1] : pairs[-1] + 2]
        later_first = ChainMap(dict(other.metadata), dict(one.metadata))
        left[pairs[-1] : pairs[-1] + 2] = [
            HistoryMessage(one.role, f"{one.content}\n{other.content}", dict(later_first))
        ]
    before: list[HistoryMessage] = []
    after: list[HistoryMessage] = []
    while left and left[0].role != "user":
        before.append(left.pop(0))
    while left and left[-1].role != "user":
        after.insert(0, left.pop())
    return Repaired(tuple(left), tuple(before), tuple(after))


@settings(deadline=None)
@given(history=histories)
def test_it_is_as_the_slow_way_has_it(history: list[HistoryMessage]) -> None:
    was = deepcopy(history)
    assert repaired(history) == slowly_repaired(history)
    assert history == was


# Examples.


def test_a_history_out_of_order() -> None:
    history = of(
        *("s너는 하루야.", "a안녕! ", "a나 하루야.", "u안녕", "s…", "u 오늘 뭐 했어?\n"),
        *("a寿司を食べた", "u\u200b", "a👍", "unice", "a또 봐"),
    )
    assert repaired(history) == Repaired(
        messages=tuple(of("u안녕\n 오늘 뭐 했어?\n", "a寿司を食べた\n👍", "unice")),
        before=tuple(of("a안녕! \n나 하루야.")),
        after=tuple(of("a또 봐")),
    )


def test_the_later_ones_metadata_wins_key_by_key() -> None:
    history = [
        HistoryMessage("user", "a", {"id": 1, "mood": "x"}),
        HistoryMessage("system", "no", {"id": 7}),
        HistoryMessage("user", " ", {"id": 8}),
        HistoryMessage("user", "b", {"id": 2, "at": None}),
    ]
    [message] = repaired(history).messages
    assert (message.content, message.metadata) == ("a\nb", {"id": 2, "mood": "x", "at": None})


@pytest.mark.parametrize("said", [(), ("sx",), ("ax",), ("ax", "sx", "ay"), ("ax", "u\u3164\x00", "ay")])
def test_without_a_word_of_the_user_all_is_before(said: tuple[str, ...]) -> None:
    lines = "\n".join(one[1:] for one in said if one[0] == "a")
    assert repaired(of(*said)) == Repaired((), tuple(of(f"a{lines}")) if lines else (), ())


@pytest.mark.parametrize("text", BLANK)
def test_what_a_model_sees_as_nothing_is_removed(text: str) -> None:
    assert repaired(of(f"u{text}", f"a{text}")) == Repaired((), (), ())


@pytest.mark.parametrize(
    ("text", "carried"),
    [
        *((text, text) for text in SAID),
        ("a\x00b", "ab"),
        ("\ud800", "\ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ud83d\x00\ude00", "\ufffd\ufffd"),
        ("끝\ud83d", "끝\ufffd"),
        ("\ufeff😀\ude00.", "\ufeff😀\ufffd."),
    ],
)
def test_only_what_json_cannot_carry_is_replaced(text: str, carried: str) -> None:
    assert repaired(of(f"u{text}")).messages == tuple(of(f"u{carried}"))


def test_halves_in_two_messages_do_not_become_a_character() -> None:
    assert repaired(of("u\ud83d", "u\ude00")).messages == tuple(of("u\ufffd\n\ufffd"))


def test_every_character_is_seen_or_not_as_its_name_and_category_have_it() -> None:
    planes = (*range(0xD800), *range(0xF900, 0x20000), *range(0xE0000, 0xF0000))
    assert not [
        f"U+{at:04X}"
        for at in planes
        # Ideographs and syllables of Hangul are too many to ask for one by one.
        if not (0x3400 <= at < 0xA000 or 0xAC00 <= at < 0xD7A4)
        and bool(repaired(of(f"u{chr(at)}")).messages) == is_nothing(chr(at))
    ]


@pytest.mark.timeout(60)
def test_a_run_is_merged_in_time_that_grows_with_its_length() -> None:
    """To copy the text so far for each of them would take many minutes, not a second or two."""
    history = [HistoryMessage("user", "말" * 500, {f"key {at}": at}) for at in range(50_000)]
    [message] = repaired(history).messages
    assert len(message.content) == 50_000 * 501 - 1
    assert len(message.metadata) == 50_000
