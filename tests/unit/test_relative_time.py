"""R32: times as people tell them, in Korean, English and Japanese."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from models.relative_time import Locale, elapsed, relative_day

TODAY = date(2026, 7, 1)
KST = timezone(timedelta(hours=9))
DAYS = [
    (0, "오늘", "today", "今日"),
    (1, "어제", "yesterday", "昨日"),
    (2, "그저께", "2 days ago", "おととい"),
    (3, "3일 전", "3 days ago", "3日前"),
    (13, "13일 전", "13 days ago", "13日前"),
    (14, "2주 전", "2 weeks ago", "2週間前"),
    (59, "8주 전", "8 weeks ago", "8週間前"),
    (60, "2개월 전", "2 months ago", "2か月前"),
    (364, "12개월 전", "12 months ago", "12か月前"),
    (365, "1년 전", "1 year ago", "1年前"),
    (800, "2년 전", "2 years ago", "2年前"),
    (-1, "내일", "tomorrow", "明日"),
    (-2, "모레", "in 2 days", "あさって"),
    (-20, "2주 후", "in 2 weeks", "2週間後"),
    (-400, "1년 후", "in 1 year", "1年後"),
]


@pytest.mark.parametrize(("ago", "korean", "english", "japanese"), DAYS)
def test_days(ago: int, korean: str, english: str, japanese: str) -> None:
    day = TODAY - timedelta(days=ago)
    told: dict[Locale, str] = {"ko": korean, "en": english, "ja": japanese}
    assert {locale: relative_day(day, TODAY, locale) for locale in told} == told


@pytest.mark.parametrize(
    ("gone", "korean", "english"),
    [
        (timedelta(seconds=-5), "방금 전", "just now"),
        (timedelta(seconds=59), "방금 전", "just now"),
        (timedelta(minutes=1), "1분 전", "1 minute ago"),
        (timedelta(minutes=59), "59분 전", "59 minutes ago"),
        (timedelta(hours=1), "1시간 전", "1 hour ago"),
        (timedelta(hours=23, minutes=59), "23시간 전", "23 hours ago"),
        (timedelta(hours=24), "어제", "yesterday"),
        (timedelta(days=3), "3일 전", "3 days ago"),
    ],
)
def test_moments(gone: timedelta, korean: str, english: str) -> None:
    now = datetime(2026, 7, 1, 12, tzinfo=KST)
    assert (elapsed(now - gone, now, "ko"), elapsed(now - gone, now, "en")) == (korean, english)


def test_days_are_those_of_the_zone_of_now() -> None:
    now = datetime(2026, 7, 1, 1, tzinfo=KST)
    assert elapsed(datetime(2026, 6, 29, 14, 59, tzinfo=UTC), now, "en") == "2 days ago"
    assert elapsed(datetime(2026, 6, 29, 15, tzinfo=UTC), now, "en") == "yesterday"
