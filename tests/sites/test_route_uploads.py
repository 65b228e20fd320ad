"""Files that visitors send to a route."""

import httpx
import pytest

from appliance.documents import BLOB_TABLES
from appliance.documents.contents import ScannedBlobs, Scanner
from appliance.testing.running import Running
from tests.sites.route_shop import PNG

FORM = {"Content-Type": "multipart/form-data; boundary=x"}


def test_uploads_become_documents(route_shop: httpx.Client, acme: httpx.Client) -> None:
    files = [("photo", ("../../a.png", PNG, "text/html")), ("photo", ("b.png", PNG + b"1", "image/png"))]
    answer = route_shop.post("/api/photos", data={"name": "Ada"}, files=files)
    assert answer.status_code == 200, answer.text
    ids = answer.json()["data"]["input"]["photo"]
    for document_id, name in zip(ids, ("a.png", "b.png"), strict=True):
        document = acme.get(f"/api/v1/documents/{document_id}").raise_for_status().json()["data"]
        assert (document["name"], document["folder"], document["media_type"]) == (name, "from/visitors", "image/png")
        assert document["created_by"] == "webapp:route-shop"
    parts = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    body = parts % (b"name", b"", b"Ada") + parts % (b"photo", b'; filename=""\r\nContent-Type: application/octet-stream', b"")
    chosen = route_shop.post("/api/photos", content=body + b"--x--\r\n", headers=FORM)
    assert chosen.json()["data"]["input"] == {"name": "Ada"}


def test_rejected_uploads_leave_nothing(running: Running, route_shop: httpx.Client, acme: httpx.Client) -> None:
    def stored() -> int:
        return int(acme.get("/api/v1/documents", params={"count": "exact"}).raise_for_status().json()["meta"]["total"])

    before = stored()
    picture = ("a.png", PNG, "image/png")
    many = [("photo", (f"{number}.png", PNG, "image/png")) for number in range(11)]
    for files, fields, code in (
        ([("photo", ("a.png", b"<script>alert(1)</script>", "image/png"))], {"name": "x"}, "unsupported_media_type"),
        ([("photo", ("a.png", PNG + b"0" * 110_000, "image/png"))], {"name": "x"}, "payload_too_large"),
        (many, {"name": "x"}, "payload_too_large"),
        ([("photo", picture)], {"name": ""}, "validation_failed"),
        ([("photo", picture)], {"photo": "x", "name": "x"}, "validation_failed"),
        ([("photo", picture)], {"name": "x" * ((1 << 20) + 1)}, "payload_too_large"),
    ):  # fmt: skip
        answer = route_shop.post("/api/photos", data=fields, files=files)
        assert answer.json()["error"]["code"] == code, answer.text
    part = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n\r\n'
    for body in (
        part % b"a" * 1001,
        part % (b"a" * 4_200_000),
        b"".join(part % (b"%d" % number + b"n" * 60_000) for number in range(20)),
        b"before" * 1_000_000,
    ):
        answer = route_shop.post("/api/photos", content=body + b"--x--\r\n", headers=FORM)
        assert answer.json()["error"]["code"] == "payload_too_large", answer.text
    for body in (
        b"--x\r\n\r\n",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--\r\n",
        b"{}",
        b"--x" + b"\r\nA: b" * 5000,
    ):
        assert route_shop.post("/api/photos", content=body, headers=FORM).json()["error"]["code"] == "invalid_request", body[:40]
    assert stored() == before
    assert list((running.config.data / "blobs" / "incoming").iterdir()) == []


def test_scanner_results_are_shown_to_the_visitor(
    running: Running, route_shop: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, status, code in ((["/bin/false"], 422, "infected"), (["/bin/sh", "-c", "exit 3"], 503, "scan_failed")):
        scanned = ScannedBlobs(running.services.blobs._places, BLOB_TABLES, Scanner(command, 30))
        monkeypatch.setattr(running.services.documents.files, "_blobs", scanned)
        answer = route_shop.post("/api/photos", data={"name": "Ada"}, files=[("photo", ("a.png", PNG + b"x", "image/png"))])
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
