"""Files over S3, on OpenStack Swift and on servers that fail."""

import base64
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_files import S3Connector
from gos_connector_files.bucket import Bucket, ObjectRequest

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
from appliance.connectors.testing import ConnectorContract, LoopbackServer, open_context


@pytest.fixture
def settings(swift: dict[str, Any]) -> dict[str, Any]:
    """Those of a bucket of the test's own."""
    settings = {**swift, "bucket": f"b-{uuid.uuid4().hex}", "root": "ex change"}
    with open_context(seconds=60) as ctx:
        assert Bucket(settings, ctx).send(ObjectRequest("PUT"), "unknown").status == 200
    return settings


@pytest.fixture
def it(settings: dict[str, Any]) -> S3Connector:
    return S3Connector(settings)


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=60) as ctx:
        yield ctx


class TestContract(ConnectorContract):
    connector = S3Connector

    @pytest.fixture
    def settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        return settings

    @pytest.fixture
    def broken_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {**settings, "endpoint": "http://127.0.0.1:1"}

    @pytest.fixture
    def ctx(self) -> Iterator[Any]:
        with open_context(seconds=60) as ctx:
            yield ctx


def paths(it: S3Connector, ctx: Context, folder: str = "") -> list[str]:
    return [each["path"] for each in it.call("list", {"folder": folder}, ctx)["entries"]]


ODD = "ü #1/a b%20?+&=.txt"


def test_binary_content_round_trips_under_odd_names(it: S3Connector, ctx: Context) -> None:
    content = os.urandom(300_001)
    for _ in range(2):
        assert it.call("put", {"path": ODD, "base64": base64.b64encode(content).decode()}, ctx) == {"size": 300_001}
    assert base64.b64decode(it.call("get", {"path": ODD}, ctx)["base64"]) == content
    assert (paths(it, ctx), paths(it, ctx, "ü #1")) == (["ü #1"], [ODD])
    assert it.call("stat", {"path": ODD}, ctx)["entry"]["size"] == 300_001


def test_objects_outside_the_root_are_not_visible(settings: dict[str, Any], ctx: Context) -> None:
    all_of_it = S3Connector({**settings, "root": ""})
    for path in ("ex change/in", "ex change2", "other/x"):
        all_of_it.call("put", {"path": path, "text": path}, ctx)
    assert paths(all_of_it, ctx) == ["ex change", "ex change2", "other"]
    assert paths(S3Connector(settings), ctx) == ["in"]
    with pytest.raises(ConfigError):
        S3Connector(settings).call("get", {"path": "../other/x"}, ctx)


def test_a_folder_is_listed_page_by_page(it: S3Connector, ctx: Context) -> None:
    for name in ("in/c", "in/a", "in/d/x", "in/d/y", "in/b"):
        it.call("put", {"path": name, "text": name}, ctx)
    it.call("make_folder", {"path": "in"}, ctx)
    entries: list[Any] = []
    params: dict[str, Any] = {"folder": "in", "limit": 2}
    for _ in range(5):
        page = it.call("list", params, ctx)
        assert len(page["entries"]) <= 2
        entries += [(each["name"], each["kind"], each["size"]) for each in page["entries"]]
        params["after"] = page["after"]
        if page["after"] is None:
            break
    assert entries == [("a", "file", 4), ("b", "file", 4), ("c", "file", 4), ("d", "folder", 0)]
    assert params["after"] is None
    assert it.call("list", {"folder": "nowhere"}, ctx) == {"entries": [], "after": None}


def test_stat_and_errors_for_missing_paths(it: S3Connector, ctx: Context) -> None:
    it.call("put", {"path": "in/a", "text": "xy"}, ctx)
    assert it.call("stat", {"path": "in/a"}, ctx)["entry"]["size"] == 2
    assert it.call("stat", {"path": "in"}, ctx)["entry"]["kind"] == "folder"
    assert it.call("stat", {"path": "i"}, ctx) == {"exists": False}
    for action, params in (("get", {"path": "b"}), ("move", {"path": "b", "to": "c"}), ("copy", {"path": "b", "to": "c"})):
        with pytest.raises(Rejected, match="'b'"):
            it.call(action, params, ctx)
    with pytest.raises(Rejected, match="is a folder"):
        it.call("move", {"path": "in", "to": "out"}, ctx)
    it.call("put", {"path": "empty", "text": ""}, ctx)
    assert it.call("get", {"path": "empty", "format": "text"}, ctx) == {"size": 0, "text": ""}
    with pytest.raises(Rejected, match="2 bytes"):
        it.call("get", {"path": "in/a", "most_bytes": 1}, ctx)


def test_copies_and_moves(it: S3Connector, ctx: Context) -> None:
    for name in ("a ü", "b"):
        it.call("put", {"path": name, "text": name}, ctx)
    with pytest.raises(Rejected, match="'b' already exists"):
        it.call("move", {"path": "a ü", "to": "b"}, ctx)
    for _ in range(2):
        it.call("copy", {"path": "a ü", "to": "b"}, ctx)
    it.call("move", {"path": "a ü", "to": "in/c"}, ctx)
    assert (paths(it, ctx), it.call("get", {"path": "b", "format": "text"}, ctx)["text"]) == (["b", "in"], "a ü")
    assert it.call("get", {"path": "in/c", "format": "text"}, ctx)["text"] == "a ü"


