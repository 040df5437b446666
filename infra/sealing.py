"""Sealing: AES-256-GCM with associated data, master keys with ids, and keyed hashes (R12, R13, R15).

A sealed blob is nonce (12 bytes) ‖ ciphertext ‖ tag (16 bytes), as in NIST SP 800-38D.
A wrapped key, or text sealed by the deployment key, is length of key id (1 byte) ‖ key id ‖ sealed blob.
"""

import base64
import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agents.ports import CannotOpen
from models.ids import SEP

KEY_BYTES = 32
NONCE_BYTES = 12
TOKEN_HASH_BYTES = 8


class KeysError(Exception):
    """The master keys cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """Master keys by id, which of them wraps new keys, and the secret of the index hashes.

    The index secret is its own, so that a rotated master key leaves the index as it is.
    """

    primary: str
    keys: dict[str, bytes]
    index_secret: bytes

    @classmethod
    def generate(cls, key_id: str = "k1") -> "MasterKeys":
        return cls(key_id, {key_id: os.urandom(KEY_BYTES)}, os.urandom(KEY_BYTES))

    @classmethod
    def from_json(cls, text: str, source: str) -> "MasterKeys":
        """Read `{"primary": id, "keys": {id: base64 of 32 bytes}, "index_secret": base64}`; KeysError if it is not."""
        try:
            data = json.loads(text)
            keys = {str(k): base64.b64decode(v, validate=True) for k, v in data["keys"].items()}
            made = cls(str(data["primary"]), keys, base64.b64decode(data["index_secret"], validate=True))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KeysError(
                f"{source} is not a file of master keys: it needs primary, keys and index_secret"
            ) from error
        if made.primary not in keys:
            raise KeysError(f"{source}: the primary key is not among the keys")
        for key_id, key in (*keys.items(), ("index_secret", made.index_secret)):
            if len(key) != KEY_BYTES or not 1 <= len(key_id.encode()) <= 255:
                raise KeysError(f"{source}: key {key_id!r} must be {KEY_BYTES} bytes in base64")
        return made

    def to_json(self) -> str:
        encoded = {key_id: base64.b64encode(key).decode() for key_id, key in self.keys.items()}
        secret = base64.b64encode(self.index_secret).decode()
        return json.dumps({"primary": self.primary, "keys": encoded, "index_secret": secret}, indent=1)


def load_master_keys(path: Path, inline: str | None = None) -> MasterKeys:
    """The master keys of the environment (`inline`) or else of the file."""
    if inline is not None:
        return MasterKeys.from_json(inline, "KEEPSAKE_MASTER_KEYS")
    try:
        return MasterKeys.from_json(path.read_text(), str(path))
    except OSError as error:
        raise KeysError(
            f"cannot read the master keys at {path} ({error.strerror}): run `keepsake up` once, "
            "or set KEEPSAKE_MASTER_KEYS_FILE or KEEPSAKE_MASTER_KEYS"
        ) from error


def ensure_master_keys(path: Path) -> bool:
    """Make a file of master keys, mode 600, unless it is there; True if it was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(MasterKeys.generate().to_json())
            file.flush()
            os.fsync(file.fileno())
        # A link fails where the file exists: of two first starts at once, one set of keys wins.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


class AesGcmSealer:
    """The Sealer on master keys held in memory."""

    def __init__(self, masters: MasterKeys) -> None:
        self._primary = masters.primary
        self._wrapping = {
            key_id: AESGCM(_derive(key, b"keepsake wrap")) for key_id, key in masters.keys.items()
        }
        self._deployment = {
            key_id: AESGCM(_derive(key, b"keepsake deployment")) for key_id, key in masters.keys.items()
        }
        self._index_secret = masters.index_secret

    def new_key(self) -> bytes:
        return os.urandom(KEY_BYTES)

    def wrap(self, key: bytes, context: bytes) -> bytes:
        return self._seal_by_id(self._wrapping, key, context)

    def unwrap(self, blob: bytes, context: bytes) -> bytes:
        return self._open_by_id(self._wrapping, blob, context)

    def seal_deployment(self, plaintext: bytes, context: bytes) -> bytes:
        return self._seal_by_id(self._deployment, plaintext, context)

    def open_deployment(self, blob: bytes, context: bytes) -> bytes:
        return self._open_by_id(self._deployment, blob, context)

    def seal(self, key: bytes, plaintext: bytes, context: bytes) -> bytes:
        return _seal(AESGCM(key), plaintext, context)

    def open(self, key: bytes, blob: bytes, context: bytes) -> bytes:
        return _open(AESGCM(key), blob, context)

    def hash_token(self, user: str, token: str) -> str:
        digest = hmac.new(self._index_secret, SEP.join((user, token)).encode(), hashlib.sha256).digest()
        return digest[:TOKEN_HASH_BYTES].hex()

    def _seal_by_id(self, ciphers: dict[str, AESGCM], plaintext: bytes, context: bytes) -> bytes:
        name = self._primary.encode()
        return bytes((len(name),)) + name + _seal(ciphers[self._primary], plaintext, context)

    def _open_by_id(self, ciphers: dict[str, AESGCM], blob: bytes, context: bytes) -> bytes:
        size = blob[0] if blob else 0
        cipher = ciphers.get(blob[1 : 1 + size].decode("utf-8", "replace"))
        if cipher is None:
            raise CannotOpen("sealed by a master key that is not among ours")
        return _open(cipher, blob[1 + size :], context)


def _derive(key: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(key)


def _seal(cipher: AESGCM, plaintext: bytes, context: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plaintext, context)


def _open(cipher: AESGCM, blob: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(blob[:NONCE_BYTES], blob[NONCE_BYTES:], context)
    except (InvalidTag, ValueError) as error:
        raise CannotOpen("wrong key, wrong context, or damaged") from error
