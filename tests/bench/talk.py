"""What people say, for the benchmark of recall: the labelled conversations of tests/eval, cut into windows."""

from dataclasses import dataclass
from functools import cache

from infra.offline_extractor.terms import search_terms
from models.tokens import index_tokens
from tests.eval.scenario import LANGUAGES, load

LINES, STEP = 4, 2
QUERIES_EACH = 4


@dataclass(frozen=True)
class Window:
    """A few lines of one conversation with their search terms and tokens; `subject` numbers the conversation."""

    subject: int
    category: str
    lines: tuple[str, ...]
    terms: tuple[str, ...]
    tokens: tuple[str, ...]


@cache
def windows() -> tuple[Window, ...]:
    """About 1,100, in Korean, English and Japanese, with 30 tokens each on average."""
    found = []
    for subject, scenario in enumerate(load()):
        lines = [message.text for message in scenario.messages if message.role == "user"]
        for start in range(0, max(1, len(lines) - LINES + 1), STEP):
            said = tuple(lines[start : start + LINES])
            terms = tuple(search_terms(said, scenario.lang))
            if terms:
                tokens = tuple(index_tokens(terms))
                found.append(Window(subject, scenario.category, said, terms, tokens))
    return tuple(found)


@cache
def queries() -> tuple[str, ...]:
    """Questions about those conversations, as many in each language."""
    found: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    for scenario in load():
        for probe in scenario.probes:
            plain = probe.mode == "relevant" and not probe.filters and not probe.recent_user_messages
            if plain and len(found[scenario.lang]) < QUERIES_EACH:
                found[scenario.lang].append(probe.query)
    return tuple(query for some in found.values() for query in some)
