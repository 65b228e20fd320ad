"""Signed addresses: the bucket answers exactly the request that was signed, for a minute."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from gos_connector_files.signing import Signer, Target

from appliance.blobs.signing import VALID_SECONDS, AddressSigner, Download
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.config.sections import Blobs as Settings
from appliance.core.errors import ConfigInvalid
from tests.blobs.probes import BucketProbe

PLACE = "acme/ab/" + "ab" * 32 + ".1"
DOWNLOAD = Download("attachment; filename=\"_ber 1.pdf\"; filename*=UTF-8''%C3%BCber%201.pdf", "application/pdf")


@pytest.fixture
def content() -> bytes:
    return os.urandom(100_000)


@pytest.fixture
def settings(bucket: Settings, tmp_path: Path, content: bytes) -> Settings:
    """Those of a bucket with this content."""
    probe = BucketProbe(replace(bucket, direct_from_mb=1), tmp_path / "blobs")
    receiver = probe.places.receiver()
    receiver.write(content)
    probe.places.adopt(receiver.finish().path, PLACE)
    return probe.settings


def fetch(address: str, method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, address, headers=headers, timeout=60, trust_env=False)


def test_a_signed_address_sends_the_content_under_its_name(settings: Settings, content: bytes) -> None:
    address = AddressSigner(settings).address(PLACE, DOWNLOAD)
    response = fetch(address)
    assert (response.status_code, response.content) == (200, content)
    assert response.headers["Content-Disposition"] == DOWNLOAD.disposition
    assert response.headers["Content-Type"] == DOWNLOAD.media_type
    assert response.headers["Cache-Control"] == "private, no-store"
    part = fetch(address, Range="bytes=99000-99999")
    assert (part.status_code, part.content) == (206, content[99_000:])
    assert "sésame" not in address


TAMPERING: dict[str, Callable[[str], str]] = {
    "unsigned": lambda address: address.partition("&X-Amz-Signature")[0],
    "another object": lambda address: address.replace(f"/{PLACE}", f"/{PLACE}1"),
    "another name": lambda address: address.replace("1.pdf", "2.exe"),
    "another media type": lambda address: address.replace("application%2Fpdf", "text%2Fhtml"),
    "shown instead of saved": lambda address: address.replace("attachment", "inline"),
    "a longer time": lambda address: address.replace("X-Amz-Expires=60", "X-Amz-Expires=6000"),
    "another signature": lambda address: address[:-1] + ("0" if address[-1] != "0" else "1"),
    "another header": lambda address: address + "&response-content-language=de",
}


@pytest.mark.parametrize("change", TAMPERING.values(), ids=TAMPERING.keys())
def test_a_changed_address_is_refused(settings: Settings, change: Callable[[str], str]) -> None:
    address = AddressSigner(settings).address(PLACE, DOWNLOAD)
    changed = change(address)
    assert changed != address
    assert fetch(changed).status_code == 403


def test_an_address_reads_only_and_ends(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = AddressSigner(settings)
    address = signer.address(PLACE, DOWNLOAD)
    for method in ("PUT", "DELETE"):
        assert fetch(address, method).status_code == 403
    assert fetch(address).status_code == 200
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now - 62_000)  # a minute is what the docs promise
    assert fetch(signer.address(PLACE, DOWNLOAD)).status_code == 403


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"endpoint": ""}, "https://s3.eu-central-1.amazonaws.com/contents/acme/"),
        ({"endpoint": "", "path_style": False}, "https://contents.s3.eu-central-1.amazonaws.com/acme/"),
        ({"prefix": "/a b/"}, "https://s3.example.com/contents/a%20b/acme/"),
        ({"public_endpoint": "http://Files.example.com:8443/"}, "http://files.example.com:8443/contents/acme/"),
    ],
)
def test_addresses_are_those_of_the_public_endpoint(
    changes: dict[str, object], start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed by a second implementation, the connector's, the address is the same."""
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    common = Settings(
        store="s3", bucket="contents", endpoint="https://s3.example.com", region="eu-central-1", key_id="ann", secret_key="sésame"
    )
    address = AddressSigner(replace(common, **changes)).address(PLACE, DOWNLOAD)  # type: ignore[arg-type]
    assert address.startswith(start)
    url = urlsplit(address)
    query = [(name, value) for name, value in parse_qsl(url.query, strict_parsing=True) if not name.startswith("X-Amz-")]
    target = Target("GET", url.netloc, url.path, query)
    assert Signer("ann", "sésame", "eu-central-1").presign(target, VALID_SECONDS, now / 1000) == url.query


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"direct_from_mb": "-1"}, "blobs.direct_from_mb"),
        ({"store": "local"}, "blobs.store is local"),
        ({"key_id": "", "secret_key": ""}, "needs blobs.key_id and blobs.secret_key"),
        ({"public_endpoint": "files.example.com"}, "blobs.public_endpoint"),
        ({"public_endpoint": "https://files.example.com/path"}, "blobs.public_endpoint"),
    ],
)
def test_settings_that_cannot_work_are_named(wrong: dict[str, str], message: str) -> None:
    flags = {"store": "s3", "bucket": "contents", "key_id": "ann", "secret_key": "x", "direct_from_mb": "10"}
    assert load_config(environment={}, flags={f"blobs.{name}": value for name, value in flags.items()}).blobs.direct_from_mb == 10
    with pytest.raises(ConfigInvalid, match=message):
        load_config(environment={}, flags={f"blobs.{name}": value for name, value in (flags | wrong).items()})
