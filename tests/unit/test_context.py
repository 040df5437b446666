"""R32–R37: what a context holds, in which order it gives way to a budget, and that there is no hole in it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context import Context, ContextRules
from agents.opening import MemoryOpener
from agents.recall import Recall, RecallRules
from agents.row_codec import Overlay, RowCodec
from agents.talk import Talk
from infra.referring import referring_words
from models.candidates import Coverage
from models.context import ContextRequest, ContextResponse
from models.context_fit import BudgetTooSmall, ContextParts, compose, fit
from models.ids import make_cast
from models.memory import MemoryContent, Plan, Quote, RelationshipState
from models.phrases import PHRASES
from models.prompt_block import Reference, Remembered, render_system, without_memories
from models.rows import (
    MessageKey,
    MessageRow,
    PairKey,
    PairRow,
    ThreadKey,
    ThreadKeyKey,
    ThreadKeyRow,
    ThreadQueue,
    ThreadRow,
    UserKey,
    UserRow,
)
from models.store_errors import StoreUnavailable
from models.talk import Line, ThreadTalk, last_spoke, recent_talk, with_query
from models.utterance import WideningRules
from tests.unit.memories import (
    USER,
    FakeCounters,
    FakeEmbedder,
    FakeIndex,
    FakeReports,
    FakeTokens,
    Vault,
    found,
)

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
PERSONA = "You are Mina.\nYou like rain."


class World:
    """A context of a user whose threads are written as the ledger does."""

    def __init__(self) -> None:
        self.vault = Vault()
        self.codec = RowCodec(self.vault.sealer)
        self.index = FakeIndex()
        self.counters = FakeCounters()
        self.offset = 0
        talk = Talk(self.vault, self.codec, self.counters, 5)
        opener = MemoryOpener(self.vault.cipher, self.vault)
        recall = Recall(
            index=self.index,
            embedder=FakeEmbedder(),
            opener=opener,
            sealer=self.vault.sealer,
            talk=talk,
            counters=self.counters,
            reports=FakeReports(),
            rules=RecallRules(WideningRules(referring_words()), deadline_seconds=30),
        )
        self.context = Context(
            recall=recall,
            index=self.index,
            opener=opener,
            talk=talk,
            view=self.vault,
            estimator=FakeTokens(),
            clock=NOW.astimezone,
            rules=ContextRules(UTC, deadline_seconds=30),
        )

    def say(self, *lines: str, characters: tuple[str, ...] = ("mina",), speaker: str | None = None) -> None:
        """Lines of a thread: those that begin with > are the character's."""
        rows = Overlay(self.vault.get, self.codec)
        cast = make_cast(characters)
        pairs = []
        for character in characters:
            pair = rows.get(PairKey(USER, character)) or PairRow(1, self.vault.key(character))
            pair.relationship = RelationshipState(summary=f"friends of {character}")
            rows.put(PairKey(USER, character), pair)
            pairs.append(pair)
        owner = rows.get(UserKey(USER)) or UserRow()
        owner.threads.setdefault(cast, ThreadQueue())
        rows.put(UserKey(USER), owner)
        thread = rows.get(ThreadKey(USER, cast)) or ThreadRow()
        if rows.get(ThreadKeyKey(USER, cast, 1)) is None:
            rows.put(
                ThreadKeyKey(USER, cast, 1), ThreadKeyRow(self.codec.thread_key(USER, cast, 1, tuple(pairs)))
            )
        for line in lines:
            self.offset += 1
            at = NOW - timedelta(days=2) + timedelta(minutes=self.offset)
            rows.put(
                MessageKey(USER, cast, 1, thread.next_position),
                MessageRow(
                    message_id=f"m{self.offset}",
                    session_id="s",
                    role="assistant" if line.startswith(">") else "user",
                    text=line.removeprefix(">"),
                    sent_at=at.isoformat(),
                    timestamp=int(at.timestamp() * 1000),
                    offset=self.offset,
                    speaker=speaker if line.startswith(">") else None,
                ),
            )
            thread.next_position += 1
        rows.put(ThreadKey(USER, cast), thread)
        self.vault.rows.update({key: row for key, row in rows.encode().items() if row is not None})

    async def compose(self, **asked: Any) -> ContextResponse:
        request = {"user_id": USER, "character_ids": ["mina"], "persona": PERSONA, **asked}
        return await self.context.context(ContextRequest.model_validate(request))


