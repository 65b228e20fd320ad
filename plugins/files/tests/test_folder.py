"""Files in a folder of this machine."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gos_connector_files import FolderConnector

from appliance.connectors.contract import AddressNotAllowed, ConfigError, Context, Rejected
from appliance.connectors.testing import ConnectorContract, HeldDocuments, open_context, with_documents


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def ctx(root: Path) -> Iterator[Context]:
    with open_context(folders=[str(root)]) as ctx:
        yield ctx


@pytest.fixture
def it(root: Path) -> FolderConnector:
    return FolderConnector({"root": str(root)})


class TestContract(ConnectorContract):
    connector = FolderConnector

    @pytest.fixture
    def settings(self, root: Path) -> dict[str, Any]:
        return {"root": str(root)}

    @pytest.fixture
    def broken_settings(self, root: Path) -> dict[str, Any]:
        return {"root": str(root.parent)}

    @pytest.fixture
    def ctx(self, root: Path) -> Iterator[Any]:
        with open_context(folders=[str(root)]) as ctx:
            yield ctx


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_binary_content_round_trips(root: Path, it: FolderConnector, ctx: Context) -> None:
    content = os.urandom(300_001)
    assert it.call("put", {"path": "a.bin", "base64": base64.b64encode(content).decode()}, ctx) == {"size": 300_001}
    assert (root / "a.bin").read_bytes() == content
    assert base64.b64decode(it.call("get", {"path": "a.bin"}, ctx)["base64"]) == content


def test_put_replaces_a_file_and_is_idempotent(root: Path, it: FolderConnector, ctx: Context) -> None:
    (root / "ü").mkdir()
    (root / "ü" / "a b.txt").write_text("old and longer")
    for _ in range(2):
        it.call("put", {"path": "ü/a b.txt", "text": "new €"}, ctx)
    assert names(root / "ü") == ["a b.txt"]
    assert it.call("get", {"path": "ü/a b.txt", "format": "text"}, ctx)["text"] == "new €"


def test_a_folder_is_listed_page_by_page(root: Path, it: FolderConnector, ctx: Context) -> None:
    it.call("make_folder", {"path": "in/d"}, ctx)
    for name in ("c", "a", "b"):
        (root / "in" / name).write_text(name * 3)
        os.utime(root / "in" / name, (1_000_000_000, 1_000_000_000))
    first = it.call("list", {"folder": "in", "limit": 3}, ctx)
    assert first["entries"][0] == {"path": "in/a", "name": "a", "kind": "file", "size": 3, "modified": "2001-09-09T01:46:40Z"}
    rest = it.call("list", {"folder": "in", "limit": 3, "after": first["after"]}, ctx)
    assert ([(each["name"], each["kind"]) for each in rest["entries"]], rest["after"]) == ([("d", "folder")], None)


def test_stat_and_errors_for_missing_paths(root: Path, it: FolderConnector, ctx: Context) -> None:
    (root / "a").write_text("xy")
    assert it.call("stat", {"path": "a"}, ctx)["entry"]["size"] == 2
    assert it.call("stat", {"path": "nowhere/b"}, ctx) == {"exists": False}
    for action, params in (("get", {"path": "b"}), ("list", {"folder": "b"}), ("move", {"path": "b", "to": "c"})):
        with pytest.raises(Rejected, match="'b'"):
            it.call(action, params, ctx)
    with pytest.raises(Rejected, match="2 bytes"):
        it.call("get", {"path": "a", "most_bytes": 1}, ctx)


def test_links_are_not_followed(root: Path, it: FolderConnector, ctx: Context) -> None:
    (root.parent / "secret").write_text("secret")
    (root / "file").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to(root.parent)
    for action, params in (
        ("get", {"path": "file"}),
        ("get", {"path": "folder/secret"}),
        ("put", {"path": "folder/x", "text": "x"}),
        ("list", {"folder": "folder"}),
        ("move", {"path": "folder/secret", "to": "got"}),
    ):
        with pytest.raises(Rejected, match="link"):
            it.call(action, params, ctx)
    with pytest.raises(ConfigError):
        it.call("get", {"path": "../secret"}, ctx)
    assert {each["name"]: each["kind"] for each in it.call("list", {}, ctx)["entries"]} == {"file": "other", "folder": "other"}
    assert names(root.parent) == ["in", "secret"]


def test_move_never_overwrites_and_delete_is_idempotent(root: Path, it: FolderConnector, ctx: Context) -> None:
    for name in "ab":
        (root / name).write_text(name)
    with pytest.raises(Rejected, match="'b' already exists"):
        it.call("move", {"path": "a", "to": "b"}, ctx)
    assert it.call("move", {"path": "a", "to": "c"}, ctx) == {"path": "c"}
    assert [it.call("delete", {"path": "b"}, ctx)["deleted"] for _ in range(2)] == [True, False]
    assert names(root) == ["c"]


def test_put_beyond_the_quota_is_rejected(root: Path, it: FolderConnector, ctx: Context) -> None:
    (root / "a").write_bytes(b"x" * 999_990)
    with pytest.raises(Rejected, match=r"folders\.quota_mb"):
        it.call("put", {"path": "b", "text": "x" * 11}, ctx)
    assert names(root) == ["a"]


def test_only_allowed_folders_are_accepted(root: Path, ctx: Context) -> None:
    for path in (str(root.parent), "/etc", f"{root}-2"):
        with pytest.raises(AddressNotAllowed, match=r"folders\.allow"):
            FolderConnector({"root": path}).check(ctx)
    with pytest.raises(ConfigError, match="create it"):
        FolderConnector({"root": f"{root}/nowhere"}).check(ctx)


def test_check_reports_the_access_rights(root: Path, it: FolderConnector, ctx: Context) -> None:
    assert it.check(ctx) == f"{root} exists and is readable and writable."
    with open_context(folders=[f"{root}:ro"]) as reading:
        assert it.check(reading) == f"{root} exists and is read-only."
        with pytest.raises(Rejected, match="is read-only"):
            it.call("put", {"path": "a", "text": "x"}, reading)


def test_a_new_file_is_reported_once_it_stops_growing(root: Path, it: FolderConnector, ctx: Context) -> None:
    (root / "old.csv").write_text("x")
    cursor = it.poll("new_files", {}, None, ctx).cursor
    (root / "new.csv").write_text("half")
    growing = it.poll("new_files", {}, cursor, ctx)
    (root / "new.csv").write_text("whole file")
    grown = it.poll("new_files", {}, growing.cursor, ctx)
    settled = it.poll("new_files", {}, grown.cursor, ctx)
    assert [list(polled.items) for polled in (growing, grown)] == [[], []]
    assert [(item.data["path"], item.data["size"]) for item in settled.items] == [("new.csv", 10)]


def test_documents_are_written_and_read(root: Path, it: FolderConnector, ctx: Any) -> None:
    content, documents = os.urandom(300_001), HeldDocuments()
    document_id = documents.create("offer.pdf", [content], "application/pdf")
    ctx = with_documents(ctx, documents)
    for _ in range(2):
        assert it.call("put", {"path": "out.pdf", "document": document_id}, ctx) == {"size": 300_001}
    assert (root / "out.pdf").read_bytes() == content
    output = it.call("get", {"path": "out.pdf", "as_document": True}, ctx)
    assert (output["size"], documents.documents[output["document"]]) == (300_001, ("out.pdf", "", content))
    with pytest.raises(ConfigError, match="no document"):
        it.call("put", {"path": "new.pdf", "document": "doc_9"}, ctx)
    with pytest.raises(Rejected):
        it.call("get", {"path": "none.pdf", "as_document": True}, ctx)
    assert ([path.name for path in root.iterdir()], len(documents.documents)) == (["out.pdf"], 2)