def test_delete_needs_an_empty_folder_and_is_idempotent(it: S3Connector, ctx: Context) -> None:
    assert [it.call("make_folder", {"path": "a/b"}, ctx)["made"] for _ in range(2)] == [True, False]
    with pytest.raises(Rejected, match="not empty"):
        it.call("delete", {"path": "a"}, ctx)
    assert [it.call("delete", {"path": "a/b"}, ctx)["deleted"] for _ in range(2)] == [True, False]
    it.call("put", {"path": "file", "text": "x"}, ctx)
    with pytest.raises(Rejected, match="already exists"):
        it.call("make_folder", {"path": "file"}, ctx)
    assert [it.call("delete", {"path": "file"}, ctx)["deleted"] for _ in range(2)] == [True, False]


def fetch(url: str, content: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, content, method="GET" if content is None else "PUT")  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())


def test_a_presigned_url_is_limited_to_its_method_and_time(it: S3Connector, ctx: Context) -> None:
    upload = it.call("presign", {"path": ODD, "method": "put"}, ctx)["url"]
    fetch(upload, b"from outside")
    assert it.call("get", {"path": ODD, "format": "text"}, ctx)["text"] == "from outside"
    download = it.call("presign", {"path": ODD, "seconds": 60}, ctx)
    assert fetch(download["url"]) == b"from outside"
    assert (download["method"], download["seconds"]) == ("GET", 60)
    for url in (upload, download["url"].replace("Expires=60", "Expires=600")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url)
        assert caught.value.code == 403
        caught.value.close()
    expired = SlowClockConnector(it.settings).call("presign", {"path": ODD, "seconds": 60}, ctx)["url"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(expired)
    assert caught.value.code == 403
    caught.value.close()


def test_only_presigned_uploads_have_an_effect(it: S3Connector) -> None:
    action = next(each for each in it.actions if each.name == "presign")
    effects = [it.effect_of(action, {"path": "a", **more}) for more in ({}, {"method": "get"}, {"method": "put"})]
    assert effects == ["read", "read", "idempotent"]


def test_virtual_addressing_puts_the_bucket_in_the_host(settings: dict[str, Any]) -> None:
    port = settings["endpoint"].rpartition(":")[2]
    bucket = settings["bucket"]
    with open_context(seconds=60, names={f"{bucket}.s3.example": "127.0.0.1"}) as ctx:
        it = S3Connector({**settings, "endpoint": f"http://s3.example:{port}/", "addressing": "virtual"})
        it.call("put", {"path": ODD, "text": "x"}, ctx)
        assert paths(it, ctx, "ü #1") == [ODD]
        assert f"//{bucket}.s3.example:{port}/ex%20change/" in it.call("presign", {"path": ODD}, ctx)["url"]
    with open_context(seconds=60) as ctx:
        assert S3Connector(settings).call("get", {"path": ODD, "format": "text"}, ctx)["text"] == "x"


def test_new_files_are_detected_by_name_time_and_etag(it: S3Connector, ctx: Context) -> None:
    it.call("put", {"path": "in/old.csv", "text": "x"}, ctx)
    cursor = it.poll("new_files", {"folder": "in"}, None, ctx).cursor
    it.call("put", {"path": "in/new.csv", "text": "whole"}, ctx)
    it.call("put", {"path": "in/old.csv", "text": "y"}, ctx)  # the same size: its ETag tells
    first = it.poll("new_files", {"folder": "in"}, cursor, ctx)
    second = it.poll("new_files", {"folder": "in"}, first.cursor, ctx)
    assert list(first.items) == []
    assert sorted(item.data["path"] for item in second.items) == ["in/new.csv", "in/old.csv"]
    assert list(it.poll("new_files", {"folder": "in"}, second.cursor, ctx).items) == []


# -- what goes wrong


class SlowClockConnector(S3Connector):
    """A machine whose clock is an hour behind."""

    def now(self) -> float:
        return time.time() - 3600


def test_wrong_keys_and_missing_rights_are_reported_without_secrets(settings: dict[str, Any], ctx: Context) -> None:
    for changed in ({"secret_key": "canary-secret"}, {"access_key": "acme:nobody"}):
        with pytest.raises(AuthError, match="access_key") as caught:
            S3Connector({**settings, **changed}).check(ctx)
        assert "canary" not in caught.value.message + str(caught.value.details)
    bob = S3Connector({**settings, "access_key": "acme:bob"})
    for act in (lambda: bob.check(ctx), lambda: bob.call("stat", {"path": "a"}, ctx), lambda: bob.call("get", {"path": "a"}, ctx)):
        with pytest.raises(Rejected, match="rights"):
            act()
    with pytest.raises(Rejected, match="rights") as refused:
        bob.call("put", {"path": "a", "text": "x"}, ctx)
    assert refused.value.outcome == "not_done"


def test_a_missing_bucket_and_a_wrong_region_are_reported(settings: dict[str, Any], ctx: Context) -> None:
    with pytest.raises(Rejected, match="no bucket 'nowhere'"):
        S3Connector({**settings, "bucket": "nowhere"}).check(ctx)
    with pytest.raises(ConfigError, match="names eu-central-1"):
        S3Connector({**settings, "region": "us-west-1"}).check(ctx)


def test_a_wrong_clock_is_reported(settings: dict[str, Any], ctx: Context) -> None:
    with pytest.raises(ConfigError, match=r"clock .* differ by 3[56]\d\d seconds"):
        SlowClockConnector(settings).check(ctx)


def test_check_names_the_bucket_and_the_key(it: S3Connector, ctx: Context) -> None:
    assert it.check(ctx) == f"acme:ann can list the bucket {it.settings['bucket']} at {it.settings['endpoint']}."


@pytest.fixture
def bad_server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


def connect(bad_server: LoopbackServer) -> S3Connector:
    return S3Connector({"endpoint": bad_server.url, "bucket": "liar", "access_key": "a", "secret_key": "canary"})


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>canary</Message></Error>".encode()


LISTING = "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>{}</ListBucketResult>"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<html>hello</html>", SystemFailure),
        (200, b"no xml", SystemFailure),
        (200, b"<!DOCTYPE d [<!ENTITY e 'x'>]><d>&e;</d>", SystemFailure),
        (200, LISTING.format("<IsTruncated>true</IsTruncated>").encode(), SystemFailure),
        (200, LISTING.format("<Contents><Key>a</Key><Size>-1</Size></Contents>").encode(), SystemFailure),
        (206, b"", SystemFailure),
        (301, error("PermanentRedirect"), ConfigError),
        (307, b"", ConfigError),
        (400, error("ExpiredToken"), AuthError),
        (401, b"", AuthError),
        (403, b"<html>a proxy</html>", AuthError),
        (403, error("AccessDenied"), Rejected),
        (409, error("OperationAborted"), TransientError),
        (405, error("MethodNotAllowed"), Rejected),
        (429, b"", RateLimited),
        (503, error("SlowDown"), RateLimited),
        (500, error("InternalError"), TransientError),
    ],
)
def test_answers_map_to_contract_errors(
    bad_server: LoopbackServer, ctx: Context, status: int, body: bytes, expected: type[ConnectorError]
) -> None:
    bad_server.answer("/liar", status, body, Retry_After="7")
    with pytest.raises(expected) as caught:
        connect(bad_server).check(ctx)
    assert type(caught.value) is expected
    assert caught.value.outcome == "not_done"
    assert "canary" not in caught.value.message + str(caught.value.details)
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after == 7


