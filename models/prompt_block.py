"""The system text of a context: persona, reference data in its wrapper, and the rules behind it (R32–R35)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from models.history import HistoryMessage
from models.inert import inert
from models.memory import KeyDetail, MemoryContent, Plan, Quote, RelationshipState
from models.phrases import PHRASES, Phrases
from models.relative_time import Locale, elapsed, relative_day

# What a model would take for the user in a memory; the name is ours, no one else's.
USER = "user"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory as a context tells it. `is_kept_longest`: it is pinned or has an importance slot (R37)."""

    memory_id: str
    date: date
    created_at: datetime
    content: MemoryContent
    is_kept_longest: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What the wrapper holds. `relationships` are by character; `due` and `overdue` plans of any memory; `memories`
    in any order; `before` and `after` are lines of the characters for which the messages have no place."""

    now: datetime
    last_spoke: datetime | None = None
    relationships: tuple[tuple[str, RelationshipState], ...] = ()
    due: tuple[Plan, ...] = ()
    overdue: tuple[Plan, ...] = ()
    memories: tuple[Remembered, ...] = ()
    before: tuple[HistoryMessage, ...] = ()
    after: tuple[HistoryMessage, ...] = ()


def render_system(persona: str, reference: Reference, mark: str, characters: int, locale: Locale) -> str:
    """The system text. `mark` names the wrapper: it must be one that nobody can have guessed; `characters` is how many
    are in the cast."""
    phrases = PHRASES[locale]
    lines = list(_reference_lines(reference, phrases, locale))
    wrapper = [f"<{mark}>", *lines, f"</{mark}>"]
    parts = [
        persona,
        phrases.reference.format(mark=mark),
        "\n".join(wrapper),
        _rules(phrases, characters),
    ]
    return "\n\n".join(part for part in parts if part)


def without_memories(persona: str, characters: int, locale: Locale) -> str:
    """The system text when nothing is known: the persona, and the rules all the same (R34)."""
    return "\n\n".join(part for part in (persona, _rules(PHRASES[locale], characters)) if part)


def _rules(phrases: Phrases, characters: int) -> str:
    rules = [phrases.if_unknown]
    if characters > 1:
        rules.append(phrases.not_involved)
    return "\n".join(rules)


def _reference_lines(reference: Reference, phrases: Phrases, locale: Locale) -> Iterator[str]:
    now, today = reference.now, reference.now.date()
    yield phrases.now.format(when=f"{now:%Y-%m-%d %H:%M} (UTC{now:%z})")
    if reference.last_spoke is not None:
        yield phrases.last_spoke.format(when=elapsed(reference.last_spoke, now, locale))
    for name, state in reference.relationships:
        yield from _section(
            phrases.relationship.format(name=inert(name)), _relationship_lines(state, phrases)
        )
    yield from _section(phrases.due_today, (f"- {inert(plan.text)}" for plan in reference.due))
    yield from _section(
        phrases.overdue,
        (f"- {_when(plan.date, today, locale)} {inert(plan.text)}" for plan in reference.overdue),
    )
    oldest_first = sorted(reference.memories, key=lambda one: (one.date, one.created_at, one.memory_id))
    yield from _section(
        phrases.memories,
        (line for memory in oldest_first for line in _memory_lines(memory, today, phrases, locale)),
    )
    yield from _said(reference.before, phrases.said_before)
    yield from _said(reference.after, phrases.said_last)


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"# {heading}"
        yield from found


def _relationship_lines(state: RelationshipState, phrases: Phrases) -> Iterator[str]:
    if state.summary:
        yield f"- {inert(state.summary)}"
    for heading, value in (
        (phrases.form_of_address, state.form_of_address),
        (phrases.tone, state.tone),
        (phrases.current_state, state.current_state),
    ):
        if value:
            yield f"- {heading}: {inert(value)}"
    for heading, items in (
        (phrases.unkept_promises, state.unkept_promises),
        (phrases.limits, state.limits),
    ):
        yield from (f"- {heading}: {inert(item)}" for item in items)


def _memory_lines(memory: Remembered, today: date, phrases: Phrases, locale: Locale) -> Iterator[str]:
    content = memory.content
    told = _when(memory.date.isoformat(), today, locale)
    category = f" [{inert(content.category)}]" if content.category else ""
    yield f"- {told}{category} {inert(content.summary)}"
    if content.involved:
        yield f"  - {phrases.involved}: {', '.join(_name(name, phrases) for name in content.involved)}"
    for detail in content.key_details:
        yield f"  - {_detail(detail, phrases)}"
    for plan in content.plans:
        yield f"  - {phrases.plan} {_when(plan.date, today, locale)} {inert(plan.text)}"


def _detail(detail: KeyDetail, phrases: Phrases) -> str:
    context = f" ({inert(detail.context)})" if detail.context else ""
    if isinstance(detail, Quote):
        return f"{_name(detail.speaker, phrases)}: “{inert(detail.text)}”{context}"
    return f"{_name(detail.actor, phrases)}: {inert(detail.text)}{context}"


def _name(name: str, phrases: Phrases) -> str:
    return phrases.user if name == USER else inert(name)


def _when(day: str, today: date, locale: Locale) -> str:
    """A day with how long ago it is; a month or a year as it is."""
    if len(day) < len("2026-03-20"):
        return f"({inert(day)})"
    try:
        return f"({day}, {relative_day(date.fromisoformat(day), today, locale)})"
    except ValueError:  # a day that no calendar has
        return f"({inert(day)})"


def _said(lines: Sequence[HistoryMessage], heading: str) -> Iterator[str]:
    for line in lines:
        name = inert(str(line.metadata.get("speaker") or "")) or "?"
        yield f"- {heading.format(name=name)}: “{inert(line.content)}”"
