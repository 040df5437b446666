"""Plays the demo: a system of its own is started, talked to and asked, and removed again."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from filelock import FileLock, Timeout

from streams.cli.recall import recall_lines
from streams.cli.service import request
from streams.demo.script import QUESTIONS, Conversation, Question, conversations
from streams.detach import start_detached
from streams.errors import Explained
from streams.local_setup import make_data_dir
from streams.settings import Settings
from streams.supervisor import run_down

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.05
INDENT = "    "

T = TypeVar("T")
Tell = Callable[[str], None]


class DemoFailed(Explained):
    """The demo cannot go on; the message says at what."""


def run_demo(settings: Settings, tell: Tell, *, keep: bool) -> None:
    """Start a system in `data_dir/demo`, play, ask; then stop and remove it, unless it is to be kept.

    Raises DemoFailed and what a start raises (StartFailed, EngineError …), with what to do.
    """
    began = time.monotonic()
    make_data_dir(settings.data_dir)
    own = _own_settings(settings.data_dir / "demo")
    with _alone(settings.data_dir), _terminable():
        # What an earlier demo left when it was killed, or kept.
        _remove(own)
        try:
            tell(f"Starting Kafka, PostgreSQL and four roles in {own.data_dir}")
            start_detached(own, lambda line: tell(INDENT + line))
            for conversation in conversations():
                _play(own, conversation, tell)
            for question in QUESTIONS:
                _ask(own, question, tell)
        except BaseException:
            _remove(own)
            raise
        if not keep:
            tell("\nStopping the demo and removing what it stored")
            _remove(own)
    tell(f"\nDone in {time.monotonic() - began:.0f} s.")
    _say_next(own, tell, keep=keep)


def _own_settings(data_dir: Path) -> Settings:
    """The default settings in a directory of the demo's own: nothing of a system that runs is touched.

    Its processes inherit the environment, so it is the environment that must be the demo's.
    """
    for name in [name for name in os.environ if name.startswith("KEEPSAKE_")]:
        if not name.startswith("KEEPSAKE_CI"):  # marks what a CI run has started
            del os.environ[name]
    os.environ["KEEPSAKE_DATA_DIR"] = str(data_dir)
    os.environ["KEEPSAKE_HTTP_PORT"] = "0"
    # The machine has just started all of it: a query may wait longer than in service.
    os.environ["KEEPSAKE_RECALL_DEADLINE_SECONDS"] = "3"
    return Settings()


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    lock = FileLock(data_dir / "run" / "demo.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise DemoFailed(f"another demo runs in {data_dir / 'demo'}: wait for its end, or stop it") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with everything stopped."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove(settings: Settings) -> None:
    run_down(settings, lambda line: None)
    shutil.rmtree(settings.data_dir, ignore_errors=True)


def _play(settings: Settings, conversation: Conversation, tell: Tell) -> None:
    tell(f"\n=== {conversation.title} ===")
    pair = (
        f"/v1/users/{quote(conversation.user, safe='')}/characters/{quote(conversation.character, safe='')}"
    )
    session, closed, memories = "", 0, 0
    for position, message in enumerate(conversation.messages, 1):
        if message["session_id"] != session:
            session = message["session_id"]
            tell(f"\n  session {session}, {message['sent_at'][:10]}")
        speaker = conversation.user if message["role"] == "user" else conversation.character
        tell(f"  {speaker:>10}: {message['text']}")
        request(settings, "POST", "/v1/messages", message)
        thread = _thread_at(settings, pair, position)
        if thread["closed_position"] == closed:
            if message["role"] == "user":
                tell(f"{'':>12}  · {thread['buffered_user_messages']} of {thread['threshold']}")
            continue
        tell(f"{'':>12}  · window closed: messages {closed + 1} to {thread['closed_position']}")
        closed = thread["closed_position"]
        started = time.monotonic()
        memories += 1
        memory = _memory(settings, pair, memories)
        tell(f"{'':>12}  · a memory, {time.monotonic() - started:.1f} s later:")
        for line in recall_lines({"memories": [memory], "degraded": None, "offline": False}):
            tell(f"{'':>14}{line.strip()}")


def _thread_at(settings: Settings, pair: str, position: int) -> dict[str, Any]:
    """The pair's thread, once the ledger has counted it up to `position`."""

    def look() -> dict[str, Any] | None:
        threads: list[dict[str, Any]] = request(settings, "GET", pair)["threads"]
        return threads[0] if threads and threads[0]["last_position"] >= position else None

    return _wait(look, "the ledger counts a message")


def _memory(settings: Settings, pair: str, number: int) -> dict[str, Any]:
    """The pair's memory of that seq, once it can be recalled."""

    def look() -> dict[str, Any] | None:
        found: list[dict[str, Any]] = request(settings, "GET", f"{pair}/memories")["memories"]
        return next((one for one in found if one["characters"][0]["seq"] == number), None)

    return _wait(look, "a memory is stored")


def _wait(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise DemoFailed(f"{WAIT_SECONDS:.0f} s are not enough until {what}: try it with `keepsake up`")
        time.sleep(POLL_SECONDS)
    return found


def _ask(settings: Settings, question: Question, tell: Tell) -> None:
    tell(f"\n=== Later, {question.user} says to {question.character}: {question.text} ===\n")
    body = {
        "user_id": question.user,
        "character_ids": [question.character],
        "query": question.text,
        "explain": True,
    }
    answer = request(settings, "POST", "/v1/recall", body)
    # The quotes were shown when the memories were made.
    answer["memories"] = [{**memory, "key_details": [], "plans": []} for memory in answer["memories"]]
    for line in recall_lines(answer):
        tell(f"  {line}")


def _say_next(settings: Settings, tell: Tell, *, keep: bool) -> None:
    if keep:
        tell(f"The demo still runs. For commands on it: export KEEPSAKE_DATA_DIR={settings.data_dir}")
        tell("Stop it with `keepsake down`; the next demo removes what it stored.\n")
    tell("Where to go next:")
    tell("  keepsake up                    your own system, with the data kept")
    tell("  keepsake publish FILE.jsonl    your own messages; README.md shows their schema")
    tell("  keepsake tail                  memories as they are made")
    tell("  keepsake recall --help         what belongs in the next prompt, and why")
