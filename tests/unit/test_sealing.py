"""Sealing: known answers, bound contexts, rotation, and what is refused."""

import json
from pathlib import Path

import pytest

from agents.codec import DestroyedKey, MemoryCipher, PairCipher, ThreadCipher
from agents.ports import CannotOpen
from infra.sealing import AesGcmSealer, KeysError, MasterKeys, ensure_master_keys, load_master_keys
from models.memory import MemoryContent, RelationshipState
from models.published import CharacterSeq
from models.rows import PairRow
from tests.unit.ledger_harness import MASTERS

CONTENT = MemoryContent(summary="민지는 냉면을 좋아한다", search_terms=("냉면",))


class Keys:
    """Pair keys by (user, character, epoch); a destroyed one is None."""

    def __init__(self, keys: dict[tuple[str, str, int], bytes | None]) -> None:
        self._keys = keys

    def wrapped_pair_key(self, user: str, character: str, epoch: int) -> bytes:
        key = self._keys[user, character, epoch]
        if key is None:
            raise DestroyedKey(character)
        return key


def test_opens_nist_vectors() -> None:
    # NIST GCM test case 15 and 16 of "The Galois/Counter Mode of Operation" (AES-256).
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    cipher = bytes.fromhex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    )
    extra = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    tag = bytes.fromhex("76fc6ece0f4e1768cddf8853bb2d551b")
    sealer = AesGcmSealer(MASTERS)
    assert sealer.open(key, nonce + cipher + tag, extra) == plain


def test_known_answers_of_the_derived_keys() -> None:
    # Made once with an independent HKDF (RFC 5869) and AES-GCM: a changed layout or label would lock
    # every deployment out of its data.
    sealer = AesGcmSealer(MASTERS)
    assert sealer.hash_token("u", "냉면") == "582e794af846d723"
    wrapped = bytes.fromhex(KNOWN_WRAPPED)
    assert sealer.unwrap(wrapped, b"pair\x1fu\x1fA\x1f1") == b"p" * 32
    assert sealer.open_deployment(bytes.fromhex(KNOWN_DEPLOYMENT), b"request\x1f1") == "비밀".encode()


KNOWN_WRAPPED = (
    "026b316e6e6e6e6e6e6e6e6e6e6e6e76b472e19e4bb9dcf5d7c0075bfd4d32a5"
    "698e98312edcfbb0cadfef61ebe1d4617481f0e81768479eacafdce682b82c"
)
KNOWN_DEPLOYMENT = "026b316e6e6e6e6e6e6e6e6e6e6e6ef84e9ef8439d19480e38de01852b73eabf9d577d8a5c"


def test_a_blob_opens_in_its_own_context_only() -> None:
    sealer = AesGcmSealer(MASTERS)
    key = sealer.new_key()
    blob = sealer.seal(key, b"text", b"a")
    assert sealer.open(key, blob, b"a") == b"text"
    for broken in (blob[:-1], blob[1:], b"", bytes(len(blob)), blob[:12]):
        with pytest.raises(CannotOpen):
            sealer.open(key, broken, b"a")
    with pytest.raises(CannotOpen):
        sealer.open(key, blob, b"b")
    with pytest.raises(CannotOpen):
        sealer.open(sealer.new_key(), blob, b"a")


def test_two_seals_of_the_same_text_differ() -> None:
    sealer = AesGcmSealer(MASTERS)
    assert sealer.seal(b"k" * 32, b"text", b"") != sealer.seal(b"k" * 32, b"text", b"")


def test_a_rotated_master_key_still_opens_what_the_old_one_wrapped() -> None:
    old = AesGcmSealer(MASTERS)
    wrapped = old.wrap(b"p" * 32, b"c")
    rotated = AesGcmSealer(MasterKeys("k2", {**MASTERS.keys, "k2": b"n" * 32}, MASTERS.index_secret))
    assert rotated.unwrap(wrapped, b"c") == b"p" * 32
    assert rotated.hash_token("u", "x") == old.hash_token("u", "x")
    assert old.hash_token("u", "x") != old.hash_token("v", "x")
    with pytest.raises(CannotOpen):
        old.unwrap(rotated.wrap(b"p" * 32, b"c"), b"c")


