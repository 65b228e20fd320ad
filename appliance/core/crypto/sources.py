"""The master keys from their source: the key file, a variable, a credential of systemd, or a command."""

import base64
import os
import secrets
import subprocess
from contextlib import suppress
from pathlib import Path

from appliance.core.config import Config, environment
from appliance.core.config.master_key import VARIABLE
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

KEY_BYTES, MOST_KEYS = 32, 20
LONGEST_TEXT = 4096
KEY_FILE = "key"


def has_keys(config: Config) -> bool:
    """Whether this data folder belongs to an appliance, as far as its key tells: a source elsewhere always does."""
    return config.master_key.source != "file" or (config.data / KEY_FILE).exists()


def load_keys(config: Config, *, create: bool = False) -> tuple[bytes, ...]:
    """All master keys of the configured source, without duplicates, in its order; ConfigInvalid.

    With `create` a missing key file is made, with one key.
    """
    match config.master_key.source:
        case "environment":
            return _parse(environment(VARIABLE) or "", f"the variable {VARIABLE}")
        case "credential":
            return _read_credential(config.master_key.credential)
        case "command":
            return _run_command(config)
    path = config.data / KEY_FILE
    if create:
        _make_file(path)
    if not path.exists():
        raise ConfigInvalid(Sentence(
            "the key file %(path)s is missing; restore it from a backup, or set master_key.source to where the key is", path=path
        ))
    return read_key_file(path)


def load_or_make_key(path: Path) -> bytes:
    """The first key of a key file; creates it with mode 0600 if it does not exist."""
    _make_file(path)
    return read_key_file(path)[0]


def make_key() -> bytes:
    """A new master key."""
    return secrets.token_bytes(KEY_BYTES)


def add_to_key_file(path: Path, key: bytes) -> None:
    """Add a key to the key file, which is replaced at once; ConfigInvalid if it cannot be written."""
    _write_file(path, (*read_key_file(path), key))


def remove_from_key_file(path: Path, keys: set[bytes]) -> int:
    """Remove keys from the key file, and return how many it had; ConfigInvalid if it cannot be written."""
    present = read_key_file(path)
    rest = tuple(key for key in present if key not in keys)
    if len(rest) < len(present):
        _write_file(path, rest)
    return len(present) - len(rest)


def _make_file(path: Path) -> None:
    """Create the key file with one key, unless it exists: whole, so that processes that start together use the same key."""
    if path.exists():
        return
    draft = _write_draft(path, (make_key(),))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _write_file(path: Path, keys: tuple[bytes, ...]) -> None:
    try:
        draft = _write_draft(path, keys)
        try:
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigInvalid(Sentence(
            "the key file %(path)s cannot be written (%(reason)s); change it where it is managed: one key in base64 a line",
            path=path, reason=error.strerror or error,
        )) from error


def _write_draft(path: Path, keys: tuple[bytes, ...]) -> Path:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"".join(base64.b64encode(key) + b"\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
    return draft


def read_key_file(path: Path) -> tuple[bytes, ...]:
    """The keys of a key file; ConfigInvalid."""
    try:
        return _decode(path.read_bytes().decode("ascii"))
    except ValueError as error:
        raise ConfigInvalid(Sentence(
            "%(path)s does not contain a 32-byte key in base64; restore it from the backup", path=path
        )) from error


def _read_credential(name: str) -> tuple[bytes, ...]:
    folder = environment("CREDENTIALS_DIRECTORY")
    if folder is None:
        raise ConfigInvalid(Sentence(
            "master_key.source is credential, but CREDENTIALS_DIRECTORY is not set: add LoadCredential=%(name)s:… to the unit, and "
            "run commands with systemd-run --property=LoadCredential=%(name)s:…",
            name=name,
        ))  # fmt: skip
    path = Path(folder, name)
    try:
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(Sentence(
            "the credential %(path)s cannot be read; check LoadCredential=%(name)s:… of the unit, and master_key.credential",
            path=path, name=name,
        )) from error
    return _parse(text, Sentence("the credential %(path)s", path=path))


def _run_command(config: Config) -> tuple[bytes, ...]:
    """The keys that the command prints; it gets the environment of this process, no input, and a limited time."""
    settings = config.master_key
    command = settings.command
    try:
        done = subprocess.run(  # noqa: S603  the operator's command
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=settings.command_seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ConfigInvalid(Sentence(
            "master_key.command did not end within %(seconds)s s; check that its vault answers, or raise "
            "master_key.command_seconds",
            seconds=settings.command_seconds,
        )) from error
    except OSError as error:
        raise ConfigInvalid(Sentence(
            "master_key.command cannot run %(program)s (%(reason)s); give its path, and check that this user may run it",
            program=command[0], reason=error.strerror or error,
        )) from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf8", "replace").strip().splitlines() or [""]
        raise ConfigInvalid(Sentence(
            "master_key.command ended with status %(status)s: %(line)s; run it by hand as this user, and check its access",
            status=done.returncode, line=lines[-1][:200],
        ))
    return _parse(done.stdout[: LONGEST_TEXT + 1].decode("ascii", "replace"), "the output of master_key.command")


def _parse(text: str, origin: str) -> tuple[bytes, ...]:
    """The keys in a text; the error names where it is from, and never what it is."""
    try:
        return _decode(text)
    except ValueError as error:
        raise ConfigInvalid(Sentence(
            "%(origin)s is not a master key; it must be 32 random bytes in base64, such as head -c 32 /dev/urandom | base64 "
            "prints, and may have earlier keys on further lines",
            origin=origin,
        )) from error  # fmt: skip


def _decode(text: str) -> tuple[bytes, ...]:
    """The keys, separated by whitespace; ValueError."""
    keys = [base64.b64decode(word, validate=True) for word in text.split()]
    if len(text) > LONGEST_TEXT or not 1 <= len(keys) <= MOST_KEYS or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("not keys")
    return tuple(dict.fromkeys(keys))
