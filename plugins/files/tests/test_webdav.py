"""Files over WebDAV, on Apache and on servers that fail."""

import base64
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from gos_connector_files import WebdavConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import ConnectorContract, HeldDocuments, with_documents


@pytest.fixture
def dav(apache: Any) -> Any:
    apache.clear()
    return apache


@pytest.fixture
def it(dav: Any) -> WebdavConnector:
    return WebdavConnector(dav.settings)


class TestContract(ConnectorContract):
    connector = WebdavConnector

    @pytest.fixture
    def settings(self, dav: Any) -> dict[str, Any]:
        return dict(dav.settings)

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"base_url": "http://127.0.0.1:1/x"}


def names(dav: Any, folder: str = "") -> list[str]:
    """What the folder holds, without Apache's own properties."""
    return sorted(path.name for path in (dav.root / folder).iterdir() if path.name != ".DAV")


def test_binary_content_round_trips(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    content = os.urandom(300_001)
    it.call("put", {"path": "a.bin", "base64": base64.b64encode(content).decode()}, ctx)
    assert (dav.root / "a.bin").read_bytes() == content
    assert base64.b64decode(it.call("get", {"path": "a.bin"}, ctx)["base64"]) == content


def test_put_replaces_a_file_and_is_idempotent(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    dav.write("ü #1/a b%20?.txt", "old and longer")
    for _ in range(2):
        it.call("put", {"path": "ü #1/a b%20?.txt", "text": "new €"}, ctx)
    assert names(dav, "ü #1") == ["a b%20?.txt"]
    assert it.call("get", {"path": "ü #1/a b%20?.txt", "format": "text"}, ctx)["text"] == "new €"
    assert [each["path"] for each in it.call("list", {"folder": "ü #1"}, ctx)["entries"]] == ["ü #1/a b%20?.txt"]


def test_put_needs_an_existing_folder_and_replaces_none(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    dav.write("folder/x", "kept")
    with pytest.raises(Rejected):
        it.call("put", {"path": "folder", "text": "x"}, ctx)
    with pytest.raises(Rejected, match="create it first"):
        it.call("put", {"path": "nowhere/x", "text": "x"}, ctx)
    assert (names(dav), names(dav, "folder")) == (["folder"], ["x"])


def test_a_folder_is_listed_page_by_page(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    for name in ("c", "a", "b"):
        dav.write(f"in/{name}", name * 3, 1_000_000_000)
    it.call("make_folder", {"path": "in/d"}, ctx)
    first = it.call("list", {"folder": "in", "limit": 3}, ctx)
    assert first["entries"][0] == {"path": "in/a", "name": "a", "kind": "file", "size": 3, "modified": "2001-09-09T01:46:40Z"}
    assert [each["name"] for each in first["entries"]] == ["a", "b", "c"]
    rest = it.call("list", {"folder": "in", "limit": 3, "after": first["after"]}, ctx)
    assert ([(each["name"], each["kind"]) for each in rest["entries"]], rest["after"]) == ([("d", "folder")], None)
    assert [each["name"] for each in it.call("list", {}, ctx)["entries"]] == ["in"]


def test_stat_and_errors_for_missing_paths(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    dav.write("in/a", "xy")
    assert it.call("stat", {"path": "in/a"}, ctx)["entry"]["size"] == 2
    assert it.call("stat", {"path": "in"}, ctx)["entry"]["kind"] == "folder"
    assert it.call("stat", {"path": "nowhere/b"}, ctx) == {"exists": False}
    for action, params in (("get", {"path": "b"}), ("list", {"folder": "b"}), ("move", {"path": "b", "to": "c"})):
        with pytest.raises(Rejected, match="'b'"):
            it.call(action, params, ctx)
    for action, params in (("get", {"path": "in"}), ("list", {"folder": "in/a"})):
        with pytest.raises(Rejected):
            it.call(action, params, ctx)


def test_move_never_overwrites(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    dav.write("a", "A")
    dav.write("b", "B")
    with pytest.raises(Rejected, match="'b' already exists"):
        it.call("move", {"path": "a", "to": "b"}, ctx)
    it.call("move", {"path": "a", "to": "c d"}, ctx)
    assert {name: (dav.root / name).read_text() for name in names(dav)} == {"b": "B", "c d": "A"}


def test_delete_needs_an_empty_folder_and_is_idempotent(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    assert [it.call("make_folder", {"path": "a/b/c"}, ctx)["made"] for _ in range(2)] == [True, False]
    with pytest.raises(Rejected, match="not empty"):
        it.call("delete", {"path": "a"}, ctx)
    assert [it.call("delete", {"path": "a/b/c"}, ctx)["deleted"] for _ in range(2)] == [True, False]
    dav.write("file", "x")
    with pytest.raises(Rejected):
        it.call("make_folder", {"path": "file"}, ctx)
    assert it.call("delete", {"path": "file"}, ctx) == {"deleted": True}


def test_a_file_too_large_is_rejected(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    dav.write("a", b"x" * 11)
    with pytest.raises(Rejected, match="11 bytes"):
        it.call("get", {"path": "a", "most_bytes": 10}, ctx)


def test_a_new_file_is_reported_once_it_stops_growing(dav: Any, it: WebdavConnector, ctx: Context) -> None:
    cursor = it.poll("new_files", {}, None, ctx).cursor
    dav.write("new.csv", "whole file")
    growing = it.poll("new_files", {}, cursor, ctx)
    settled = it.poll("new_files", {}, growing.cursor, ctx)
    assert (list(growing.items), [item.data["path"] for item in settled.items]) == ([], ["new.csv"])


# -- what goes wrong


def test_a_wrong_password_is_reported_without_it(dav: Any, ctx: Context) -> None:
    for changed in ({"password": "wrong-canary"}, {"user": "canary"}):
        with pytest.raises(AuthError) as caught:
            WebdavConnector({**dav.settings, **changed}).check(ctx)
        assert "canary" not in caught.value.message + str(caught.value.details)


def test_a_missing_base_folder_is_reported(dav: Any, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        WebdavConnector({**dav.settings, "base_url": dav.settings["base_url"] + "/nowhere"}).check(ctx)


@pytest.fixture
def bad_server() -> Iterator[Any]:
    """A server that answers each method with a status and a body of the test's choice, None being nothing at all."""
    answers: dict[str, tuple[int, bytes] | None] = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            response = answers[self.command]
            if response is None:
                self.close_connection = True
                return
            self.send_response(response[0])
            self.send_header("Retry-After", "7")
            self.send_header("Content-Length", str(len(response[1])))
            self.end_headers()
            self.wfile.write(response[1])

        do_PROPFIND = do_PUT = do_MOVE = do_DELETE = do_MKCOL = do_GET = answer  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Nothing: the test's output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield SimpleNamespace(answers=answers, it=WebdavConnector({"base_url": f"http://127.0.0.1:{server.server_address[1]}/d"}))
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<html>hello</html>", SystemFailure),
        (207, b"no xml", SystemFailure),
        (207, b"<multistatus xmlns='DAV:'/>", SystemFailure),
        (207, b"<!DOCTYPE d [<!ENTITY e 'x'>]><d>&e;</d>", SystemFailure),
        (301, b"", SystemFailure),
        (403, b"", Rejected),
        (423, b"", TransientError),
        (429, b"", RateLimited),
        (503, b"", RateLimited),
        (500, b"", TransientError),
    ],
)
def test_answers_map_to_contract_errors(
    bad_server: Any, ctx: Context, status: int, body: bytes, expected: type[ConnectorError]
) -> None:
    bad_server.answers["PROPFIND"] = (status, body)
    with pytest.raises(expected) as caught:
        bad_server.it.check(ctx)
    assert type(caught.value) is expected
    assert caught.value.outcome == "not_done"
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after == 7


@pytest.mark.parametrize("answer", [None, (500, b"")])
def test_the_outcome_is_unknown_only_after_the_last_request(bad_server: Any, ctx: Context, answer: Any) -> None:
    bad_server.answers |= {"PROPFIND": (404, b""), "PUT": answer, "MOVE": answer}
    outcomes = []
    for action, params in (("put", {"path": "a", "text": "x"}), ("move", {"path": "a", "to": "b"})):
        with pytest.raises(TransientError) as caught:
            bad_server.it.call(action, params, ctx)
        outcomes.append(caught.value.outcome)
    bad_server.answers["PUT"] = (201, b"")
    with pytest.raises(TransientError) as caught:
        bad_server.it.call("put", {"path": "a", "text": "x"}, ctx)
    assert [*outcomes, caught.value.outcome] == ["not_done", "unknown", "unknown"]


def test_names_outside_the_folder_are_not_listed(bad_server: Any, ctx: Context) -> None:
    hrefs = ("/d/", "/d/ok", "/d/../x", "/d/%2e%2e", "/d/a/b", "/e/f", "/d/x%2fy")
    responses = "".join(f"<response><href>{href}</href></response>" for href in hrefs)
    folder = "<propstat><prop><resourcetype><collection/></resourcetype></prop></propstat></response>"
    body = f"<multistatus xmlns='DAV:'>{responses}</multistatus>".replace("</response>", folder, 1)
    bad_server.answers["PROPFIND"] = (207, body.encode())
    assert [each["name"] for each in bad_server.it.call("list", {}, ctx)["entries"]] == ["ok"]


def test_documents_are_written_and_read(dav: Any, it: WebdavConnector, ctx: Any) -> None:
    content, documents = os.urandom(300_001), HeldDocuments()
    document_id = documents.create("offer.pdf", [content], "application/pdf")
    ctx = with_documents(ctx, documents)
    for _ in range(2):
        assert it.call("put", {"path": "out.pdf", "document": document_id}, ctx) == {"size": 300_001}
    assert (dav.root / "out.pdf").read_bytes() == content
    output = it.call("get", {"path": "out.pdf", "as_document": True}, ctx)
    assert (output["size"], documents.documents[output["document"]]) == (300_001, ("out.pdf", "", content))
    with pytest.raises(ConfigError, match="no document"):
        it.call("put", {"path": "new.pdf", "document": "doc_9"}, ctx)
    with pytest.raises(Rejected):
        it.call("get", {"path": "none.pdf", "as_document": True}, ctx)
    assert (names(dav), len(documents.documents)) == (["out.pdf"], 2)
