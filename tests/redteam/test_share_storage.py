"""One tenant's contents do not fill the disk of everybody."""

from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from appliance.blobs import quota
from appliance.core.scope import TenantScope
from appliance.testing.running import Running
from tests.api.resources import Resources

MIB = 1 << 20
_numbers = count(1)


@pytest.fixture
def small(running: Running, ours: Resources) -> Iterator[None]:
    """Tenant acme has room for three MiB more, and as much in all as it stores then."""
    quota.configure(tenant_bytes=quota.stored_bytes(ours.scope) + 3 * MIB)
    yield
    quota.configure(tenant_bytes=running.config.limits.tenant_storage_mb << 20)


def send(client: httpx.Client, content: bytes) -> httpx.Response:
    name = f"share-{next(_numbers)}.bin"
    return client.post("/api/v1/documents", content=content, params={"name": name}, headers={"Content-Type": "application/pdf"})


def content_of(letter: str) -> bytes:
    return f"%PDF-1.4 {letter}".encode().ljust(MIB, letter.encode())


def test_a_tenant_stores_as_much_as_it_may(small: None, acme: httpx.Client, globex: httpx.Client) -> None:
    answers = [send(acme, content_of(letter)) for letter in "abcdef"]
    assert [answer.status_code for answer in answers] == [201] * 3 + [507] * 3
    error = answers[-1].json()["error"]
    assert error["code"] == "storage_full"
    assert "this tenant stores" in error["message"]
    assert "limits.tenant_storage_mb" in error["message"]
    assert "ask whoever runs the appliance" in error["message"]
    assert send(acme, content_of("a")).status_code == 201, "equal contents are stored once"
    assert send(globex, content_of("g")).status_code == 201


def test_parts_of_an_upload_count_before_it_is_finished(small: None, acme: httpx.Client) -> None:
    told = acme.post("/api/v1/documents/uploads", json={"name": "parts.bin", "size": 5 * MIB})
    assert told.status_code == 201, told.text
    path = f"/api/v1/documents/uploads/{told.json()['data']['id']}"
    statuses = []
    for number, letter in enumerate("mnopq"):
        sent = acme.patch(path, content=letter.encode() * MIB, headers={"Upload-Offset": str(number * MIB)})
        statuses.append(sent.status_code)
        if not sent.is_success:
            break
    assert statuses[-1] == 507, statuses
    assert len(statuses) == 4


def test_parts_and_the_document_they_become_count_once(small: None, acme: httpx.Client) -> None:
    told = acme.post("/api/v1/documents/uploads", json={"name": "joined.bin", "size": 2 * MIB})
    path = f"/api/v1/documents/uploads/{told.json()['data']['id']}"
    for number, letter in enumerate("rs"):
        sent = acme.patch(path, content=letter.encode() * MIB, headers={"Upload-Offset": str(number * MIB)})
    assert (sent.is_success, sent.json()) == (True, sent.json() | {"success": True}), "there is room for two of three MiB"


def test_contents_are_not_summed_up_for_every_request(
    small: None, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[str] = []
    read = quota.stored_bytes

    def note_and_sum(scope: TenantScope) -> int:
        summed.append(scope.tenant_id)
        return read(scope)

    monkeypatch.setattr(quota, "stored_bytes", note_and_sum)
    monkeypatch.setattr(quota, "FRESH_SECONDS", 3600.0)
    for letter in "xyz":
        assert send(acme, content_of(letter)[:1000]).status_code == 201
    assert summed == ["acme"]
