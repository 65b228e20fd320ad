"""Everything that becomes a document is scanned first, whichever way it arrives."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.app.findings import checks as doctor
from appliance.blobs import Blobs, LocalPlaces
from appliance.connectors.contract import Rejected
from appliance.core import clock
from appliance.core.config.sections import Scan
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.core.scope import TenantScope
from appliance.documents.contents.quarantine import Quarantined
from appliance.documents.contents.scanning import Infected, ScanFailed, ScannedBlobs, Scanner, eicar, incoming_blobs  # fmt: skip
from appliance.documents.service import BLOB_TABLES, Documents, NewDocument
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.documents.sharing.publications import NewPublication, Publications
from appliance.documents.sharing.shares import NewShare, Shares
from appliance.documents.uploads import NewUpload, Uploads
from appliance.governance.executor import CallDocumentsFactory
from appliance.monitor import audit
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from tests.documents.scanner import command_of
from tests.store.opening import open_migrated

ACME = TenantScope("acme", "key:acme")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database of this module's own, and the folder of its blobs."""
    folder = tmp_path_factory.mktemp("scanning")
    open_migrated(f"sqlite:///{folder}/gos.db")
    tenants.create_tenant("acme", "Acme")
    yield folder
    db.close_database()


def incoming(store: Path, **settings: object) -> Blobs:
    scan = Scan(**{"command": tuple(command_of(store)), "timeout_s": 30, **settings})  # type: ignore[arg-type]
    return incoming_blobs(scan, LocalPlaces(store / "blobs"), BLOB_TABLES)


def infected_files(store: Path) -> list[Path]:
    return [path for path in (store / "blobs").rglob("*") if path.is_file() and b"EICAR" in path.read_bytes()]


def test_malware_is_refused_on_every_path(store: Path) -> None:
    documents = Documents(incoming(store))
    document_id = documents.store_document(ACME, NewDocument("a.txt"), b"harmless")
    received = documents.receiver()
    received.write(eicar())
    call = CallDocumentsFactory(documents, 1 << 20).of_call(ACME, frozenset({"write"})).until(clock.monotonic() + 60)
    for attempt in (
        lambda: documents.store_content(ACME, eicar()),
        lambda: documents.store_content(ACME, io.BytesIO(b"x" * 300_000 + eicar())),
        lambda: documents.store_received(ACME, received.finish()),
        lambda: documents.store_document(ACME, NewDocument("b.txt"), [eicar()[:30], eicar()[30:]]),
    ):
        with pytest.raises(Infected, match="Test-Signature FOUND"):
            attempt()
    with pytest.raises(Rejected, match="Test-Signature"):
        call.create("c.txt", [eicar()])
    assert documents.open_content(ACME, document_id.id).read(100) == b"harmless"
    assert infected_files(store) == []
    entries = db.rows("SELECT count(*) FROM audit_entry WHERE action = 'document.infected'")
    assert entries == [(5,)]
    assert audit.verify(ACME).intact


def test_one_infected_file_rejects_the_whole_batch(store: Path) -> None:
    blobs = incoming(store)
    before = blobs.usage(ACME)
    with pytest.raises(Infected):
        blobs.put_all(ACME, [blobs.receive(content) for content in (b"first of many", eicar(), b"last of many")])
    assert (blobs.usage(ACME), list((store / "blobs" / "incoming").iterdir())) == (before, [])


def test_parts_of_an_upload_are_scanned_together(store: Path) -> None:
    blobs = incoming(store)
    uploads = Uploads(Documents(blobs), blobs, 1 << 20)
    half = 30
    upload = uploads.open_upload(ACME, NewUpload(len(eicar()), new=NewDocument("a.txt")))
    for begins, piece in ((0, eicar()[:half]), (half, eicar()[half:])):
        part = uploads.start_part(ACME, upload.id, begins)
        part.write(piece)
        part.flush()
    with pytest.raises(Infected):
        uploads.finish_upload(ACME, upload.id)
    assert uploads.get_upload(ACME, upload.id).state == "refused"
    with pytest.raises(Conflict, match="start a new one"):
        uploads.start_part(ACME, upload.id, len(eicar()))
    whole = uploads.open_upload(ACME, NewUpload(len(eicar()), new=NewDocument("a.txt")))
    part = uploads.start_part(ACME, whole.id, 0)
    part.write(eicar())
    with pytest.raises(Infected):
        part.flush()
    assert uploads.get_upload(ACME, whole.id).state == "refused"
    assert db.rows("SELECT count(*) FROM document WHERE name = 'a.txt' AND size = ?", (len(eicar()),)) == [(0,)]


@pytest.mark.parametrize("content", [b"strange", b"slow"])
def test_an_unknown_result_is_refused(store: Path, content: bytes) -> None:
    documents = Documents(incoming(store, timeout_s=1))
    with pytest.raises(ScanFailed) as refused:
        documents.store_content(ACME, content)
    assert refused.value.status == 503
    assert not list((store / "blobs" / "incoming").glob("*"))


