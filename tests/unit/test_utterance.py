"""R27: short utterances that refer back are searched with what the user said before; new topics are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.referring import referring_words
from models.utterance import MAX_WIDENED, SHORT, WideningRules, refers_back, widened

RULES = WideningRules(referring_words())


@pytest.mark.parametrize(
    "text",
    [
        *(
            "그거 어떻게 됐어?",
            "걔 이름 뭐였지",
            "응",
            "언제였지?",
            "아까 말한 거",
            "ㅋㅋ 왜",
            "ㅇㅇ",
            "그 영화 제목",
        ),
        *("Where is it?", "yeah", "how did it go?", "and then?", "What did he say?", "OK!"),
        *("それどうなった?", "うん", "で、どうだった?", "あの話", "そうだね", "さっきの"),
    ],
)
def test_what_points_back_or_only_acknowledges(text: str) -> None:
    assert refers_back(text, RULES)
    assert widened(text, ["older", "newer"], RULES) == f"older newer {text}"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "엄마 생신은?",
            "그럼 시험은?",
            "나이?",
            "일본은?",
            "하늘",
            "나 지갑 어디에 뒀지",
            "그거 말고 생일은?",
        ),
        *("and my rent?", "what's my dog called", "my exam?", "btw is it May?"),
        *("母の誕生日は?", "病院いつだっけ", "ところで、それ"),
    ],
)
def test_what_names_a_subject_of_its_own(text: str) -> None:
    assert widened(text, ["older", "newer"], RULES) == text


def test_decomposed_hangul_is_read_alike() -> None:
    assert refers_back("\u1100\u1173\u1100\u1165 왜?", RULES)


def test_a_long_utterance_is_searched_by_itself() -> None:
    text = "그거 " + "가" * SHORT
    assert widened(text, ["before"], RULES) == text
    assert widened("그거", ["   "], RULES) == "그거"


@given(st.text(), st.lists(st.text(), max_size=3))
def test_the_query_stays_whole_within_the_bound(query: str, recent: list[str]) -> None:
    found = widened(query, recent, RULES)
    text = query.strip()
    assert found.endswith(text)
    assert len(found) <= max(MAX_WIDENED, len(text))
    assert found == text or len(text) < SHORT
    # Of what was said before it is the end that is taken.
    before = " ".join(part for message in recent[-2:] if (part := message.strip()))
    assert found == text or before.endswith(found[: len(found) - len(text) - 1])
