"""Sealing of secrets at rest: AES-256-GCM under the installation's key file.

SigV4 needs secrets in the clear, so they are encrypted rather than hashed. Each sealed value is bound to a label (the
row that it belongs to): moved to another row, it does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_KEY_BYTES = 32


class SealError(RuntimeError):
    """A sealed value does not open: it was changed, or the key file is not the one that sealed it."""


class SecretBox:
    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a sealing key has {_KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._aead = AESGCM(key)

    def seal(self, label: str, secret: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, secret.encode(), label.encode())

    def open(self, label: str, sealed: bytes) -> str:
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode()).decode()
        except (InvalidTag, ValueError):
            raise SealError(
                f"the secret of {label} does not open: secret.key is not the file that it was sealed with"
            ) from None

    def derive(self, purpose: str) -> bytes:
        """A key of its own for another purpose (page tokens, sessions), stable over restarts."""
        return hmac.digest(self._key, b"derive:" + purpose.encode(), hashlib.sha256)


def load_or_create_key(path: Path) -> bytes:
    """The key in `path`, made at the first call. Several processes may call this at once: all get the same key."""
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)  # fails where another process was faster; then theirs is the key
        except FileExistsError:
            pass
        else:
            _sync_folder(path.parent)
    finally:
        os.unlink(fresh)
    return _read(path)


def _read(path: Path) -> bytes:
    text = path.read_text().strip()
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise SealError(f"{path} is damaged: it must hold {2 * _KEY_BYTES} hexadecimal digits")
    return key


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
