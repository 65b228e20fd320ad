"""One tenant's contents do not fill the disk of everybody."""

from collections.abc import Iterator
from itertools import count
from threading import get_ident

import httpx
import pytest

from appliance.blobs import quota
from appliance.core.scope import TenantScope
from appliance.datapool import StorageUsage, storage, tables
from appliance.testing.running import Running
from tests.api.resources import Resources

MIB = 1 << 20
_numbers = count(1)


@pytest.fixture
def small(running: Running, ours: Resources) -> Iterator[None]:
    """Tenant acme has room for three MiB more, and as much in all as it stores then."""
    quota.configure(tenant_bytes=quota.used_bytes(ours.scope) + 3 * MIB)
    yield
    quota.configure(tenant_bytes=running.config.limits.tenant_storage_mb << 20)


def send(client: httpx.Client, content: bytes) -> httpx.Response:
    name = f"share-{next(_numbers)}.bin"
    return client.post("/api/v1/documents", content=content, params={"name": name}, headers={"Content-Type": "application/pdf"})


def content_of(letter: str) -> bytes:
    return f"%PDF-1.4 {letter}".encode().ljust(MIB, letter.encode())


def test_the_storage_of_a_tenant_is_limited(small: None, acme: httpx.Client, globex: httpx.Client) -> None:
    answers = [send(acme, content_of(letter)) for letter in "abcdef"]
    assert [answer.status_code for answer in answers] == [201] * 3 + [507] * 3
    error = answers[-1].json()["error"]
    assert error["code"] == "storage_full"
    assert "this tenant uses" in error["message"]
    assert "limits.tenant_storage_mb" in error["message"]
    assert "ask your operator" in error["message"]
    assert send(acme, content_of("a")).status_code == 201, "equal contents are stored once"
    assert send(globex, content_of("g")).status_code == 201


def test_parts_of_an_upload_count_before_it_is_finished(small: None, acme: httpx.Client) -> None:
    response = acme.post("/api/v1/uploads", json={"name": "parts.bin", "size": 5 * MIB})
    assert response.status_code == 201, response.text
    path = f"/api/v1/uploads/{response.json()['data']['id']}"
    statuses = []
    for number, letter in enumerate("mnopq"):
        sent = acme.patch(path, content=letter.encode() * MIB, headers={"Upload-Offset": str(number * MIB)})
        statuses.append(sent.status_code)
        if not sent.is_success:
            break
    assert statuses[-1] == 507, statuses
    assert len(statuses) == 4


def test_parts_and_the_document_they_become_count_once(small: None, acme: httpx.Client) -> None:
    response = acme.post("/api/v1/uploads", json={"name": "joined.bin", "size": 2 * MIB})
    path = f"/api/v1/uploads/{response.json()['data']['id']}"
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


# -- entities


@pytest.fixture
def collection(ours: Resources) -> str:
    name = f"share_{next(_numbers)}"
    ours.ask("POST", "/datapool", {"name": name, "fields": [{"name": "text", "type": "text"}]})
    return name


def half_a_mib(letter: str) -> dict[str, str]:
    return {"text": letter * (MIB // 2)}


def test_entities_and_their_history_count_too(small: None, collection: str, acme: httpx.Client, globex: httpx.Client) -> None:
    path = f"/api/v1/datapool/{collection}/entities"
    answers = [acme.post(path, json=half_a_mib(letter)) for letter in "abcde"]
    assert [answer.status_code for answer in answers] == [201] * 3 + [507] * 2, "an entity is there twice, in the history too"
    error = answers[-1].json()["error"]
    assert error["code"] == "storage_full"
    assert "limits.tenant_storage_mb" in error["message"]
    assert "entities with their history" in error["message"]
    entity = answers[0].json()["data"]["id"]
    operations = [{"op": "create", "collection": collection, "values": half_a_mib("x")}]
    lines = b"text\n" + b"y" * 1000 + b"\n"
    refused = [
        acme.patch(f"{path}/{entity}", json=half_a_mib("z")),
        acme.put(f"{path}/{entity}", json=half_a_mib("z")),
        acme.post("/api/v1/datapool/batch", json={"operations": operations}),
        acme.post(f"/api/v1/datapool/{collection}/import", content=lines, headers={"Content-Type": "text/csv"}),
        send(acme, content_of("f")),
    ]
    assert [answer.status_code for answer in refused] == [507] * 5, [answer.text for answer in refused]
    assert acme.delete(f"{path}/{entity}").status_code in (200, 204), "deleting goes on"
    assert globex.get("/api/v1/datapool").status_code == 200


def test_changes_of_one_entity_fill_no_disk(small: None, collection: str, acme: httpx.Client) -> None:
    path = f"/api/v1/datapool/{collection}/entities"
    entity = acme.post(path, json=half_a_mib("a")).json()["data"]["id"]
    codes = [acme.patch(f"{path}/{entity}", json=half_a_mib(letter)).status_code for letter in "bcdefg"]
    assert codes == [200] * 4 + [507] * 2


def keep_own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The appliance, which looks once a minute in a thread of its own, sets no count while a test sets them."""
    set_rows, ours = quota.set_rows, get_ident()

    def set_in_this_thread(tenant_id: str, counted: int, since: int) -> None:
        if get_ident() == ours:
            set_rows(tenant_id, counted, since)

    monkeypatch.setattr(quota, "set_rows", set_in_this_thread)


def test_a_recount_gives_the_same_as_counting_along(
    collection: str, ours: Resources, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "RECOUNT_PAUSE_FACTOR", 0)
    keep_own_counts(monkeypatch)
    path = f"/api/v1/datapool/{collection}/entities"
    others, count = StorageUsage(), StorageUsage()
    count.update()
    others.update()
    before = quota.row_bytes("acme")
    for letter in "ab":
        acme.post(path, json=half_a_mib(letter))
    added = quota.row_bytes("acme") - before
    assert 2 * MIB <= added < 2 * MIB + 2000
    others.update()  # as another process does, which has written none of it
    assert 2 * MIB <= quota.row_bytes("acme") - before < 2 * MIB + 2000
    assert quota.rows_since("acme") == 0
    anew = StorageUsage()
    anew.update()
    assert 2 * MIB <= quota.row_bytes("acme") - before < 2 * MIB + 2000
    ours.ask("DELETE", f"/datapool/{collection}", params={"allow_loss": True})
    anew.update()
    later = quota.row_bytes("acme")
    assert later - before < 2000, "the collection took its entities and their history along"


def test_nothing_is_counted_while_somebody_writes(
    small: None, collection: str, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(tables, "count_bytes", lambda definition, table: counted.append(table))
    monkeypatch.setattr(quota, "FRESH_SECONDS", 3600.0)
    statements: list[str] = []
    sum_up = quota.stored_bytes

    def note_and_sum(scope: TenantScope) -> int:
        statements.append(scope.tenant_id)
        return sum_up(scope)

    monkeypatch.setattr(quota, "stored_bytes", note_and_sum)
    for letter in "abc":
        assert acme.post(f"/api/v1/datapool/{collection}/entities", json={"text": letter}).status_code == 201
    assert (counted, statements) == ([], ["acme"])
