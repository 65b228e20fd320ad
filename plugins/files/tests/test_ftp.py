"""Files over FTP and FTPS, on ProFTPD, which wants the TLS session of the first connection again on every further one."""

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_files import FtpConnector

from appliance.connectors.contract import AuthError, ConfigError, Context, Rejected, TransientError
from appliance.connectors.testing import ConnectorContract, open_context


@pytest.fixture
def ftp(proftpd: dict[str, Any]) -> Any:
    proftpd["explicit"].clear()
    return proftpd["explicit"]


@pytest.fixture
def it(ftp: Any) -> FtpConnector:
    return FtpConnector(ftp.settings)


class TestContract(ConnectorContract):
    connector = FtpConnector

    @pytest.fixture
    def settings(self, ftp: Any) -> dict[str, Any]:
        return dict(ftp.settings)

    @pytest.fixture
    def ctx(self) -> Iterator[Any]:
        with open_context(seconds=60) as ctx:
            yield ctx

    @pytest.fixture
    def broken_settings(self, ftp: Any) -> dict[str, Any]:
        return {**ftp.settings, "port": 1}


def names(ftp: Any, folder: str = "") -> list[str]:
    return sorted(path.name for path in (ftp.root / folder).iterdir())


@pytest.mark.parametrize("way", ["explicit", "implicit", "clear"])
def test_binary_content_round_trips(proftpd: dict[str, Any], ctx: Context, way: str) -> None:
    ftp = proftpd[way]
    ftp.clear()
    it, content = FtpConnector(ftp.settings), os.urandom(300_001) + b"\r\n\n\r\xff\xf4"
    assert it.call("put", {"path": "a.bin", "base64": base64.b64encode(content).decode()}, ctx) == {"size": len(content)}
    assert (ftp.root / "a.bin").read_bytes() == content
    assert base64.b64decode(it.call("get", {"path": "a.bin"}, ctx)["base64"]) == content
    assert [each["name"] for each in it.call("list", {}, ctx)["entries"]] == ["a.bin"]


def test_check_reports_the_protection(proftpd: dict[str, Any], ctx: Context) -> None:
    root = str(proftpd["clear"].root)
    for mode, protection in (("explicit", "over TLSv1.3"), ("implicit", "over TLSv1.2"), ("clear", "in clear text")):
        settings = proftpd[mode].settings
        address = f"127.0.0.1:{settings['port']}"
        assert FtpConnector(settings).check(ctx) == f"Signed in to {address} as ann {protection}; the root is {root}."
    without_root = FtpConnector({name: value for name, value in proftpd["clear"].settings.items() if name != "root"})
    assert f"the root is {root}" in without_root.check(ctx)


