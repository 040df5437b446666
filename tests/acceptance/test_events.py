"""Odd input, each with its documented result; keys placed alike by every producer; no text at rest."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer as LibrdConsumer
from confluent_kafka import Producer as LibrdProducer

from infra.engines.kafka import console_command
from models.topics import CHAT, DEAD
from streams.partitioner import partition_for
from tests.acceptance.system import Said, System, conversation, on_partition

KOREAN = [f"사용자{n}·{chr(0xAC00 + n * 7)}" for n in range(1_000)]


def value_of(**change: object) -> bytes:
    base: dict[str, object] = {
        "message_id": "good",
        "user_id": "u",
        "character_ids": ["A"],
        "session_id": "s",
        "role": "user",
        "text": "hello",
    }
    return orjson.dumps({**base, **change})


ODD: list[tuple[str, bytes | None, bytes | None, str | None]] = [
    ("garbage", b"u", b"\x00\x01garbage", "invalid_json"),
    ("truncated UTF-8", b"u", value_of(text="한")[:-12], "invalid_json"),
    ("no value", b"u", None, "empty_value"),
    ("900 KB", b"u", value_of(text="x" * 900_000), "text_too_long"),
    ("a lone surrogate", b"u", value_of().replace(b"hello", b"\\ud800"), "invalid_json"),
    ("wrong types", b"u", value_of(text=["a"]), "invalid_text"),
    ("an unknown role", b"u", value_of(role="tool"), "invalid_role"),
    ("another key", b"other", value_of(), "key_mismatch"),
    ("no key", None, value_of(), "key_mismatch"),
    ("no characters", b"u", value_of(character_ids=[]), "invalid_characters"),
    ("NUL in the text is kept", b"u", value_of(message_id="nul", text="a\x00b"), None),
    ("sent_at missing is taken from the record", b"u", value_of(message_id="no-time"), None),
    ("the same id again counts once", b"u", value_of(message_id="no-time"), None),
    ("a system message is neither counted nor kept", b"u", value_of(message_id="sys", role="system"), None),
]


@pytest.mark.short
def test_odd_events_each_have_their_result() -> None:
    with System() as system:
        system.start("ledger")
        partition = partition_for("u", system.partitions)
        for _, key, value, _ in ODD:
            system.produce(CHAT, partition, key, value)
        system.produce(CHAT, (partition + 1) % system.partitions, b"u", value_of(message_id="elsewhere"))
        said = system.publish(conversation("u", ["A"], 6))
        system.wait(lambda: system.counted() == len(said) + 2, "the good ones to be counted")
        dead = [orjson.loads(value or b"") for _, _, value in system.read(DEAD)]
        expected = [reason for *_, reason in ODD if reason] + ["wrong_partition"]
        assert sorted(letter["reason"] for letter in dead) == sorted(expected)
        wrong = next(letter for letter in dead if letter["reason"] == "wrong_partition")
        assert "murmur2_random" in wrong["detail"]
        assert wrong["topic"] == CHAT
        assert isinstance(wrong["offset"], int)


def test_a_flood_of_garbage_stops_nothing() -> None:
    with System() as system:
        system.start("ledger")
        for number in range(300):
            system.produce(CHAT, number % system.partitions, b"u", b"{" * (number + 1))
        said = system.publish(conversation("u", ["A"], 3))
        system.wait(lambda: system.counted() == len(said), "the good ones to be counted")
        assert len(system.read(DEAD)) == 300


def test_keys_are_placed_alike_by_every_producer(tmp_path: Path) -> None:
    with System(partitions=12) as system:
        lines = tmp_path / "keys.txt"
        lines.write_text("".join(f"{user}\t{value_of(user_id=user).decode()}\n" for user in KOREAN))
        with lines.open("rb") as given:
            subprocess.run(
                console_command(
                    "org.apache.kafka.tools.ConsoleProducer",
                    *("--bootstrap-server", system.engines.bootstrap, "--topic", CHAT),
                    *("--property", "parse.key=true"),
                ),
                stdin=given,
                check=True,
                timeout=60,
                capture_output=True,
            )
        producer = LibrdProducer(
            {"bootstrap.servers": system.engines.bootstrap, "partitioner": "murmur2_random"}
        )
        for user in KOREAN:
            producer.produce(CHAT, value_of(user_id=user, message_id="librdkafka"), user.encode())
        assert producer.flush(30) == 0
        system.publish([Said(user, ("A",), "hello", message_id="python") for user in KOREAN])
        placed: dict[str, set[int]] = {}
        count = 0
        for partition, key, _ in system.read(CHAT):
            placed.setdefault((key or b"").decode(), set()).add(partition)
            count += 1
        assert count == 3_000
        assert placed == {user: {partition_for(user, 12)} for user in KOREAN}
        system.start("ledger")
        system.wait(lambda: system.counted() == 3_000, "all three producers' messages to be counted")
        assert system.read(DEAD) == []


def test_a_wrong_partitioner_is_dead_lettered_explained_and_comes_back() -> None:
    with System() as system:
        system.start("ledger")
        users = KOREAN[:60]
        producer = LibrdProducer({"bootstrap.servers": system.engines.bootstrap})
        for user in users:
            producer.produce(CHAT, value_of(user_id=user), user.encode())
        assert producer.flush(30) == 0
        placed = {(key or b"").decode(): partition for partition, key, _ in system.read(CHAT)}
        wrong = [user for user in users if placed[user] != partition_for(user, system.partitions)]
        assert wrong, "librdkafka's own partitioner was to place some otherwise"
        system.wait(lambda: len(system.read(DEAD)) == len(wrong), "the misplaced to be dead letters")
        system.wait(lambda: system.counted() == len(users) - len(wrong), "the others to be counted")
        system.start("recall")
        warned = system.wait(lambda: system.get("/readyz").json().get("warnings"), "readiness to tell of it")
        assert f"{len(wrong)} records" in warned[0]
        assert "murmur2_random" in warned[0]
        listed = system.command("dead", "list", "--json").stdout
        assert listed.count("wrong_partition") == len(wrong)
        system.command("dead", "retry", "--all")
        system.wait(lambda: system.counted() == len(users), "the retried to be counted")
        assert len(system.read(DEAD)) == len(wrong)


def test_what_a_plain_consumer_sees() -> None:
    with System() as system:
        system.start("ledger", "extractor", "indexer")
        system.publish(conversation("u", ["A"], 5))
        consumer = LibrdConsumer(
            {
                "bootstrap.servers": system.engines.bootstrap,
                "group.id": "subscriber",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["memory.created"])
        message = system.wait(lambda: consumer.poll(0.5), "memory.created")
        consumer.close()
        assert message is not None
        data = orjson.loads(message.value() or b"")
        assert message.key() == data["memory_id"].encode()
        assert set(data) >= {
            *("memory_id", "user_id", "kind", "request_id", "characters", "importance", "date", "created_at"),
            *("source", "provenance", "payload"),
        }
        assert data["characters"] == [{"character_id": "A", "seq": 1, "epoch": 1}]
        assert set(data["provenance"]) == {
            *("task", "prompt", "prompt_version", "provider", "model", "offline"),
        }


@pytest.mark.short
def test_no_text_rests_in_the_clear() -> None:
    words = ["Zyxwordone", "Zyxwordtwo", "비밀단어셋", "秘密言葉四"]
    with System() as system:
        system.start("ledger", "extractor", "indexer", "recall")
        facts = [
            f"I live in {words[0]}",
            f"My dog is called {words[1]}",
            f"Please call me {words[0]}",
            f"나는 {words[2]} 좋아해",
            f"私は{words[3]}が好きです",
        ]
        said = [
            one
            for user in range(3)
            for turn in range(6)
            for one in (
                Said(f"u{user}", ("A",), facts[turn % len(facts)]),
                Said(f"u{user}", ("A",), f"You said {words[0]} and I promise {words[1]}", role="assistant"),
            )
        ]
        system.publish(said)
        system.produce(CHAT, on_partition_of("u0", system), b"u0", f"garbage {words[0]}".encode())
        system.wait(lambda: system.indexed() >= 3, "the memories")
        system.wait(lambda: system.counted() == len(said), "every message to be counted")
        found = system.recall("u0", ["A"], words[0])
        state = system.get("/v1/users/u0/characters/A").json()["relationship"]
        assert words[0] in json.dumps(state)
        assert words[0] in orjson.dumps(found).decode()
        assert system.post("/v1/recall", {"user_id": "u0", "query": words[0]}).status_code == 422
        for role in ("ledger", "extractor", "indexer", "recall"):
            system.stop(role)
        system.engines.stop_kafka()
        system.engines.stop_postgres()
        forms = [form for word in words for form in _forms(word)]
        guilty = [
            str(path.relative_to(system.data_dir))
            for path in system.data_dir.rglob("*")
            if path.is_file() and not path.is_relative_to(system.data_dir / "postgres" / "install")
            if any(form in (content := path.read_bytes()) for form in forms) and content
        ]
        # The publisher's own topic is plain (R12), and shows that the search finds what is there.
        assert guilty
        assert all(path.startswith("kafka/data/chat.message-") for path in guilty), guilty


def _forms(word: str) -> list[bytes]:
    """A word as it might rest: UTF-8, UTF-16, JSON escapes, and each of these in base64, as records carry it."""
    plain = [word.encode(), word.encode("utf-16-le"), json.dumps(word)[1:-1].encode()]
    return [*plain, *(form for text in plain for form in _in_base64(text))]


def _in_base64(text: bytes) -> list[bytes]:
    """What the middle of a base64 text is, where `text` begins at each of the three places of a group."""
    forms = []
    for lead in range(3):
        whole = b64encode(bytes(lead) + text)
        # The first and last group mix with what stands beside the word.
        forms.append(whole[4 if lead else 0 : len(whole) // 4 * 4 - 4])
    return forms


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("word", ["Zyxwordone", "비밀단어셋"])
def test_the_search_sees_through_base64(word: str, before: int) -> None:
    hidden = b64encode(b"x" * before + word.encode() + b"and more")
    assert word.encode() not in hidden
    assert any(form in hidden for form in _forms(word))


def on_partition_of(user: str, system: System) -> int:
    return partition_for(user, system.partitions)


def test_users_can_be_found_for_a_partition() -> None:
    assert partition_for(on_partition(1, 4), 4) == 1
