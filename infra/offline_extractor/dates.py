"""Words for days, resolved against the day on which they were said, never today (I9)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from infra.offline_extractor.lexicon import Language, load

_WORDS: dict[str, dict[str, int]] = load("days")
HALF_A_YEAR = timedelta(days=182)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = {
    "ko": "월화수목금토일",
    "ja": "月火水木金土日",
}
_ENGLISH_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"


@dataclass(frozen=True, slots=True)
class Dated:
    """Words at `start`..`end` of a text, and the day, month or year (ISO 8601) that they mean."""

    start: int
    end: int
    iso: str


def find_dates(text: str, day: date, language: Language, *, ahead: bool = False) -> list[Dated]:
    """The dates that a text names, said on `day`, in order; of two that overlap the longer one.

    `ahead`: the text says what is meant to be, so that a month and day without a year are yet to come.
    """
    found: list[Dated] = []
    for pattern, resolve in _RULES[language]:
        for match in pattern.finditer(text):
            try:
                # The nearest to half a year from now is the next to come.
                iso = resolve(match, day + HALF_A_YEAR if ahead and resolve is _calendar else day)
            except (ValueError, OverflowError, KeyError):  # the 30th of February, the year 99999
                continue
            if iso is not None:
                found.append(Dated(match.start(), match.end(), iso))
    kept: list[Dated] = []
    for dated in sorted(found, key=lambda d: (d.start - d.end, d.start)):
        if all(dated.end <= other.start or other.end <= dated.start for other in kept):
            kept.append(dated)
    return sorted(kept, key=lambda d: d.start)


def _offset(match: re.Match[str], day: date) -> str:
    return (day + timedelta(days=_WORDS["days"][re.sub(r"\s+", " ", match[0].lower())])).isoformat()


def _weekday(match: re.Match[str], day: date) -> str:
    """A day of this, the next or the last week (from Monday on); without one of these, the next to come."""
    groups = match.groupdict()
    name = groups["weekday"].lower()
    if name in ("주말", "週末", "weekend"):
        target = 5
    elif name[:3] in _ENGLISH_DAYS:
        target = _ENGLISH_DAYS.index(name[:3])
    else:
        target = (_WEEKDAYS["ko"] if name in _WEEKDAYS["ko"] else _WEEKDAYS["ja"]).index(name)
    week = groups.get("week")
    if not week:
        return (day + timedelta(days=(target - day.weekday()) % 7 or 7)).isoformat()
    shift = _WORDS["weeks"][re.sub(r"\s+", "", week.lower())]
    return (day + timedelta(days=target - day.weekday() + 7 * shift)).isoformat()


def _distance(match: re.Match[str], day: date) -> str:
    """So many days or weeks away: a day; so many months: a month."""
    number, unit = match["number"].lower(), match["unit"].lower()
    count = int(number[:5]) if number.isdecimal() else _WORDS["counts"][number]
    if match["way"].lower() in ("전", "ago", "前"):
        count = -count
    if unit in _WORDS["month_units"]:
        return _shifted_month(day, count)
    return (day + timedelta(days=count * (_WORDS["units"][unit] if unit else 1))).isoformat()


def _shifted_month(day: date, shift: int) -> str:
    year, month = divmod(day.year * 12 + day.month - 1 + shift, 12)
    return f"{year:04d}-{month + 1:02d}"


def _calendar(match: re.Match[str], day: date) -> str | None:
    """A month and day, in the year named or else the nearest one."""
    groups = match.groupdict()
    name = groups["month"].lower()
    month = int(name) if name.isdecimal() else _MONTHS.index(name[:3]) + 1
    number = int(groups["day"])
    if groups.get("year"):
        return date(int(groups["year"]), month, number).isoformat()
    years = [date(y, month, number) for y in range(day.year - 1, day.year + 2) if _exists(y, month, number)]
    return min(years, key=lambda d: abs((d - day).days)).isoformat() if years else None


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _month(match: re.Match[str], day: date) -> str:
    month = _shifted_month(day, _WORDS["months"][match["way"].lower()])
    number = match.groupdict().get("day")
    return date.fromisoformat(f"{month}-{int(number):02d}").isoformat() if number else month


def _year(match: re.Match[str], day: date) -> str:
    return f"{day.year + _WORDS['years'][match['way'].lower()]:04d}"


def _iso(match: re.Match[str], _day: date) -> str:
    return date(int(match["year"]), int(match["month"]), int(match["day"])).isoformat()


Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], str | None]]


def _rules(language: Language) -> Iterator[Rule]:
    def rule(pattern: str, resolve: Callable[[re.Match[str], date], str | None]) -> Rule:
        return re.compile(pattern, re.IGNORECASE), resolve

    yield rule(r"(?<!\d)(?P<year>\d{4})[-./](?P<month>\d{1,2})[-./](?P<day>\d{1,2})(?!\d)", _iso)
    if language == "ko":
        week = "(?P<week>지난 ?주|저번 ?주|이번 ?주|다다음 ?주|다음 ?주|담주|지난|저번|이번|다음)"
        yield rule("내일모레|엊그저께|그저께|엊그제|그제|어젯밤|어제|오늘|내일|모레|글피", _offset)
        yield rule(rf"{week} ?(?P<weekday>[월화수목금토일](?=요일)|주말)(?:요일)?", _weekday)
        yield rule(r"(?<!매주 )(?P<weekday>[월화수목금토일])요일(?!마다)", _weekday)
        yield rule(r"(?P<week>)(?<!매 )(?P<weekday>주말)에", _weekday)
        yield rule(
            r"(?P<number>\d+|[일이삼한두세]) ?(?P<unit>주일|일|주|달|개월) ?(?P<way>뒤|후|전)", _distance
        )
        yield rule(r"(?P<number>하루|이틀|사흘|나흘|열흘|보름) ?(?P<unit>)(?P<way>뒤|후|전)", _distance)
        yield rule(r"(?:(?P<year>\d{4})년 ?)?(?P<month>\d{1,2})월 ?(?P<day>\d{1,2})일", _calendar)
        yield rule(r"(?P<way>지난|저번|이번|다음|담) ?달(?: ?(?P<day>\d{1,2})일)?", _month)
        yield rule("(?P<way>작년|올해|내년)", _year)
    elif language == "ja":
        days = "明々後日|しあさって|一昨日|おととい|昨日|きのう|昨夜|今日|きょう|今夜|今晩|今朝"
        yield rule(f"{days}|明後日|あさって|明日|あした", _offset)
        yield rule(
            "(?P<week>再来週|先週|今週|来週)の?(?P<weekday>[月火水木金土日](?=曜)|週末)(?:曜日?)?", _weekday
        )
        yield rule("(?P<weekday>[月火水木金土日])曜", _weekday)
        yield rule("(?P<week>)(?P<weekday>週末)に", _weekday)
        yield rule(r"(?P<number>\d+|[一二三]) ?(?P<unit>日|週間|か月|ヶ月)(?P<way>後|前)", _distance)
        yield rule(r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?P<day>\d{1,2})日", _calendar)
        yield rule(r"(?P<way>先|今|来)月(?:の?(?P<day>\d{1,2})日)?", _month)
        yield rule("(?P<way>去年|今年|来年)", _year)
    else:
        yield rule(r"\b(?:day before yesterday|day after tomorrow|yesterday|tomorrow)\b", _offset)
        yield rule(r"\b(?:last night|today|tonight|this (?:evening|morning))\b", _offset)
        days = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
        count = r"(?P<number>\d+|an?|one|two|three|four|five|six|ten) (?P<unit>days?|weeks?|months?)"
        year = r"(?:,? (?P<year>\d{4}))?"
        yield rule(rf"\b(?P<week>last|this|next) (?P<weekday>{days}|weekend)\b", _weekday)
        yield rule(rf"\b(?:on|by|until|this coming) (?P<weekday>{days})\b", _weekday)
        yield rule(rf"\b(?P<way>in) {count}\b", _distance)
        yield rule(rf"\b{count} (?P<way>ago|from now)\b", _distance)
        yield rule(rf"\b{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b{year}", _calendar)
        yield rule(rf"\b(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}\b{year}", _calendar)
        yield rule(r"\b(?P<way>last|this|next) month\b", _month)
        yield rule(r"\b(?P<way>last|this|next) year\b", _year)


_RULES: dict[Language, tuple[Rule, ...]] = {
    "ko": tuple(_rules("ko")),
    "en": tuple(_rules("en")),
    "ja": tuple(_rules("ja")),
}