def test_put_replaces_a_file_and_is_idempotent(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    ftp.write('ü -1/a  "b" %.txt', "old and longer")
    for _ in range(2):
        it.call("put", {"path": 'ü -1/a  "b" %.txt', "text": "new €"}, ctx)
    assert names(ftp, "ü -1") == ['a  "b" %.txt']
    assert it.call("get", {"path": 'ü -1/a  "b" %.txt', "format": "text"}, ctx)["text"] == "new €"
    assert [each["path"] for each in it.call("list", {"folder": "ü -1"}, ctx)["entries"]] == ['ü -1/a  "b" %.txt']


def test_names_that_look_like_options_or_homes_are_names(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    for name in ("-la", "~", "~root"):
        it.call("make_folder", {"path": name}, ctx)
        it.call("put", {"path": f"{name}/ x", "text": name}, ctx)
        assert [each["name"] for each in it.call("list", {"folder": name}, ctx)["entries"]] == [" x"]
    assert names(ftp) == ["-la", "~", "~root"]


def test_a_failed_put_leaves_no_draft(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    ftp.write("folder/x", "kept")
    for path in ("folder", "nowhere/x"):
        with pytest.raises(Rejected) as caught:
            it.call("put", {"path": path, "text": "x"}, ctx)
        assert caught.value.outcome == "not_done"
    assert (names(ftp), names(ftp, "folder")) == (["folder"], ["x"])


def test_a_folder_is_listed_page_by_page(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    for name in ("c", "a", "b"):
        ftp.write(f"in/{name}", name * 3, 1_000_000_000)
    it.call("make_folder", {"path": "in/d"}, ctx)
    first = it.call("list", {"folder": "in", "limit": 3}, ctx)
    assert first["entries"][0] == {"path": "in/a", "name": "a", "kind": "file", "size": 3, "modified": "2001-09-09T01:46:40Z"}
    rest = it.call("list", {"folder": "in", "limit": 3, "after": first["after"]}, ctx)
    assert ([(each["name"], each["kind"]) for each in rest["entries"]], rest["after"]) == ([("d", "folder")], None)


def test_stat_and_errors_for_missing_paths(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    ftp.write("in/a", "xy")
    assert it.call("stat", {"path": "in/a"}, ctx)["entry"]["size"] == 2
    assert it.call("stat", {"path": "in"}, ctx)["entry"]["kind"] == "folder"
    assert it.call("stat", {"path": "nowhere/b"}, ctx) == {"exists": False}
    for action, params in (("get", {"path": "b"}), ("list", {"folder": "b"}), ("move", {"path": "b", "to": "c"})):
        with pytest.raises(Rejected, match="'b'"):
            it.call(action, params, ctx)
    for action, params in (("get", {"path": "in"}), ("list", {"folder": "in/a"})):
        with pytest.raises(Rejected, match="is not a "):
            it.call(action, params, ctx)
    with pytest.raises(Rejected, match="2 bytes"):
        it.call("get", {"path": "in/a", "most_bytes": 1}, ctx)


def test_move_never_overwrites(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    ftp.write("a", "A")
    ftp.write("b", "B")
    with pytest.raises(Rejected, match="'b' already exists"):
        it.call("move", {"path": "a", "to": "b"}, ctx)
    it.call("move", {"path": "a", "to": "c"}, ctx)
    assert {path.name: path.read_text() for path in ftp.root.iterdir()} == {"b": "B", "c": "A"}


def test_delete_needs_an_empty_folder_and_is_idempotent(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    assert [it.call("make_folder", {"path": "a/b"}, ctx)["made"] for _ in range(2)] == [True, False]
    with pytest.raises(Rejected):
        it.call("delete", {"path": "a"}, ctx)
    assert [it.call("delete", {"path": "a/b"}, ctx)["deleted"] for _ in range(2)] == [True, False]
    ftp.write("file", "x")
    with pytest.raises(Rejected):
        it.call("make_folder", {"path": "file"}, ctx)
    assert it.call("delete", {"path": "file"}, ctx) == {"deleted": True}


def test_a_new_file_is_reported_once_it_stops_growing(ftp: Any, it: FtpConnector, ctx: Context) -> None:
    ftp.write("old.csv", "x")
    cursor = it.poll("new_files", {}, None, ctx).cursor
    ftp.write("new.csv", "whole file")
    growing = it.poll("new_files", {}, cursor, ctx)
    settled = it.poll("new_files", {}, growing.cursor, ctx)
    assert (list(growing.items), [item.data["path"] for item in settled.items]) == ([], ["new.csv"])


# -- what goes wrong


def test_a_wrong_password_is_reported_without_it(ftp: Any, ctx: Context) -> None:
    for changed in ({"password": "wrong-canary"}, {"user": "nobody-here"}):
        with pytest.raises(AuthError, match="password") as caught:
            FtpConnector({**ftp.settings, **changed}).check(ctx)
        assert "canary" not in caught.value.message + str(caught.value.details)


def test_an_untrusted_certificate_gets_no_password(ftp: Any, ctx: Context) -> None:
    settings = {name: value for name, value in ftp.settings.items() if name != "ca"}
    with pytest.raises(ConfigError, match="`ca`"):
        FtpConnector(settings).check(ctx)
    with pytest.raises(ConfigError, match="PEM"):
        FtpConnector({**settings, "ca": "nonsense"}).check(ctx)


def test_the_wrong_kind_of_tls_is_reported(proftpd: dict[str, Any], ctx: Context) -> None:
    with pytest.raises(ConfigError, match="offers no explicit TLS"):
        FtpConnector({**proftpd["clear"].settings, "tls": "explicit"}).check(ctx)
    with pytest.raises(ConfigError, match="does not start TLS"):
        FtpConnector({**proftpd["clear"].settings, "tls": "implicit"}).check(ctx)
    with pytest.raises(AuthError, match="`tls`"):  # it lets nobody in without TLS
        FtpConnector({**proftpd["explicit"].settings, "tls": "off"}).check(ctx)


def test_a_server_that_lists_for_people_only_is_refused(proftpd: dict[str, Any], ctx: Context) -> None:
    with pytest.raises(ConfigError, match="MLSD"):
        FtpConnector(proftpd["old"].settings).check(ctx)


def test_a_root_that_is_not_there_a_dead_port_and_an_unknown_host(ftp: Any, ctx: Context) -> None:
    with pytest.raises(Rejected, match="nowhere"):
        FtpConnector({**ftp.settings, "root": f"{ftp.root}/nowhere"}).check(ctx)
    for changed in ({"port": 1}, {"host": "nowhere.invalid"}):
        with pytest.raises(TransientError):
            FtpConnector({**ftp.settings, **changed}).check(ctx)
