"""What was said and is no memory yet, by the ledger's rows: recent talk (R32, I11), and where it stands (R31)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.ports import CannotOpen, Counters, LedgerView
from agents.row_codec import Overlay, RowCodec, decode_window
from models.candidates import Coverage
from models.ids import SEP, split_cast
from models.memory import RelationshipState
from models.recall import TalkState
from models.rows import (
    MessageKey,
    MessageRow,
    PairKey,
    Rows,
    ThreadKey,
    ThreadQueue,
    ThreadRow,
    UserKey,
    WindowKey,
)
from models.talk import Line, ThreadTalk


@dataclass(frozen=True, slots=True)
class TalkThread:
    """A thread of a user as its rows have it."""

    cast: str
    queue: ThreadQueue
    row: ThreadRow

    @property
    def character_ids(self) -> tuple[str, ...]:
        return split_cast(self.cast)


class Talk:
    """Reads the talk of a user with some characters: that of every thread with any of them."""

    def __init__(self, view: LedgerView, codec: RowCodec, counters: Counters, threshold: int) -> None:
        self._view = view
        self._codec = codec
        self._counters = counters
        self._threshold = threshold

    def threads(self, user: str, character_ids: Sequence[str]) -> list[TalkThread]:
        """The threads, in the order of their casts."""
        return list(self._threads(self._rows(), user, character_ids))

    def lines(
        self, user: str, threads: Sequence[TalkThread], covered: Mapping[str, Coverage], turns: int
    ) -> list[ThreadTalk]:
        """The last lines of each thread: at least `turns` turns, and all that is not covered.

        What does not open is left out, and counted. LookupError: its keys are not known here.
        """
        rows = self._rows()
        return [
            self._lines(rows, user, thread, covered.get(thread.cast, Coverage()), turns) for thread in threads
        ]

    def relationships(
        self, user: str, character_ids: Sequence[str]
    ) -> tuple[tuple[str, RelationshipState], ...]:
        """The relationship state of each pair that has one, by character."""
        rows = self._rows()
        found = ((character, self._relationship(rows, user, character)) for character in character_ids)
        return tuple((character, state) for character, state in found if state is not None)

    def states(self, user: str, character_ids: Sequence[str]) -> tuple[TalkState, ...] | None:
        """The talk that no memory holds: buffered, open, queued, parked. None: the view is not complete."""
        if not self._view.complete:
            return None
        rows = self._rows()
        return tuple(
            state
            for thread in self._threads(rows, user, character_ids)
            for state in self._states(rows, user, thread)
        )

    def _rows(self) -> Rows:
        return Overlay(self._view.get, self._codec)

    def _threads(self, rows: Rows, user: str, character_ids: Sequence[str]) -> Iterator[TalkThread]:
        owner = rows.get(UserKey(user))
        for cast, queue in sorted(owner.threads.items() if owner else ()):
            if set(character_ids).isdisjoint(split_cast(cast)):
                continue
            row = rows.get(ThreadKey(user, cast))
            if row is not None:
                yield TalkThread(cast, queue, row)

    def _lines(self, rows: Rows, user: str, thread: TalkThread, covered: Coverage, turns: int) -> ThreadTalk:
        """Backwards, until there are turns enough and all before is covered; what is covered may be deleted."""
        found: list[Line] = []
        begun, after = 0, ""
        for position in range(thread.row.last_position, 0, -1):
            if begun >= turns and position in covered:
                if position <= covered.position:
                    break
                continue
            row = self._message(rows, MessageKey(user, thread.cast, thread.row.epoch, position))
            if row is None:
                if position <= covered.position:
                    break
                continue
            # A turn begins with the first of the user's messages in a row, and only the line before it shows which.
            begun += row.role != "user" and after == "user"
            after = row.role
            if begun < turns or position not in covered:
                found.append(_line(row, covered=position in covered))
        return ThreadTalk(thread.character_ids, tuple(reversed(found)))

    def _relationship(self, rows: Rows, user: str, character: str) -> RelationshipState | None:
        try:
            pair = rows.get(PairKey(user, character))
        except CannotOpen:
            self._counters.count("relationship_damaged")
            return None
        return pair.relationship if pair else None

    def _message(self, rows: Rows, key: MessageKey) -> MessageRow | None:
        try:
            return rows.get(key)
        except CannotOpen:
            self._counters.count("message_damaged")
            return None

    def _states(self, rows: Rows, user: str, thread: TalkThread) -> Iterator[TalkState]:
        queue, row = thread.queue, thread.row
        for number in self._waiting(user, thread):
            window = rows.get(WindowKey(user, thread.cast, row.epoch, number))
            if window is not None and window.status in ("open", "queued", "parked"):
                yield TalkState(
                    character_ids=thread.character_ids,
                    state="open" if number == queue.open else window.status,
                    first_position=window.first,
                    last_position=window.last,
                )
        if row.last_position > row.closed_position:
            yield TalkState(
                character_ids=thread.character_ids,
                state="buffered",
                first_position=row.closed_position + 1,
                last_position=row.last_position,
                user_messages=row.user_messages,
                threshold=self._threshold,
            )

    def _waiting(self, user: str, thread: TalkThread) -> list[int]:
        """The numbers of the closed windows that no memory and no skipping settled, in order."""
        queue = thread.queue
        numbers = {*queue.requeued, *range(queue.next, queue.closed + 1)}
        if queue.open is not None:
            numbers.add(queue.open)
        if queue.parked:
            prefix = WindowKey(user, thread.cast, thread.row.epoch, 0).encode().rpartition(SEP.encode())[0]
            numbers |= {
                int(key.rpartition(SEP.encode())[2])
                for key, blob in self._view.scan(prefix + SEP.encode())
                if decode_window(blob).status == "parked"
            }
        return sorted(numbers)


def _line(row: MessageRow, *, covered: bool) -> Line:
    return Line(
        role=row.role,
        text=row.text,
        sent_at=row.sent_at,
        timestamp=row.timestamp,
        offset=row.offset,
        speaker=row.speaker,
        covered=covered,
    )
