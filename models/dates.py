"""Words for days, resolved against the day on which they were said, never today (I9).

A year alone stays a year, a month alone a month; what leaves the day open ("next week", "3/4", "soon") is
not resolved: its words are kept as they are.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from models.day_words import COUNTS, DAYS, FEASTS, MONTHS, UNIT_DAYS, UNIT_MONTHS, WEEKS, YEARS
from models.language import Language, language_of

# Which way a day without a year or a week lies: what is told has been, what is planned is to come.
Direction = Literal["past", "ahead", "near"]

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = {"ko": "월화수목금토일", "ja": "月火水木金土日"}
_ENGLISH_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKEND = frozenset({"주말", "週末", "weekend"})
_BACK = frozenset({"전", "ago", "前"})


@dataclass(frozen=True, slots=True)
class Dated:
    """Words at `start`..`end` of a text, and the day, month or year (ISO 8601) that they mean."""

    start: int
    end: int
    iso: str


def find_dates(text: str, day: date, language: Language, direction: Direction = "near") -> list[Dated]:
    """The dates that a text names, said on `day`, in order; of two that overlap the longer one.

    A month and day without a year is the nearest one, a weekday alone the next to come; `direction` says
    otherwise.
    """
    found: list[Dated] = []
    for pattern, resolve in _RULES[language]:
        for match in pattern.finditer(text):
            try:
                iso = resolve(match, day, direction)
            except (ValueError, OverflowError, KeyError):  # the 30th of February, the year 99999
                continue
            if iso is not None:
                found.append(Dated(match.start(), match.end(), iso))
    kept: list[Dated] = []
    for dated in sorted(found, key=lambda d: (d.start - d.end, d.start)):
        if all(dated.end <= other.start or other.end <= dated.start for other in kept):
            kept.append(dated)
    return sorted(kept, key=lambda d: d.start)


def _offset(match: re.Match[str], day: date, _direction: Direction) -> str:
    word = re.sub(r"\s+", " ", match[0].lower()).removeprefix("the ")
    return (day + timedelta(days=DAYS[word])).isoformat()


def _weekday(match: re.Match[str], day: date, direction: Direction) -> str:
    """A day of this, the next or the last week (from Monday on); without one of these, the next or last such day."""
    groups = match.groupdict()
    name = groups["weekday"].lower()
    if name in _WEEKEND:
        target = 5
    elif name[:3] in _ENGLISH_DAYS:
        target = _ENGLISH_DAYS.index(name[:3])
    else:
        target = (_WEEKDAYS["ko"] if name in _WEEKDAYS["ko"] else _WEEKDAYS["ja"]).index(name)
    week = groups.get("week")
    if week:
        shift = WEEKS[re.sub(r"\s+", "", week.lower())]
        return (day + timedelta(days=target - day.weekday() + 7 * shift)).isoformat()
    if direction == "past":
        return (day - timedelta(days=(day.weekday() - target) % 7 or 7)).isoformat()
    coming = day + timedelta(days=(target - day.weekday()) % 7 or 7)
    return (coming + timedelta(days=7 * _count(groups.get("more")))).isoformat()


def _count(number: str | None) -> int:
    if not number:
        return 0
    number = re.sub(r"\s+", " ", number.lower())
    return int(number[:5]) if number.isdecimal() else COUNTS[number.removeprefix("a ")]


def _distance(match: re.Match[str], day: date, _direction: Direction) -> str:
    """So many days or weeks away: a day; so many months: a month; so many years: a year."""
    groups = match.groupdict()
    unit = groups["unit"].lower()
    count = _count(groups.get("number")) or 1
    if match["way"].lower() in _BACK:
        count = -count
    if unit in UNIT_MONTHS:
        month = _shifted_month(day, count * UNIT_MONTHS[unit])
        return month[:4] if UNIT_MONTHS[unit] == 12 else month
    return (day + timedelta(days=count * UNIT_DAYS[unit])).isoformat()


def _shifted_month(day: date, shift: int) -> str:
    year, month = divmod(day.year * 12 + day.month - 1 + shift, 12)
    return f"{year:04d}-{month + 1:02d}"


def _calendar(match: re.Match[str], day: date, direction: Direction) -> str | None:
    """A month and day, in the year named or else the one that the direction says."""
    groups = match.groupdict()
    month, number = _month_number(groups["month"]), int(groups["day"])
    year = _year_of(groups, day)
    return date(year, month, number).isoformat() if year else _yearly(month, number, day, direction)


def _yearly(month: int, number: int, day: date, direction: Direction) -> str | None:
    days = [date(y, month, number) for y in range(day.year - 1, day.year + 2) if _exists(y, month, number)]
    if direction == "ahead":
        days = [one for one in days if one >= day]
    elif direction == "past":
        days = [one for one in days if one <= day]
    return min(days, key=lambda one: abs((one - day).days)).isoformat() if days else None


def _feast(match: re.Match[str], day: date, direction: Direction) -> str | None:
    month, number = FEASTS[match["feast"].lower().replace("’", "'")]
    return _yearly(month, number, day, direction)


def _month_number(name: str) -> int:
    return int(name) if name.isdecimal() else _MONTHS.index(name[:3].lower()) + 1


def _year_of(groups: dict[str, str], day: date) -> int | None:
    """The year that a match names, in figures or by a word."""
    if groups.get("year"):
        return int(groups["year"])
    word = groups.get("near_year")
    return day.year + YEARS[word.lower()] if word else None


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _month(match: re.Match[str], day: date, _direction: Direction) -> str:
    """The last, this or the next month, or a day of it."""
    month = _shifted_month(day, MONTHS[match["way"].lower()])
    number = match.groupdict().get("day")
    return date.fromisoformat(f"{month}-{int(number):02d}").isoformat() if number else month


def _named_month(match: re.Match[str], day: date, direction: Direction) -> str:
    """A month by its name or number, in the year named or else the one that the direction says."""
    groups = match.groupdict()
    month = _month_number(groups["month"])
    year = _year_of(groups, day)
    if year is None:
        shift = (month - day.month) % 12
        if direction == "past" or (direction == "near" and shift > 6):
            shift -= 12
        return _shifted_month(day, shift)
    return f"{year:04d}-{date(year, month, 1).month:02d}"


def _month_day(match: re.Match[str], day: date, direction: Direction) -> str:
    """A day of the month alone: the next such day, or the last."""
    number = int(match["day"])
    step = -1 if direction == "past" else 1
    for shift in range(3):
        month = _shifted_month(day, step * shift)
        if _exists(int(month[:4]), int(month[5:]), number):
            found = date.fromisoformat(f"{month}-{number:02d}")
            if (found - day).days * step >= 0:
                return found.isoformat()
    raise ValueError("no month has such a day")


def _year(match: re.Match[str], day: date, _direction: Direction) -> str:
    groups = match.groupdict()
    return f"{_year_of(groups, day):04d}"


def _iso(match: re.Match[str], _day: date, _direction: Direction) -> str:
    return date(int(match["year"]), int(match["month"]), int(match["day"])).isoformat()


Resolve = Callable[[re.Match[str], date, Direction], str | None]
Rule = tuple[re.Pattern[str], Resolve]


def _any(words: dict[str, int] | dict[str, tuple[int, int]], language: Language) -> str:
    """The words of a language, longer ones first, as an alternative of a pattern."""
    chosen = [word for word in words if language_of(word) == language]
    return "|".join(re.escape(word).replace(r"\ ", " ?") for word in sorted(chosen, key=len, reverse=True))


def _rules(language: Language) -> Iterator[Rule]:
    def rule(pattern: str, resolve: Resolve) -> Rule:
        return re.compile(pattern, re.IGNORECASE), resolve

    yield rule(r"(?<!\d)(?P<year>\d{4})[-./](?P<month>\d{1,2})[-./](?P<day>\d{1,2})(?!\d)", _iso)
    years = _any(YEARS, language)
    if language == "ko":
        week = (
            "(?P<week>지지난 ?주|저저번 ?주|지난 ?주|저번 ?주|이번 ?주|다다음 ?주|다담주|담담주|다음 ?주|담주|금주|차주"
            "|지난|저번|이번|다음)"
        )
        yield rule(f"(?<![가-힣])(?:{_any(DAYS, language)})", _offset)
        yield rule(rf"{week} ?(?P<weekday>[월화수목금토일](?=요일)|주말)(?:요일)?", _weekday)
        yield rule(
            r"(?:다가오는|돌아오는|오는) (?P<weekday>[월화수목금토일](?=요일)|주말)(?:요일)?", _weekday
        )
        yield rule(r"(?<![주째] )(?<![주째])(?P<weekday>[월화수목금토일])요일(?!마다|은 항상)", _weekday)
        yield rule(r"(?P<week>)(?<!매 )(?P<weekday>주말)에(?!는)", _weekday)
        yield rule(
            r"(?<![가-힣\d])(?P<number>\d+|[일이삼사오육한두세네]|다섯|여섯)"
            " ?(?P<unit>주일|일|주|달|개월|년) ?(?P<way>뒤|후|전)",
            _distance,
        )
        yield rule(
            r"(?P<number>하루|이틀|사흘|나흘|닷새|엿새|열흘|보름) ?(?P<unit>)(?P<way>뒤|후|전)", _distance
        )
        year = rf"(?:(?:(?P<year>\d{{4}})년|(?P<near_year>{years})) ?)?"
        yield rule(rf"{year}(?<!\d)(?P<month>\d{{1,2}})월 ?(?P<day>\d{{1,2}})일", _calendar)
        yield rule(rf"{year}(?<!\d)(?P<month>\d{{1,2}})월(?! ?\d)", _named_month)
        yield rule(r"(?P<way>지지난|지난|저번|이번|다다음|다음|담) ?달(?: ?(?P<day>\d{1,2})일)?", _month)
        yield rule(
            r"(?<![\d월] )(?<![\d월])(?P<day>\d{1,2})일"
            "(?=에|까지|부터|날|이야|이에요| ?오전| ?오후| ?저녁|이 )",
            _month_day,
        )
        yield rule(f"(?P<feast>{_any(FEASTS, language)})", _feast)
        yield rule(rf"(?P<near_year>{years})|(?<!\d)(?P<year>(?:19|20)\d\d)년(?! ?\d)", _year)
    elif language == "ja":
        week = "(?P<week>再来週|先々週|先週|今週|来週)の?"
        yield rule(_any(DAYS, language), _offset)
        yield rule(f"{week}(?P<weekday>[月火水木金土日](?=曜)|週末)(?:曜日?)?", _weekday)
        yield rule(
            r"(?<!毎週)(?<!第\d)(?<!第[一二三四])(?<!最終)(?P<weekday>[月火水木金土日])曜日?", _weekday
        )
        yield rule("(?P<week>)(?P<weekday>週末)に", _weekday)
        number = r"(?P<number>\d+|[一二三四五六七八九十])"
        yield rule(rf"{number} ?(?P<unit>日|週間|か月|ヶ月|カ月|ヵ月|年)(?P<way>後|前)", _distance)
        year = rf"(?:(?:(?P<year>\d{{4}})年|(?P<near_year>{years})の?))?"
        yield rule(rf"{year}(?<!\d)(?P<month>\d{{1,2}})月の?(?P<day>\d{{1,2}})日", _calendar)
        yield rule(rf"{year}(?<!\d)(?P<month>\d{{1,2}})月(?!の?\d)", _named_month)
        yield rule(r"(?P<way>先々|先|今|再来|来)月(?:の?(?P<day>\d{1,2})日)?", _month)
        yield rule(r"(?<![\d月の])(?P<day>\d{1,2})日(?=に|まで|から|の)", _month_day)
        yield rule(f"(?P<feast>{_any(FEASTS, language)})", _feast)
        yield rule(rf"(?P<near_year>{years})|(?<!\d)(?P<year>(?:19|20)\d\d)年(?!の?\d)", _year)
    else:
        yield rule(rf"\b(?:the )?(?:{_any(DAYS, language)})\b", _offset)
        days = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
        count = r"(?P<number>\d+|a couple of|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve)"
        # "The first Monday in June" is another matter.
        ordinal = "".join(
            rf"(?<!\b{word} )" for word in ("first", "second", "third", "fourth", "last", "every", "each")
        )
        length = rf"{count} (?P<unit>days?|weeks?|fortnights?|months?|years?)"
        yield rule(rf"\b(?P<week>last|this|next) (?P<weekday>{days}|weekend)\b(?! (?:of|in) )", _weekday)
        yield rule(
            rf"{ordinal}\b(?:(?:on|by|until|till|this coming|coming|from) )?(?P<weekday>{days})\b(?!s)(?! (?:of|in) )",
            _weekday,
        )
        yield rule(rf"\b(?P<more>a|one|two|three) weeks? (?:from|on) (?P<weekday>{days})\b", _weekday)
        yield rule(rf"\b(?P<way>in) {length}(?:'s? time)?\b", _distance)
        yield rule(rf"\b{length} (?P<way>ago|from now|from today)\b", _distance)
        month = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
        year = r"(?:,? (?P<year>\d{4}))?"
        yield rule(rf"\b{month} (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:){year}", _calendar)
        yield rule(rf"\b(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{month}\b{year}", _calendar)
        full = "(?P<month>january|february|april|june|july|august|september|october|november|december)"
        yield rule(rf"\b(?:(?:in|by|this|next|since|until|last) )?{full}\b(?! \d){year}", _named_month)
        yield rule(r"\b(?:in|by|since|until) (?P<month>march|may)\b", _named_month)
        yield rule(r"\b(?P<way>last|this|next) month\b", _month)
        yield rule(
            r"\bthe (?P<day>\d{1,2})(?:st|nd|rd|th)\b(?! (?:of|floor|time|grade|place|century|one))",
            _month_day,
        )
        yield rule(f"(?P<feast>{_any(FEASTS, language)})", _feast)
        yield rule(r"\b(?P<near_year>last|this|next) year\b", _year)
        yield rule(r"\b(?:in|since|by|from|of) (?P<year>(?:19|20)\d\d)\b", _year)


_RULES: dict[Language, tuple[Rule, ...]] = {
    "ko": tuple(_rules("ko")),
    "en": tuple(_rules("en")),
    "ja": tuple(_rules("ja")),
}
