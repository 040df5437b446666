"""Finding the JSON object in a model's raw answer (R10): untrusted text that is often not quite one.

Prose or fences may stand round it, with braces of their own; strings may hold NUL and lone surrogates. What
is whole but not quite JSON (single quotes, trailing commas, comments, bare keys) is repaired; what was cut
off is not: the rest of it may have said something else.
"""

import json
import re
from collections.abc import Iterator
from typing import cast

import json_repair

MAX_ANSWER = 200_000
# A failing start costs a scan of what follows it, so their number is bounded.
_MAX_STARTS = 500
# The repair library takes seconds over thousands of open braces; an answer has a few dozen.
_MAX_REPAIRED = 50_000
_MAX_BRACES = 400
_MAX_REPAIRS = 8
# Keys that tell an answer from other objects in the prose: an example, an entry of a list.
_SIGNS = (frozenset({"summary", "keydetails"}), frozenset({"nothing"}))
_WRAPPERS = ("memory", "result", "answer", "response", "data", "output")

_OBJECT = re.compile(r"""\{\s*(?://[^\n]*\n\s*)?(?:"[^"\n]{1,40}"|'[^'\n]{1,40}'|\w{1,40})\s*:""")
_FENCE = re.compile(r"```\w*\s*(\{.*?\})\s*```", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# Line feed and tab stay; other control characters and lone surrogates have no place in a text.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class BadAnswer(Exception):
    """An answer that cannot be used. `reason` is a fixed word:

    empty, too_long, no_json, truncated, no_summary, summary_too_long, contradictory, in_character; and those that a
    second answer may mend: no_user_detail, other_language.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def clean(text: str) -> str:
    """The text without control characters and lone surrogates, trimmed."""
    return _UNWANTED.sub("", text).strip()


def fold_key(key: str) -> str:
    """One spelling for `keyDetails`, `key_details`, `Key-Details`."""
    return re.sub(r"[\s_-]", "", key).casefold()


def fold_keys(data: dict[str, object]) -> dict[str, object]:
    """The object with folded keys; of two that fold alike the first counts."""
    folded: dict[str, object] = {}
    for key, value in data.items():
        folded.setdefault(fold_key(key), value)
    return folded


def find_answer(raw: str) -> dict[str, object]:
    """The answer's object, its keys folded. Raises BadAnswer: empty, too_long, no_json, truncated."""
    if len(raw) > MAX_ANSWER:
        raise BadAnswer("too_long")
    text = raw.strip("\ufeff \t\r\n\x00")
    if not text:
        raise BadAnswer("empty")
    whole = _parse(text)
    if whole is not None:
        found = _unwrap(whole)
        if found is None:
            raise BadAnswer("no_json")
        return found
    return _search(text)


def _search(text: str) -> dict[str, object]:
    """The last object in the text that looks like an answer: drafts and examples come before it."""
    decoder = _decoder()
    found: dict[str, object] | None = None
    truncated = False
    at = -1
    for _ in range(_MAX_STARTS):
        at = text.find("{", at + 1)
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            # An object that begins like one and does not end was cut off; {so} in the prose was none.
            truncated = truncated or bool(re.match(r"""\{\s*["']""", text[at : at + 40]))
            continue
        candidate = _unwrap(value)
        if candidate is not None and any(signs <= candidate.keys() for signs in _SIGNS):
            found = candidate
        at = end - 1
    if found is None:
        found = _repaired(text)
    if found is None:
        raise BadAnswer("truncated" if truncated else "no_json")
    return found


def _repaired(text: str) -> dict[str, object] | None:
    """The last whole object that looks like an answer once it is repaired."""
    found: dict[str, object] | None = None
    for piece in _pieces(text):
        if len(piece) > _MAX_REPAIRED or piece.count("{") > _MAX_BRACES or not _is_whole(piece):
            continue
        try:
            value: object = json_repair.loads(piece, skip_json_loads=True)
        except (ValueError, RecursionError):
            continue
        candidate = _unwrap(value)
        if candidate is not None and any(signs <= candidate.keys() for signs in _SIGNS):
            found = candidate
    return found


def _pieces(text: str) -> Iterator[str]:
    """What may be an object: each that begins like one up to the last brace; fenced blocks, which are surer, last."""
    end = text.rfind("}") + 1
    starts = [match.start() for match in _OBJECT.finditer(text, 0, end)]
    yield from (text[start:end] for start in reversed(starts[:_MAX_REPAIRS]))
    yield from (match[1] for match in list(_FENCE.finditer(text))[-_MAX_REPAIRS:])


def _is_whole(piece: str) -> bool:
    """Whether as many braces are closed as were opened, those within double quotes aside."""
    depth = 0
    for brace in re.findall("[{}]", _STRING.sub("", piece)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _parse(text: str) -> object:
    try:
        return cast(object, _decoder().decode(text))
    except (ValueError, RecursionError):
        return None


def _decoder() -> json.JSONDecoder:
    # strict=False takes raw line feeds in strings; NaN and infinities are no values of ours.
    return json.JSONDecoder(strict=False, parse_constant=lambda _name: None)


def _unwrap(value: object) -> dict[str, object] | None:
    """The object itself, out of a list of one or an object such as {"memory": {…}}."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return None
    folded = fold_keys(value)
    for name in _WRAPPERS:
        inner = folded.get(name)
        if isinstance(inner, dict) and "summary" not in folded:
            rest = {key: entry for key, entry in folded.items() if key != name}
            return {**rest, **fold_keys(inner)}
    return folded