def test_a_listing_that_never_ends_is_aborted(bad_server: LoopbackServer, ctx: Context) -> None:
    page = "<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    bad_server.answer("/liar", 200, LISTING.format(page).encode())
    with pytest.raises(SystemFailure, match="end"):
        connect(bad_server).poll("new_files", {}, None, ctx)


def test_names_outside_the_folder_are_not_listed(bad_server: LoopbackServer, ctx: Context) -> None:
    keys = ("in/", "in/ok", "in/../x", "in/..", "in/.", "other/x", "in/a/b", "in/a%2Fb", "in//")
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    bad_server.answer("/liar", 200, LISTING.format(contents + "<CommonPrefixes><Prefix>in/../</Prefix></CommonPrefixes>").encode())
    assert paths(connect(bad_server), ctx, "in") == ["in/ok"]


def test_a_failed_write_has_an_unknown_outcome(bad_server: LoopbackServer, ctx: Context) -> None:
    bad_server.answer("/liar", 200, LISTING.format("<Contents><Key>a</Key><Size>1</Size></Contents>").encode())
    bad_server.answer("/liar/a", 500, error("InternalError"))
    for action, params in (("put", {"path": "a", "text": "x"}), ("delete", {"path": "a"}), ("copy", {"path": "b", "to": "a"})):
        with pytest.raises(TransientError) as caught:
            connect(bad_server).call(action, params, ctx)
        assert caught.value.outcome == "unknown"
    with pytest.raises(TransientError) as caught:
        connect(bad_server).call("get", {"path": "a"}, ctx)
    assert caught.value.outcome == "not_done"


def test_a_copy_error_under_status_200_is_a_failure(bad_server: LoopbackServer, ctx: Context) -> None:
    bad_server.answer("/liar/b", 200, error("InternalError"))
    with pytest.raises(SystemFailure) as caught:
        connect(bad_server).call("copy", {"path": "a", "to": "b"}, ctx)
    assert caught.value.outcome == "unknown"


def test_a_closed_port_and_an_unknown_host_are_transient(ctx: Context) -> None:
    for endpoint in ("http://127.0.0.1:1", "http://nowhere.invalid"):
        with pytest.raises(TransientError) as caught:
            S3Connector({"endpoint": endpoint, "bucket": "b2b", "access_key": "a", "secret_key": "s"}).check(ctx)
        assert caught.value.outcome == "not_done"
