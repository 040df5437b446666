"""How long ago, or how soon, in words: 3일 전, yesterday, 2週間後 (R32)."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Literal

Locale = Literal["ko", "en", "ja"]
Unit = Literal["minute", "hour", "day", "week", "month", "year"]

DAYS_A_WEEK, DAYS_A_MONTH, DAYS_A_YEAR = 7, 30, 365
# Up to here days are counted, then weeks, then months.
LAST_DAY, LAST_WEEK = 13, 59

_KO: dict[Unit, str] = {
    "minute": "분",
    "hour": "시간",
    "day": "일",
    "week": "주",
    "month": "개월",
    "year": "년",
}
_JA: dict[Unit, str] = {
    "minute": "分",
    "hour": "時間",
    "day": "日",
    "week": "週間",
    "month": "か月",
    "year": "年",
}
_NEAR: dict[Locale, dict[int, str]] = {
    "ko": {-2: "모레", -1: "내일", 0: "오늘", 1: "어제", 2: "그저께"},
    "en": {-1: "tomorrow", 0: "today", 1: "yesterday"},
    "ja": {-2: "あさって", -1: "明日", 0: "今日", 1: "昨日", 2: "おととい"},
}
_NOW: dict[Locale, str] = {"ko": "방금 전", "en": "just now", "ja": "たった今"}


def relative_day(day: date, today: date, locale: Locale) -> str:
    """The day as it is told on `today`: by name if it is near, else in days, weeks, months or years."""
    ago = (today - day).days
    if ago in _NEAR[locale]:
        return _NEAR[locale][ago]
    size = abs(ago)
    if size <= LAST_DAY:
        return _told(size, "day", ago > 0, locale)
    if size <= LAST_WEEK:
        return _told(size // DAYS_A_WEEK, "week", ago > 0, locale)
    if size < DAYS_A_YEAR:
        return _told(size // DAYS_A_MONTH, "month", ago > 0, locale)
    return _told(size // DAYS_A_YEAR, "year", ago > 0, locale)


def elapsed(since: datetime, now: datetime, locale: Locale) -> str:
    """How long ago a moment was: in minutes and hours up to a day, then as `relative_day` of the days between."""
    gone = max(now - since, timedelta())
    if gone < timedelta(minutes=1):
        return _NOW[locale]
    if gone < timedelta(hours=1):
        return _told(gone // timedelta(minutes=1), "minute", True, locale)
    if gone < timedelta(days=1):
        return _told(gone // timedelta(hours=1), "hour", True, locale)
    return relative_day(since.astimezone(now.tzinfo).date(), now.date(), locale)


def _told(number: int, unit: Unit, is_past: bool, locale: Locale) -> str:
    return _TOLD[locale](number, unit, is_past)


def _korean(number: int, unit: Unit, is_past: bool) -> str:
    return f"{number}{_KO[unit]} {'전' if is_past else '후'}"


def _japanese(number: int, unit: Unit, is_past: bool) -> str:
    return f"{number}{_JA[unit]}{'前' if is_past else '後'}"


def _english(number: int, unit: Unit, is_past: bool) -> str:
    counted = f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{counted} ago" if is_past else f"in {counted}"


_TOLD: dict[Locale, Callable[[int, Unit, bool], str]] = {"ko": _korean, "en": _english, "ja": _japanese}