def said(answer: ContextResponse) -> list[str]:
    return [f"{'' if one.role == 'user' else '>'}{one.content}" for one in answer.messages]


async def test_a_context_holds_persona_state_plans_memories_talk_and_rules() -> None:
    world = World()
    memory = world.vault.memory(1, "likes red wine")
    world.index.found = found([(memory, 0.9)], mina=1)
    content = MemoryContent(
        summary="has plans",
        plans=(
            Plan(date="2026-07-01", text="see the dentist"),
            Plan(date="2026-06-29", text="call Ann"),
            Plan(date="2026-06-01", text="long ago"),
            Plan(date="2026-07", text="some day in July"),
        ),
    )
    planned = world.vault.memory(2, "x")
    payload = world.vault.cipher.seal(
        planned.memory_id, USER, planned.characters, [world.vault.key("mina")], content
    )
    world.index.planned = [replace(planned, payload=payload)]
    world.say("hello", ">hi")
    answer = await world.compose(query="Do you remember?")
    assert answer.system.startswith(PERSONA)
    assert answer.system.endswith(PHRASES["en"].if_unknown)
    lines = answer.system.splitlines()
    for line in (
        "Now: 2026-07-01 12:00 (UTC+0000)",
        "They last spoke: 2 days ago",
        "- friends of mina",
        "- see the dentist",
        "- (2026-06-29, 2 days ago) call Ann",
        "- (2026-01-01, 6 months ago) likes red wine",
        "  - the user: “likes red wine”",
    ):
        assert line in lines
    assert "long ago" not in answer.system
    assert "some day" not in answer.system
    assert said(answer) == ["hello", ">hi", "Do you remember?"]
    assert [one.summary for one in answer.memories] == ["likes red wine"]
    assert (answer.degraded, answer.tokens) == (None, None)


async def test_what_is_not_covered_is_recent_talk_however_much() -> None:
    world = World()
    talk = [line for n in range(20) for line in (f"u{n}", f">a{n}")]
    world.say(*talk)
    world.index.covered = Coverage(40)
    assert said(await world.compose(query="now")) == [*talk[-12:], "now"]
    assert said(await world.compose(query="now", turns=1)) == [*talk[-2:], "now"]
    assert said(await world.compose(query="now", turns=0)) == ["now"]
    world.index.covered = Coverage(10)
    assert said(await world.compose(query="now", turns=1)) == [*talk[10:], "now"]
    # A hole in what is covered: a parked window.
    world.index.covered = Coverage(10, ((21, 40),))
    assert said(await world.compose(query="now", turns=1)) == [*talk[10:20], *talk[-2:], "now"]
    world.index.error = StoreUnavailable("away")
    answer = await world.compose(query="now", turns=1)
    assert said(answer) == [*talk, "now"]
    assert answer.degraded == "index_unavailable"


async def test_lines_that_have_no_place_among_the_messages_are_reference_data() -> None:
    world = World()
    world.say(">Welcome!", "hi", ">How are you?", speaker="mina")
    answer = await world.compose()
    assert said(answer) == ["hi"]
    assert "- mina said before this conversation's first message: “Welcome!”" in answer.system
    assert "- mina said last: “How are you?”" in answer.system


async def test_the_message_to_answer_is_there_once() -> None:
    world = World()
    world.say("one", ">1", "응", ">2")
    world.index.covered = Coverage(4)
    assert said(await world.compose(query="응")) == ["one", ">1", "응", ">2", "응"]
    world.say("응")
    assert said(await world.compose(query="응")) == ["one", ">1", "응", ">2", "응"]
    world.say("또")
    assert said(await world.compose(query="응")) == ["one", ">1", "응", ">2", "응\n또"]
    answer = await world.compose(query="새 말", recent_user_messages=["또", "아직 안 온 말"])
    assert said(answer)[-1] == "응\n또\n아직 안 온 말\n새 말"


async def test_a_view_that_is_not_complete_is_told_and_the_callers_words_are_kept() -> None:
    world = World()
    world.vault.complete = False
    answer = await world.compose(query="now", recent_user_messages=["before"])
    assert (said(answer), answer.degraded) == (["before\nnow"], "view_unavailable")


