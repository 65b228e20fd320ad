"""Files over SFTP, on OpenSSH's server."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from gos_connector_files import SftpConnector

from appliance.connectors.contract import ConfigError, Context, Rejected
from appliance.connectors.testing import ConnectorContract, HeldDocuments, with_documents


@pytest.fixture
def it(sftp: Any) -> SftpConnector:
    return SftpConnector(sftp.settings)


class TestContract(ConnectorContract):
    connector = SftpConnector

    @pytest.fixture
    def settings(self, sftp: Any) -> dict[str, Any]:
        return dict(sftp.settings)

    @pytest.fixture
    def broken_settings(self, sftp: Any) -> dict[str, Any]:
        return {**sftp.settings, "port": 1}


# -- files


def test_binary_content_round_trips(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    content = os.urandom(300_001)
    params = {"path": "a.bin", "base64": base64.b64encode(content).decode()}
    assert it.call("put", params, ctx) == {"size": 300_001}
    assert (sftp.root / "a.bin").read_bytes() == content
    assert base64.b64decode(it.call("get", {"path": "a.bin"}, ctx)["base64"]) == content


def test_put_replaces_a_file_and_is_idempotent(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("ü/a b.txt", "old and longer")
    for _ in range(2):
        it.call("put", {"path": "ü/a b.txt", "text": "new €"}, ctx)
    assert [path.name for path in (sftp.root / "ü").iterdir()] == ["a b.txt"]
    assert it.call("get", {"path": "ü/a b.txt", "format": "text"}, ctx)["text"] == "new €"


def test_a_failed_put_keeps_the_folder_and_leaves_no_draft(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    (sftp.root / "folder" / "in").mkdir(parents=True)
    sftp.write("folder/in/x", "kept")
    with pytest.raises(Rejected) as caught:
        it.call("put", {"path": "folder", "text": "a folder is in its place"}, ctx)
    assert caught.value.outcome == "not_done"
    assert [path.name for path in sftp.root.iterdir()] == ["folder"]


def test_a_folder_is_listed_page_by_page(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    for name in ("c", "a", "b"):
        sftp.write(f"in/{name}", name * 3, 1_000_000_000)
    (sftp.root / "in" / "d").mkdir()
    first = it.call("list", {"folder": "in", "limit": 3}, ctx)
    assert first["entries"][0] == {"path": "in/a", "name": "a", "kind": "file", "size": 3, "modified": "2001-09-09T01:46:40Z"}
    assert [each["name"] for each in first["entries"]] == ["a", "b", "c"]
    rest = it.call("list", {"folder": "in", "limit": 3, "after": first["after"]}, ctx)
    assert ([(each["name"], each["kind"]) for each in rest["entries"]], rest["after"]) == ([("d", "folder")], None)


def test_stat_and_errors_for_missing_paths(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("a", "xy")
    assert it.call("stat", {"path": "a"}, ctx)["entry"]["size"] == 2
    assert it.call("stat", {"path": "nowhere/b"}, ctx) == {"exists": False}
    for action, params in (("get", {"path": "b"}), ("list", {"folder": "b"}), ("move", {"path": "b", "to": "c"})):
        with pytest.raises(Rejected, match="'b'"):
            it.call(action, params, ctx)


def test_move_never_overwrites(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("a", "A")
    sftp.write("b", "B")
    with pytest.raises(Rejected, match="'b' already exists"):
        it.call("move", {"path": "a", "to": "b"}, ctx)
    it.call("move", {"path": "a", "to": "c"}, ctx)
    assert {path.name: path.read_text() for path in sftp.root.iterdir()} == {"b": "B", "c": "A"}


def test_deleting_and_making_folders_may_be_repeated(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    assert [it.call("make_folder", {"path": "a/b/c"}, ctx)["made"] for _ in range(2)] == [True, False]
    with pytest.raises(Rejected):
        it.call("delete", {"path": "a"}, ctx)
    assert [it.call("delete", {"path": "a/b/c"}, ctx)["deleted"] for _ in range(2)] == [True, False]
    assert it.call("delete", {"path": "no/such/folder"}, ctx) == {"deleted": False}
    sftp.write("file", "x")
    with pytest.raises(Rejected):
        it.call("make_folder", {"path": "file/x"}, ctx)


def test_files_too_large_or_not_utf8_are_rejected(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("a", b"\xff" * 11)
    with pytest.raises(Rejected, match="11 bytes"):
        it.call("get", {"path": "a", "most_bytes": 10}, ctx)
    with pytest.raises(Rejected, match="UTF-8"):
        it.call("get", {"path": "a", "format": "text"}, ctx)


def test_a_denied_permission_is_reported(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("a", "x").chmod(0)
    with pytest.raises(Rejected, match="denies access"):
        it.call("get", {"path": "a"}, ctx)


# -- the root


@pytest.fixture
def outside(sftp: Any) -> Path:
    """A folder beside the root, and links to it from inside."""
    secret: Path = sftp.root.parent / "root-but-not"
    secret.mkdir(exist_ok=True)
    (secret / "file").write_text("secret")
    (secret / "file").chmod(0o666)
    secret.chmod(0o777)
    (sftp.root / "folder").symlink_to(secret)
    (sftp.root / "file").symlink_to(secret / "file")
    return secret


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("get", {"path": "file"}),
        ("get", {"path": "folder/file"}),
        ("stat", {"path": "file"}),
        ("list", {"folder": "folder"}),
        ("put", {"path": "folder/new", "text": "x"}),
        ("delete", {"path": "folder/file"}),
        ("move", {"path": "folder/file", "to": "b"}),
        ("make_folder", {"path": "folder/new"}),
    ],
)
def test_a_link_out_of_the_root_is_not_followed(
    it: SftpConnector, ctx: Context, outside: Path, action: str, params: dict[str, Any]
) -> None:
    with pytest.raises(Rejected, match="outside the integration's root"):
        it.call(action, params, ctx)
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_links_themselves_are_replaced_and_deleted(it: SftpConnector, ctx: Context, outside: Path) -> None:
    it.call("put", {"path": "file", "text": "new"}, ctx)
    assert it.call("delete", {"path": "folder"}, ctx) == {"deleted": True}
    assert (outside / "file").read_text() == "secret"


def test_a_path_that_climbs_is_refused(it: SftpConnector, ctx: Context) -> None:
    for path in ("../root-but-not/file", "/etc/passwd", "a/../../x"):
        with pytest.raises(ConfigError):
            it.call("get", {"path": path}, ctx)


# -- the trigger


def test_a_new_file_is_reported_once_it_stops_growing(sftp: Any, it: SftpConnector, ctx: Context) -> None:
    sftp.write("in/old.csv", "x")
    cursor = it.poll("new_files", {"folder": "in"}, None, ctx).cursor
    sftp.write("in/new.csv", "half")
    growing = it.poll("new_files", {"folder": "in"}, cursor, ctx)
    sftp.write("in/new.csv", "whole file")
    grown = it.poll("new_files", {"folder": "in"}, growing.cursor, ctx)
    settled = it.poll("new_files", {"folder": "in"}, grown.cursor, ctx)
    assert [list(polled.items) for polled in (growing, grown)] == [[], []]
    assert [(item.data["path"], item.data["size"]) for item in settled.items] == [("in/new.csv", 10)]


def test_documents_are_written_and_read(sftp: Any, it: SftpConnector, ctx: Any) -> None:
    content, documents = os.urandom(300_001), HeldDocuments()
    document_id = documents.create("offer.pdf", [content], "application/pdf")
    ctx = with_documents(ctx, documents)
    for _ in range(2):
        assert it.call("put", {"path": "out.pdf", "document": document_id}, ctx) == {"size": 300_001}
    assert (sftp.root / "out.pdf").read_bytes() == content
    output = it.call("get", {"path": "out.pdf", "as_document": True}, ctx)
    assert (output["size"], documents.documents[output["document"]]) == (300_001, ("out.pdf", "", content))
    with pytest.raises(ConfigError, match="no document"):
        it.call("put", {"path": "new.pdf", "document": "doc_9"}, ctx)
    with pytest.raises(Rejected):
        it.call("get", {"path": "none.pdf", "as_document": True}, ctx)
    assert ([path.name for path in sftp.root.iterdir()], len(documents.documents)) == (["out.pdf"], 2)
