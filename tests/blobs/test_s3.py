"""Bucket specifics: multipart uploads, read windows, and missing, forbidden or unreachable buckets."""

import hashlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.app.findings.checks import check_bucket
from appliance.app.parts import make_places
from appliance.blobs.installation import installation_id
from appliance.blobs.ownership import MARKER, BucketNotOwned
from appliance.blobs.s3 import PART_BYTES, WINDOW_BYTES, S3Places, open_bucket
from appliance.blobs.service import Places
from appliance.core.config import Config, load_config
from appliance.core.config.sections import Blobs as Settings
from appliance.core.config.sections import Storage
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.errors import ConfigInvalid, Gone, Overloaded
from tests.blobs.endpoint import running_endpoint
from tests.blobs.probes import BucketProbe, files_in

PLACE = "acme/ab/abcd.1"
OURS, THEIRS = "ins_ours", "ins_theirs"


@pytest.fixture
def probe(bucket: Settings, tmp_path: Path) -> BucketProbe:
    return BucketProbe(bucket, tmp_path / "blobs")


@pytest.fixture(scope="module")
def unreachable() -> str:
    """The address of a stopped server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def store(places: Places, content: bytes) -> None:
    receiver = places.receiver()
    receiver.write(content)
    received = receiver.finish()
    try:
        places.adopt(received.path, PLACE)
    finally:
        received.discard()


def test_a_multipart_content_is_read_whole_and_in_ranges(probe: BucketProbe) -> None:
    content = os.urandom(2 * PART_BYTES + 12_345)
    store(probe.places, content)
    assert probe.names() == [PLACE]
    assert probe.places.holds(PLACE, len(content))
    digest = hashlib.sha256()
    for piece in probe.places.read(PLACE, 0, len(content)):
        digest.update(piece)
    assert digest.digest() == hashlib.sha256(content).digest()
    ranges = ((WINDOW_BYTES - 1, WINDOW_BYTES + 1), (PART_BYTES - 5, 2 * PART_BYTES + 5), (len(content) - 1, len(content)))
    for start, end in ranges:
        assert b"".join(probe.places.read(PLACE, start, end)) == content[start:end]


def test_a_slow_reader_of_a_deleted_content_gets_gone(probe: BucketProbe) -> None:
    store(probe.places, bytes(WINDOW_BYTES + 1))
    pieces = probe.places.read(PLACE, 0, WINDOW_BYTES + 1)
    probe.places.delete(PLACE)
    with pytest.raises(Gone, match="deleted while it was read"):
        list(pieces)


def test_a_missing_object_is_deleted_silently_and_not_read(probe: BucketProbe) -> None:
    probe.places.delete(PLACE)
    for start, end in ((0, 1), (0, 0)):
        with pytest.raises(FileNotFoundError):
            probe.places.read(PLACE, start, end)


def test_a_bucket_failure_is_reported_without_the_key(
    bucket: Settings, unreachable: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = {
        "cannot be reached": replace(bucket, endpoint=unreachable),
        "refuses the appliance": replace(bucket, secret_key="canary-of-a-key"),
        "does not exist": replace(bucket, bucket="another"),
    }
    for message, settings in failures.items():
        places = S3Places(open_bucket(settings), tmp_path / "blobs")
        with caplog.at_level(logging.ERROR), pytest.raises(Overloaded, match=message) as refused:
            store(places, b"abc")
        assert refused.value.headers == {"Retry-After": "30"}
        with pytest.raises(Overloaded, match=message):
            places.read(PLACE, 0, 3)
        with pytest.raises(Overloaded, match=message):
            list(places.walk())
    assert files_in(tmp_path / "blobs") == []
    assert "canary" not in repr(failures)
    assert "canary" not in caplog.text + "".join(str(record.__dict__) for record in caplog.records)


def test_the_doctor_checks_the_bucket(bucket: Settings, unreachable: str, probe: BucketProbe, tmp_path: Path) -> None:
    def findings(settings: Settings) -> list[tuple[str, str]]:
        return list(check_bucket(Config(storage=Storage(data=str(tmp_path)), blobs=settings)))

    assert findings(Settings()) == []
    assert [level for level, _ in findings(probe.settings)] == ["ok", "note"]
    assert probe.names() == []
    for settings in (replace(bucket, endpoint=unreachable), replace(bucket, bucket="another"), replace(bucket, secret_key="x")):
        [(level, text)] = findings(settings)
        assert (level, "the bucket of the blob store" in text) == ("FAIL", True)
    assert files_in(tmp_path) == []


def test_contents_are_stored_where_configured(probe: BucketProbe, tmp_path: Path) -> None:
    store(make_places(Config(storage=Storage(data=str(tmp_path)), blobs=probe.settings), OURS), b"abc")
    assert (probe.names(), files_in(tmp_path)) == ([PLACE, MARKER], [])
    store(make_places(Config(storage=Storage(data=str(tmp_path))), OURS), b"abc")
    assert files_in(tmp_path) == [f"blobs/{PLACE}"]


def test_a_bucket_belongs_to_one_installation(probe: BucketProbe, tmp_path: Path) -> None:
    config = Config(storage=Storage(data=str(tmp_path)), blobs=probe.settings)
    ours = make_places(config, OURS)
    store(ours, b"abc")
    with pytest.raises(BucketNotOwned, match=f"says {OURS}, this one is {THEIRS}") as refused:
        make_places(config, THEIRS)
    assert all(word in refused.value.message for word in (MARKER, "blobs.bucket", "blobs.prefix", "delete that object"))
    theirs = S3Places(open_bucket(probe.settings), tmp_path / "blobs", THEIRS)
    uses: tuple[Callable[[], object], ...] = (
        lambda: store(theirs, b"xyz"), lambda: theirs.holds(PLACE, 3), lambda: theirs.delete(PLACE), lambda: list(theirs.walk()),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(BucketNotOwned):
            use()
    assert b"".join(ours.read(PLACE, 0, 3)) == b"abc"
    assert [place for place, _ in ours.walk()] == [PLACE]
    probe.damage(MARKER, None)  # as docs/install.md says
    assert theirs.holds(PLACE, 3)
    with pytest.raises(BucketNotOwned):
        list(ours.walk())
    assert [place for place, _ in theirs.walk()] == [PLACE]


def test_the_doctor_reports_the_owner_of_the_bucket(probe: BucketProbe, tmp_path: Path) -> None:
    config = Config(storage=Storage(data=str(tmp_path)), blobs=probe.settings)
    own = installation_id(Sealer(load_or_make_key(tmp_path / "key")))

    def finding() -> tuple[str, str]:
        return next((level, text) for level, text in check_bucket(config) if "this installation" in text or "another" in text)

    assert finding() == ("note", f"the bucket has no owner yet; the next start marks it as that of this installation, {own}")
    assert probe.names() == []
    make_places(config, own)
    assert finding() == ("ok", f"the bucket is marked as that of this installation, {own}")
    probe.damage(MARKER, THEIRS.encode())
    level, text = finding()
    assert (level, f"says {THEIRS}, this one is {own}" in text) == ("FAIL", True)


def test_the_doctor_downloads_by_a_signed_address(probe: BucketProbe, tmp_path: Path, unreachable: str) -> None:
    settings = replace(probe.settings, direct_from_mb=20)
    config = Config(storage=Storage(data=str(tmp_path)), blobs=settings)

    def findings(settings: Settings) -> list[str]:
        lines = [f"{level} {text}" for level, text in check_bucket(replace(config, blobs=settings))]
        return [line for line in lines if "direct" in line or "signed" in line]

    make_places(config, OURS)
    assert findings(probe.settings) == []
    downloads, unencrypted = findings(settings)
    assert downloads.startswith("ok documents of 20 MB and more")
    assert unencrypted.startswith("note direct downloads are unencrypted")
    [failure] = findings(replace(settings, public_endpoint=unreachable))
    assert failure.startswith("FAIL direct downloads: the server does not answer")
    with running_endpoint(tmp_path) as endpoint:  # it looks at no query
        ignoring = {"public_endpoint": endpoint.url, "ca_file": str(endpoint.ca_file), "endpoint": endpoint.url}
        S3Places(open_bucket(replace(settings, **ignoring)), tmp_path / "blobs", OURS).claim()  # type: ignore[arg-type]
        [failure] = findings(replace(settings, **ignoring))  # type: ignore[arg-type]
        assert failure.startswith("FAIL direct downloads: the server ignores the name and type")
        endpoint.is_refusing = True
        [failure] = findings(replace(settings, **ignoring))  # type: ignore[arg-type]
        assert failure.startswith("FAIL direct downloads: the server answers 403")


def test_a_private_endpoint_needs_its_ca_and_only_one_installation_claims_it(tmp_path: Path) -> None:
    with running_endpoint(tmp_path) as endpoint:
        keys = {"region": "eu-central-1", "key_id": "ann", "secret_key": "x"}
        settings = Settings(store="s3", bucket="contents", endpoint=endpoint.url, **keys)  # type: ignore[arg-type]
        with pytest.raises(Overloaded, match="cannot be reached"):
            S3Places(open_bucket(settings), tmp_path, OURS).claim()
        with pytest.raises(ConfigInvalid, match=r"blobs\.ca_file cannot be read"):
            open_bucket(replace(settings, ca_file=str(tmp_path / "missing.pem")))
        trusting = open_bucket(replace(settings, ca_file=str(endpoint.ca_file)))
        endpoint.racing_write = f"{THEIRS}\n".encode()  # between the look of the other and its write
        with pytest.raises(BucketNotOwned, match=THEIRS):
            S3Places(trusting, tmp_path, OURS).claim()
        S3Places(trusting, tmp_path, THEIRS).claim()
        assert endpoint.refused == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bucket": ""}, "blobs.bucket"),
        ({"bucket": "Not_one"}, "blobs.bucket"),
        ({"endpoint": "s3.example.com"}, "blobs.endpoint"),
        ({"endpoint": "https://ann:secret@s3.example.com"}, "blobs.endpoint"),
        ({"secret_key": ""}, "must be set together"),
        ({"ca_file": "/etc/ssl/ca.pem", "endpoint": "http://s3.example.com"}, "blobs.ca_file"),
    ],
)
def test_invalid_settings_are_named(wrong: dict[str, str], message: str) -> None:
    flags = {"store": "s3", "bucket": "contents", "key_id": "ann", "secret_key": "x"}
    assert load_config(environment={}, flags={f"blobs.{name}": value for name, value in flags.items()}).blobs.store == "s3"
    with pytest.raises(ConfigInvalid, match=message):
        load_config(environment={}, flags={f"blobs.{name}": value for name, value in (flags | wrong).items()})
