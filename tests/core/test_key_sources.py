"""Master keys come from the key file, a variable, a credential or a command; what is wrong with one is said, never what it is."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.core.config import Config, load_config
from appliance.core.crypto import add_to_key_file, has_keys, load_keys, make_key, read_key_file, remove_from_key_file
from appliance.core.errors import ConfigInvalid

KEYS = (b"1" * 32, b"2" * 32)
TEXT = "\n".join(base64.b64encode(key).decode() for key in KEYS) + "\n"
PRINTS = [sys.executable, "-c", f"print({TEXT!r})"]


def configure(**settings: Any) -> Config:
    return load_config(environment={}, flags={f"master_key.{name}": value for name, value in settings.items()})


def test_the_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOS_MASTER_KEY", TEXT)
    assert load_keys(configure(source="environment")) == KEYS
    assert load_config(environment={"GOS_MASTER_KEY": TEXT}).warnings == ()


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(b"x" * 31).decode(), "ä" * 44, TEXT * 50, f"{TEXT} no"])
def test_a_wrong_variable_is_named_but_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GOS_MASTER_KEY", text)
    with pytest.raises(ConfigInvalid, match="the variable GOS_MASTER_KEY is not a master key; it must be 32 random bytes") as error:
        load_keys(configure(source="environment"))
    assert not text or text.strip() not in error.value.message


def test_a_credential_of_systemd_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "gos-master-key").write_text(TEXT)
    assert load_keys(configure(source="credential")) == KEYS
    (tmp_path / "other").write_text(TEXT.split()[1])
    assert load_keys(configure(source="credential", credential="other")) == KEYS[1:]
    with pytest.raises(ConfigInvalid, match=r"the credential .*/missing cannot be read; check LoadCredential=missing:"):
        load_keys(configure(source="credential", credential="missing"))


def test_a_credential_needs_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(ConfigInvalid, match="CREDENTIALS_DIRECTORY is not set: add LoadCredential=gos-master-key"):
        load_keys(configure(source="credential"))


def test_the_output_of_a_command_is_read() -> None:
    assert load_keys(configure(source="command", command=PRINTS)) == KEYS


@pytest.mark.parametrize(("command", "message"), [
    ([sys.executable, "-c", "import time; time.sleep(60)"], "did not end within 1 s; check that its vault answers"),
    (["/nowhere/vault", "read"], r"cannot run /nowhere/vault \(No such file or directory\); give its path"),
    ([sys.executable, "-c", "import sys; sys.exit('sealed: ask an operator')"], "with status 1: sealed: ask an operator; run it"),
    ([sys.executable, "-c", "print('not a key')"], "the output of master_key.command is not a master key"),
    ([sys.executable, "-c", "print('A' * 9_000_000)"], "the output of master_key.command is not a master key"),
])  # fmt: skip
def test_a_command_that_fails_is_explained(command: list[str], message: str) -> None:
    seconds = 1 if "sleep" in command[-1] else 30
    with pytest.raises(ConfigInvalid, match=f"master_key.command.*{message}|{message}"):
        load_keys(configure(source="command", command=command, command_seconds=seconds))


@pytest.mark.parametrize(("settings", "message"), [
    ({"source": "command"}, "master_key.command must be set"),
    ({"command_seconds": 61}, "must be from 1 to 60"),
    ({"source": "credential", "credential": "../key"}, "without slashes"),
    ({"source": "vault"}, "master_key.source"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        configure(**settings)


def test_a_missing_key_file_is_made_only_when_asked(tmp_path: Path) -> None:
    config = load_config(environment={}, flags={"storage.data": str(tmp_path)})
    assert not has_keys(config)
    with pytest.raises(ConfigInvalid, match=r"the key file .*key is missing; restore it from a backup"):
        load_keys(config)
    keys = load_keys(config, create=True)
    assert (len(keys), load_keys(config), has_keys(config)) == (1, keys, True)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_keys_are_added_to_the_file_and_removed(tmp_path: Path) -> None:
    path, new = tmp_path / "key", make_key()
    path.write_text(TEXT)
    add_to_key_file(path, new)
    assert (read_key_file(path), path.stat().st_mode & 0o777) == ((*KEYS, new), 0o600)
    assert remove_from_key_file(path, {KEYS[0], b"9" * 32}) == 1
    assert read_key_file(path) == (KEYS[1], new)
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_file_that_is_managed_elsewhere_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only mount, such as a secret of Kubernetes."""
    path = tmp_path / "key"
    path.write_text(TEXT)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ConfigInvalid, match=r"cannot be written \(Device or resource busy\); change it where it is managed"):
        add_to_key_file(path, make_key())
    assert (read_key_file(path), [each.name for each in tmp_path.iterdir()]) == (KEYS, ["key"])