def test_a_memory_opens_by_any_of_its_pairs_until_all_are_destroyed() -> None:
    sealer = AesGcmSealer(MASTERS)
    pairs = PairCipher(sealer)
    memories = MemoryCipher(sealer, pairs)
    refs = [CharacterSeq(character_id=name, seq=1, epoch=1) for name in ("A", "B")]
    wrapped = [pairs.new_wrapped_key("u", name, 1) for name in ("A", "B")]
    payload = memories.seal("m", "u", refs, wrapped, CONTENT)
    both: dict[tuple[str, str, int], bytes | None] = {("u", "A", 1): wrapped[0], ("u", "B", 1): wrapped[1]}
    assert memories.open("m", "u", refs, payload, Keys(both)) == CONTENT
    assert memories.open("m", "u", refs, payload, Keys({**both, ("u", "A", 1): None})) == CONTENT
    with pytest.raises(DestroyedKey):
        memories.open("m", "u", refs, payload, Keys(dict.fromkeys(both)))
    with pytest.raises(LookupError):
        memories.open("m", "u", refs, payload, Keys({("u", "A", 1): None}))
    with pytest.raises(CannotOpen):
        memories.open("other", "u", refs, payload, Keys(both))
    for broken in (b"", payload[:1], payload[:100], b"\x02" + payload[1:], payload[:-1]):
        with pytest.raises(CannotOpen):
            memories.open("m", "u", refs, broken, Keys(both))


def test_another_users_key_opens_nothing() -> None:
    sealer = AesGcmSealer(MASTERS)
    pairs = PairCipher(sealer)
    memories = MemoryCipher(sealer, pairs)
    refs = [CharacterSeq(character_id="A", seq=1, epoch=1)]
    payload = memories.seal("m", "u", refs, [pairs.new_wrapped_key("u", "A", 1)], CONTENT)
    with pytest.raises(CannotOpen):
        memories.open("m", "u", refs, payload, Keys({("u", "A", 1): pairs.new_wrapped_key("v", "A", 1)}))


def test_threads_and_relationships_open_by_their_pairs() -> None:
    sealer = AesGcmSealer(MASTERS)
    pairs = PairCipher(sealer)
    rows = [PairRow(1, pairs.new_wrapped_key("u", name, 1)) for name in ("A", "B")]
    wrapped = ThreadCipher(sealer, pairs).new_wrapped_key("u", "A\x1eB", 1, rows)
    first = ThreadCipher(sealer, pairs).open_key("u", "A\x1eB", 1, wrapped, rows)
    assert ThreadCipher(sealer, pairs).open_key("u", "A\x1eB", 1, wrapped, [None, rows[1]]) == first
    with pytest.raises(CannotOpen):
        ThreadCipher(sealer, pairs).open_key("u", "A\x1eB", 1, wrapped, [None, None])
    rows[0].relationship = RelationshipState(summary="오빠라고 부른다")
    blob = pairs.seal_relationship("u", "A", rows[0])
    assert blob is not None
    assert pairs.open_relationship("u", "A", 1, rows[0].key, blob) == rows[0].relationship
    with pytest.raises(CannotOpen):
        pairs.open_relationship("u", "A", 1, pairs.new_wrapped_key("u", "A", 1), blob)


def test_a_file_of_keys_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "keys.json"
    assert ensure_master_keys(path)
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.read_text()
    assert not ensure_master_keys(path)
    assert path.read_text() == first
    assert [entry.name for entry in path.parent.iterdir()] == ["keys.json"]
    assert load_master_keys(path) == MasterKeys.from_json(first, "test")


@pytest.mark.parametrize(
    "change",
    [
        {"primary": "other"},
        {"keys": {}},
        {"keys": {"k1": "short"}},
        {"keys": {"k1": "AAAA"}},
        {"keys": None},
        {"index_secret": "AAAA"},
    ],
)
def test_broken_keys_are_refused_without_showing_them(change: dict[str, object]) -> None:
    good = json.loads(MASTERS.to_json())
    with pytest.raises(KeysError) as error:
        MasterKeys.from_json(json.dumps({**good, **change}), "the file")
    assert "the file" in str(error.value)
    assert good["keys"]["k1"] not in str(error.value)


def test_missing_keys_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="keepsake up"):
        load_master_keys(tmp_path / "none.json")
    with pytest.raises(KeysError, match="KEEPSAKE_MASTER_KEYS"):
        load_master_keys(tmp_path / "none.json", "not json")
