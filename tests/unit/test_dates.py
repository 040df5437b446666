"""Words for days against the day of speaking (I9), in three languages."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.dates import Direction, find_dates
from models.language import Language

TUESDAY = date(2026, 3, 3)


@pytest.mark.parametrize(
    ("text", "language", "direction", "expected"),
    [
        ("어제 갔어", "ko", "past", ["2026-03-02"]),
        ("그저께부터 아팠어", "ko", "past", ["2026-03-01"]),
        ("내일모레 면접", "ko", "ahead", ["2026-03-05"]),
        ("모레 봐", "ko", "ahead", ["2026-03-05"]),
        ("글피에 이사", "ko", "ahead", ["2026-03-06"]),
        ("다음 주 수요일에 시험", "ko", "ahead", ["2026-03-11"]),
        ("담주 월요일", "ko", "ahead", ["2026-03-09"]),
        ("다다음주 금요일", "ko", "ahead", ["2026-03-20"]),
        ("지난주 토요일에", "ko", "past", ["2026-02-28"]),
        ("이번 주말에", "ko", "ahead", ["2026-03-07"]),
        ("다음 주에 언젠가", "ko", "ahead", []),
        ("토요일에 갈 거야", "ko", "ahead", ["2026-03-07"]),
        ("토요일에 갔었어", "ko", "past", ["2026-02-28"]),
        ("매주 토요일에 뛰어", "ko", "near", []),
        ("3일 뒤에", "ko", "ahead", ["2026-03-06"]),
        ("일주일 전에", "ko", "past", ["2026-02-24"]),
        ("보름 후", "ko", "ahead", ["2026-03-18"]),
        ("두 달 뒤", "ko", "ahead", ["2026-05"]),
        ("3년 전에", "ko", "past", ["2023"]),
        ("5월 12일이야", "ko", "ahead", ["2026-05-12"]),
        ("1월 2일에 갔어", "ko", "past", ["2026-01-02"]),
        ("내년 1월 2일", "ko", "ahead", ["2027-01-02"]),
        ("2월 10일", "ko", "ahead", ["2027-02-10"]),
        ("내년 4월에 결혼", "ko", "ahead", ["2027-04"]),
        ("11월에 태어나", "ko", "ahead", ["2026-11"]),
        ("다음 달 3일", "ko", "ahead", ["2026-04-03"]),
        ("다음달에", "ko", "ahead", ["2026-04"]),
        ("15일에 발표", "ko", "ahead", ["2026-03-15"]),
        ("2일까지 내야 해", "ko", "ahead", ["2026-04-02"]),
        ("크리스마스에", "ko", "ahead", ["2026-12-25"]),
        ("2026년 목표", "ko", "near", ["2026"]),
        ("작년 겨울", "ko", "past", ["2025"]),
        ("2월 30일", "ko", "near", []),
        ("어제오늘 일이 아냐", "ko", "near", ["2026-03-02"]),
        ("yesterday", "en", "past", ["2026-03-02"]),
        ("the day after tomorrow", "en", "ahead", ["2026-03-05"]),
        ("next Saturday", "en", "ahead", ["2026-03-14"]),
        ("this Saturday", "en", "ahead", ["2026-03-07"]),
        ("on Friday I'm off", "en", "ahead", ["2026-03-06"]),
        ("on Friday we lost", "en", "past", ["2026-02-27"]),
        ("the last Friday of May", "en", "ahead", []),
        ("the first Monday in June", "en", "ahead", ["2026-06"]),
        ("every Monday", "en", "near", []),
        ("마지막 주 금요일", "ko", "ahead", []),
        ("둘째 토요일", "ko", "ahead", []),
        ("第3金曜", "ja", "ahead", []),
        ("Fridays are for pizza", "en", "near", []),
        ("a week on Friday", "en", "ahead", ["2026-03-13"]),
        ("in three weeks", "en", "ahead", ["2026-03-24"]),
        ("two months ago", "en", "past", ["2026-01"]),
        ("in a fortnight's time", "en", "ahead", ["2026-03-17"]),
        ("March 14th, 2027", "en", "near", ["2027-03-14"]),
        ("the 14th of May", "en", "ahead", ["2026-05-14"]),
        ("on the 9th", "en", "ahead", ["2026-03-09"]),
        ("in October", "en", "ahead", ["2026-10"]),
        ("I may go", "en", "ahead", []),
        ("next month", "en", "ahead", ["2026-04"]),
        ("next week", "en", "ahead", []),
        ("by 2030", "en", "ahead", ["2030"]),
        ("3/4", "en", "ahead", []),
        ("on Christmas Eve", "en", "ahead", ["2026-12-24"]),
        ("昨日", "ja", "past", ["2026-03-02"]),
        ("明後日", "ja", "ahead", ["2026-03-05"]),
        ("来週の水曜日", "ja", "ahead", ["2026-03-11"]),
        ("今週末に", "ja", "ahead", ["2026-03-07"]),
        ("土曜に会う", "ja", "ahead", ["2026-03-07"]),
        ("土曜に会った", "ja", "past", ["2026-02-28"]),
        ("毎週土曜に走る", "ja", "near", []),
        ("三週間後", "ja", "ahead", ["2026-03-24"]),
        ("二か月前", "ja", "past", ["2026-01"]),
        ("来月10日", "ja", "ahead", ["2026-04-10"]),
        ("来年の4月", "ja", "ahead", ["2027-04"]),
        ("5月12日", "ja", "ahead", ["2026-05-12"]),
        ("20日に引っ越す", "ja", "ahead", ["2026-03-20"]),
        ("来週", "ja", "ahead", []),
        ("去年の夏", "ja", "past", ["2025"]),
        ("2024-12-31", "ja", "near", ["2024-12-31"]),
    ],
)
def test_words_for_days(text: str, language: Language, direction: Direction, expected: list[str]) -> None:
    assert [dated.iso for dated in find_dates(text, TUESDAY, language, direction)] == expected


@given(
    st.text(alphabet="0123456789년월일 다음주토요후전달next FridayMch年月日来週曜昨", max_size=40),
    st.sampled_from(["ko", "en", "ja"]),
    st.dates(),
    st.sampled_from(["past", "ahead", "near"]),
)
def test_what_is_found_is_in_the_text_and_a_date(
    text: str, language: Language, day: date, direction: Direction
) -> None:
    end = 0
    for dated in find_dates(text, day, language, direction):
        assert end <= dated.start < dated.end <= len(text)
        end = dated.end
        date.fromisoformat(dated.iso + {4: "-01-01", 7: "-01"}.get(len(dated.iso), ""))
