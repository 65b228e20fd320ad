"""Versions are numbered, immutable, and complete before they are published; one row says which is served."""

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from appliance.blobs import GRACE_MS, LARGEST, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    ApiKeyLeaked,
    ApplianceError,
    Conflict,
    DefinitionInvalid,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    ValidationFailed,
)
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.solutions import write_zip
from appliance.tenants.keys import make_key_text
from appliance.webapps import changes, versions
from appliance.webapps.files import uploads
from appliance.webapps.files.compression import Compression
from appliance.webapps.files.limits import LONGEST_RULES, check_settings
from appliance.webapps.files.preparation import prepare_contents
from appliance.webapps.files.rules import LARGEST_FILE, read_rule_file
from appliance.webapps.service import FileSpec, NewApp, NewVersion, Settings, Version, WebApps

PAGE = b"<!doctype html><title>Shop</title><h1>Hello</h1>"
SCRIPT = b"export const hello = 'hello, dear reader of this file'\n" * 100


BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


def spec(content: bytes) -> FileSpec:
    return FileSpec(hashlib.sha256(content).hexdigest(), len(content))


def send(webapps: WebApps, blobs: Blobs, scope: TenantScope, number: int, content: bytes, name: bytes | None = None) -> None:
    receiver = blobs.receiver()
    receiver.write(content)
    webapps.put_content(scope, "shop", number, spec(content if name is None else name).sha256, receiver.finish())


def deploy(webapps: WebApps, scope: TenantScope, files: dict[str, bytes], settings: bytes = b"") -> Version:
    about = {"app.yaml": settings} if settings else {}
    return webapps.deploy_archive(scope, "shop", io.BytesIO(write_zip({**about, **files})))


def publish(webapps: WebApps, scope: TenantScope, *numbers: int) -> None:
    for number in numbers:
        webapps.publish_version(scope, "shop", number)