async def test_rows_that_cannot_be_read_end_no_turn() -> None:
    world = World()
    world.say("hello", ">hi")
    for key in list(world.vault.rows):
        if key.startswith(b"threads"):
            world.vault.rows[key] = b"?"
    answer = await world.compose(query="now")
    assert (said(answer), answer.degraded) == (["now"], "view_unavailable")
    assert PHRASES["en"].if_unknown in answer.system


async def test_scenes_say_who_spoke_and_that_others_know_nothing() -> None:
    world = World()
    world.say("alone", ">yes")
    world.say("both", ">I am Yuna", characters=("mina", "yuna"), speaker="yuna")
    answer = await world.compose(character_ids=["mina", "yuna"], query="now")
    assert said(answer) == ["alone", ">yes", "both", ">yuna: I am Yuna", "now"]
    assert PHRASES["en"].not_involved in answer.system
    assert "# Relationship with yuna" in answer.system
    answer = await world.compose(character_ids=["yuna", "yuna"], query="now")
    assert said(answer) == ["both", ">I am Yuna", "now"]
    assert PHRASES["en"].not_involved not in answer.system


@pytest.mark.parametrize(
    ("asked", "locale"),
    [
        ({"query": "안녕"}, "ko"),
        ({"query": "こんにちは"}, "ja"),
        ({"query": "hi", "locale": "ja"}, "ja"),
        ({"query": "🙂"}, "en"),
        ({"query": "?!", "persona": "너는 미나야."}, "ko"),
    ],
)
async def test_times_and_headings_are_in_the_language_of_the_talk(asked: dict[str, str], locale: Any) -> None:
    assert PHRASES[locale].if_unknown in (await World().compose(**asked)).system


async def test_a_budget_drops_and_tells() -> None:
    world = World()
    world.index.found = found(
        [(world.vault.memory(n, f"memory {n} " + "x" * 300), 0.9 - n / 100) for n in range(1, 6)], mina=5
    )
    world.say(*[line for n in range(8) for line in (f"u{n} " + "y" * 100, f">a{n}")])
    whole = await world.compose(query="now", token_budget=1_000_000)
    assert whole.tokens is not None
    assert (len(whole.memories), whole.degraded) == (5, None)
    less = await world.compose(query="now", token_budget=whole.tokens - 1)
    assert len(less.memories) == 4
    for memory in less.memories:
        assert memory.summary in less.system
    small = await world.compose(query="now", token_budget=900)
    assert (small.memories, small.degraded) == ((), "talk_dropped")
    assert said(small)[-1] == "now"
    bare = await world.compose(query="now", token_budget=len(without_memories(PERSONA, 1, "en")) + 7)
    assert (said(bare), bare.degraded) == (["now"], "talk_dropped")
    assert bare.system == without_memories(PERSONA, 1, "en")
    with pytest.raises(BudgetTooSmall, match="take"):
        await world.compose(query="now", token_budget=10)


def remembered(number: int, *, kept: bool = False) -> Remembered:
    content = MemoryContent(summary=f"memory {number}", key_details=(Quote(speaker="user", text="I did"),))
    at = NOW - timedelta(days=number)
    return Remembered(str(number), at.date(), at, content, is_kept_longest=kept)


def line(number: int, role: Any = "user", *, covered: bool = False, text: str | None = None) -> Line:
    return Line(role, text or f"line {number}", NOW.isoformat(), 0, number, None, covered)


PARTS = st.builds(
    ContextParts,
    persona=st.just(PERSONA),
    character_ids=st.sampled_from([("a",), ("a", "b")]),
    locale=st.sampled_from(["ko", "en", "ja"]),
    mark=st.just("memories-x"),
    reference=st.just(Reference(NOW, due=(Plan(date="2026-07-01", text="go"),))),
    memories=st.lists(st.booleans(), max_size=8).map(
        lambda kept: tuple(remembered(n, kept=one) for n, one in enumerate(kept))
    ),
    talk=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.booleans()), max_size=12).map(
        lambda said: tuple(line(n, role, covered=covered) for n, (role, covered) in enumerate(said))
    ),
    query=st.sampled_from(["", "what now?"]),
)


