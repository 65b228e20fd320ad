"""Signing in to SFTP servers: OpenSSH, one with passwords, and some that fail."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import paramiko
import pytest
from gos_connector_files import SftpConnector

from appliance.connectors.contract import AuthError, ConfigError, Context, Rejected, SystemFailure, TransientError
from appliance.connectors.testing import open_context


@pytest.fixture
def it(sftp: Any) -> SftpConnector:
    return SftpConnector(sftp.settings)


# -- signing in


def test_check_without_a_host_key_reports_it_and_sends_nothing(sftp: Any, ctx: Context) -> None:
    settings = {name: value for name, value in sftp.settings.items() if name != "host_key"}
    with pytest.raises(ConfigError) as caught:
        SftpConnector(settings).check(ctx)
    assert sftp.settings["host_key"] in caught.value.message
    assert caught.value.details == {"host_key": sftp.settings["host_key"]}


def test_another_host_key_is_refused(sftp: Any, ctx: Context) -> None:
    wrong = {**sftp.settings, "host_key": "SHA256:" + "A" * 43}
    with pytest.raises(ConfigError, match="another key") as caught:
        SftpConnector(wrong).check(ctx)
    assert sftp.settings["host_key"] in caught.value.message


def test_several_host_keys_are_accepted(sftp: Any, ctx: Context) -> None:
    both = {**sftp.settings, "host_key": f"SHA256:{'A' * 43} {sftp.settings['host_key']}"}
    assert sftp.settings["host_key"] in SftpConnector(both).check(ctx)


def test_a_wrong_password_is_reported_without_it(sftp: Any, ctx: Context) -> None:
    settings = {**sftp.settings, "password": "wrong-canary"}
    del settings["private_key"]
    with pytest.raises(AuthError) as caught:
        SftpConnector(settings).check(ctx)
    assert "canary" not in caught.value.message + str(caught.value.details)


def test_an_unknown_private_key_is_refused(sftp: Any, ctx: Context) -> None:
    stranger = (sftp.root.parent / "host").read_text()
    with pytest.raises(AuthError):
        SftpConnector({**sftp.settings, "private_key": stranger}).check(ctx)


def test_a_locked_key_needs_its_passphrase(sftp: Any, ctx: Context) -> None:
    locked = {**sftp.settings, "private_key": (sftp.root.parent / "locked").read_text()}
    assert SftpConnector({**locked, "passphrase": "sésame-canary"}).check(ctx)
    for passphrase in ({}, {"passphrase": "wrong-canary"}):
        with pytest.raises(ConfigError, match="passphrase") as caught:
            SftpConnector({**locked, **passphrase}).check(ctx)
        assert "canary" not in caught.value.message


@pytest.mark.parametrize("changed", [{"private_key": "no key"}, {"private_key": None}])
def test_missing_credentials_are_reported(sftp: Any, ctx: Context, changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="private_key"):
        SftpConnector({**sftp.settings, **changed}).check(ctx)


def test_a_missing_root_is_reported(sftp: Any, ctx: Context) -> None:
    with pytest.raises(Rejected, match="no"):
        SftpConnector({**sftp.settings, "root": "/nowhere/at/all"}).check(ctx)


class _PasswordServer(paramiko.ServerInterface):  # type: ignore[misc]
    """A server with passwords, which OpenSSH only checks as root; its folder is empty."""

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        return int(paramiko.AUTH_SUCCESSFUL if password == "sésame" else paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)


class _Empty(paramiko.SFTPServerInterface):  # type: ignore[misc]
    def list_folder(self, path: str) -> list[Any]:
        return []


@pytest.fixture
def password_server() -> Iterator[dict[str, Any]]:
    """Settings for a server that wants a password."""
    key = paramiko.ECDSAKey.generate()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        transport = paramiko.Transport(connection)
        transport.add_server_key(key)
        transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Empty)
        transport.start_server(event=threading.Event(), server=_PasswordServer())
        transport.join(20)
        transport.close()
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield {
        "host": "127.0.0.1", "port": listener.getsockname()[1], "user": "ann", "password": "sésame", "host_key": key.fingerprint
    }  # fmt: skip
    thread.join(20)
    listener.close()


def test_sign_in_with_a_password(password_server: dict[str, Any], ctx: Context) -> None:
    assert "as ann" in SftpConnector(password_server).check(ctx)


def test_a_wrong_password_names_the_user(password_server: dict[str, Any], ctx: Context) -> None:
    with pytest.raises(AuthError, match="ann"):
        SftpConnector({**password_server, "password": "other"}).check(ctx)


# -- servers that fail


@pytest.fixture
def bad_server() -> Iterator[Any]:
    """A listener that says a line and then nothing, or hangs up."""
    listeners = []

    def start(line: bytes, *, hang_up: bool = False) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        connections: list[socket.socket] = []
        listeners.append((listener, connections))

        def serve() -> None:
            connection, _ = listener.accept()
            connections.append(connection)
            connection.sendall(line)
            if hang_up:
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener, connections in listeners:
        listener.close()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("line", [b"", b"SSH-2.0-Silent\r\n"])
def test_a_silent_server_fails_at_the_deadline(sftp: Any, bad_server: Any, line: bytes) -> None:
    with open_context(seconds=0.4) as hurried, pytest.raises(TransientError) as caught:
        SftpConnector({**sftp.settings, "port": bad_server(line)}).check(hurried)
    assert time.monotonic() < hurried.deadline + 2
    assert caught.value.outcome == "not_done"


def test_a_server_that_hangs_up_is_transient(sftp: Any, bad_server: Any, ctx: Context) -> None:
    with pytest.raises(TransientError):
        SftpConnector({**sftp.settings, "port": bad_server(b"", hang_up=True)}).check(ctx)


def test_a_server_of_another_protocol_is_reported(sftp: Any, bad_server: Any, ctx: Context) -> None:
    with pytest.raises(SystemFailure, match="SSH"):
        SftpConnector({**sftp.settings, "port": bad_server(b"HTTP/1.1 400 Bad Request\r\n" * 200, hang_up=True)}).check(ctx)


def test_an_unknown_host_is_transient(sftp: Any, ctx: Context) -> None:
    with pytest.raises(TransientError, match="does not resolve"):
        SftpConnector({**sftp.settings, "host": "no-such-host.invalid"}).check(ctx)


def test_a_rename_without_an_answer_has_an_unknown_outcome(
    sftp: Any, it: SftpConnector, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wire is cut as the server gets the rename: what it did nobody here can tell."""
    rename = paramiko.SFTPClient.posix_rename

    def cut(client: paramiko.SFTPClient, old: str, new: str) -> Any:
        client.get_channel().get_transport().sock.shutdown(socket.SHUT_RDWR)
        return rename(client, old, new)

    monkeypatch.setattr(paramiko.SFTPClient, "posix_rename", cut)
    with pytest.raises(TransientError) as caught:
        it.call("put", {"path": "a", "text": "x"}, ctx)
    assert caught.value.outcome == "unknown"


def test_an_interrupted_upload_is_not_done(
    sftp: Any, it: SftpConnector, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = paramiko.SFTPFile.write

    def cut(file: paramiko.SFTPFile, data: bytes) -> Any:
        file.sftp.get_channel().get_transport().sock.shutdown(socket.SHUT_RDWR)
        return write(file, data)

    monkeypatch.setattr(paramiko.SFTPFile, "write", cut)
    sftp.write("a", "old")
    with pytest.raises(TransientError) as caught:
        it.call("put", {"path": "a", "text": "new"}, ctx)
    assert caught.value.outcome == "not_done"
    assert (sftp.root / "a").read_text() == "old"


def test_many_threads_at_once(sftp: Any, it: SftpConnector) -> None:
    sftp.write("a", "x")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with open_context(seconds=30) as ctx:
                it.call("put", {"path": f"f{number}", "text": str(number)}, ctx)
                assert it.call("get", {"path": f"f{number}", "format": "text"}, ctx)["text"] == str(number)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