def test_quarantined_contents_are_not_delivered_until_clean(store: Path) -> None:
    script = store / "scanner.py"
    documents = Documents(incoming(store, on_error="quarantine"))
    good, bad = (documents.store_document(ACME, NewDocument("a.txt"), b"strange " + text) for text in (b"one", b"EICAR"))
    for each in (good, bad):
        with pytest.raises(Quarantined, match="could not be scanned"):
            documents.open_content(ACME, each.id)
    assert documents.scan_again(store) == 0
    script.write_text(script.read_text("utf-8").replace('b"strange"', 'b"never"'), "utf-8")
    assert documents.scan_again(store) == 1
    assert documents.open_content(ACME, good.id).read(100) == b"strange one"
    with pytest.raises(Quarantined, match="is malware"):
        documents.open_content(ACME, bad.id)
    assert documents.scan_again(store) == 0
    documents.delete_document(ACME, bad.id)
    assert not list(store.glob("scan-*"))


class NoReviews:
    """Nothing has been approved, and no folder demands it."""

    def latest_approved(self, scope: TenantScope, document_id: str) -> int | None:
        return None

    def is_approved(self, scope: TenantScope, document_id: str, revision: int) -> bool:
        return False


def test_quarantined_contents_are_not_shared_or_published(store: Path) -> None:
    script, blobs = store / "scanner.py", incoming(store, on_error="quarantine")
    documents, delivery = Documents(blobs), DeliveryPolicy(blobs, NoReviews())
    publications, shares = Publications(delivery), Shares(delivery, Sealer(b"k" * 32))
    document_id = documents.store_document(ACME, NewDocument("leaving.txt"), b"strange words").id
    assert publications.publish(ACME, document_id, NewPublication("leaving.txt", 1, "immutable")).serves is None
    token = shares.create_share(ACME, document_id, NewShare())[1]
    assert (publications.find_public(ACME, "leaving.txt"), shares.open_share(ACME, token)) == (None, None)
    with pytest.raises(Quarantined):
        documents.open_text(ACME, document_id)
    with pytest.raises(Quarantined):
        documents.open_content(ACME, document_id, 1)
    script.write_text(script.read_text("utf-8").replace('b"strange"', 'b"never"'), "utf-8")
    assert documents.scan_again(store) == 1
    public, opened = publications.find_public(ACME, "leaving.txt"), shares.open_share(ACME, token)
    assert public is not None
    assert opened is not None
    assert public[0] == opened.content
    assert documents.open_text(ACME, document_id).state in ("pending", "ready")


def test_scan_results_of_unused_contents_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    blobs = incoming_blobs(Scan(command=("/bin/sh", "-c", "exit 3"), on_error="quarantine"), LocalPlaces(tmp_path), BLOB_TABLES)
    documents = Documents(blobs)
    document = documents.store_document(ACME, NewDocument("kept.txt"), b"kept, and not judged")
    lost = documents.store_content(ACME, b"lost, and not judged")
    outdated, recent = tmp_path / "scan-left", tmp_path / "scan-recent"
    for folder in (outdated, recent):
        folder.mkdir()
        (folder / "copy").write_bytes(b"malware")
    now = clock.now_ms()
    os.utime(outdated, ns=(0, (now - 2 * 3_600_000) * 1_000_000))
    documents.scan_again(tmp_path)
    assert not outdated.exists()
    assert recent.exists()

    def scanned() -> set[str]:
        return {row[0] for row in db.rows("SELECT sha256 FROM document_scan")} & {document.sha256, lost.sha256}

    monkeypatch.setattr(clock, "now_ms", lambda: now + 47 * 3_600_000)
    blobs.collect()
    documents.scan_again(tmp_path)
    assert scanned() == {document.sha256, lost.sha256}
    monkeypatch.setattr(clock, "now_ms", lambda: now + 49 * 3_600_000)
    documents.scan_again(tmp_path)
    assert scanned() == {document.sha256}
    documents.delete_document(ACME, document.id)


def test_the_scanner_gets_none_of_our_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOS_API_KEY", "secret")
    program = store / "environment.sh"
    program.write_text("#!/bin/sh\ncat\nenv | sort | tr '\\n' ' '\nexit 3\n", "utf-8")
    program.chmod(0o700)
    result = Scanner([str(program), "; touch {file}.x"], 30).scan(store / "file")
    assert result.state == "unknown"
    assert result.finding.startswith("LANG=C.UTF-8 PATH=/usr/local/sbin")
    assert "GOS" not in result.finding
    assert not os.path.lexists(f"{store}/file.x")
    assert Scanner([str(store / "missing")], 30).scan(store / "file").state == "unknown"


def test_an_invalid_command_is_reported_at_startup(store: Path) -> None:
    for command in (("clamdscan",), (str(store / "missing"),)):
        with pytest.raises(ConfigInvalid, match=r"scan\.command"):
            incoming(store, command=command)
    assert not isinstance(incoming(store, command=()), ScannedBlobs)


def test_the_doctor_tests_the_scanner(tmp_path: Path) -> None:
    def check(**settings: object) -> list[tuple[str, str]]:
        return list(doctor._scanner(make_config(tmp_path, **settings)))

    assert check()[0][0] == "note"
    assert check(scan__command=command_of(tmp_path / "scanner")) == [("ok", "the scanner tells malware from harmless files")]
    assert check(scan__command=["/bin/true"]) == [
        ("FAIL", "the scanner reports an infected file as clean; check scan.command, and that it may read our files")
    ]
    assert check(scan__command=["/bin/false"])[0][0] == "FAIL"
    assert check(scan__command=["nothing"])[0][0] == "FAIL"