def test_only_missing_contents_are_required(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    files = {"index.html": spec(PAGE), "assets/a.js": spec(SCRIPT), "assets/b.js": spec(SCRIPT)}
    version = webapps.create_version(acme, "shop", NewVersion(files))
    assert (version.number, version.state, version.files) == (1, "uploading", 3)
    assert set(version.required) == {spec(PAGE).sha256, spec(SCRIPT).sha256}
    send(webapps, blobs, acme, 1, PAGE)
    with pytest.raises(Conflict, match="1 contents are missing"):
        webapps.finalize_version(acme, "shop", 1)
    assert webapps.get_version(acme, "shop", 1).required == (spec(SCRIPT).sha256,)
    send(webapps, blobs, acme, 1, SCRIPT)
    send(webapps, blobs, acme, 1, SCRIPT)
    assert webapps.finalize_version(acme, "shop", 1).state == "ready"
    assert webapps.finalize_version(acme, "shop", 1).state == "ready"
    again = webapps.create_version(acme, "shop", NewVersion({**files, "new.css": spec(b"h1 {}")}))
    assert (again.number, again.required) == (2, (spec(b"h1 {}").sha256,))


@BOTH
def test_contents_are_compressed_as_they_arrive(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    """So that making a version of thousands of files ready takes no longer than a request may."""
    contents = [SCRIPT + bytes([65 + number]) for number in range(3)]
    files = {f"{number}.js": spec(content) for number, content in enumerate(contents)}
    webapps.create_version(acme, "shop", NewVersion(files))
    send(webapps, blobs, acme, 1, contents[0])
    assert {new.sha256 for _, new in versions.new_contents(acme, "shop", 1)} == {spec(each).sha256 for each in contents[1:]}
    webapps.put_contents(acme, "shop", 1, io.BytesIO(write_zip({"b": contents[1], "c": contents[2]})))
    assert versions.new_contents(acme, "shop", 1) == []
    webapps.finalize_version(acme, "shop", 1)
    served = webapps.load_served(acme, "shop", 1)
    assert served is not None
    assert [set(file.forms) for file in served.files.values()] == [{"identity", "gzip"}] * 3


def test_contents_of_one_request_are_stored_together(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [f"picture {number}".encode() for number in range(40)]
    webapps.create_version(acme, "shop", NewVersion({f"{number}.png": spec(each) for number, each in enumerate(contents)}))
    synced: list[Path] = []
    sync = os.fsync

    def noting(of: int) -> None:
        synced.append(Path(f"/proc/self/fd/{of}").readlink())
        sync(of)

    monkeypatch.setattr(os, "fsync", noting)
    webapps.put_contents(acme, "shop", 1, io.BytesIO(write_zip({f"{number}": each for number, each in enumerate(contents)})))
    files = [path for path in (tmp_path / "blobs" / "acme").rglob("*") if path.is_file()]
    assert len(files) == len([path for path in synced if path.parent.name == "incoming"]) == 40
    assert sorted(path for path in synced if path.parent.name == "acme") == sorted({path.parent for path in files})
    assert synced.count(tmp_path / "blobs" / "acme") == 1


def test_an_aborted_request_keeps_the_complete_contents(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    contents = [f"picture {number}".encode() * 500 for number in range(5)]
    webapps.create_version(acme, "shop", NewVersion({f"{number}.png": spec(each) for number, each in enumerate(contents)}))
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for number, each in enumerate(contents):
            about = tarfile.TarInfo(str(number))
            about.size = len(each)
            tar.addfile(about, io.BytesIO(each))
    with pytest.raises(InvalidRequest, match="ends in the middle"):
        webapps.put_contents(acme, "shop", 1, io.BytesIO(whole.getvalue()[:13_000]))
    assert len(webapps.get_version(acme, "shop", 1).required) == 3
    with pytest.raises(Conflict, match="3 contents are missing"):
        webapps.finalize_version(acme, "shop", 1)
    assert len(webapps.put_contents(acme, "shop", 1, whole)) == 5
    assert webapps.finalize_version(acme, "shop", 1).state == "ready"


def test_uploading_to_a_deleted_version_is_not_found(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    webapps.create_version(acme, "shop", NewVersion({"a.js": spec(SCRIPT)}))
    row = versions.get_row(acme, "shop", 1)
    webapps.delete_app(acme, "shop")
    with pytest.raises(NotFound):
        uploads.save_forms(acme, blobs, row, [])


@BOTH
def test_contents_of_another_tenant_are_missing(webapps: WebApps, blobs: Blobs, acme: TenantScope, globex: TenantScope) -> None:
    deploy(webapps, acme, {"index.html": PAGE})
    webapps.create_app(globex, NewApp("shop"))
    version = webapps.create_version(globex, "shop", NewVersion({"index.html": spec(PAGE)}))
    assert version.required == (spec(PAGE).sha256,)
    with pytest.raises(Conflict):
        webapps.finalize_version(globex, "shop", version.number)


def test_a_content_with_another_digest_is_refused(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    webapps.create_version(acme, "shop", NewVersion({"index.html": spec(PAGE)}))
    with pytest.raises(ValidationFailed, match="send the content again"):
        send(webapps, blobs, acme, 1, b"something else", PAGE)
    with pytest.raises(NotFound, match="no file of version 1"):
        send(webapps, blobs, acme, 1, b"something else")


def test_an_archive_is_a_version_of_its_public_folder(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    files = {
        "shop/public/index.html": PAGE,
        "shop/public/a.js": SCRIPT,
        "shop/README.md": b"not served",
        "shop/app.yaml": b"spa: true",
    }
    version = webapps.deploy_archive(acme, "shop", io.BytesIO(write_zip(files)), "by hand")
    assert (version.state, version.message, version.settings.spa) == ("ready", "by hand", True)
    assert webapps.list_files(acme, "shop", 1) == {"index.html": spec(PAGE), "a.js": spec(SCRIPT)}


def test_digest_and_archive_give_the_same_version(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    files = {"index.html": PAGE, "_redirects": b"/old /new", "a.js": SCRIPT}
    deploy(webapps, acme, files, b"spa: true")
    new_version = NewVersion({path: spec(content) for path, content in files.items()}, Settings(spa=True))
    assert webapps.create_version(acme, "shop", new_version).required == ()
    webapps.finalize_version(acme, "shop", 2)
    first, second = (webapps.load_served(acme, "shop", number) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.files, first.rules, first.spa) == (second.files, second.rules, second.spa)
    assert "_redirects" not in first.files


def test_a_new_content_is_compressed_once(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    deploy(webapps, acme, {"a.js": SCRIPT, "photo.jpg": SCRIPT[::-1], "small.js": b"1"})
    served = webapps.load_served(acme, "shop", 1)
    assert served is not None
    forms = served.files["a.js"].forms
    assert set(forms) == {"identity", "gzip"}
    assert gzip.decompress(blobs.read_whole(acme, forms["gzip"][0], 1 << 20)) == SCRIPT
    assert all(size < len(SCRIPT) for encoding, (_, size) in forms.items() if encoding != "identity")
    assert set(served.files["photo.jpg"].forms) == set(served.files["small.js"].forms) == {"identity"}
    deploy(webapps, acme, {"a.js": SCRIPT, "b.js": b"2"})
    assert [path for path, _ in versions.new_contents(acme, "shop", 2)] == []


def test_an_api_key_in_a_file_fails_the_version_and_is_not_repeated(webapps: WebApps, acme: TenantScope) -> None:
    key = make_key_text("live")
    with pytest.raises(ApiKeyLeaked, match=r"assets/config\.js contains an API key") as refused:
        deploy(webapps, acme, {"index.html": PAGE, "assets/config.js": f"let key = '{key}'".encode()})
    failed = webapps.get_version(acme, "shop", 1)
    assert failed.state == "failed"
    assert key not in f"{refused.value.message}{failed.reason}"
    with pytest.raises(Conflict, match="version 1 failed"):
        webapps.finalize_version(acme, "shop", 1)
    with pytest.raises(Conflict, match="is failed"):
        publish(webapps, acme, 1)
    assert deploy(webapps, acme, {"index.html": (key[:-1] + "-").encode()}).state == "ready"


def test_an_api_key_in_a_large_file_is_found(blobs: Blobs, webapps: WebApps, acme: TenantScope) -> None:
    """What is too large to be compressed is read a piece at a time; the key lies across two of them, whatever their size."""
    content = b" " * ((1 << 20) - 10) + make_key_text("live").encode() + b" " * LARGEST
    stored = blobs.put(acme, content)
    with pytest.raises(ApiKeyLeaked, match=r"film\.bin contains an API key"):
        prepare_contents(acme, blobs, [("film.bin", FileSpec(stored.sha256, stored.size))])


@BOTH
def test_version_numbers_are_never_reused(webapps: WebApps, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_VERSIONS", 2)
    for number in (1, 2, 3, 4):
        assert deploy(webapps, acme, {"index.html": str(number).encode()}).number == number
        if number == 1:
            publish(webapps, acme, 1)
    assert [each.number for each in webapps.list_versions(acme, "shop", PageRequest()).items] == [4, 3, 1]
    with pytest.raises(NotFound):
        webapps.get_version(acme, "shop", 2)


@BOTH
def test_contents_in_use_are_kept_and_others_collected(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(webapps, acme, {"a.js": SCRIPT})
    Compression(blobs).compress_all()
    forms = webapps.load_served(acme, "shop", 1)
    assert forms is not None
    later = clock.now_ms() + GRACE_MS + 60_000
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    blobs.collect()
    for sha256, _ in forms.files["a.js"].forms.values():
        assert b"".join(blobs.read_checked(acme, sha256))
    monkeypatch.setattr(versions, "MAX_VERSIONS", 1)
    deploy(webapps, acme, {"index.html": PAGE})
    later += GRACE_MS + 60_000
    assert blobs.collect() == 4
    assert blobs.usage(acme).blobs == 1


@BOTH
def test_one_version_is_published_at_a_time(webapps: WebApps, acme: TenantScope) -> None:
    for text in (b"1", b"2", b"3"):
        deploy(webapps, acme, {"index.html": text})
    events: list[tuple[str, str]] = []
    unsubscribe = changes.subscribe(lambda tenant, app: events.append((tenant, app)))
    assert webapps.publish_version(acme, "shop", 1, if_current=0).state == "published"
    with pytest.raises(Conflict, match="version 1 is published now"):
        webapps.publish_version(acme, "shop", 2, if_current=0)
    assert events == [("acme", "shop")]
    unsubscribe()
    publish(webapps, acme, 2)
    assert [each.state for each in webapps.list_versions(acme, "shop", PageRequest()).items] == ["ready", "published", "superseded"]
    assert webapps.roll_back(acme, "shop").number == 1
    assert webapps.roll_back(acme, "shop").number == 2
    with pytest.raises(Conflict, match="never been published"):
        webapps.roll_back(acme, "shop", 3)
    assert webapps.published_number(acme, "shop") == 2
    assert webapps.recent_numbers(acme, "shop", 5) == [2, 1]
    assert webapps.unpublish_app(acme, "shop").published_version is None
    assert webapps.published_number(acme, "shop") == 0


def test_a_version_that_is_not_ready_is_not_published(webapps: WebApps, acme: TenantScope) -> None:
    webapps.create_version(acme, "shop", NewVersion({"index.html": spec(PAGE)}))
    with pytest.raises(Conflict, match="is uploading"):
        publish(webapps, acme, 1)
    with pytest.raises(Conflict, match="no other version"):
        webapps.roll_back(acme, "shop")


def test_versions_are_compared(webapps: WebApps, acme: TenantScope) -> None:
    deploy(webapps, acme, {"a": b"1", "b": b"1", "c": b"1"})
    deploy(webapps, acme, {"a": b"1", "b": b"2", "d": b"1"})
    comparison = webapps.compare_versions(acme, "shop", 2, None)
    assert (comparison.against, comparison.unchanged) == (1, 1)
    assert (comparison.added, comparison.changed, comparison.removed) == (("d",), ("b",), ("c",))
    assert webapps.compare_versions(acme, "shop", 1, None).added == ("a", "b", "c")
    publish(webapps, acme, 2)
    assert webapps.compare_versions(acme, "shop", 1, None).against == 2
    with pytest.raises(NotFound):
        webapps.compare_versions(acme, "shop", 1, 9)


def test_invalid_rules_fail_the_version_and_name_their_lines(webapps: WebApps, acme: TenantScope) -> None:
    with pytest.raises(DefinitionInvalid, match="_redirects line 2: the status 999") as refused:
        deploy(webapps, acme, {"_redirects": b"/a /b\n/c /d 999\n", "_headers": b"/*\n  Set-Cookie: a=b\n"})
    assert [detail.pointer for detail in refused.value.details] == ["/files/_redirects", "/files/_headers"]
    assert webapps.get_version(acme, "shop", 1).state == "failed"


def test_the_size_of_rules_in_settings_is_limited() -> None:
    most = "#" * LONGEST_RULES
    check_settings(Settings(redirects=most, headers=most))
    for settings, pointer in ((Settings(redirects=most + "#"), "/redirects"), (Settings(headers=most + "#"), "/headers")):
        with pytest.raises(ValidationFailed) as refused:
            check_settings(settings)
        assert refused.value.details[0].pointer == pointer


def test_a_rule_file_is_text_of_at_most_a_mebibyte(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    for content, is_accepted in ((b"#" * LARGEST_FILE, True), (b"#" * (LARGEST_FILE + 1), False), (b"\xff", False)):
        stored = blobs.put(acme, [content])
        files = {"_headers": FileSpec(stored.sha256, stored.size)}
        if is_accepted:
            assert read_rule_file(acme, blobs, files, "_headers") == content.decode()
            continue
        with pytest.raises(ValidationFailed, match="UTF-8 text of at most 1 MiB") as refused:
            read_rule_file(acme, blobs, files, "_headers")
        assert refused.value.details[0].pointer == "/files/_headers"


MANIFESTS: list[tuple[dict[str, FileSpec], type[ApplianceError]]] = [
    ({}, ValidationFailed),
    ({"../a": spec(b"")}, ValidationFailed),
    ({"a.js": spec(b""), "A.js": spec(b"")}, ValidationFailed),
    ({"a": FileSpec("no sha", 1)}, ValidationFailed),
    ({"a": FileSpec(spec(b"").sha256, (1 << 18) + 1)}, PayloadTooLarge),
    ({f"f{number}": FileSpec(spec(b"").sha256, 1 << 18) for number in range(5)}, PayloadTooLarge),
    ({f"f{number}": spec(b"") for number in range(101)}, PayloadTooLarge),
]


def test_an_invalid_manifest_uses_no_version_number(webapps: WebApps, acme: TenantScope) -> None:
    for files, error in MANIFESTS:
        with pytest.raises(error):
            webapps.create_version(acme, "shop", NewVersion(files))
    assert deploy(webapps, acme, {"index.html": PAGE}).number == 1


def test_invalid_settings_are_refused(webapps: WebApps, acme: TenantScope) -> None:
    for about in (b"routes: [{path: /api}]", b"colour: red", b"spa: perhaps", b"- a", b"\xff", b"a: [", b"access: friends"):
        with pytest.raises((ValidationFailed, DefinitionInvalid)):
            deploy(webapps, acme, {"index.html": PAGE}, about)
    assert deploy(webapps, acme, {"index.html": PAGE}, b"spa: true\naccess: public\nroutes: []\n").settings.spa


def test_a_crash_at_any_write_leaves_the_old_version_or_the_new(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy that crashes at its n-th commit can be repeated with the same result; no intermediate state is ever served."""
    deploy(webapps, acme, {"index.html": b"old"})
    publish(webapps, acme, 1)
    write, files = db.write, {"index.html": b"new", "a.js": SCRIPT}
    for allowed in range(40):
        left = allowed

        def counted(fn):  # type: ignore[no-untyped-def]
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return write(fn)

        monkeypatch.setattr(db, "write", counted)
        try:
            number = deploy(webapps, acme, files).number
            webapps.publish_version(acme, "shop", number)
        except KeyboardInterrupt:
            monkeypatch.setattr(db, "write", write)
            assert webapps.published_number(acme, "shop") == 1
            continue
        monkeypatch.setattr(db, "write", write)
        assert allowed >= 5
        served = webapps.load_served(acme, "shop", webapps.published_number(acme, "shop") or 0)
        assert served is not None
        assert served.files["index.html"].sha256 == spec(b"new").sha256
        return
    raise AssertionError("the deploy never came to its end")


@BOTH
def test_app_names_are_unique_and_deletion_is_complete(webapps: WebApps, acme: TenantScope, globex: TenantScope) -> None:
    with pytest.raises(AlreadyExists):
        webapps.create_app(acme, NewApp("shop"))
    for name in ("v2", "cdn", "a--b", "x" * 25, "Shop"):
        with pytest.raises(ValidationFailed):
            webapps.create_app(acme, NewApp(name))
    with pytest.raises(NotFound):
        webapps.get_app(globex, "shop")
    deploy(webapps, acme, {"index.html": PAGE})
    publish(webapps, acme, 1)
    with pytest.raises(Conflict, match="unpublish it first"):
        webapps.delete_app(acme, "shop")
    webapps.delete_app(acme, "shop", force=True)
    assert webapps.published_number(acme, "shop") is None
    assert db.rows("SELECT count(*) FROM webapp_file") == [(0,)]