@given(parts=PARTS, budget=st.integers(1, 3_000))
def test_a_context_never_exceeds_its_budget(parts: ContextParts, budget: int) -> None:
    try:
        composed, tokens = fit(parts, budget, len)
    except BudgetTooSmall:
        assert (
            budget
            < len(without_memories(PERSONA, len(parts.character_ids), parts.locale)) + len(parts.query) + 100
        )
        return
    assert tokens <= budget
    assert tokens == len(composed.system) + sum(len(one.content) + 4 for one in composed.messages)
    assert composed.system.startswith(PERSONA)
    assert PHRASES[parts.locale].if_unknown in composed.system
    if parts.query:
        assert composed.messages[-1].content.endswith(parts.query)
    # Lowest rank first, and those that are kept longest last.
    gone = [one for one in parts.memories if one not in composed.memories]
    assert [one for one in parts.memories if one in composed.memories] == list(composed.memories)
    for one in gone:
        assert not [
            other
            for other in composed.memories
            if (other.is_kept_longest, -int(other.memory_id)) < (one.is_kept_longest, -int(one.memory_id))
        ]
    shown = composed.system + "".join(one.content for one in composed.messages)
    missing = [one for one in parts.talk if one.text not in shown]
    assert not missing or not composed.memories
    assert composed.dropped_talk == any(not one.covered for one in missing)


@given(parts=PARTS, budget=st.integers(300, 3_000), more=st.integers(0, 500))
def test_a_bigger_budget_never_holds_less(parts: ContextParts, budget: int, more: int) -> None:
    try:
        small, _ = fit(parts, budget, len)
    except BudgetTooSmall:
        return
    large, _ = fit(parts, budget + more, len)
    assert set(small.memories) <= set(large.memories)
    assert len(small.messages) <= len(large.messages)
    assert len(compose(parts).memories) == len(parts.memories)


def test_memories_are_told_oldest_first_with_all_that_they_hold() -> None:
    content = MemoryContent(
        summary="went to Busan",
        key_details=(Quote(speaker="mina", text="I'll wait", context="at the station"),),
        involved=("한시우", "user"),
        plans=(Plan(date="2026-08", text="again"),),
        category="travel",
    )
    old = Remembered("b", date(2026, 6, 1), NOW, content)
    system = render_system(PERSONA, Reference(NOW, memories=(remembered(1), old)), "m", 1, "ko")
    lines = [one for one in system.splitlines() if one.startswith(("- ", "  - "))]
    assert lines == [
        "- (2026-06-01, 4주 전) [travel] went to Busan",
        "  - 관련 인물: 한시우, 사용자",
        "  - mina: “I'll wait” (at the station)",
        "  - 계획 (2026-08) again",
        "- (2026-06-30, 어제) memory 1",
        "  - 사용자: “I did”",
    ]


@given(
    said=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.booleans()), max_size=30),
    turns=st.integers(0, 8),
)
def test_recent_talk_has_the_last_turns_and_loses_nothing_uncovered(
    said: list[tuple[str, bool]], turns: int
) -> None:
    lines = [line(n, role, covered=covered) for n, (role, covered) in enumerate(said)]
    kept = recent_talk(lines, turns)
    assert [one for one in lines if not one.covered] == [one for one in kept if not one.covered]
    assert kept == sorted(kept, key=lambda one: one.offset)
    begun = [
        n for n, one in enumerate(lines) if one.role == "user" and (n == 0 or lines[n - 1].role != "user")
    ]
    if turns and begun:
        start = begun[-turns] if len(begun) >= turns else 0
        assert set(lines[start:]) <= set(kept)
        assert all(not one.covered for one in kept if one.offset < start)


def test_threads_are_merged_in_the_order_of_the_log() -> None:
    threads = [ThreadTalk(("a",), (line(1), line(4))), ThreadTalk(("a", "b"), (line(2), line(3)))]
    lines, query = with_query(threads, (), "new")
    assert ([one.offset for one in lines], query) == ([1, 2, 3, 4], "new")
    assert last_spoke(lines, "new") == NOW
    assert last_spoke([], "new") is None
    assert last_spoke([line(1, text="new")], "new") is None
