import hashlib

import pytest

from agents.dead_letters import dead_letter, open_dead_letter
from agents.ports import CannotOpen
from infra.sealing import AesGcmSealer, MasterKeys
from models.dead import MAX_SEALED_BYTES, DeadLetter
from models.records import Record

SEALER = AesGcmSealer(MasterKeys.generate())


def record(value: bytes | None, key: bytes | None = b"u1") -> Record:
    return Record(
        "chat.message", 3, 42, 1_700_000_000_000, key, value, (("trace", b"\x00\xff"), ("empty", b""))
    )


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe\x00not json\n\n", b"x" * 150_000])
@pytest.mark.parametrize("key", [None, b"", b"u1", b"k" * 5_000])
def test_a_dead_letter_gives_the_record_back(value: bytes | None, key: bytes | None) -> None:
    original = record(value, key)
    sent_key, sent = dead_letter(original, "invalid_json", "the value is not JSON", SEALER)
    letter = DeadLetter.model_validate_json(sent)
    assert open_dead_letter(letter, SEALER) == original
    assert (letter.reason, letter.partition, letter.offset) == ("invalid_json", 3, 42)
    assert letter.sha256 == hashlib.sha256(value or b"").hexdigest()
    assert sent_key == (key if key and len(key) < 5_000 else b"")


def test_text_is_not_in_the_clear() -> None:
    _, sent = dead_letter(record(b"marzipan"), "invalid_json", "the value is not JSON", SEALER)
    assert b"marzipan" not in sent


def test_a_large_record_is_left_where_it_is() -> None:
    _, sent = dead_letter(record(b"x" * 200_000), "too_large", "the value has 200000 bytes", SEALER)
    letter = DeadLetter.model_validate_json(sent)
    assert letter.sealed is None
    assert open_dead_letter(letter, SEALER) is None
    assert len(sent) < MAX_SEALED_BYTES


def test_a_letter_opens_at_its_own_coordinates_only() -> None:
    _, sent = dead_letter(record(b"text"), "invalid_json", "the value is not JSON", SEALER)
    moved = DeadLetter.model_validate_json(sent).model_copy(update={"offset": 43})
    with pytest.raises(CannotOpen):
        open_dead_letter(moved, SEALER)
